"""Searching from the command line. What is found is tested with the index."""

import subprocess

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed


def test_a_new_message_is_found_and_marked(holdfast: Holdfast, seed: Seed) -> None:
    seed.session("nothing to see here")
    session_id = seed.session("where is the lighthouse?", title="coast")

    found = holdfast("sessions", "search", "lighthouse", "--json").json
    (hit,) = found["hits"]

    assert found["query"] == "lighthouse"
    assert (hit["session_id"], hit["title"], hit["seq"], hit["kind"]) == (session_id, "coast", 3, "user_said")
    ((start, end),) = hit["marks"]
    assert hit["snippet"][start:end] == "lighthouse"


def test_a_search_can_be_limited_to_one_session(holdfast: Holdfast, seed: Seed) -> None:
    first, second = seed.sessions(2, "the same words")

    hits = holdfast("sessions", "search", "words", "--session", first, "--json").json["hits"]

    assert {hit["session_id"] for hit in hits} == {first}
    assert second not in {hit["session_id"] for hit in hits}
    assert len(holdfast("sessions", "search", "words", "--limit", "1", "--json").json["hits"]) == 1


def test_hits_are_shown_by_session_with_counts_and_filters(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("Łódź first", title="Trip")
    found = holdfast("sessions", "search", "lodz").out

    assert session_id in found and "Trip" in found and "1 hit" in found
    assert len(holdfast("sessions", "search", "lodz", "--order", "recent", "--json").json["hits"]) == 1
    assert holdfast("sessions", "search", "lodz", "--role", "tool", "--json").json["hits"] == []
    assert holdfast("sessions", "search", "lodz", "--tool", "terminal", "--json").json["sessions"] == []
    typo = holdfast("sessions", "search", "lighthuose")
    assert "no matches" in typo.err + typo.out


def test_pruned_messages_are_not_found(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("a secret place")
    assert len(holdfast("sessions", "search", "place", "--json").json["hits"]) == 1
    seed.trash(session_id, days_ago=90)
    holdfast("sessions", "prune", "--yes")

    assert holdfast("sessions", "search", "place", "--json").json["hits"] == []


def test_a_restored_store_is_indexed_again(holdfast: Holdfast, seed: Seed) -> None:
    seed.session("before the backup")
    file = str(holdfast.home / "copy.db")
    holdfast("backup", file)
    seed.session("after the backup")
    assert len(holdfast("sessions", "search", "backup", "--json").json["hits"]) == 2

    holdfast("restore", file, "--replace")
    seed.session("said since")

    assert len(holdfast("sessions", "search", "backup", "--json").json["hits"]) == 1
    assert len(holdfast("sessions", "search", "since", "--json").json["hits"]) == 1


def test_the_text_output_shows_the_position_and_the_snippet(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("where is the \x1b[31m lighthouse\nof the coast?", title="coast")

    ran = holdfast("sessions", "search", "lighthouse")

    assert session_id in ran.out and "coast" in ran.out
    assert "lighthouse of the coast?" in ran.out and "\x1b" not in ran.out
    assert "no matches" in holdfast("sessions", "search", "windmill").err


@pytest.mark.process
def test_a_terminal_shows_the_match_in_bold(holdfast: Holdfast, seed: Seed) -> None:
    seed.session("where is the lighthouse?")

    command = " ".join(holdfast.command("sessions", "search", "lighthouse"))
    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", command, "/dev/null"],
        env={**ENVIRONMENT, "TERM": "xterm"},
        capture_output=True,
        check=True,
    )

    assert "\x1b[1mlighthouse\x1b[0m" in done.stdout.decode()


def test_an_empty_search_is_refused(holdfast: Holdfast) -> None:
    ran = holdfast("sessions", "search", "  ")

    assert ran.code == 2
    assert "the query is empty" in ran.err
