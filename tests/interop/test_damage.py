"""Damaged, incomplete and unknown files are refused or imported in part, always with a message."""

import asyncio
import json
import random
import sqlite3
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.interop.importing import detect
from holdfast.interop.importing.runner import ImportResult
from holdfast.model.errors import HoldfastError, Invalid, NotFound
from holdfast.store import verify
from holdfast.store.database import Database
from holdfast.store.sqlite.driver import open_sqlite
from tests.interop import sample_files
from tests.interop.importing.test_sync import MAKERS
from tests.interop.run_import import bring, entries

FILES: dict[str, bytes] = {}


def fixture(name: str) -> bytes:
    """The bytes of one of the files, made once."""
    if name not in FILES:
        with tempfile.TemporaryDirectory() as folder:
            path = MAKERS[name](Path(folder))
            if path.suffix == ".db":
                with sqlite3.connect(path) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                connection.close()
            FILES[name] = path.read_bytes()
    return FILES[name]


def import_all(data: bytes, suffix: str) -> list[ImportResult]:
    """Import it into a new store, verify the store, and read every session."""

    async def go() -> list[ImportResult]:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"source{suffix}")
            path.write_bytes(data)
            database = await open_sqlite(Path(folder, "h", "holdfast.db"))
            try:
                results = await bring(database, path)
                for result in results:
                    if result.taken is not None and result.taken.session is not None:
                        await entries(database, result.taken.session.id)
                        assert result.taken.source == result.taken.taken + result.taken.copied + result.taken.skipped
                assert (await verify.verify(database)).ok
                return results
            finally:
                await database.close()

    return asyncio.run(go())


def damaged(data: bytes, seed: int) -> bytes:
    """The file with some bytes changed, cut out, repeated, or its end lost."""
    chance = random.Random(seed)
    for _ in range(chance.randint(1, 4)):
        at, length = chance.randrange(len(data)), chance.choice([1, 1, 3, 40, 300])
        match chance.randrange(5):
            case 0:
                data = data[:at] + chance.randbytes(length) + data[at + length :]
            case 1:
                data = data[:at] + data[at + length :]
            case 2:
                data = data[:at] + data[at : at + length] * 2 + data[at + length :]
            case 3:
                data = data[: max(at, 1)]
            case _:
                data = data[:at] + chance.choice([b"null", b"{}", b"[]", b"-1", b'"x"', b"1e999"]) + data[at:]
        data = data or b"x"
    return data


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", MAKERS)
@settings(max_examples=40)
@given(seed=st.integers(0, 2**32))
def test_a_damaged_file_is_imported_or_refused_with_a_message(name: str, seed: int) -> None:
    for result in import_all(damaged(fixture(name), seed), ".db" if "hermes" in name else ".jsonl"):
        assert result.error is None or str(result.error)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=4,
)


def values_in(value: object) -> list[tuple[object, object]]:
    """Every place in a JSON value: its container and its key."""
    found: list[tuple[object, object]] = []
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(inside):
        found += [(value, key), *values_in(inner)]
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["codex", "claude code", "chatgpt"])
@settings(max_examples=60)
@given(data=st.data())
def test_any_value_may_have_any_type(name: str, data: st.DataObject) -> None:
    """The JSON is valid, but its values do not follow the documented format."""
    text = fixture(name).decode()
    whole = name == "chatgpt"
    values = [json.loads(text)] if whole else [json.loads(line) for line in text.splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        container, key = data.draw(st.sampled_from(values_in(values)))
        container[key] = data.draw(JSON)  # type: ignore[index]
    lines = json.dumps(values[0]) if whole else "".join(json.dumps(value) + "\n" for value in values)

    import_all(lines.encode(), ".json" if whole else ".jsonl")


@pytest.mark.slow
@pytest.mark.timeout(300)
@settings(max_examples=60)
@given(data=st.data())
def test_any_cell_of_hermes_may_have_any_type(data: st.DataObject) -> None:
    cells = (
        st.none()
        | st.integers(-(2**62), 2**62)
        | st.floats(allow_nan=False)
        | st.binary(max_size=5)
        | st.text(max_size=9)
    )
    cells |= st.sampled_from(["\x00json:[1]", '\x00json:[{"type":"text"}]', "[]", "[[]]", '[{"function":3}]', "{"])
    with tempfile.TemporaryDirectory() as folder:
        source = sample_files.hermes_rotated(Path(folder, "state.db"))
        for _ in range(data.draw(st.integers(1, 3))):
            table = data.draw(st.sampled_from(["sessions", "messages"]))
            column = data.draw(st.sampled_from(sorted(source.columns[table] - {"id", "session_id"})))
            value = data.draw(cells)
            row = data.draw(st.integers(1, 5))
            source.connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?", (value, row))
        source.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        data_ = Path(folder, "state.db").read_bytes()
        source.close()

    import_all(data_, ".db")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is empty"),
        (b" \n ", "is empty"),
        (b"\x89PNG\r\n\x1a\n\x00", "is not an export of Holdfast"),
        (b"\x7fELF\x02\x01", "is not an export of Holdfast"),
        (b"PK\x03\x04", "is not an export of Holdfast"),
        (b"hello\n", "is not an export of Holdfast"),
        (b"{}", "is JSON, but not"),
        (b"[]", "is JSON, but not"),
        (b"[1, 2", "is truncated or damaged"),
        (b'{"a": 1}\n{"b": 2}\n', "is JSON, but not"),
        (b'[{"role": "user"}]', "is JSON, but not"),
        (b"[" * 100_000, "is truncated or damaged"),
        (b'{"a":' * 100_000, "is truncated or damaged"),
        (b'[{"title": "Half", "mapping": {', "is truncated or damaged"),
        (b'{"type": "session_meta", "payload": {"id"', "is truncated or damaged"),
        (b"SQLite format 3\x00" + b"\xff" * 500, "cannot be read"),
    ],
)
def test_an_unknown_file_is_refused_and_named(tmp_path: Path, content: bytes, says: str) -> None:
    file = tmp_path / "strange.file"
    file.write_bytes(content)

    with pytest.raises(HoldfastError, match=says) as caught:
        detect.detect_format(file)

    assert str(file) in str(caught.value)


def test_other_databases_are_distinguished(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()

    with pytest.raises(Invalid, match="not one of Hermes"):
        detect.detect_format(other)


async def test_a_store_of_holdfast_is_distinguished(database: Database) -> None:
    with pytest.raises(Invalid, match="is a store of Holdfast"):
        detect.detect_format(Path(str(database.path)))  # type: ignore[attr-defined]


def test_a_missing_path_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="nowhere"):
        list(detect.find_sources(tmp_path / "nowhere"))


@pytest.mark.parametrize("name", MAKERS)
def test_a_file_is_recognised_by_its_content_alone(tmp_path: Path, name: str) -> None:
    file = tmp_path / "nothing.in.its.name"
    file.write_bytes(fixture(name))
    expected = "hermes" if "hermes" in name else "claude-code" if "claude" in name else name.partition(",")[0]

    assert detect.detect_format(file).format == expected


async def test_a_folder_is_searched_and_unknown_files_are_skipped(database: Database, tmp_path: Path) -> None:
    home = tmp_path / "dot-codex"
    sample_files.codex(home / "sessions" / "2026" / "01" / "02" / "rollout-1.jsonl")
    sample_files.write_lines(home / "history.jsonl", [{"session_id": "x", "ts": 1, "text": "y"}])
    (home / "config.toml").write_text("model = 'x'")
    (home / "version.json").write_text('{"latest": 1}')
    (home / "loop").symlink_to(home)

    results = await bring(database, home)

    assert [result.taken.outcome for result in results if result.taken is not None] == ["new"]
    assert sorted(Path(result.file).name for result in results if result.ignored) == ["history.jsonl", "version.json"]
    assert not [result for result in results if result.error is not None]


async def test_a_folder_without_sessions_is_an_error(database: Database, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()

    results = await bring(database, tmp_path / "empty")

    assert isinstance(results[0].error, Invalid)
