"""Ranked searches: accents and typos, the order of hits, groups by session, filters."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import Event, ModelSaid, Titled, ToolEnded, UserSaid
from holdfast.model.ids import Ids
from holdfast.model.message import Text, ToolCall
from holdfast.store.database import Database
from holdfast.store.search import ranked_search
from holdfast.store.search.index import EVERYWHERE, SearchIndex, SearchScope, open_index
from tests.fakes.clock import FakeClock
from tests.store.library import Library

DAY = 86_400.0


@pytest.fixture
def library(database: Database, ids: Ids, clock: FakeClock) -> Library:
    return Library(database, ids, clock)


@pytest.fixture
async def index(tmp_path: Path, database: Database) -> AsyncIterator[SearchIndex]:
    opened = await open_index(tmp_path / "search.db", database, busy_seconds=0)
    yield opened
    await opened.close()


async def ranked(index: SearchIndex, query: str, scope: SearchScope = EVERYWHERE) -> list[str]:
    """The snippets of the hits, the best first."""
    await index.catch_up()
    return [hit.snippet for hit in (await ranked_search.find(index, query, scope=scope)).hits]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("Diyarbakır'da ılık bir gün", "diyarbakir ilik"),
        ("DIYARBAKIR", "diyarbakır"),
        ("Die Straße nach Köln", "strasse koln"),
        ("Tiếng Việt rất khó, Đà Nẵng", "tieng viet da nang"),
        ("Ελλάδα και Θεσσαλονίκη", "ελλαδα θεσσαλονικη"),
        ("Ёлка в городе", "елка"),
        ("我想学习中文", "学习"),
        ("東京タワーがある", "タワーが"),
        ("مُحَمَّد في البيت", "محمد"),
        ("שָׁלוֹם עולם", "שלום"),
        ("party 🎉👩🏽\u200d🚀 time", "👩🏽\u200d🚀"),
        ("cafe\u0301 and na\u00efve", "café naive"),
        ("call 123456789 today", "123456789"),
        ("한국어 검색", "한국어"),
        ("नमस्ते दुनिया", "नमस्ते"),
    ],
)
async def test_every_script_is_found_without_its_accents(
    library: Library, index: SearchIndex, text: str, query: str
) -> None:
    await library.say(await library.open(), "other words", text, "more words")

    assert await ranked(index, query) == [text]


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("we will receive it", "recieve"),
        ("the configuration of nginx", "confguration"),
        ("the database server", "datbase sever"),
        ("several migrations", "migratoin"),
        ("всем привет", "приевт"),
        ("Köln ist schön", "schonn"),
        ("Θεσσαλονίκη", "θεσαλονικη"),
    ],
)
async def test_a_typo_is_tolerated_and_told(library: Library, index: SearchIndex, text: str, query: str) -> None:
    await library.say(await library.open(), "nothing of this kind", text)
    await index.catch_up()

    found = await ranked_search.find(index, query)

    assert [hit.snippet for hit in found.hits] == [text]
    assert found.similar and found.hits[0].marks


@pytest.mark.parametrize("query", ['"recieve"', "123456788", "rceieve", "x1y2z4"])
async def test_quoted_words_numbers_code_and_two_typos_are_exact(
    library: Library, index: SearchIndex, query: str
) -> None:
    await library.say(await library.open(), "receive 123456789 x1y2z3")

    assert await ranked(index, query) == []


async def test_exact_hits_come_before_similar_ones_and_enough_of_them_alone(
    library: Library, index: SearchIndex
) -> None:
    session_id = await library.open()
    await library.say(session_id, "they recieve one", "they receive two", "they receive three")

    assert (await ranked(index, "recieve"))[0] == "they recieve one"
    assert len(await ranked(index, "recieve")) == 3

    await library.say(session_id, "recieve again", "and recieve again")
    assert not any("receive" in snippet for snippet in await ranked(index, "recieve"))


async def test_better_matches_come_first(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    best = ["The cat sat", "the cat and some dog", "a CATHEDRAL", "to concatenate"]
    await library.say(session_id, *best)

    assert await ranked(index, "cat") == [*best[1::-1], *best[2:]]
    assert (await ranked(index, "cat sat"))[0] == "The cat sat"
    assert (await ranked(index, "CATHEDRAL"))[0] == "a CATHEDRAL"


async def test_words_as_typed_come_before_other_spellings(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), "a résumé here", "a resume here")

    assert (await ranked(index, "résumé"))[0] == "a résumé here"
    assert (await ranked(index, "resume"))[0] == "a resume here"


async def test_of_equal_matches_the_newest_comes_first_and_a_good_old_one_wins(
    library: Library, index: SearchIndex, clock: FakeClock
) -> None:
    session_id = await library.open()
    await library.say(session_id, "the needle, old")
    clock.pass_seconds(2 * DAY)
    await library.say(session_id, "the needle, new", "needlework, newest")

    assert await ranked(index, "needle") == ["the needle, new", "the needle, old", "needlework, newest"]
    clock.pass_seconds(200 * DAY)
    await library.say(session_id, "the needle, today")
    assert (await ranked(index, "needle"))[0] == "the needle, today"


async def test_titles_come_before_what_was_said_and_that_before_output_of_tools(
    library: Library, index: SearchIndex
) -> None:
    session_id = await library.open()
    output = ToolEnded(turn_id="t", call_id="c", outcome="ok", name="terminal", parts=(Text("penguin"),))
    await library.add(session_id, Titled(title="penguin"), output)
    await library.say(session_id, "penguin")
    await index.catch_up()

    found = await ranked_search.find(index, "penguin")

    assert [hit.kind for hit in found.hits] == ["titled", "user_said", "tool_ended"]


async def test_hits_are_grouped_by_session_with_counts(library: Library, index: SearchIndex) -> None:
    first, second, third = await library.open(), await library.open(), await library.open()
    await library.say(first, "otter one", "otters two", "nothing")
    await library.say(second, "otter again")
    await library.say(third, "nothing at all")
    await index.catch_up()

    found = await ranked_search.find(index, "otter")

    assert {one.session_id: one.count for one in found.by_session()} == {first: 2, second: 1}
    assert [one.hits[0].snippet for one in found.by_session()] == ["otter again", "otter one"]
    assert found.complete and not found.similar


async def test_counts_are_lower_limits_when_there_are_too_many_hits(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), *(f"badger {number}" for number in range(ranked_search.RANKED + 1)))
    await index.catch_up()

    found = await ranked_search.find(index, "badger")

    assert (len(found.hits), found.complete) == (ranked_search.RANKED, False)


async def test_hits_can_be_limited_to_a_role_and_a_tool(library: Library, index: SearchIndex) -> None:
    session_id = await library.open()
    call = ToolCall("c", "terminal", '{"command": "find otter"}')
    events: list[Event] = [
        UserSaid(turn_id="t", parts=(Text("otter said the user"),)),
        ModelSaid(turn_id="t", parts=(Text("otter said the model"), call)),
        ToolEnded(turn_id="t", call_id="c", outcome="ok", name="terminal", parts=(Text("otter from the terminal"),)),
        ToolEnded(turn_id="t", call_id="d", outcome="ok", name="read_file", parts=(Text("otter from a file"),)),
    ]
    await library.add(session_id, *events)

    async def kinds(**only: str) -> set[str]:
        await index.catch_up()
        hits = (await ranked_search.find(index, "otter", scope=SearchScope(**only))).hits  # type: ignore[arg-type]
        return {hit.snippet.removeprefix("otter ").split(" find")[0].split(" terminal ")[0] for hit in hits}

    assert await kinds(role="user") == {"said the user"}
    assert await kinds(role="assistant") == {"said the model"}
    assert await kinds(role="tool") == {"from the terminal", "from a file"}
    assert await kinds(tool="terminal") == {"said the model", "from the terminal"}
    assert await kinds(tool="read_file") == {"from a file"}
    assert await kinds(role="tool", tool="terminal") == {"from the terminal"}
    assert await kinds(role="tool", session_id=session_id) == {"from the terminal", "from a file"}
    assert await kinds(tool="unknown") == set()
    short = await ranked_search.find(index, "ot", scope=SearchScope(role="user"))
    assert [hit.kind for hit in short.hits] == ["user_said"]


@pytest.mark.parametrize("query", ["", "  ", "\u0301", '"\u064b" \u0301'])
async def test_a_query_without_letters_is_refused(index: SearchIndex, query: str) -> None:
    with pytest.raises(Invalid):
        await ranked_search.find(index, query)


async def test_an_index_that_is_behind_is_caught_up_for_a_limited_time(library: Library, index: SearchIndex) -> None:
    await library.say(await library.open(), *(f"heron {number}" for number in range(5)))

    assert await ranked_search.catch_up_within(index, 0) > 0
    assert await ranked_search.catch_up_within(index, 60) == 0
    assert len(await ranked(index, "heron")) == 5
