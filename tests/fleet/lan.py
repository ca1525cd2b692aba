"""Machines and the network between them, for tests that interrupt it.

If the kernel allows it, each machine is a network namespace with its own address on two switches: one to the
databases, one to the clients. A link is cut at the switch, so that neither side gets an error. Without namespaces, the
machines are names for ports of this one, and each link is a proxy in this process that holds back what
it carries. Both have the same effect on the programs: no data arrives, and no error is reported.
"""

import os
import socket
import subprocess
from collections.abc import Sequence
from typing import Literal, Protocol

from tests.fleet.faulty_proxy import FaultyProxy

Net = Literal["inner", "outer"]
"""The databases' switch, and the clients'."""
SUBNET = {"inner": "10.77.0", "outer": "10.77.1"}


class Lan(Protocol):
    how: str
    """A description for the output of the tests."""

    def add(self, name: str, *nets: Net) -> None:
        """One more machine, on these switches."""

    def where(self, name: str) -> Sequence[str]:
        """A command prefix that runs a program on the machine."""

    def bind(self, name: str, net: Net, port: int) -> tuple[str, int]:
        """Where a program of the machine is to listen; `port` is the usual one."""

    def reach(self, source: str, target: str, net: Net, port: int) -> tuple[str, int]:
        """Where a program of one machine finds what listens on another. As source, `*` is any machine."""

    def cut(self, name: str) -> None:
        """From now on nothing passes between the machine and the inner switch."""

    def mend(self, name: str) -> None: ...

    def close(self) -> None: ...


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise OSError(f"ip {' '.join(words)}: {done.stderr.strip()}")


class Namespaces:
    """Machines that are network namespaces. Raises OSError if the kernel refuses."""

    def __init__(self) -> None:
        self.how = "network namespaces"
        self._prefix = f"hf{os.getpid()}-"
        self._switch = f"{self._prefix}sw"
        self._made: list[str] = []
        self._numbers: dict[str, int] = {}
        self._make(self._switch)
        try:
            for net in SUBNET:
                _ip("-n", self._switch, "link", "add", net, "type", "bridge")
                _ip("-n", self._switch, "link", "set", net, "up")
        except OSError:
            self.close()
            raise

    def _make(self, space: str) -> None:
        _ip("netns", "add", space)
        self._made.append(space)
        _ip("-n", space, "link", "set", "lo", "up")

    def add(self, name: str, *nets: Net) -> None:
        space, number = self._prefix + name, len(self._numbers) + 11
        self._make(space)
        self._numbers[name] = number
        for net in nets:
            port = f"{name}-{net}"
            _ip("-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", net, "netns", space)
            _ip("-n", self._switch, "link", "set", port, "master", net, "up")
            _ip("-n", space, "addr", "add", f"{SUBNET[net]}.{number}/24", "dev", net)
            _ip("-n", space, "link", "set", net, "up")

    def where(self, name: str) -> Sequence[str]:
        return ["ip", "netns", "exec", self._prefix + name]

    def bind(self, name: str, net: Net, port: int) -> tuple[str, int]:
        return f"{SUBNET[net]}.{self._numbers[name]}", port

    def reach(self, source: str, target: str, net: Net, port: int) -> tuple[str, int]:
        return self.bind(target, net, port)

    def cut(self, name: str) -> None:
        _ip("-n", self._switch, "link", "set", f"{name}-inner", "down")

    def mend(self, name: str) -> None:
        _ip("-n", self._switch, "link", "set", f"{name}-inner", "up")

    def close(self) -> None:
        for space in reversed(self._made):
            _ip("netns", "del", space)
        self._made.clear()


class Loopback:
    """Machines that are ports of this one, with a proxy for each link between two of them."""

    def __init__(self, reason: str) -> None:
        self.how = f"proxies on this machine, because namespaces are refused ({reason})"
        self._ports: dict[tuple[str, Net, int], int] = {}
        self._wires: dict[tuple[str, str, Net, int], FaultyProxy] = {}

    def add(self, name: str, *nets: Net) -> None:
        pass

    def where(self, name: str) -> Sequence[str]:
        return []

    def bind(self, name: str, net: Net, port: int) -> tuple[str, int]:
        known = (name, net, port)
        if known not in self._ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                self._ports[known] = free.getsockname()[1]
        return "127.0.0.1", self._ports[known]

    def reach(self, source: str, target: str, net: Net, port: int) -> tuple[str, int]:
        if net == "outer":
            return self.bind(target, net, port)
        way = (source, target, net, port)
        if way not in self._wires:
            self._wires[way] = FaultyProxy(self.bind(target, net, port))
        return self._wires[way].address

    def _of(self, name: str) -> list[FaultyProxy]:
        return [proxy for (source, target, net, _), proxy in self._wires.items() if name in (source, target)]

    def cut(self, name: str) -> None:
        for proxy in self._of(name):
            proxy.hold_up()

    def mend(self, name: str) -> None:
        for proxy in self._of(name):
            proxy.let_through()

    def close(self) -> None:
        for proxy in self._wires.values():
            proxy.close()


def build(*, namespaces: bool = True) -> Lan:
    """The best machines that this host supports."""
    if not namespaces:
        return Loopback("the test asks for it")
    try:
        return Namespaces()
    except OSError as e:
        return Loopback(str(e))
