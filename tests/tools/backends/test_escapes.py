"""Attacks on the machine and on Holdfast from inside each backend: each is blocked, or contained.

`docs/terminals.md` has the table. The scripts run by `backend.run`, so the checks of commands before they run, which
refuse many of them, do not take part.
"""

import ctypes
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest

from holdfast.model.errors import Unavailable
from holdfast.store.repos import outbox
from holdfast.tools.backends.registry import Backends
from holdfast.tools.send_file import SendFileTool
from tests.tools.backends.conftest import SECRET, Terminal, eventually

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
ALL = ["local", "bubblewrap", "container"]
ISOLATED = ["bubblewrap", "container"]
FORBIDDEN_CAPABILITIES = {
    "DAC_READ_SEARCH": 2,
    "LINUX_IMMUTABLE": 9,
    "SYS_MODULE": 16,
    "SYS_RAWIO": 17,
    "SYS_PTRACE": 19,
    "SYS_ADMIN": 21,
    "SYS_BOOT": 22,
    "SYS_TIME": 25,
    "MKNOD": 27,
    "SYSLOG": 34,
    "PERFMON": 38,
    "BPF": 39,
    "CHECKPOINT_RESTORE": 40,
}
MACHINE_CAPABILITIES = {"NET_ADMIN": 12, "NET_RAW": 13, "SYS_RESOURCE": 24}
"""What `local` leaves to root."""
AT_FDCWD, RENAME_EXCHANGE = -100, 2
PYTHON = os.path.realpath(sys.executable)
"""Not the one in a virtual environment, which may be in /tmp."""
CONNECT = "import socket, sys; socket.socket().connect(('127.0.0.1', int(sys.argv[1]))); print('connected')"
CONNECT_UNIX = (
    "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1].replace('@', chr(0))); print('connected')"
)


@pytest.fixture(params=ALL)
async def terminal(request, new_terminal) -> Terminal:
    return await new_terminal(request.param)


@pytest.fixture(params=ISOLATED)
async def isolated(request, new_terminal) -> Terminal:
    return await new_terminal(request.param)


@pytest.fixture
def outside() -> Iterator[Path]:
    """A directory that belongs to neither the session nor Holdfast."""
    folder = Path(tempfile.mkdtemp(prefix="hf-outside-", dir="/var/tmp"))
    (folder / "private").write_text("not to be seen")
    yield folder
    shutil.rmtree(folder)


async def attack(terminal: Terminal, script: str, *words: object) -> str:
    """Run a shell script in the backend; `$1` and so on are the words. Returns all that it printed."""
    await terminal.backend.prepare(terminal.context)
    here = str(terminal.backend.workdir(terminal.context))
    command = ["sh", "-c", f'cd -- "$0" || exit\n{script}', here, *map(str, words)]
    done = await terminal.backend.run(terminal.context, command)
    return done.output.decode("utf-8", "replace") + done.errors


async def test_nothing_is_written_outside_the_working_directory(isolated, outside):
    targets = [outside, "/etc", "/usr", "/var", "/", "/sys/fs/cgroup", "/sys/fs/cgroup/pids", Path.home()]
    await attack(isolated, 'for folder; do echo x >"$folder/hf-escape"; mkdir "$folder/hf-escape.d"; done', *targets)

    assert not [one for one in targets if Path(one, "hf-escape").exists() or Path(one, "hf-escape.d").exists()]


async def test_links_in_the_working_directory_lead_nowhere_outside(isolated, outside):
    (isolated.context.workdir / "from-host").symlink_to(outside)
    script = (
        'ln -s "$1" link; for one in link from-host; do echo x >$one/new; echo x >>$one/private; cat $one/private; done'
    )
    await attack(isolated, script, outside)

    assert not (outside / "new").exists()
    assert (outside / "private").read_text() == "not to be seen"


async def test_files_of_the_machine_are_not_in_a_container(new_terminal, outside):
    assert "not to be seen" not in await attack(await new_terminal("container"), 'cat "$1"/private; echo done', outside)


async def test_holdfasts_home_is_neither_read_nor_written(terminal, home):
    script = """
    ln -s "$1" link; cat "$1"/api-key "$1"/holdfast.db link/api-key "$1"/../home/api-key "$PWD"/../../api-key
    for p in /proc/[0-9]* /proc/self; do cat "$p/root$1/api-key" "$p/cwd/$1/api-key" "$p/cwd/../../api-key"; done
    grep -rl "$2" "$1" "$1/.."; echo x >"$1/new"; echo x >link/new; rm -rf "$1"/holdfast.db
    """
    text = await attack(terminal, script, home, SECRET)

    assert SECRET not in text
    assert "SQLite format" not in text
    assert not (home / "new").exists()
    assert (home / "holdfast.db").exists()


async def test_the_home_cannot_be_moved_to_be_read_in_its_new_place(new_terminal, home):
    for name in ("local", "bubblewrap"):
        terminal = await new_terminal(name, f"hf-{name}")
        moved = home.rename(home.with_name("moved"))
        home.mkdir()
        try:
            with pytest.raises(Unavailable, match="moved or replaced"):
                await attack(terminal, 'cat "$1"/api-key', moved)
            ok, text = await terminal.call("terminal", command=f"cat {moved}/api-key")
            assert (ok, SECRET in text) == (False, False)
        finally:
            shutil.rmtree(home)
            moved.rename(home)


async def test_other_processes_are_not_seen(terminal):
    with running(98763) as victim:
        script = """
        for p in /proc/[0-9]*; do tr '\\0' '\\n' <$p/environ; tr '\\0' ' ' <$p/cmdline; cat $p/maps >/dev/null && echo; done
        cat /proc/$1/environ /proc/$1/mem; ls /proc/$1/fd /proc/$2/fd; kill -9 $1; kill -9 $2; echo done
        """
        text = await attack(terminal, script, victim.pid, os.getpid())

        assert victim.poll() is None
        assert SECRET not in text
        assert "sleep 98763" not in text


async def test_the_worker_cannot_be_traced(new_terminal):
    code = (
        "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True); print(libc.ptrace(16, int(sys.argv[1]), 0, 0))"
    )
    with running(98764) as victim:
        for name in ("local", "bubblewrap"):
            text = await attack(await new_terminal(name, f"hf-{name}"), '"$1" -c "$2" $3', PYTHON, code, victim.pid)
            assert text.strip() == "-1"


async def test_programs_of_file_tools_do_not_get_holdfasts_environment(terminal):
    text = await attack(terminal, "env; cat /proc/self/environ")

    assert "PATH=" in text
    assert SECRET not in text
    assert "PYTEST_CURRENT_TEST" not in text, "the environment of the worker"


async def test_a_file_tool_cannot_be_led_to_an_environment_by_a_link(isolated):
    await attack(isolated, "ln -s /proc/self/environ /tmp/link; ln -s /proc/self/environ link")

    for path in ("/tmp/link", "link", "/proc/self/environ", "/proc/thread-self/environ"):
        _, text = await isolated.call("read_file", path=path)
        assert SECRET not in text
        assert "PYTEST_CURRENT_TEST" not in text


async def test_the_kernels_settings_are_read_only(terminal):
    script = 'for f; do v=$(cat $f) && echo "$v" >$f && echo "changed $f"; done'
    files = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/swappiness", "/proc/sys/kernel/printk_ratelimit")

    assert "changed" not in await attack(terminal, script, *files)
    assert "changed" not in await attack(terminal, "echo 0 >/proc/sysrq-trigger && echo changed")


@contextmanager
def running(number: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process of the same user, with a secret in its environment."""
    with subprocess.Popen(["sleep", str(number)], env={"HF_VICTIM": SECRET}) as victim:
        try:
            yield victim
        finally:
            victim.kill()


@contextmanager
def listening(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(address.replace("@", "\0"))
        listener.listen()
        listener.setblocking(False)
        yield listener


def was_reached(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except BlockingIOError:
        return False
    return True


async def test_sockets_of_container_engines_cannot_be_reached(isolated):
    folder = Path(tempfile.mkdtemp(prefix="hf-escape-", dir="/run"))
    try:
        with listening(f"{folder}/engine.sock") as listener:
            script = 'ls "$1" /run /var/run; "$2" -c "$3" "$1"; nc "local:$1" </dev/null'
            text = await attack(isolated, script, f"{folder}/engine.sock", PYTHON, CONNECT_UNIX)
            assert not was_reached(listener)
            assert "connected" not in text
            assert "podman" not in text
            assert "docker" not in text
    finally:
        shutil.rmtree(folder)


@pytest.mark.parametrize("name", ISOLATED)
async def test_without_a_network_no_server_of_the_machine_is_reached(new_terminal, name):
    more = {"network": False} if name == "bubblewrap" else {}
    isolated = await new_terminal(name, **more)
    with socket.create_server(("127.0.0.1", 0)) as server, listening("@hf-escape") as abstract:
        server.setblocking(False)
        port = server.getsockname()[1]
        script = '"$2" -c "$3" $1; "$2" -c "$4" @hf-escape; nc -w 2 127.0.0.1 $1 </dev/null; cat /proc/net/unix /proc/net/route'
        text = await attack(isolated, script, port, PYTHON, CONNECT, CONNECT_UNIX)

        assert not was_reached(server)
        assert not was_reached(abstract)
        assert "connected" not in text
        assert "hf-escape" not in text.replace("connect @hf-escape", "")


async def test_a_fork_bomb_in_a_container_is_limited_and_ends_with_its_command(new_terminal):
    container = await new_terminal("container", pids=64)
    # busybox awk goes on when it cannot start a program.
    bomb = """awk() { trap '' TERM; busybox awk 'BEGIN { while (1) system("sleep 98765 &") }'; }; awk & awk & awk"""

    text = await container.run(bomb, timeout_seconds=5)

    assert "can't fork" in text
    assert "time limit" in text
    await eventually(lambda: is_gone("sleep", "98765"))
    await eventually(lambda: works(container))


async def test_a_fork_bomb_in_bubblewrap_ends_with_its_command(new_terminal):
    bubblewrap = await new_terminal("bubblewrap")
    # It starts at most 200 programs: nothing limits them before the time limit of the command.
    bomb = "for i in $(seq 200); do (trap '' TERM HUP; env -i setsid sleep 98766 &) & done; sleep 98765"

    text = await bubblewrap.run(bomb, timeout_seconds=3)

    assert "time limit" in text
    await eventually(lambda: is_gone("sleep", "98766"))


async def is_gone(*words: str) -> bool:
    return not any(one.info["cmdline"] == list(words) for one in psutil.process_iter(["cmdline"]))


async def works(terminal: Terminal) -> bool:
    return (await terminal.run("echo alive")).startswith("alive")


async def test_a_full_tmp_of_a_container_is_limited(new_terminal):
    container = await new_terminal("container", tmpfs=("/tmp:size=1m",))

    text = await attack(
        container,
        "dd if=/dev/zero of=/tmp/full bs=64k count=64; wc -c </tmp/full; rm /tmp/full; echo ok >/tmp/x && cat /tmp/x",
    )

    assert "No space left" in text
    assert str(1 << 20) in text
    assert "ok" in text


async def test_temporary_files_are_not_those_of_the_machine(isolated):
    name = f"hf-escape-{os.getpid()}"
    await attack(isolated, "echo x >/tmp/$1; echo x >/dev/shm/$1; echo x >/var/tmp/$1", name)

    assert not [one for one in ("/tmp", "/dev/shm", "/var/tmp") if Path(one, name).exists()]


async def test_memory_of_a_container_is_limited(new_terminal, tmp_path, monkeypatch):
    users_folder = tmp_path / "project"
    users_folder.mkdir()
    monkeypatch.chdir(users_folder)
    container = await new_terminal("container", memory="64m")

    text = await attack(container, "dd if=/dev/zero of=/dev/null bs=300M count=1; echo code $?")

    assert "code 137" in text or "out of memory" in text, text
    assert await works(container)
    assert not list(users_folder.iterdir()), "the engine leaves no file behind"


async def test_devices_of_the_machine_are_absent(isolated):
    text = await attack(isolated, "find /dev -type b; ls /dev; busybox dd if=/dev/vda of=/dev/null bs=1 count=1")

    assert "copied" not in text
    assert not {"mem", "kmsg", "kvm", "loop-control", "fuse", "vda", "sda"} & set(text.split("\n"))


async def test_device_nodes_cannot_be_created(terminal):
    devices = {
        one.strip().split()[0]: None
        for one in Path("/proc/devices").read_text().splitlines()
        if one[:3].strip().isdigit()
    }
    text = await attack(
        terminal, 'for n; do mknod "d$n" b $n 0 && echo created; head -c 1 "d$n" && echo opened; done', *devices
    )

    assert "created" not in text
    assert "opened" not in text


async def test_mounts_cannot_be_changed(terminal, home, outside):
    script = """
    steps='mount -t tmpfs none /mnt && echo mounted; umount "$1" && echo unmounted; umount -l "$1" && echo unmounted
      mount -o remount,rw / && echo remounted; mount -o remount,rw,bind / && echo remounted; cat "$1"/api-key; echo x >"$2"/new'
    sh -c "$steps" sh "$1" "$2"
    """
    text = await attack(terminal, script, home, outside)
    assert "mounted" not in text.replace("not mounted", "")
    assert SECRET not in text


@pytest.mark.parametrize("options", ["-Um", "-Umr", "-Umrp --fork", "-m"])
async def test_new_namespaces_do_not_uncover_what_is_hidden(terminal, home, outside, options):
    script = """
    umount "$1"; umount -l "$1"; umount -R /; mount -o remount,rw /; mount -o remount,rw,bind /; mount -t proc proc /proc
    cat "$1"/api-key /proc/[0-9]*/root"$1"/api-key; echo x >"$2"/new; echo done
    """
    text = await attack(terminal, f'exec unshare {options} sh -c "$3" sh "$1" "$2"', home, outside, script)

    assert SECRET not in text
    assert terminal.backend.name == "local" or not (outside / "new").exists()


async def test_no_program_gains_privileges(terminal):
    text = await attack(terminal, "grep -e NoNewPrivs -e CapEff -e CapPrm /proc/self/status")
    status = dict(line.split(":\t") for line in text.splitlines())
    forbidden = FORBIDDEN_CAPABILITIES | ({} if terminal.backend.name == "local" else MACHINE_CAPABILITIES)

    assert status["NoNewPrivs"] == "1"
    for kind in ("CapEff", "CapPrm"):
        assert not [name for name, number in forbidden.items() if int(status[kind], 16) >> number & 1]


async def test_no_terminal_can_be_typed_into(terminal):
    assert "opened" not in await terminal.run("(: </dev/tty) && echo opened")
    assert "opened" not in await terminal.run("test -t 0 && echo opened")


async def test_terminals_of_the_machine_are_not_there(isolated):
    ours, theirs = os.openpty()
    try:
        os.set_blocking(ours, False)
        await attack(isolated, 'echo injected >"$1"', os.ttyname(theirs))
        with pytest.raises(BlockingIOError):
            os.read(ours, 100)
    finally:
        os.close(ours)
        os.close(theirs)


class Swapper:
    """Exchanges a directory and a link to another, as fast as possible."""

    def __init__(self, path: Path, target: Path) -> None:
        self._words = [os.fsencode(path), os.fsencode(path.with_name("link"))]
        path.with_name("link").symlink_to(target)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def _swap(self) -> None:
        rename = ctypes.CDLL(None).renameat2
        while not self._stop.is_set():
            assert rename(AT_FDCWD, self._words[0], AT_FDCWD, self._words[1], RENAME_EXCHANGE) == 0

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()


CALLS = (
    ("read_file", {"path": "sub/api-key"}),
    ("search_files", {"pattern": "hfk|public", "path": "sub"}),
    ("edit_file", {"path": "sub/api-key", "old": SECRET, "new": "changed"}),
    ("write_file", {"path": "sub/new", "content": "written"}),
    ("write_file", {"path": "sub/api-key", "content": "written"}),
)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call[0]} {call[1]['path']}")
async def test_file_tools_are_not_led_outside_by_a_link_that_appears_during_the_call(terminal, home, call):
    sub = terminal.context.workdir / "sub"
    sub.mkdir()
    (sub / "api-key").write_text("public")
    await terminal.backend.prepare(terminal.context)
    with Swapper(sub, home):
        for _ in range(8):
            _, text = await terminal.call(call[0], **call[1])
            assert SECRET not in text.replace(f"{SECRET!r}", "")

    assert (home / "api-key").read_text() == SECRET
    assert not (home / "new").exists()


async def test_a_file_that_is_sent_is_read_inside_the_backend(new_terminal, database, clock, home, outside):
    container = await new_terminal("container")
    await database.write(outbox.add_reply_address, "hf-1", "turn-1", outbox.Address("telegram", "42"), at=clock.now())
    tool = SendFileTool(database, home=home, backends=Backends([container.backend]))
    await attack(container, 'echo mine >plan; ln -s "$1"/private link', outside)

    sent = await tool.run({"path": "plan"}, container.context)
    refused = [await tool.run({"path": path}, container.context) for path in ("link", f"{outside}/private")]

    assert sent.ok, sent
    assert [one.read_text() for one in container.context.files.rglob("sent/*/*")] == ["mine\n"]
    assert [one.ok for one in refused] == [False, False]


async def test_a_link_in_the_private_tmp_does_not_make_bubblewrap_create_directories_outside(new_terminal, outside):
    bubblewrap = await new_terminal("bubblewrap")
    workdir = Path(tempfile.mkdtemp(prefix="hf-work-", dir="/tmp")) / "a" / "b"
    workdir.mkdir(parents=True)
    bubblewrap.context = msgspec.structs.replace(bubblewrap.context, workdir=workdir)
    top = workdir.parent.parent
    try:
        await attack(bubblewrap, 'mv "$1" "$1.away" && ln -s "/oldroot$2" "$1"', top, outside)
        with pytest.raises(Unavailable, match="is a link"):
            await attack(bubblewrap, "true")
    finally:
        shutil.rmtree(top)

    assert sorted(one.name for one in outside.iterdir()) == ["private"]


async def test_secrets_of_the_user_are_hidden_also_in_the_working_directory(new_terminal, home):
    bubblewrap = await new_terminal("bubblewrap")
    user = home.parent / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id").write_text("private")
    (user / ".netrc").write_text("private")
    bubblewrap.context = msgspec.structs.replace(bubblewrap.context, workdir=user)

    text = await attack(bubblewrap, "cat .ssh/id .netrc /etc/shadow; echo x >.ssh/new; echo kept >file; cat file")

    assert "private" not in text
    assert "root:" not in text
    assert "kept" in text
    assert not (user / ".ssh" / "new").exists()


async def test_the_root_directory_as_the_working_directory_uncovers_nothing(new_terminal, home):
    bubblewrap = await new_terminal("bubblewrap")
    bubblewrap.context = msgspec.structs.replace(bubblewrap.context, workdir=Path("/"))

    text = await attack(bubblewrap, 'cat "$1"/api-key; ls -d /proc/$2; find /dev -type b; ls /run', home, os.getpid())

    assert SECRET not in text
    assert f"/proc/{os.getpid()}\n" not in text
    assert "/dev/vda" not in text
