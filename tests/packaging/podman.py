"""Containers on a Debian made by debootstrap, so that no image registry is needed."""

import os
import subprocess
from pathlib import Path

# crun fails on machines with the first version of cgroups; the limits are those of an unprivileged container.
RUN = ("--runtime", "runc", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
OWN = f"localhost/holdfast-test-{os.getpid()}"
"""Begins the names of the images of this process: others may make theirs at the same time."""


def podman(*words: str | Path) -> str:
    done = subprocess.run(["podman", *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done.stdout.strip()


def make_base(folder: Path) -> str:
    """An image of Debian with Python; returns its name."""
    packages = "--include=python3,python3-venv"
    subprocess.run(
        ["debootstrap", "--variant=minbase", packages, "bookworm", folder / "root"], check=True, capture_output=True
    )
    subprocess.run(["tar", "-C", folder / "root", "-cf", folder / "root.tar", "."], check=True)
    podman("import", "-q", folder / "root.tar", f"{OWN}-base")
    return f"{OWN}-base"


def build(name: str, source: Path, *options: str | Path) -> str:
    """Build an image with the Dockerfile in a directory; returns its name."""
    podman("build", *RUN, "--network", "host", "--format", "docker", *options, "-t", f"{OWN}-{name}", source)
    return f"{OWN}-{name}"
