"""A real PostgreSQL for this process of tests: made when first asked for, gone when the process ends, however it ends."""

import atexit
import itertools
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from functools import cache
from pathlib import Path

import psutil
import psycopg
from psycopg.conninfo import conninfo_to_dict

UNPRIVILEGED = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; one of these does it then."""
PATIENCE = 60.0
LOCALE = "C.UTF-8"


def binaries() -> Path:
    """Where the server's programs are. A missing one is a failure: a store nobody ran is a store nobody has."""
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    found = [folder for folder in folders if (folder / "initdb").exists()]
    if found:
        return found[-1]
    initdb = shutil.which("initdb")
    assert initdb, "there is no PostgreSQL here: scripts/system-packages installs it"
    return Path(initdb).resolve().parent


def _user() -> str:
    if os.geteuid() != 0:
        return pwd.getpwuid(os.geteuid()).pw_name
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next(name for name in UNPRIVILEGED if name in known)


class Cluster:
    """A server with a data folder of its own, reached by a socket in that folder."""

    def __init__(self, *, durable: bool = False, connections: int = 200) -> None:
        self.user = _user()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.data = self.folder / "data"
        shutil.chown(self.folder, self.user)
        self._server: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        flush = "on" if durable else "off"
        made = ["--auth=trust", f"--username={self.user}", "--encoding=UTF8", f"--locale={LOCALE}", "--no-sync"]
        subprocess.run(
            [*self._as_user(), binaries() / "initdb", *made, self.data], check=True, stdout=subprocess.DEVNULL
        )
        with (self.data / "postgresql.conf").open("a") as conf:
            conf.write(f"fsync = {flush}\nfull_page_writes = {flush}\nsynchronous_commit = on\n")
            conf.write(f"listen_addresses = ''\nunix_socket_directories = '{self.folder}'\n")
            conf.write(f"max_connections = {connections}\n")
            conf.write("shared_buffers = 32MB\nmax_wal_size = 256MB\nautovacuum_naptime = 10min\n")

    def _as_user(self) -> list[str]:
        """The words that make a program run as the server's user and end with this process."""
        words = ["setpriv", "--pdeathsig", "SIGQUIT"]
        if os.geteuid() == 0:
            account = pwd.getpwnam(self.user)
            words += [f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"]
        return words

    def url(self, database: str) -> str:
        return f"postgresql://{self.user}@/{database}?host={self.folder}"

    def start(self) -> None:
        """Start the server, or start it again after it was killed, and wait until it answers."""
        log = (self.folder / "log").open("ab")
        program: list[str | Path] = [*self._as_user(), binaries() / "postgres", "-D", self.data]
        self._server = subprocess.Popen(program, stdout=log, stderr=log, start_new_session=True)
        log.close()
        self.execute_in_time("SELECT 1")

    def kill(self) -> None:
        """What a power cut leaves of it, the disk aside: the server and all its children end without a word."""
        assert self._server is not None
        postmaster = psutil.Process(self._server.pid)
        postmaster.suspend()  # it would start another child for one that is killed
        children = postmaster.children(recursive=True)
        for one in (*children, postmaster):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._server.wait()
        psutil.wait_procs(children, timeout=PATIENCE)
        self._server = None

    def restart(self) -> None:
        """As an administrator does it: those who are connected are sent away."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait(PATIENCE)
        self.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(PATIENCE)
            self._server = None

    def remove(self) -> None:
        """Stop it and leave nothing behind. May be called twice."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def execute(self, sql: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Run a statement as the server's owner; its rows."""
        with psycopg.connect(self.url(database), autocommit=True) as link:
            cursor = link.execute(sql.encode())
            return cursor.fetchall() if cursor.description else []

    def execute_in_time(self, sql: str) -> list[tuple[object, ...]]:
        """As `execute`, of a server that is just starting, or mending what it lost with a child that was killed."""
        limit = time.monotonic() + PATIENCE
        while True:
            try:
                return self.execute(sql)
            except psycopg.OperationalError:
                alive = self._server is not None and self._server.poll() is None
                assert alive and time.monotonic() < limit, (self.folder / "log").read_text()
                time.sleep(0.02)  # there is no event to wait for: the server cannot tell us before it answers

    def new_database(self) -> str:
        """The address of an empty database."""
        name = f"db_{next(self._numbers)}"
        self.execute(f"CREATE DATABASE {name}")
        return self.url(name)


def name_of(url: str) -> str:
    """The database that an address leads to."""
    return str(conninfo_to_dict(url)["dbname"])


@cache
def cluster() -> Cluster:
    """The server of this process, without flushes: for all tests that do not kill it."""
    made = Cluster()
    atexit.register(made.remove)
    made.start()
    return made


def remove_all() -> None:
    """Leave nothing behind at the end of the tests: a process of pytest-xdist ends without its exit functions."""
    if cluster.cache_info().currsize:
        cluster().remove()
