"""Docker or Podman by their command line: create, inspect, start and remove containers.

Only options that both programs understand are used. Nothing is passed through a shell.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.secret_names import without_secrets
from holdfast.settings import ContainerSettings
from holdfast.tools.backends.port import RUN_SECONDS, Completed, run_program

ENGINES = ("podman", "docker")
LABEL = "holdfast"
"""The prefix of the labels `store`, `session` and `settings`."""
CAPABILITIES = ("CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "NET_BIND_SERVICE")
KEEP_ALIVE = 'trap "exit 0" TERM INT; while :; do sleep 3600 & wait $!; done'
"""The first program of a container: it waits, and reaps orphans."""
DENIED_NAMES = """
--privileged --pid --ipc --uts --userns --cgroupns --cgroup-parent --cgroups --cgroup-conf --network --net --pod
--pod-id-file --cap-add --security-opt --device --device-cgroup-rule --gpus --volume --volumes-from --volume-driver
--mount --tmpfs --storage-opt --image-volume --chrootdirs --name --replace --label --label-file --annotation
--entrypoint --rm --restart --env-file --env-host --cidfile --pidfile --conmon-pidfile --secret --oom-kill-disable
--runtime --isolation --link --publish-all --rootfs --init-path --init-ctr --hooks-dir --log-driver --log-opt
--read-only-tmpfs --systemd --sdnotify --unsetenv-all --requires --uidmap --gidmap --subuidname --subgidname
--hostuser --group-add --preserve-fds --preserve-fd --seccomp-policy --use-api-socket --authfile --creds --cert-dir
--tls-verify --disable-content-trust --signature-policy --decryption-key
"""
DENIED = frozenset(DENIED_NAMES.split())
"""Options of `create` that `extra_args` must not contain: they weaken the isolation, or Holdfast sets them itself."""
FORBIDDEN_MOUNTS = (
    "/",
    "/etc",
    "/root",
    "/home",
    "/boot",
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib64",
    "/var",
    "/var/lib",
)
FORBIDDEN_TREES = ("/proc", "/sys", "/dev", "/run", "/var/run", "/var/lib/docker", "/var/lib/containers")
"""Directories of which nothing may be mounted: devices, the kernel, and what belongs to services and engines."""
NETWORK = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
"""The name of a network, without options: some of them give access to servers of this machine."""
ABSENT = re.compile(r"no such (container|object)|no container with (name|id)", re.IGNORECASE)
"""What engines answer for a container that does not exist. An engine that cannot be reached answers differently."""
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
    def __init__(self, program: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.program = program
        self.environment = environment
        self._base = (program, *arguments)

    def words(self, *arguments: str) -> tuple[str, ...]:
        return (*self._base, *arguments)

    async def run(
        self, *arguments: str, data: bytes = b"", seconds: float = RUN_SECONDS, workdir: Path | None = None
    ) -> Completed:
        words = self.words(*arguments)
        return await run_program(words, data, seconds, environment=self.environment, workdir=workdir)

    async def create(self, arguments: Sequence[str]) -> str:
        """Create a container, not started. Returns its id. Raises Unavailable."""
        done = await self.run("create", *arguments, seconds=CREATE_SECONDS)
        return _checked(done, "create the container").decode("ascii", "replace").split()[-1]

    async def start(self, container: str, workdir: Path) -> None:
        """Start a container; one that runs stays as it is. Raises Unavailable.

        Podman's monitor keeps `workdir` as its working directory, and creates a file `oom` there when the container runs
        out of memory.
        """
        _checked(await self.run("start", container, workdir=workdir), "start the container")

    async def find(self, *containers: str) -> list[FoundContainer]:
        """Those of these containers, by id or name, that exist. Raises Unavailable if the engine does not work."""
        if not containers:
            return []
        done = await self.run("container", "inspect", "--format", INSPECT, *containers)
        if done.code and not ABSENT.search(done.errors):
            _checked(done, "inspect the container")
        lines = [line.split(" ") for line in done.output.decode("utf-8", "replace").splitlines() if line.strip()]
        return [FoundContainer(line[0], line[1] == "true", line[2], line[3]) for line in lines]

    async def list(self, store_id: str) -> list[FoundContainer]:
        """All containers that were created for a store."""
        label = f"label={LABEL}.store={store_id}"
        done = await self.run("ps", "--all", "--quiet", "--no-trunc", "--filter", label)
        return await self.find(*_checked(done, "list the containers").decode("ascii", "replace").split())

    async def remove(self, container: str) -> None:
        """Remove a container and what runs in it; one that does not exist counts as removed. Raises Unavailable."""
        done = await self.run("rm", "--force", "--volumes", container)
        if done.code and not ABSENT.search(done.errors):
            _checked(done, "remove the container")


def find_engine(settings: ContainerSettings, environment: Mapping[str, str]) -> ContainerEngine:
    """The engine that is configured or installed. Raises Unavailable."""
    names = ENGINES if settings.engine == "auto" else (settings.engine,)
    found = (shutil.which(name, path=environment.get("PATH")) for name in names)
    program = next((path for path in found if path is not None), None)
    if program is None:
        raise Unavailable(f"the terminal backend is container, but {' or '.join(names)} is not installed")
    return ContainerEngine(program, settings.engine_args, without_secrets(environment))


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
    network = settings.network
    if network in ("host", "ns", "container", "private") or not NETWORK.fullmatch(network):
        raise Invalid(f"[terminal.container] network = {network!r} is not `none`, `bridge` or the name of a network")
    if (settings.image or "").startswith("-"):
        raise Invalid(f"[terminal.container] image: {settings.image!r} is not the name of an image")
    for argument in settings.extra_args:
        _check_argument(argument)
    for mount in settings.mounts:
        _check_mount(mount, home)


def _check_argument(argument: str) -> None:
    name, _, value = argument.partition("=")
    if not name.startswith("--") or name == "--":
        raise Invalid(f"[terminal.container] extra_args: write {argument!r} as a long option, --name=value")
    if name in DENIED:
        raise Invalid(f"[terminal.container] extra_args: {name} is not allowed")
    if name == "--env" and "=" not in value:
        # The engine would copy the variable from Holdfast's environment.
        raise Invalid(f"[terminal.container] extra_args: write {argument!r} as --env=NAME=VALUE")


def _check_mount(mount: str, home: Path) -> None:
    source, separator, _ = mount.partition(":")
    path, lexical = Path(source).resolve(), os.path.normpath(source)
    if not separator or not source.startswith("/"):
        raise Invalid(f"[terminal.container] mounts: {mount!r} is not HOST:CONTAINER with absolute paths")
    is_system = str(path) in FORBIDDEN_MOUNTS or lexical in FORBIDDEN_MOUNTS
    if is_system or path.is_socket() or any(path.is_relative_to(tree) for tree in FORBIDDEN_TREES):
        raise Invalid(f"[terminal.container] mounts: {source} is not allowed")
    if home.resolve().is_relative_to(path) or path.is_relative_to(home.resolve()):
        raise Invalid(f"[terminal.container] mounts: {source} would show Holdfast's home")


def _checked(done: Completed, action: str) -> bytes:
    if done.code:
        raise Unavailable(f"cannot {action}: {done.errors or f'exit code {done.code}'}")
    return done.output
