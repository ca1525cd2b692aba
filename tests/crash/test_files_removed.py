"""The files of a store are removed or replaced under a running server: everything it acknowledges must survive a restart."""

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import httpx
import pytest

from tests.api.serving import Server, ask
from tests.crash.programs import Hung, wait_until

CLIENTS = 3
BEFORE = 6
"""Messages that are acknowledged before the files are touched."""


class Load:
    """Clients of a server, and what it acknowledged to each."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.acknowledged: list[str] = []
        self.refused: list[httpx.Response] = []
        self.refused_clients: set[int] = set()
        self._threads = [threading.Thread(target=self._send_messages, args=(n,)) for n in range(CLIENTS)]

    def __enter__(self) -> "Load":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _send_messages(self, client: int) -> None:
        number = 0
        with self._server.http() as http:
            while not self._stop.is_set():
                number += 1
                text = f"message-{client}-{number}-end"
                response = ask(http, text, headers={"x-session-key": f"{client}-{number}"})
                if response.status_code == 200:
                    self.acknowledged.append(text)
                else:
                    self.refused.append(response)
                    self.refused_clients.add(client)


def remove(*ends: str) -> Callable[[Path], None]:
    def do(home: Path) -> None:
        for end in ends:
            (home / f"holdfast.db{end}").unlink()

    return do


def replace_database(home: Path) -> None:
    copy = home / "other.db"
    shutil.copyfile(home / "holdfast.db", copy)
    copy.replace(home / "holdfast.db")


def replace_wal(home: Path) -> None:
    (home / "new").write_bytes(b"")
    (home / "new").replace(home / "holdfast.db-wal")


def put_back(elsewhere: Path, home: Path) -> bool:
    """Whether it succeeded: the server may create a new home for its log file at any time."""
    shutil.rmtree(home, ignore_errors=True)
    try:
        elsewhere.rename(home)
    except OSError as e:
        assert e.errno == errno.ENOTEMPTY
        return False
    return True


def stored(database: Path) -> str:
    """All text in the events of a store."""
    with closing(apsw.Connection(str(database))) as connection:
        return " ".join(str(row[0]) for row in connection.execute("SELECT body FROM event"))


def disturb(server: Server, damage: Callable[[Path], None]) -> tuple[list[str], list[httpx.Response], httpx.Response]:
    """Do the damage under load; return what was acknowledged, what was refused, and the response of /ready."""
    with Load(server) as load, server.http() as http:
        wait_until(lambda: len(load.acknowledged) >= BEFORE, "messages to be acknowledged")
        damage(server.home)
        # A client that was refused has no older message under way.
        wait_until(lambda: len(load.refused_clients) == CLIENTS, "every client to be refused")
        before = len(load.acknowledged)
        wait_until(lambda: len(load.refused) >= 3 * CLIENTS, "more messages to be refused")
        ready = http.get("/ready")
        assert len(load.acknowledged) == before, "nothing is acknowledged after a refusal"
    return load.acknowledged, load.refused, ready


@pytest.mark.crash
@pytest.mark.parametrize(
    "damage", [remove("-wal", "-shm"), remove("-wal"), remove("-shm")], ids=["wal and shm", "wal", "shm"]
)
@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_acknowledged_messages_survive_the_removal_of_the_wal(
    own: Server, damage: Callable[[Path], None], end: str
) -> None:
    acknowledged, refused, ready = disturb(own, damage)

    own.kill() if end == "killed" else own.stop()
    own.restart()
    with own.http() as http:
        assert ask(http, "hello again").status_code == 200
    own.stop()

    text = stored(own.home / "holdfast.db")
    assert [one for one in acknowledged if one not in text] == []
    assert {response.status_code for response in refused} <= {503, 507}
    assert "holdfast.db-" in refused[-1].json()["error"]["message"]
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")


@pytest.mark.crash
@pytest.mark.parametrize(
    "damage", [remove(""), replace_database, replace_wal], ids=["removed", "replaced", "wal replaced"]
)
def test_what_was_acknowledged_is_saved_beside_a_database_that_was_replaced(
    own: Server, damage: Callable[[Path], None]
) -> None:
    acknowledged, refused, ready = disturb(own, damage)
    own.kill()

    text = stored(own.home / "holdfast.db.rescued-1")
    assert [one for one in acknowledged if one not in text] == []
    assert (own.home / "holdfast.db.rescued-1").stat().st_mode & 0o077 == 0
    assert {response.status_code for response in refused} <= {503, 507}
    assert ready.status_code == 503


@pytest.mark.crash
def test_a_server_whose_database_was_removed_starts_again_only_with_its_sessions(own: Server) -> None:
    acknowledged, _, _ = disturb(own, remove(""))
    own.kill()
    newest = max(own.home.glob("holdfast.db.rescued-*"), key=lambda file: file.stat().st_mtime_ns)

    with pytest.raises(Hung, match=re.escape(str(newest))):
        own.restart()
    restored = subprocess.run(
        [sys.executable, "-m", "holdfast", "--home", own.home, "restore", newest], capture_output=True, check=False
    )
    own.restart()

    assert restored.returncode == 0, restored.stderr
    text = stored(own.home / "holdfast.db")
    assert [one for one in acknowledged if one not in text] == []


@pytest.mark.crash
def test_a_home_that_was_moved_away_stops_the_server_until_it_is_back(own: Server, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    acknowledged, _, ready = disturb(own, lambda home: os.rename(home, elsewhere))  # noqa: PTH104
    wait_until(lambda: put_back(elsewhere, own.home), "the home to be back")
    with own.http() as http:
        wait_until(lambda: http.get("/ready").status_code == 200, "the server to be ready again")
        response = ask(http, "hello again")
    own.kill()

    assert ready.status_code == 503
    assert response.status_code == 200
    text = stored(own.home / "holdfast.db")
    assert [one for one in [*acknowledged, "hello again"] if one not in text] == []
    assert not list(own.home.glob("*.rescued-*"))
