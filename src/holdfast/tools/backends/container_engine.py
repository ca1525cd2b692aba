"""Docker or Podman by their command line: create, inspect, start and remove containers.

Only options that both programs understand are used. Nothing is passed through a shell.
"""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.settings import ContainerSettings
from holdfast.tools.backends.port import Completed, run_program

ENGINES = ("podman", "docker")
LABEL = "holdfast"
"""The prefix of the labels `store`, `session` and `settings`."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
KEEP_ALIVE = 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done'
"""The first program of a container: it waits, and reaps orphans."""
DENIED = (
    *(
        "--privileged",
        "--pid",
        "--ipc",
        "--uts",
        "--userns",
        "--cgroupns",
        "--cgroup-parent",
        "--network",
        "--net",
        "--pod",
    ),
    *(
        "--cap-add",
        "--security-opt",
        "--device",
        "--device-cgroup-rule",
        "--volume",
        "--volumes-from",
        "--mount",
        "--tmpfs",
    ),
    *(
        "--name",
        "--label",
        "--label-file",
        "--entrypoint",
        "--rm",
        "--restart",
        "--env-file",
        "--env-host",
        "--cidfile",
    ),
    *(
        "--secret",
        "--oom-kill-disable",
        "--runtime",
        "--isolation",
        "--link",
        "--publish-all",
        "--rootfs",
        "--init-path",
    ),
    *("--hooks-dir", "--log-driver", "--log-opt", "--read-only-tmpfs", "--systemd", "--unsetenv-all", "--requires"),
)
"""Options of `create` that `extra_args` must not contain: they weaken the isolation, or Holdfast sets them itself."""
FORBIDDEN_MOUNTS = ("/", "/proc", "/sys", "/dev", "/run", "/var/run", "/etc", "/root", "/boot")
INSPECT = '{{.Id}} {{.State.Running}} {{index .Config.Labels "holdfast.session"}} {{index .Config.Labels "holdfast.settings"}}'
CREATE_SECONDS = 300.0
"""The time limit of `create`, which may have to download the image."""


class FoundContainer(msgspec.Struct, frozen=True):
    """A container as the engine describes it."""

    id: str
    is_running: bool
    session_id: str
    settings_hash: str


class ContainerEngine:
    def __init__(self, program: str, arguments: Sequence[str] = ()) -> None:
        self.program = program
        self._base = (program, *arguments)

    def words(self, *arguments: str) -> tuple[str, ...]:
        return (*self._base, *arguments)

    async def create(self, arguments: Sequence[str]) -> str:
        """Create a container, not started. Returns its id. Raises Unavailable."""
        done = await run_program(self.words("create", *arguments), seconds=CREATE_SECONDS)
        return _checked(done, "create the container").decode("ascii", "replace").split()[-1]

    async def start(self, container: str) -> None:
        """Start a container; one that runs stays as it is. Raises Unavailable."""
        _checked(await run_program(self.words("start", container)), "start the container")

    async def find(self, *containers: str) -> list[FoundContainer]:
        """Those of these containers, by id or name, that exist. Raises Unavailable if the engine does not work."""
        if not containers:
            return []
        done = await run_program(self.words("container", "inspect", "--format", INSPECT, *containers))
        if done.code and "no such" not in done.errors.lower():
            _checked(done, "inspect the container")
        lines = [line.split(" ") for line in done.output.decode("utf-8", "replace").splitlines() if line.strip()]
        return [FoundContainer(line[0], line[1] == "true", line[2], line[3]) for line in lines]

    async def list(self, store_id: str) -> list[FoundContainer]:
        """All containers that were created for a store."""
        done = await run_program(
            self.words("ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}.store={store_id}")
        )
        return await self.find(*_checked(done, "list the containers").decode("ascii", "replace").split())

    async def remove(self, container: str) -> None:
        """Remove a container and what runs in it; one that does not exist counts as removed. Raises Unavailable."""
        done = await run_program(self.words("rm", "--force", "--volumes", container))
        if done.code and "no such" not in done.errors.lower():
            _checked(done, "remove the container")


def find_engine(settings: ContainerSettings, environment: Mapping[str, str]) -> ContainerEngine:
    """The engine that is configured or installed. Raises Unavailable."""
    names = ENGINES if settings.engine == "auto" else (settings.engine,)
    found = (shutil.which(name, path=environment.get("PATH")) for name in names)
    program = next((path for path in found if path is not None), None)
    if program is None:
        raise Unavailable(f"the terminal backend is container, but {' or '.join(names)} is not installed")
    return ContainerEngine(program, settings.engine_args)


def create_arguments(settings: ContainerSettings, binds: Sequence[str]) -> list[str]:
    """The arguments of `create` that the settings determine, up to the image. Raises Invalid for forbidden ones."""
    if settings.image is None:
        raise Invalid("[terminal.container] image is not set")
    limits = {
        "--memory": settings.memory,
        "--cpus": settings.cpus,
        "--pids-limit": settings.pids,
        "--user": settings.user,
    }
    arguments = [f"{name}={value}" for name, value in limits.items() if value is not None]
    arguments += [f"--network={settings.network}", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    arguments += [f"--cap-add={name}" for name in CAPABILITIES]
    arguments += [f"--tmpfs={one}" for one in settings.tmpfs]
    arguments += [f"--volume={one}" for one in (*binds, *settings.mounts)]
    return [*arguments, *settings.extra_args]


def check_settings(settings: ContainerSettings, home: Path) -> None:
    """Raises Invalid if the settings would give a container access to Holdfast or to the whole machine."""
    if settings.network in ("host", "ns") or settings.network.startswith(("container:", "ns:")):
        raise Invalid(
            f"[terminal.container] network = {settings.network!r} would share a network namespace of this machine"
        )
    for argument in settings.extra_args:
        name = argument.partition("=")[0]
        if not name.startswith("--"):
            raise Invalid(f"[terminal.container] extra_args: write {argument!r} as a long option, --name=value")
        if name in DENIED:
            raise Invalid(f"[terminal.container] extra_args: {name} is not allowed")
    for mount in settings.mounts:
        _check_mount(mount, home)


def _check_mount(mount: str, home: Path) -> None:
    source, separator, _ = mount.partition(":")
    path = Path(source).resolve()
    if not separator or not source.startswith("/"):
        raise Invalid(f"[terminal.container] mounts: {mount!r} is not HOST:CONTAINER with absolute paths")
    if str(path) in FORBIDDEN_MOUNTS or path.is_socket() or path.is_relative_to("/run") or path.is_relative_to("/proc"):
        raise Invalid(f"[terminal.container] mounts: {source} is not allowed")
    if home.resolve().is_relative_to(path) or path.is_relative_to(home.resolve()):
        raise Invalid(f"[terminal.container] mounts: {source} would show Holdfast's home")


def _checked(done: Completed, action: str) -> bytes:
    if done.code:
        raise Unavailable(f"cannot {action}: {done.errors or f'exit code {done.code}'}")
    return done.output
