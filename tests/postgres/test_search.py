"""Search in PostgreSQL finds what grep finds: the tests of the file beside a SQLite store, on the table."""

import asyncio
import logging
from collections.abc import AsyncIterator

import psycopg
import pytest

from holdfast.model.ids import Ids
from holdfast.store import queries
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.postgres.search import FULL, SearchTable, open_table
from holdfast.store.search.fts_file import IndexedText
from holdfast.store.search.index import SearchIndex, SearchScope
from tests.fakes.clock import FakeClock
from tests.postgres.cluster import cluster, name_of
from tests.store.library import CountedDatabase, Library
from tests.store.search.test_index import (  # noqa: F401 - collected here, with the fixtures of this module
    found,
    test_a_background_task_indexes_new_messages,
    test_a_closed_index_is_an_error,
    test_a_common_character_with_many_successors_is_found,
    test_a_hit_shows_its_position,
    test_a_limit_below_one_is_refused,
    test_a_message_after_the_newest_session_was_pruned_is_found,
    test_a_new_index_is_built_by_the_first_search,
    test_a_query_of_ten_thousand_characters_is_compared_completely,
    test_a_query_without_words_is_refused,
    test_a_quoted_phrase_is_matched_literally,
    test_a_rebuilt_index_finds_the_same,
    test_a_text_of_millions_of_characters_is_found_by_any_part,
    test_all_words_must_be_in_one_event,
    test_an_empty_store_can_be_indexed_and_searched,
    test_any_substring_of_any_text_is_found,
    test_events_that_are_not_indexed_yet_are_not_found,
    test_every_event_with_text_is_found,
    test_hits_come_newest_first_and_page_by_page,
    test_indexing_can_be_cancelled_and_continued,
    test_no_character_of_a_query_is_special,
    test_search_finds_what_a_full_scan_finds,
    test_sessions_in_the_trash_and_auxiliary_sessions_are_excluded_unless_requested,
    test_the_lag_is_known_and_progress_is_reported,
    test_the_search_can_be_limited_to_one_session,
)
from tests.store.search.test_ranked_search import (  # noqa: F401
    test_a_query_without_letters_is_refused,
    test_a_typo_is_tolerated_and_told,
    test_an_index_that_is_behind_is_caught_up_for_a_limited_time,
    test_better_matches_come_first,
    test_counts_are_lower_limits_when_there_are_too_many_hits,
    test_every_script_is_found_without_its_accents,
    test_exact_hits_come_before_similar_ones_and_enough_of_them_alone,
    test_hits_are_grouped_by_session_with_counts,
    test_hits_can_be_limited_to_a_role_and_a_tool,
    test_of_equal_matches_the_newest_comes_first_and_a_good_old_one_wins,
    test_quoted_words_numbers_code_and_two_typos_are_exact,
    test_titles_come_before_what_was_said_and_that_before_output_of_tools,
    test_words_as_typed_come_before_other_spellings,
)


@pytest.fixture
def library(database: PostgresDatabase, ids: Ids, clock: FakeClock) -> Library:
    return Library(database, ids, clock)


@pytest.fixture
async def index(database: PostgresDatabase) -> AsyncIterator[SearchIndex]:
    opened = await open_table(database)
    yield opened
    await opened.close()


async def test_a_rare_word_is_found_by_its_trigrams(library: Library, index: SearchIndex, url: str) -> None:
    session_id = await library.open()
    await library.say(session_id, *(f"number {n} of many" for n in range(200)), "a nightingale", "夜鶯")
    await index.catch_up()
    with psycopg.connect(url) as link:
        link.execute("SET enable_seqscan = off")  # the table of a test is so small that a full scan is faster
        for word in ("nightingale", "夜鶯さ"):
            steps = link.execute(f"EXPLAIN SELECT position FROM words WHERE folded LIKE ANY (ARRAY['%{word}%'])")
            assert any("words_trigrams" in str(step) for step in steps)


async def test_several_workers_fill_the_index_at_once(library: Library, database: PostgresDatabase, url: str) -> None:
    await library.say(await library.open(), *(f"word {n}" for n in range(1_500)))
    other = await open_postgres(url)
    one, another = await open_table(database), await open_table(other)
    await asyncio.gather(one.catch_up(), another.catch_up(), one.catch_up())

    assert len(await another.search("word", limit=10_000)) == 1_500
    name = name_of(url)
    words = cluster().execute("SELECT sum(array_length(string_to_array(folded, chr(30)), 1)) FROM words", name)
    assert words == [(1_500,)], "each is present once"
    await one.close()
    await another.close()
    await other.close()


async def test_without_the_extension_everything_is_found_and_a_warning_says_how_to_install_it(
    library: Library, database: PostgresDatabase, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = name_of(url)
    cluster().execute("CREATE ROLE guest LOGIN", name)
    cluster().execute("GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO guest", name)
    cluster().execute("GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO guest", name)
    await library.say(await library.open(), "a nightingale 夜鶯", "a lark")
    other = await open_postgres(url.replace(f"//{cluster().user}@", "//guest@"))
    with caplog.at_level(logging.WARNING):
        index = await open_table(other)

    assert "pg_trgm" in caplog.text
    assert await found(index, "鶯") == ["a nightingale 夜鶯"]
    assert await found(index, "NIGHT") == ["a nightingale 夜鶯"]
    await index.close()
    await other.close()
    cluster().execute("DROP OWNED BY guest; DROP ROLE guest", name)


async def test_new_texts_are_merged_and_each_is_found_once_newest_first(
    library: Library, index: SearchIndex, url: str
) -> None:
    """Alternating sessions, so that their passages overlap, and one that is long inactive."""
    names = [await library.open() for _ in range(4)]
    said = []
    for number in range(60):
        text = f"word {number} " + "and so on " * 60
        await library.say(names[0 if number == 0 else number % 3 + 1], text)
        said.append(text)
        if number % 2:
            await index.catch_up()
    passages = cluster().execute("SELECT letters FROM words ORDER BY letters", name_of(url))
    assert str(FULL) in queries.load("postgres")["search.list_open_passages"], (
        "and in its index, or a growing one is not found quickly"
    )
    assert len(passages) < 30 and max(passages)[0] >= FULL

    assert [hit.snippet for hit in await index.search("word", limit=100)] == [
        hit.snippet for text in reversed(said) for hit in await index.search(f'"{text[:9]}"', limit=1)
    ]
    positions: list[int] = []
    while page := await index.search("word", limit=7, before_position=positions[-1] if positions else None):
        positions += [hit.position for hit in page]
    assert len(positions) == 60 and positions == sorted(set(positions), reverse=True)
    assert len(await index.search("word", limit=100, scope=SearchScope(session_id=names[1]))) == 19


async def test_long_passages_hide_no_hit_between_their_events(library: Library, index: SearchIndex) -> None:
    """Many sessions whose first and last messages are far apart: a page of passages may have no event in range."""
    names = [await library.open() for _ in range(90)]
    for text in ("early lark", "late lark"):
        for name in names:
            await library.say(name, text)
    await library.say(await library.open(), "lark alone")
    await index.catch_up()

    assert len(await index.search("lark", limit=500)) == 181
    assert len(await index.search("early", limit=500)) == 90
    page = await index.search("lark", limit=91)
    assert {hit.snippet for hit in page} == {"late lark", "lark alone"}
    rest = await index.search("lark", limit=500, before_position=page[-1].position)
    assert [hit.snippet for hit in rest] == ["early lark"] * 90


async def test_the_texts_of_a_pruned_session_are_deleted_with_it(
    library: Library, index: SearchIndex, database: PostgresDatabase, url: str
) -> None:
    kept, pruned = await library.open(), await library.open()
    await library.say(kept, "a lark")
    await library.say(pruned, "a nightingale")
    await index.catch_up()
    await library.prune(pruned)
    late = IndexedText(10**6, pruned, "a late nightingale", 9)
    state = SearchTable(database).state()
    assert state is not None
    assert await asyncio.to_thread(SearchTable(database).add, [late], state, state)

    assert cluster().execute("SELECT session_id FROM words", name_of(url)) == [(kept,)]
    assert await found(index, "nightingale") == []


async def test_words_that_only_share_a_passage_are_not_candidates(library: Library, database: PostgresDatabase) -> None:
    session_id = await library.open()
    await library.say(
        session_id, *("a lark", "a nightingale") * 20, "a lark and a nightingale", "a\x1elark\x1f nightingale"
    )
    counted = CountedDatabase(database)
    table = await open_table(database)
    await table.catch_up()
    index = SearchIndex(SearchTable(database), counted)  # type: ignore[arg-type] # reads are all that a search does

    assert len(await index.search("lark nightingale")) == 2
    assert counted.events <= 4
    assert len(await index.search('"\x1elark\x1f"')) == 1
    await index.close()
    await table.close()
