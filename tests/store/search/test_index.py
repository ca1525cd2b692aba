"""Search finds what grep finds; damage to its index loses no message and no hit."""

import asyncio
import json
import logging
import sys
import unicodedata
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.errors import Invalid, NotSaved, Unavailable, Unsupported
from holdfast.model.event import Compacted, ModelSaid, Titled, ToolEnded
from holdfast.model.ids import Ids
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.store import queries
from holdfast.store.database import Database
from holdfast.store.search.folding import fold
from holdfast.store.search.index import EVERYWHERE, SearchHit, SearchIndex, SearchScope, open_index
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.supervisor import BackgroundTask, Supervisor
from tests.fakes.clock import FakeClock
from tests.store.library import CountedDatabase, Library

ALL = 10_000
PAGE_BYTES = 4096


@pytest.fixture
def library(database: Database, ids: Ids, clock: FakeClock) -> Library:
    return Library(database, ids, clock)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "home" / "search.db"


@pytest.fixture
async def index(path: Path, database: Database) -> AsyncIterator[SearchIndex]:
    opened = await open_index(path, database, busy_seconds=0)
    yield opened
    await opened.close()


async def found(index: SearchIndex, query: str, scope: SearchScope = EVERYWHERE) -> list[str]:
    """The snippets of all hits, newest first, once everything is indexed."""
    await index.catch_up()
    return [hit.snippet for hit in await index.search(query, limit=ALL, scope=scope)]


def marked(hit: SearchHit) -> list[str]:
    return [hit.snippet[start:end] for start, end in hit.marks]


# what is found


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("The quick brown fox", "QUICK"),
        ("The quick brown fox", "row"),
        ("The quick brown fox", "x"),
        ("我想学习中文", "学"),
        ("我想学习中文", "中文"),
        ("我想学习中文", "文"),
        ("我想学习中文", "学习中"),
        ("مرحبا بالعالم", "عالم"),
        ("مرحبا بالعالم", "م"),
        ("שלום עולם", "לום"),
        ("नमस्ते दुनिया", "स्ते"),
        ("안녕하세요", "하세"),
        ("unicode \u1112\u1161\u11ab", "\ud55c"),
        ("party 🎉 time", "🎉"),
        ("crew 👩\u200d🚀", "👩\u200d🚀"),
        ("crew 👩\u200d🚀", "\u200d"),
        ("if (a[0] != b->c) { return -1; }", "[0] != b->c)"),
        ("a.b.c_d-e/f", "_d-e/"),
        ("100% of $5", "% of $"),
        ("Straße", "STRASSE"),
        ("Straße", "straße"),
        ("ΌΣΟΣ", "όσος"),
        ("cafe\u0301", "café"),
        ("café", "CAFE\u0301"),
        ("cafe\u0301", "e"),
        ("ends with \0 and \ud83d", "\0"),
        ("ends with \0 and \ud83d", "\ud83d"),
        ("\ufffe \uffff \U0010ffff \U000f1234", "\ufffe"),
        ("\ufffe \uffff \U0010ffff \U000f1234", "\U0010ffff"),
        ("\ufffe \uffff \U0010ffff \U000f1234", "\U000f1234"),
        ("...!!!???", "!?"),
        ("x", "x"),
    ],
)
async def test_any_substring_of_any_text_is_found(library: Library, index: SearchIndex, text: str, query: str) -> None:
    session_id = await library.open()
    await library.say(session_id, "nil", text)
    await index.catch_up()

    [hit] = await index.search(f'"{query}"')

    assert (hit.session_id, hit.seq, hit.kind, hit.position) == (session_id, 3, "user_said", 3)
    assert hit.marks


@pytest.mark.parametrize(
    "query",
    [
        *(
            "hel*",
            "hello*",
            "^hello",
            "-zebra",
            "text:hello",
            "{text}:hello",
            "hello OR zebra",
            "hello NOT zebra",
            "hell?",
        ),
        *(
            "NEAR(hello world)",
            "hello AND world",
            '"hello"world',
            "he%o",
            "hel_o",
            "hello;",
            "'hello'",
            "(hello)",
            "hello +",
        ),
        *("helloworld", "worldx", "dw", "zz", "\ufffd", "?", "hello\0"),
    ],
)
async def test_no_character_of_a_query_is_special(library: Library, index: SearchIndex, query: str) -> None:
    await library.say(await library.open(), "hello world")

    assert await found(index, query) == []


async def test_all_words_must_be_in_one_event(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), "one two", "two three", "three one 二")

    assert await found(index, "two one") == ["one two"]
    assert await found(index, "one two three") == []
    assert await found(index, "二 one") == ["three one 二"]


async def test_a_quoted_phrase_is_matched_literally(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), "red  apple", "red apple", "apple red")

    assert await found(index, '"red apple"') == ["red apple"]
    assert await found(index, 'apple "red  "') == ["red apple"], "the snippet shows blanks as one"


@pytest.mark.parametrize("query", ["", "   ", "\n"])
async def test_a_query_without_words_is_refused(index: SearchIndex, query: str) -> None:
    with pytest.raises(Invalid, match="the query is empty"):
        await index.search(query)


async def test_a_limit_below_one_is_refused(index: SearchIndex) -> None:
    with pytest.raises(Invalid, match="at least 1"):
        await index.search("word", limit=0)


async def test_every_event_with_text_is_found(library: Library, index: SearchIndex) -> None:
    session_id = await library.open(title="teapot title")
    call = ToolCall("c", "teapot_tool", '{"text":"teapot \\u8336\\u58f6"}')
    await library.add(
        session_id,
        ModelSaid(turn_id="t", parts=(Reasoning(text="teapot thought"), Text("teapot words"), call)),
        ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("teapot result"),)),
        Compacted(epoch=1, upto_seq=3, summary="teapot summary", how="model"),
        Titled(title="teapot renamed"),
    )
    await index.catch_up()

    hits = await index.search("teapot")

    assert [hit.kind for hit in hits] == ["titled", "compacted", "tool_ended", "model_said", "session_opened"]
    assert [hit.seq for hit in await index.search("thought words teapot_tool 茶壶")] == [2]


async def test_a_hit_shows_its_position(library: Library, index: SearchIndex, clock: FakeClock) -> None:
    await library.say(await library.open(), "a line\n" * 1000 + "Then the Storm came." + "\nmore" * 1000)
    await index.catch_up()

    [hit] = await index.search("STORM the")

    assert hit.at == clock.now()
    assert marked(hit) == ["The", "the", "Storm"]
    assert hit.snippet.startswith("…a line a line")


async def test_hits_come_newest_first_and_page_by_page(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"number {n} {'even' if n % 2 == 0 else 'odd'}" for n in range(300)))
    await index.catch_up()

    pages: list[list[SearchHit]] = []
    while not pages or pages[-1]:
        last = pages[-1][-1].position if pages else None
        pages.append(await index.search("even", limit=7, before_position=last))

    assert [hit.snippet for page in pages for hit in page] == [f"number {n} even" for n in range(298, -1, -2)]
    assert {len(page) for page in pages[:-2]} == {7}


@pytest.mark.parametrize("query", ["o", "on", "one", '"one "'])
async def test_the_search_can_be_limited_to_one_session(library: Library, index: SearchIndex, query: str) -> None:
    first, second = await library.open(), await library.open()
    for n in range(5):
        await library.say(first, f"one {n}")
        await library.say(second, f"one {n} more")

    assert await found(index, query, SearchScope(session_id=first)) == [f"one {n}" for n in (4, 3, 2, 1, 0)]
    assert await found(index, query, SearchScope(session_id="hf-unknown")) == []


async def test_sessions_in_the_trash_and_auxiliary_sessions_are_excluded_unless_requested(
    library: Library, index: SearchIndex
) -> None:
    plain, trashed = await library.open(), await library.open()
    side = await library.open(side_of=plain)
    for session_id, text in ((plain, "owl plain"), (trashed, "owl trashed"), (side, "owl side")):
        await library.say(session_id, text)
    await library.trash(trashed)

    assert await found(index, "owl") == ["owl plain"]
    assert await found(index, "owl", SearchScope(trashed=True)) == ["owl trashed", "owl plain"]
    assert await found(index, "owl", SearchScope(sides=True)) == ["owl side", "owl plain"]
    assert await found(index, "owl", SearchScope(session_id=trashed)) == ["owl trashed"]
    assert await found(index, "owl", SearchScope(session_id=side)) == ["owl side"]
    await library.restore(trashed)
    assert await found(index, "owl") == ["owl trashed", "owl plain"]


async def test_a_pruned_session_is_not_found_and_needs_no_rebuild(
    library: Library, index: SearchIndex, database: Database, path: Path
) -> None:
    kept, pruned = await library.open(), await library.open()
    await library.say(kept, "stork kept")
    await library.say(pruned, "stork pruned")
    await index.catch_up()
    await library.prune(pruned)
    counted = CountedDatabase(database)
    another = await open_index(path, counted)  # type: ignore[arg-type] # the rest is passed on

    hits = [await found(another, "stork"), await found(another, "stork")]
    read = counted.events
    await another.search("stork")
    await another.close()

    assert hits == [["stork kept"], ["stork kept"]]
    assert read == 2, "nothing was indexed twice"
    assert counted.events - read == 1, "it was removed from the index"


async def test_a_message_after_the_newest_session_was_pruned_is_found(library: Library, index: SearchIndex) -> None:
    kept, pruned = await library.open(), await library.open()
    await library.say(pruned, "heron gone")
    await index.catch_up()
    await library.prune(pruned)
    await library.say(kept, "heron stays")

    assert await index.lag() > 0
    assert await found(index, "heron") == ["heron stays"]
    assert await index.lag() == 0


async def test_a_text_of_millions_of_characters_is_found_by_any_part(library: Library, index: SearchIndex) -> None:
    text = "".join(f"{n:x} 字{chr(0x4E00 + n % 5000)} " for n in range(40_000)) + "omega"
    await library.say(await library.open(), text)
    await index.catch_up()

    for query in ("omega", "ga", "99f 字", "字一", text[200_000:210_000]):
        assert len(await index.search(query)) == 1


@pytest.mark.parametrize("separator", ["", " "])
async def test_a_query_of_ten_thousand_characters_is_compared_completely(
    library: Library, index: SearchIndex, separator: str
) -> None:
    query = separator.join(f"{n:05}" for n in range(2000))
    await library.say(await library.open(), "short", f"{query}!", f"x{query}", query[:-1])

    assert len(await found(index, query)) == 2
    assert await found(index, query + separator + "2001") == []


async def test_a_common_character_with_many_successors_is_found(library: Library, index: SearchIndex) -> None:
    followers = "".join(f"的{chr(0x4E00 + n)}{chr(0x5E00 + n)}" for n in range(600))
    first, second = await library.open(), await library.open()
    await library.say(first, "前", followers, "后")
    await library.say(second, followers + " ω")

    assert len(await found(index, "的")) == 2
    assert len(await found(index, "的 ω")) == 1
    assert len(await found(index, "的", SearchScope(session_id=first))) == 1
    assert await found(index, "的", SearchScope(session_id="hf-unknown")) == []
    assert len(await found(index, "ж 的")) == 0


async def test_a_search_reads_only_what_it_shows(
    library: Library, index: SearchIndex, database: Database, path: Path
) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"common words number {n}" for n in range(1000)), "the rarest gem", "宝石")
    await index.catch_up()
    counted = CountedDatabase(database)
    another = await open_index(path, counted)  # type: ignore[arg-type] # the rest is passed on

    costs = []
    for query in ("rarest", "gem", "宝", "宝石", "common", "o", "zebra", "common rarest", "the gem"):
        before = counted.events
        await another.search(query, limit=20)
        costs.append(counted.events - before)
    await another.close()

    assert costs == [1, 1, 1, 1, 20, 20, 0, 0, 1]


@pytest.mark.parametrize("query", ["search.find_by_grams", "search.find_by_letters"])
async def test_candidates_come_newest_first_without_a_sort(index: SearchIndex, path: Path, query: str) -> None:
    await index.catch_up()
    params = {"expression": '"abc"', "before": 10, "count": 10}
    with closing(apsw.Connection(str(path))) as other:
        plan = [row[3] for row in other.execute(f"EXPLAIN QUERY PLAN {queries.load()[query]}", params)]

    assert len(plan) == 1
    assert "VIRTUAL TABLE INDEX" in str(plan[0])


async def test_an_unreadable_event_is_left_out_and_stops_nothing(
    library: Library, index: SearchIndex, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = await library.open()
    await library.say(session_id, "before", "middle", "after")
    with closing(apsw.Connection(str(tmp_path / "home" / "holdfast.db"))) as other:
        other.execute("UPDATE event SET kind = 'from_the_future' WHERE seq = 3")

    assert await found(index, "e") == ["after", "before"]
    assert "position 3 is not searchable" in caplog.text


SCRIPTS = st.sampled_from(
    [
        *"aAbBzéÉßİıſﬁŉµμΣςσ",
        *(
            "e\u0301",
            "\u0301",
            "\u0323",
            "A\u030a",
            "\u212b",
            "中",
            "文",
            "字",
            "的",
            "가",
            "각",
            "\u1100\u1161",
            "\u11a8",
        ),
        *("م", "ر", "ح", "ש", "नि", "🎉", "👩\u200d🚀", "🏳\ufe0f", "\u3000", " ", " ", "\n", "\t", "\u2028"),
        *('"', "'", "*", "(", ")", "-", "^", ":", ".", "?", "%", "_", "\\", "AND", "OR", "NOT", "NEAR"),
        *("\0", "\x1f", "\ud800", "\udfff", "\ufffd", "\ufffe", "\uffff", "\U000f0000", "\U0010ffff"),
    ]
)
MESSAGES = st.lists(st.lists(SCRIPTS, max_size=12).map("".join), min_size=1, max_size=5)


def contains(text: str, term: str) -> bool:
    """Like grep, regardless of case and accents."""
    spelled = (term, unicodedata.normalize("NFC", term), unicodedata.normalize("NFD", term))
    return any(fold(form) in fold(text) for form in spelled)


def as_stored(text: str) -> str:
    """JSON joins two halves of a surrogate pair."""
    stored: str = json.loads(json.dumps(text))
    return stored


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(texts=MESSAGES, data=st.data())
async def test_search_finds_what_a_full_scan_finds(
    library: Library, index: SearchIndex, texts: list[str], data: st.DataObject
) -> None:
    texts = [as_stored(text) for text in texts]
    session_id = await library.open()
    await library.say(session_id, *texts)
    await index.catch_up()
    source = data.draw(st.sampled_from(texts) | MESSAGES.map("".join).map(as_stored))
    start = data.draw(st.integers(0, max(0, len(source) - 1)))
    term = source[start : data.draw(st.integers(start + 1, len(source) + 1))]

    async def seqs(query: str, scope: SearchScope) -> set[int]:
        hits = await index.search(query, limit=ALL, scope=scope)
        return {hit.seq for hit in hits if hit.session_id == session_id}

    def scan(*parts: str) -> set[int]:
        return {seq for seq, text in enumerate(texts, 2) if all(contains(text, part) for part in parts)}

    for scope in (EVERYWHERE, SearchScope(session_id=session_id)):
        if fold(term) and '"' not in term:
            assert await seqs(f'"{term}"', scope) == scan(term)
        if words := [word for word in term.split() if fold(word)]:
            hits = await seqs(term, scope)
            assert hits >= {seq for seq, text in enumerate(texts, 2) if term in text}
            if '"' not in term:
                assert hits == scan(*words)


# following the store


async def test_the_lag_is_known_and_progress_is_reported(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"word {n}" for n in range(2500)))
    told: list[tuple[int, int]] = []

    assert await index.lag() == 2501
    await index.catch_up(lambda done, newest: told.append((done, newest)))

    assert told == [(1000, 2501), (2000, 2501), (2501, 2501)]
    assert await index.lag() == 0


async def test_events_that_are_not_indexed_yet_are_not_found(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    await index.catch_up()
    await library.say(session_id, "later")

    assert await index.search("later") == []
    assert await found(index, "later") == ["later"]


async def test_an_empty_store_can_be_indexed_and_searched(index: SearchIndex) -> None:
    await index.catch_up()

    assert await index.search("anything") == []
    assert await index.lag() == 0


async def test_a_new_index_is_built_by_the_first_search(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), "first light")

    assert [hit.snippet for hit in await index.search("light")] == ["first light"]


async def test_long_messages_are_indexed_few_at_a_time(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"{n} " * 1_000_000 for n in range(4)))
    told: list[int] = []

    await index.catch_up(lambda done, newest: told.append(done))

    assert told == [4, 5]


async def test_several_processes_index_at_once(library: Library, database: Database, path: Path) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"word {n}" for n in range(3000)))
    one, another = await open_index(path, database), await open_index(path, database)

    await asyncio.gather(one.catch_up(), another.catch_up(), another.catch_up())

    for each in (one, another):
        assert await each.lag() == 0
        assert len(await each.search("word", limit=ALL)) == 3000
        await each.close()


INDEXER = """
import asyncio, json, sys
from pathlib import Path
from holdfast.store.search.index import open_index
from holdfast.store.sqlite.driver import open_sqlite

async def main(home):
    database = await open_sqlite(home / "holdfast.db")
    index = await open_index(home / "search.db", database)
    print("ready", flush=True)
    sys.stdin.readline()
    await index.catch_up()
    print(json.dumps([hit.seq for hit in await index.search("word", limit=10_000)]))
    await index.close()
    await database.close()

asyncio.run(main(Path(sys.argv[1])))
"""


@pytest.mark.process
async def test_processes_share_one_index(library: Library, path: Path) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"word {n}" for n in range(3000)))
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-c", INDEXER, str(path.parent))
    others = [await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe) for _ in range(3)]
    for other in others:
        assert other.stdout is not None
        assert await other.stdout.readline() == b"ready\n"

    answers = await asyncio.gather(*(other.communicate(b"go\n") for other in others))

    assert [json.loads(out) for out, _ in answers] == [list(range(3001, 1, -1))] * 3
    assert [other.returncode for other in others] == [0, 0, 0]


async def until(index: SearchIndex, query: str) -> list[SearchHit]:
    """The hits, as soon as there are any."""
    async with asyncio.timeout(30):
        while not (hits := await index.search(query)):
            await asyncio.sleep(0)
    return hits


async def test_a_background_task_indexes_new_messages(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    follower = asyncio.create_task(index.follow(every=0))

    await library.say(session_id, "early bird")
    assert len(await until(index, "bird")) == 1
    await library.say(session_id, "late worm")
    assert len(await until(index, "worm")) == 1

    follower.cancel()
    with pytest.raises(asyncio.CancelledError):
        await follower


async def test_a_background_task_that_is_blocked_logs_it_once_and_continues(
    library: Library, index: SearchIndex, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session_id = await library.open()
    await index.catch_up()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")
        async with Supervisor(FakeClock(), sleep=lambda _: asyncio.sleep(0)) as supervisor:
            supervisor.start("search", BackgroundTask(lambda completed: index.follow(completed, every=0), every=0))
            await library.say(session_id, "patience")
            async with asyncio.timeout(30):
                while not caplog.records:
                    await asyncio.sleep(0)
            for _ in range(3):
                await index.lag()
            other.execute("COMMIT")
            assert len(await until(index, "patience")) == 1

    [complaint] = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert f"another process has locked the search index {path}; try again soon" in complaint


async def test_indexing_can_be_cancelled_and_continued(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"word {n}" for n in range(2500)))
    begun = asyncio.Event()
    work = asyncio.create_task(index.catch_up(lambda done, newest: begun.set()))
    await begun.wait()

    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work

    assert len(await found(index, "word")) == 2500


# faults


async def test_a_locked_index_blocks_no_message_and_no_search(library: Library, index: SearchIndex, path: Path) -> None:
    session_id = await library.open()
    await library.say(session_id, "before the lock")
    await index.catch_up()
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN EXCLUSIVE")

        await library.say(session_id, "under the lock")
        with pytest.raises(Unavailable, match="locked"):
            await index.catch_up()
        assert len(await index.search("lock")) == 1

        other.execute("ROLLBACK")
    assert await found(index, "lock") == ["under the lock", "before the lock"]


async def test_a_pruned_event_is_left_out_even_while_the_index_is_locked(
    library: Library, index: SearchIndex, path: Path
) -> None:
    pruned = await library.open()
    await library.say(pruned, "gone")
    await index.catch_up()
    await library.prune(pruned)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("BEGIN IMMEDIATE")

        assert await index.search("gone") == []


async def filled(library: Library, path: Path) -> list[str]:
    """A closed index with many pages; returns the words to find."""
    session_id = await library.open()
    texts = [" ".join(f"{n * m:x}" for m in range(1, 60)) + f" unique{n}" for n in range(200)]
    await library.say(session_id, *texts)
    index = await open_index(path, library.database)
    await index.catch_up()
    await index.close()
    return [f"unique{n}" for n in range(200)]


async def finds_all(index: SearchIndex, words: list[str]) -> bool:
    return all([len(await index.search(word)) >= 1 for word in words])


@pytest.mark.slow
@pytest.mark.parametrize("new", [b"\0", b"\xff", b"holdfast"])
async def test_an_index_with_any_page_overwritten_is_rebuilt(library: Library, path: Path, new: bytes) -> None:
    words = await filled(library, path)
    good = path.read_bytes()

    for start in range(0, len(good), PAGE_BYTES * 5):
        path.write_bytes(good[:start] + new * (PAGE_BYTES // len(new)) + good[start + PAGE_BYTES :])
        index = await open_index(path, library.database)
        assert await finds_all(index, words), f"page {start // PAGE_BYTES + 1}"
        await index.close()


@pytest.mark.parametrize(
    "content",
    [b"", b"not a database", b"SQLite format 3\0" + bytes(5000), bytes(100_000)],
    ids=["empty", "text", "head", "zero"],
)
async def test_a_file_that_is_not_an_index_is_replaced(library: Library, path: Path, content: bytes) -> None:
    words = await filled(library, path)
    path.write_bytes(content)

    index = await open_index(path, library.database)

    assert await finds_all(index, words)
    await index.close()


async def test_a_truncated_index_is_rebuilt(library: Library, path: Path) -> None:
    words = await filled(library, path)
    path.write_bytes(path.read_bytes()[: 10 * PAGE_BYTES + 100])

    index = await open_index(path, library.database)

    assert await finds_all(index, words)
    await index.close()


async def test_an_index_damaged_while_it_is_open_is_rebuilt_and_that_is_logged(
    library: Library, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    words = await filled(library, path)
    index = await open_index(path, library.database)
    with path.open("r+b") as file:
        file.write(b"\xff" * path.stat().st_size)

    assert await finds_all(index, words)
    assert "is damaged" in caplog.text
    await index.close()


@pytest.mark.parametrize(
    "ends", [("",), ("-wal", "-shm"), ("", "-wal", "-shm"), ("", "-shm"), ("", "-wal", "-shm", "-lock")]
)
async def test_an_index_whose_files_are_deleted_is_rebuilt(
    library: Library, index: SearchIndex, path: Path, ends: tuple[str, ...]
) -> None:
    session_id = await library.open()
    await library.say(session_id, "still here")
    await index.catch_up()

    for end in ends:
        path.with_name(path.name + end).unlink()
    await library.say(session_id, "here again")
    another = await open_index(path, library.database)

    assert await found(another, "here") == ["here again", "still here"]
    assert await found(index, "here") == ["here again", "still here"]
    await library.say(session_id, "here to stay")
    assert await found(another, "here") == await found(index, "here")
    await another.close()


async def test_a_search_finds_the_same_while_another_process_rebuilds_the_index(library: Library, path: Path) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"word {n}" for n in range(2500)))
    one, another = await open_index(path, library.database), await open_index(path, library.database)
    await one.catch_up()
    begun = asyncio.Event()

    work = asyncio.create_task(another.rebuild(lambda done, newest: begun.set()))
    await begun.wait()

    assert len(await one.search("2499")) == 1
    await work
    await one.close()
    await another.close()


async def test_an_index_without_a_table_is_rebuilt(library: Library, path: Path) -> None:
    words = await filled(library, path)
    with closing(apsw.Connection(str(path))) as other:
        other.execute("DROP TABLE gram")

    index = await open_index(path, library.database)

    assert await finds_all(index, words)
    await index.close()


async def test_an_index_of_an_older_format_is_rebuilt(library: Library, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as other:
        other.execute("CREATE TABLE gram (text); PRAGMA user_version = -1")
    await library.say(await library.open(), "modern")

    index = await open_index(path, library.database)

    assert await found(index, "modern") == ["modern"]
    await index.close()


async def test_an_index_of_a_newer_release_is_left_unchanged(library: Library, path: Path) -> None:
    with closing(apsw.Connection(str(path))) as other:
        other.execute("CREATE TABLE gram (text); PRAGMA user_version = 1000")
    before = path.read_bytes()

    with pytest.raises(Unsupported, match="newer release"):
        await open_index(path, library.database)

    assert path.read_bytes()[100:] == before[100:]


async def test_an_index_replaced_by_a_newer_release_is_left_to_it(
    library: Library, index: SearchIndex, path: Path
) -> None:
    await library.say(await library.open(), "modern")
    await index.catch_up()
    newer = path.with_name("newer.db")
    with closing(apsw.Connection(str(newer))) as other:
        other.execute("CREATE TABLE gram (text); PRAGMA user_version = 1000")
    for end in ("", "-wal", "-shm"):
        path.with_name(path.name + end).unlink()
    newer.rename(path)
    before = path.read_bytes()

    for _ in range(2):
        with pytest.raises(Unsupported, match="newer release"):
            await index.search("modern")

    assert path.read_bytes()[100:] == before[100:]


async def test_an_index_of_another_store_is_rebuilt(
    library: Library, index: SearchIndex, path: Path, tmp_path: Path, ids: Ids, clock: FakeClock
) -> None:
    session_id = await library.open()
    await library.say(session_id, *["here"] * 5)
    await index.catch_up()
    elsewhere = Library(await open_sqlite(tmp_path / "elsewhere" / "holdfast.db"), ids, clock)
    await elsewhere.say(await elsewhere.open(), *["there"] * 7)

    taken_over = await open_index(path, elsewhere.database)

    assert await taken_over.lag() == 8
    assert len(await taken_over.search("there")) == 7
    assert await taken_over.search("here", scope=SearchScope(session_id=session_id)) == []
    assert len(await index.search("here")) == 5, "a process of the first store rebuilds it for that store"
    await taken_over.close()
    await elsewhere.database.close()


@pytest.mark.parametrize("more", [0, 1, 3, 10])
async def test_an_older_copy_of_the_store_is_indexed_again(
    path: Path, tmp_path: Path, ids: Ids, clock: FakeClock, more: int
) -> None:
    store, copy = tmp_path / "home" / "holdfast.db", tmp_path / "copy.db"
    first = Library(await open_sqlite(store), ids, clock)
    session_id = await first.open()
    await first.say(session_id, "kept")
    with closing(apsw.Connection(str(store))) as other:
        other.execute("VACUUM INTO ?", (str(copy),))
    await first.say(session_id, "lost one", "lost two", "lost three")
    index = await open_index(path, first.database)
    await index.catch_up()
    await index.close()
    await first.database.close()
    for end in ("-wal", "-shm"):
        store.with_name(store.name + end).unlink(missing_ok=True)
    copy.replace(store)

    second = Library(await open_sqlite(store), ids, clock)
    await second.say(session_id, *(f"fresh {n}" for n in range(more)))
    index = await open_index(path, second.database)

    assert await found(index, "fresh") == [f"fresh {n}" for n in reversed(range(more))]
    assert await found(index, "lost") == []
    assert await found(index, "kept") == ["kept"]
    await index.close()
    await second.database.close()


async def test_a_rebuilt_index_finds_the_same(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), "one thing", "another thing")
    before = await found(index, "thing")
    told: list[int] = []

    await index.rebuild(lambda done, newest: told.append(done))

    assert await found(index, "thing") == before
    assert told == [3]


async def test_an_unwritable_path_is_named(library: Library, tmp_path: Path) -> None:
    with pytest.raises(NotSaved, match="cannot create"):
        await open_index(tmp_path / "home" / "holdfast.db" / "search.db", library.database)


async def test_the_files_are_private(library: Library, index: SearchIndex, path: Path) -> None:
    await library.say(await library.open(), "secret")
    await index.catch_up()

    files = list(path.parent.glob("search.db*"))

    assert len(files) == 4
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}


async def test_a_closed_index_is_an_error(index: SearchIndex) -> None:
    await index.close()
    await index.close()

    with pytest.raises(Unavailable, match="has been closed"):
        await index.search("anything")
