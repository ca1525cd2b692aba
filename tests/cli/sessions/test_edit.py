"""Changing a session, and undoing the change."""

from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed


def test_a_session_is_renamed_on_one_line(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    ran = holdfast("sessions", "rename", session_id, " a \x1b new\ntitle ", "--json")

    assert ran.json["title"] == "a new title"
    assert holdfast("sessions", "show", "a new title", "--json").json["id"] == session_id


def test_pinning_and_unpinning_are_one_event_each(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    pinned = [holdfast("sessions", "pin", session_id, "--json").json for _ in range(2)]
    unpinned = [holdfast("sessions", "pin", session_id, "--off", "--json").json for _ in range(2)]

    assert [one["pinned"] for one in (*pinned, *unpinned)] == [True, True, False, False]
    assert [one["seq"] for one in (*pinned, *unpinned)] == [9, 9, 10, 10]


def test_a_fork_has_the_same_messages_and_is_independent(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("hello", turns=2)

    fork = holdfast("sessions", "fork", session_id, "--at", "8", "--title", "another way", "--json").json
    shown = holdfast("sessions", "show", "another way", "--json").json

    assert fork["parent_id"] == session_id and fork["id"] != session_id
    assert len(shown["messages"]) == 4
    assert shown["title"] == "another way"


def test_an_ended_session_can_be_reopened_with_all_its_messages(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    ended = holdfast("sessions", "end", session_id, "--json").json
    reopened = holdfast("sessions", "reopen", session_id, "--json").json

    assert (ended["state"], ended["end_reason"]) == ("ended", "user")
    assert (reopened["state"], reopened["end_reason"], reopened["message_count"]) == ("waiting", None, 4)


def test_the_text_output_says_what_was_done(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    said = [
        holdfast("sessions", *args).out
        for args in (
            ("rename", session_id, "notes"),
            ("pin", session_id),
            ("fork", session_id),
            ("end", session_id),
            ("reopen", session_id),
        )
    ]

    assert all(session_id in line for line in said)
    assert "to 'notes'" in said[0] and "Pinned" in said[1] and "Ended" in said[3]


def test_a_session_held_by_a_live_worker_is_not_ended_and_the_worker_is_named(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    worker = seed.worker(holds=session_id)

    ran = holdfast("sessions", "end", session_id)

    assert ran.code == 4
    assert worker in ran.err and "serve" in ran.err
    assert holdfast("sessions", "rename", session_id, "still possible").code == 0
