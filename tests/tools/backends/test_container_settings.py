"""Settings that would give a container access to Holdfast or to the machine are refused."""

import socket
from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.settings import ContainerSettings
from holdfast.tools.backends.container_engine import DENIED, check_settings

ALLOWED = (
    "--ulimit=nofile=1024:1024",
    "--dns=192.0.2.1",
    "--env=NAME=value",
    "--shm-size=8m",
    "--read-only",
    "--hostname=box",
)


def check(home: Path = Path("/srv/holdfast"), **settings: object) -> None:
    check_settings(ContainerSettings(image="img", **settings), home)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(DENIED))
def test_options_that_weaken_the_isolation_are_refused(name):
    for argument in (name, f"{name}=x"):
        with pytest.raises(Invalid, match=name):
            check(extra_args=(argument,))


@pytest.mark.parametrize(
    "argument", ["-v", "-v=/:/x", "--", "host", "", "-", "--env=OPENAI_API_KEY", "--env=*", "--env"]
)
def test_short_options_loose_words_and_copied_variables_are_refused(argument):
    with pytest.raises(Invalid, match="extra_args"):
        check(extra_args=(argument,))


@pytest.mark.parametrize("argument", ALLOWED)
def test_other_options_are_allowed(argument):
    check(extra_args=(argument,))


@pytest.mark.parametrize(
    "network",
    [
        *("host", "ns", "ns:/proc/1/ns/net", "container:other", "name=host", "host,bridge", "", "-x"),
        *("slirp4netns:allow_host_loopback=true", "pasta:-T,22", "private"),
    ],
)
def test_networks_of_the_machine_are_refused(network):
    with pytest.raises(Invalid, match="network"):
        check(network=network)


@pytest.mark.parametrize("network", ["none", "bridge", "my-net_1.x"])
def test_named_networks_are_allowed(network):
    check(network=network)


@pytest.mark.parametrize(
    "source",
    [
        *("/", "/etc", "/root", "/home", "/usr", "/var", "/var/lib", "//", "/srv/..", "/etc/", "/bin"),
        *("/proc", "/proc/1", "/sys/fs/cgroup", "/dev", "/dev/vda", "/dev/mem", "/var/lib/docker/volumes"),
        *("/run", "/run/podman/podman.sock", "/run/docker.sock", "/var/run/docker.sock", "/run/user/1000"),
        *("/srv/holdfast", "/srv/holdfast/files", "/srv", "/srv/holdfast/../holdfast"),
        *("relative", "", "volume-name"),
    ],
)
def test_mounts_of_the_machine_and_of_holdfast_are_refused(source):
    with pytest.raises(Invalid, match="mounts"):
        check(mounts=(f"{source}:/mnt",))


def test_a_link_to_a_forbidden_directory_and_a_socket_are_refused(tmp_path):
    (tmp_path / "link").symlink_to("/proc")
    (tmp_path / "home").mkdir()
    (tmp_path / "to-home").symlink_to(tmp_path / "home")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "engine.sock"))

        for name in ("link", "to-home", "engine.sock"):
            with pytest.raises(Invalid, match="mounts"):
                check(tmp_path / "home", mounts=(f"{tmp_path / name}:/mnt",))


def test_other_mounts_are_allowed():
    check(mounts=("/opt/data:/data:ro", "/srv/other:/other"))


def test_an_image_is_not_an_option():
    with pytest.raises(Invalid, match="image"):
        check_settings(ContainerSettings(image="--privileged"), Path("/srv/holdfast"))
