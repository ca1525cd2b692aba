"""Represents a command that runs in a container or on another machine by one program on this machine.

    python -I -S relay.py SPEC SHELL -c COMMAND

SPEC is a JSON object: `command`, the client program that runs words there; `control`, the same without input; `quote`,
whether the client passes its words to a shell. Standard input and output are those of the command.

A second client runs a small script beside the command. It receives the names of signals, and sends them to
every program there that has the marker of the command in its environment. When its input ends, because this program was
killed or the connection is lost, it kills them all. So nothing that a relay started outlives it. The script
needs `sh`, `grep` and /proc. This module uses only the standard library, because the package may be upgraded while it runs.
"""

import contextlib
import json
import os
import secrets
import shlex
import signal
import subprocess
import sys

MARKER = "HOLDFAST_PROCESS"
CLIENT = "relay"
"""The marker of the clients: they are not programs of the command, so they get none of its signals."""
CANNOT_RUN = 125
"""The exit code if the engine or the connection fails, as of Docker and Podman."""
SHELL_SIGNALS = 128
LOST_SECONDS = 5
"""How long a client may continue after the other one has ended."""
SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "CONT")
SHELL = 'if command -v bash >/dev/null 2>&1; then exec bash -c "$1"; else exec sh -c "$1"; fi'
CONTROL = """
marker=$1
send() {
  for file in $(grep -lzxF -e "$marker" /proc/[0-9]*/environ); do file=${file#/proc/}; kill -s "$1" "${file%/environ}"; done 2>/dev/null
}
scan() {
  for file in /proc/[0-9]*/environ; do
    while IFS= read -r line || [ -n "$line" ]; do
      case $line in *"$marker"*) file=${file#/proc/}; kill -s "$1" "${file%/environ}"; break ;; esac
    done <"$file"
  done 2>/dev/null
}
trap 'scan STOP; scan STOP; scan KILL' EXIT
echo ready
while read -r word; do
  case $word in end) trap - EXIT; exit ;; *) send "$word" ;; esac
done
for try in 1 2 3 4 5; do send KILL; sleep 1; done
"""
"""`scan` does what `send` does, slower, without starting a program: after a fork bomb none can be started, and the shell
ends when it tries. Stopped programs do not start others, so none is left when they are killed.
"""


def words_of(spec: dict[str, object], client: str, words: list[str], token: str) -> list[str]:
    """The client with words to run there, marked or not."""
    marked = ["env", f"{MARKER}={token}", *words] if token else words
    prefix = spec[client]
    assert isinstance(prefix, list), "a list of words"
    return [*prefix, shlex.join(marked)] if spec.get("quote") else [*prefix, *marked]


def main() -> int:
    spec, text = json.loads(sys.argv[1]), sys.argv[-1]
    # Another value than that of this program, which may be on the same machine.
    token = f"{os.environ.get(MARKER) or secrets.token_hex(8)}.inside"
    environment = os.environ | {MARKER: CLIENT}
    control = subprocess.Popen(  # noqa: S603 - the purpose of this program
        words_of(spec, "control", ["sh", "-c", CONTROL, "holdfast", f"{MARKER}={token}"], ""),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
    )
    assert control.stdin is not None
    assert control.stdout is not None
    commands = control.stdin.fileno()
    if not control.stdout.readline():
        return CANNOT_RUN
    directory = str(spec["workdir"])
    run = 'cd -- "$1" || exit 126; shift; ' + SHELL
    words = ["sh", "-c", run, "holdfast", directory, text]
    command = subprocess.Popen(  # noqa: S603
        words_of(spec, "command", words, token), env=environment, start_new_session=True
    )

    def send(text: str) -> None:
        with contextlib.suppress(BrokenPipeError):  # the container or the connection is gone
            os.write(commands, text.encode())

    for name in SIGNALS:
        signal.signal(getattr(signal, f"SIG{name}"), lambda number, _: send(f"{signal.Signals(number).name[3:]}\n"))
    code = wait_for_command(command, control)
    for name in SIGNALS:  # there is no command any more, and soon no pipe to the control client
        signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN)
    # What the command left running ends with it.
    send("KILL\nend\n")
    control.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        control.wait(LOST_SECONDS)
    control.kill()
    return code if code >= 0 else SHELL_SIGNALS - code


def wait_for_command(command: "subprocess.Popen[bytes]", control: "subprocess.Popen[bytes]") -> int:
    """The exit code of the command.

    If the control client ends first, the container or the connection is gone. A client may then wait for ever, so it is killed.
    """

    def give_up(number: int, frame: object) -> None:
        os.write(2, b"\n[the container or the connection was lost]\n")
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.killpg(command.pid, signal.SIGKILL)  # it leads a session of its own

    signal.signal(signal.SIGALRM, give_up)
    while True:
        pid, status = os.wait()
        if pid == command.pid:
            signal.alarm(0)
            return os.waitstatus_to_exitcode(status)
        if pid == control.pid:
            signal.alarm(LOST_SECONDS)


if __name__ == "__main__":
    sys.exit(main())
