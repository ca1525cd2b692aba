"""A real PostgreSQL for this test process: created when first needed, removed when the process ends in any way."""

import atexit
import itertools
import os
import pwd
import secrets
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

from holdfast.store.postgres import migrate
from holdfast.store.postgres.connection import connect

UNPRIVILEGED = ("postgres", "nobody")
"""PostgreSQL refuses to run as root; one of these does it then."""
TIMEOUT = 60.0
LOCALE = "C.UTF-8"
STRATEGIES_SINCE = 150_000


def binaries() -> Path:
    """The directory of the server's programs. A missing one is a failure, not a skip."""
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
    """A server with its own data directory and a socket in it."""

    def __init__(self, *, durable: bool = False, connections: int = 200) -> None:
        self.user = _user()
        self.folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.data = self.folder / "data"
        shutil.chown(self.folder, self.user)
        self._server: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)
        self._template: str | None = None
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
        """A command prefix that runs a program as the server's user and ends it with this process."""
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
        """Like a power cut, except for the disk: kill the server and all its children."""
        assert self._server is not None
        postmaster = psutil.Process(self._server.pid)
        postmaster.suspend()  # it would start another child for one that is killed
        children = postmaster.children(recursive=True)
        for one in (*children, postmaster):
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._server.wait()
        psutil.wait_procs(children, timeout=TIMEOUT)
        self._server = None

    def restart(self) -> None:
        """Like an administrator: existing connections are closed."""
        assert self._server is not None
        self._server.send_signal(signal.SIGINT)
        self._server.wait(TIMEOUT)
        self.start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.send_signal(signal.SIGQUIT)
            self._server.wait(TIMEOUT)
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
        """Like `execute`, on a server that is just starting, or recovering after a child was killed."""
        limit = time.monotonic() + TIMEOUT
        while True:
            try:
                return self.execute(sql)
            except psycopg.OperationalError:
                alive = self._server is not None and self._server.poll() is None
                assert alive and time.monotonic() < limit, (self.folder / "log").read_text()
                time.sleep(0.02)  # there is no event to wait for: the server cannot tell us before it answers

    def new_database(self, *, migrated: bool = False) -> str:
        """The URL of an empty database; or, if `migrated`, of an empty store, copied from a template."""
        name = f"db_{next(self._numbers)}"
        if not migrated:
            self._copy_database("template1", name)
            return self.url(name)
        if self._template is None:
            self._template = self.new_database()
            with connect(self._template) as link:
                migrate.migrate_store(link, self._template)
        self._copy_database(name_of(self._template), name)
        self.execute(f"UPDATE meta SET value = '{secrets.token_hex(8)}' WHERE key = 'store_id'", name)
        return self.url(name)

    def _copy_database(self, template: str, name: str) -> None:
        """By copying files, which takes two thirds of the time of a copy through the WAL."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as link:
            strategy = "STRATEGY FILE_COPY" if link.info.server_version >= STRATEGIES_SINCE else ""
            link.execute(f"CREATE DATABASE {name} TEMPLATE {template} {strategy}".encode())


def name_of(url: str) -> str:
    """The database of a URL."""
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
