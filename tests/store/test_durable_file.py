"""Files that the store relies on, or that a committed event names, are durable, with their names, before they are used."""

import os
from pathlib import Path

import apsw
import pytest

from holdfast.gateway import attachments
from holdfast.gateway.port import Attachment
from holdfast.model.image_service import ImageContent
from holdfast.model.message import File
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import location, migrate
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tools.make_image import save
from holdfast.tools.output_capture import SHOWN_CHARS, OutputCapture
from tests.tools.test_send_file import send


class Synced:
    """Records what was flushed, as paths, and the schema that others saw in a store at that moment."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._fsync = os.fsync
        self.paths: list[Path] = []
        self.schemas: dict[Path, object] = {}

    def __call__(self, descriptor: int) -> None:
        self._fsync(descriptor)
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        self.paths.append(path)
        if self._store.exists():
            connection = apsw.Connection(str(self._store), flags=apsw.SQLITE_OPEN_READONLY)
            self.schemas[path] = connection.pragma("user_version")
            connection.close()


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Synced:
    made = Synced(tmp_path / "old.db")
    monkeypatch.setattr(os, "fsync", made)
    return made


async def test_the_directories_of_a_new_store_are_flushed(tmp_path: Path, synced: Synced) -> None:
    folder = tmp_path / "new" / "home"
    database = await open_sqlite(folder / "holdfast.db")
    await database.close()

    assert {tmp_path, tmp_path / "new", folder} <= set(synced.paths)


async def test_the_copy_before_an_upgrade_is_flushed_before_the_upgrade_is_committed(
    tmp_path: Path, synced: Synced
) -> None:
    store, older = tmp_path / "old.db", migrate.known()[:-1]
    location.prepare(store)
    connection = sqlite_connection.connect(store)
    migrate.migrate(connection, store, older)
    synced.paths.clear()

    migrate.migrate(connection, store)
    connection.close()

    copy = store.with_name(f"old.db.before-{older[-1].number + 1:04}")
    part = copy.with_name(f"{copy.name}.part")
    assert copy.exists()
    assert synced.paths == [part, tmp_path], "the file under its first name, then the folder with its last"
    assert synced.schemas[part] == synced.schemas[tmp_path] == older[-1].number, "the new schema was not visible yet"


async def test_a_sent_file_is_flushed_before_its_result_is_returned(tmp_path: Path, synced: Synced) -> None:
    (tmp_path / "plan.txt").write_text("a plan")
    output = await send(tmp_path, "plan.txt")

    _, file = output.parts
    assert isinstance(file, File)
    copy = tmp_path / "files" / file.url.removeprefix("file:")
    assert {copy, copy.parent, copy.parent.parent, tmp_path / "files", tmp_path} <= set(synced.paths)


async def test_a_made_image_is_flushed_before_its_result_is_returned(tmp_path: Path, synced: Synced) -> None:
    saved = save(ImageContent("image/png", b"a picture"), tmp_path / "files" / "hf-1")
    # The content is flushed under the name that the file has before it is complete.
    partial = saved.with_name(f".{saved.name}.{os.getpid()}.partial")

    assert saved.read_bytes() == b"a picture"
    assert {partial, saved.parent, tmp_path / "files", tmp_path} <= set(synced.paths)
    assert synced.paths.index(partial) < len(synced.paths) - 1 - synced.paths[::-1].index(saved.parent)
    assert list(saved.parent.iterdir()) == [saved]


class Mail:
    """A platform with one attachment."""

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        target.write_bytes(b"a plan")


async def test_an_attachment_is_flushed_before_its_message_is_admitted(tmp_path: Path, synced: Synced) -> None:
    folder = tmp_path / "files" / "hf-1"
    await attachments.fetch_attachments(
        Mail(),  # type: ignore[arg-type]
        (Attachment(ref="1", name="plan.txt", media_type="text/plain"),),
        attachments.AttachmentTarget(folder, "l1", 1_000),
    )

    [kept] = folder.iterdir()
    assert {kept, folder, tmp_path / "files", tmp_path} <= set(synced.paths)


def test_output_saved_in_a_file_is_flushed_before_its_result_is_returned(tmp_path: Path, synced: Synced) -> None:
    with OutputCapture(tmp_path / "files", "terminal-1") as capture:
        capture.feed(b"x" * (SHOWN_CHARS + 1))
    capture.make_durable()

    assert capture.path is not None
    assert {capture.path, tmp_path / "files"} <= set(synced.paths)
