"""A pair of PostgreSQL servers managed by Patroni, with etcd and synchronous replication."""

import json
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg

from tests.crash.programs import Hung, wait_until
from tests.fleet.lan import Lan
from tests.postgres.cluster import binaries

NODES = ("db1", "db2")
MEMORY = "etcd"
TIMEOUT = 90.0
ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
TTL = {"ttl": 10, "loop_wait": 1, "retry_timeout": 4}
"""A leader that is silent for ten seconds loses its role."""


def _as_postgres() -> list[str]:
    """A command prefix that runs a program as the server's user and ends it with this process."""
    words = ["setpriv", "--pdeathsig", "SIGTERM"]
    if os.geteuid() == 0:
        account = pwd.getpwnam("postgres")
        words += [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
    return words


class Node:
    """One of the two nodes: a server and its Patroni."""

    def __init__(self, lan: Lan, folder: Path, name: str) -> None:
        self.name = name
        self._lan = lan
        self._folder = folder / name
        self._folder.mkdir()
        self._config = self._folder / "patroni.yml"
        self._config.write_text(json.dumps(self._settings()))
        for path in (self._folder, self._config):
            shutil.chown(path, "postgres")
        self._patroni: subprocess.Popen[bytes] | None = None

    def _settings(self) -> dict[str, object]:
        """Patroni reads YAML, of which JSON is a part."""
        lan, own = self._lan, self.name
        parameters = {"fsync": "on", "synchronous_commit": "on", "wal_log_hints": "on", "max_connections": 150}
        trusted = ["local all all trust", "host all all all trust", "host replication all all trust"]
        return {
            "scope": "holdfast",
            "name": own,
            "restapi": {
                "listen": _at(lan.bind(own, "inner", 8008)),
                "connect_address": _at(lan.reach("*", own, "inner", 8008)),
            },
            "etcd3": {"hosts": [_at(lan.reach(own, MEMORY, "inner", 2379))], "use_proxies": True},
            "bootstrap": {
                "dcs": {
                    **TTL,
                    "synchronous_mode": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": parameters},
                },
                "initdb": [{"encoding": "UTF8"}, {"locale": "C.UTF-8"}, "data-checksums"],
                "pg_hba": trusted,
            },
            "postgresql": {
                "listen": _at(lan.bind(own, "inner", 5432)),
                "connect_address": _at(lan.reach("*", own, "inner", 5432)),
                "data_dir": str(self._folder / "data"),
                "bin_dir": str(binaries()),
                "pgpass": str(self._folder / "pgpass"),
                "pg_hba": trusted,
                "use_unix_socket": True,
                "authentication": {
                    "superuser": {"username": "postgres"},
                    "replication": {"username": "replicator", "password": "replicator"},
                },
                "parameters": {"unix_socket_directories": str(self._folder), "shared_buffers": "32MB"},
            },
        }

    def start(self) -> None:
        with (self._folder / "log").open("ab") as out:
            command = [*self._lan.where(self.name), *_as_postgres(), "/usr/bin/patroni", str(self._config)]
            self._patroni = subprocess.Popen(
                command, stdout=out, stderr=out, env=ENVIRONMENT, cwd=self._folder, start_new_session=True
            )

    @property
    def url(self) -> str:
        """Its address for this process, which needs no network."""
        port = self._lan.bind(self.name, "inner", 5432)[1]
        return f"postgresql://postgres@/postgres?host={self._folder}&port={port}&connect_timeout=5"

    def ask(self, sql: str) -> str | None:
        """The first value of the result; None if no server answers."""
        try:
            with psycopg.connect(self.url, autocommit=True) as link:
                row = link.execute(sql.encode()).fetchone()
        except psycopg.OperationalError:
            return None
        return "" if row is None else str(row[0])

    @property
    def leads(self) -> bool:
        return self.ask("SELECT NOT pg_is_in_recovery()") == "True"

    def roles(self) -> dict[str, str]:
        """The role and state of each node, according to Patroni."""
        command = [*self._lan.where(self.name), "/usr/bin/patronictl", "-c", str(self._config), "list", "-f", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=TIMEOUT)
        members = json.loads(done.stdout) if done.returncode == 0 else []
        return {member["Member"]: f"{member['Role']} {member['State']}" for member in members}

    def kill(self) -> None:
        """Like a power cut: kill Patroni and the server with all its children at once."""
        assert self._patroni is not None
        found = [psutil.Process(self._patroni.pid)]
        with suppress(FileNotFoundError, psutil.NoSuchProcess, ValueError):
            found.append(psutil.Process(int((self._folder / "data" / "postmaster.pid").read_text().split("\n")[0])))
        everybody: list[psutil.Process] = []
        for one in found:
            with suppress(psutil.NoSuchProcess):
                one.suspend()
                everybody += [one, *one.children(recursive=True)]
        for one in everybody:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._patroni.wait(TIMEOUT)
        psutil.wait_procs(everybody, timeout=TIMEOUT)
        self._patroni = None

    def close(self) -> None:
        if self._patroni is not None:
            self.kill()

    def said(self) -> str:
        """The end of its logs, for debugging."""
        log = self._folder / "log"
        return log.read_text()[-3000:] if log.exists() else ""


def _at(address: tuple[str, int]) -> str:
    return f"{address[0]}:{address[1]}"


class Pair:
    """Both nodes and etcd. Must be closed."""

    def __init__(self, lan: Lan) -> None:
        for program in ("patroni", "etcd"):
            assert shutil.which(program), f"there is no {program} here: scripts/system-packages installs it"
        self._lan = lan
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pair-"))
        self.folder.chmod(0o755)
        for name in (MEMORY, *NODES):
            lan.add(name, "inner")
        self._memory = self._start_memory()
        self.nodes = [Node(lan, self.folder, name) for name in NODES]

    def _start_memory(self) -> "subprocess.Popen[bytes]":
        own = f"http://{_at(self._lan.bind(MEMORY, 'inner', 2379))}"
        peer = f"http://{_at(self._lan.bind(MEMORY, 'inner', 2380))}"
        command: Sequence[str] = [
            *self._lan.where(MEMORY), *("setpriv", "--pdeathsig", "SIGKILL", "etcd", "--name", MEMORY),
            *("--data-dir", str(self.folder / "memory"), "--listen-client-urls", own, "--advertise-client-urls", own),
            *("--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--unsafe-no-fsync"),
            *("--initial-cluster", f"{MEMORY}={peer}"),
        ]  # fmt: skip
        with (self.folder / "memory.log").open("ab") as out:
            return subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)

    def start(self) -> None:
        wait_until(
            self._remembers, "etcd has agreed with itself on its version", TIMEOUT
        )  # Patroni does not start before
        for node in self.nodes:
            node.start()
        self.wait_for_both()

    def _remembers(self) -> bool:
        url = f"http://{_at(self._lan.bind(MEMORY, 'inner', 2379))}/version"
        code = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())"
        command = [*self._lan.where(MEMORY), sys.executable, "-c", code, url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT)
        return done.returncode == 0 and json.loads(done.stdout)["etcdcluster"] != "not_decided"

    @property
    def leader(self) -> Node:
        found = [node for node in self.nodes if node.leads]
        assert found, "there is no leader"
        return found[0]

    def other(self, node: Node) -> Node:
        return self.nodes[1 - self.nodes.index(node)]

    def wait_for_both(self) -> None:
        """Wait until one is the leader and the other has everything that is acknowledged."""
        self._wait(self._is_whole, "a leader with a standby that has everything")

    def _is_whole(self) -> bool:
        roles = sorted(self.nodes[0].roles().values())
        return roles in (["Leader running", "Sync Standby running"], ["Leader running", "Sync Standby streaming"])

    def wait_for_leader(self, node: Node) -> None:
        self._wait(lambda: node.leads, f"{node.name} to lead")

    def _wait(self, true: Callable[[], bool], what: str) -> None:
        try:
            wait_until(true, what, TIMEOUT, every=0.5)
        except Hung as e:
            raise Hung(f"{e}\n{self.nodes[0].said()}\n---\n{self.nodes[1].said()}") from e

    def store(self, source: str, database: str) -> str:
        """The URL of the store for a worker of that machine."""
        ways = [self._lan.reach(source, node.name, "inner", 5432) for node in self.nodes]
        hosts, ports = ",".join(way[0] for way in ways), ",".join(str(way[1]) for way in ways)
        return f"postgresql:///{database}?host={hosts}&port={ports}&user=postgres&connect_timeout=3"

    def close(self) -> None:
        for node in self.nodes:
            node.close()
        os.kill(self._memory.pid, signal.SIGKILL)
        self._memory.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
