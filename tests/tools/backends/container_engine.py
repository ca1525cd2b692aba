"""A real Podman with storage of its own, and a small image made from Debian's static busybox."""

import shutil
import subprocess
import tarfile
from pathlib import Path

from holdfast.settings import ContainerSettings
from tests.crash.programs import wait_until

IMAGE = "localhost/holdfast-test:busybox"
APPLETS = (
    *(
        "sh",
        "cat",
        "head",
        "ls",
        "mv",
        "cp",
        "rm",
        "mkdir",
        "tr",
        "grep",
        "find",
        "kill",
        "sleep",
        "env",
        "wc",
        "dirname",
    ),
    *(
        "readlink",
        "sync",
        "touch",
        "ln",
        "dd",
        "yes",
        "id",
        "ps",
        "chmod",
        "stat",
        "true",
        "test",
        "printf",
        "mount",
        "nc",
    ),
)
LIMITS = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1000:1000")
"""Podman's defaults are above what some machines allow."""


class Podman:
    def __init__(self, folder: Path) -> None:
        self.arguments = (
            *("--root", str(folder / "storage"), "--runroot", str(folder / "run"), "--storage-driver", "vfs"),
            *(
                "--runtime",
                "runc",
                "--cgroup-manager",
                "cgroupfs",
                "--events-backend",
                "none",
                "--tmpdir",
                str(folder / "tmp"),
            ),
        )
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._import(folder / "root.tar")

    def _import(self, archive: Path) -> None:
        busybox = shutil.which("busybox")
        assert busybox is not None, "busybox is missing: scripts/system-packages installs it"
        with tarfile.open(archive, "w") as tar:
            tar.add(busybox, "bin/busybox")
            for folder in ("tmp", "proc", "dev", "sys", "root", "etc"):
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                tar.addfile(entry)
            for name in APPLETS:
                link = tarfile.TarInfo(f"bin/{name}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        self.run("import", str(archive), IMAGE)

    def run(self, *words: str, is_gone_allowed: bool = False) -> str:
        command = ["podman", *self.arguments, *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0 or (is_gone_allowed and "no such container" in done.stderr), done.stderr
        return done.stdout.strip()

    def settings(self, **more: object) -> ContainerSettings:
        given = {
            "engine": "podman",
            "engine_args": self.arguments,
            "image": IMAGE,
            "extra_args": LIMITS,
            "memory": None,
            "pids": None,
        }
        return ContainerSettings(**{**given, **more})  # type: ignore[arg-type]

    def containers(self) -> list[str]:
        return self.run("ps", "--all", "--quiet", "--no-trunc").split()

    def reserve_name(self, name: str) -> None:
        """Kill `create` until the storage has the name and the engine does not know the container, as after a power cut."""
        words = ["podman", *self.arguments, "create", f"--name={name}", *LIMITS, IMAGE, "sh"]
        for _ in range(50):
            with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as creating:
                wait_until(lambda: name in self._reserved() or creating.poll() is not None, "reserved", every=0.0005)
                creating.kill()
            if not self.containers() and name in self._reserved():
                return
            self.remove_all()
        raise AssertionError("the engine was never killed in between")

    def _reserved(self) -> str:
        """The names that the storage has."""
        listed = self._folder / "storage" / "vfs-containers" / "containers.json"
        return listed.read_text() if listed.exists() else ""

    def remove_all(self) -> None:
        if found := self.containers():
            self.run("rm", "--force", "--time", "0", *found)
