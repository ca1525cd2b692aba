"""Listing and showing sessions."""

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import NASTY, Seed

LISTED = [
    "id",
    "title",
    "source",
    "channel",
    "model",
    "created_at",
    "updated_at",
    "ended_at",
    "end_reason",
    "state",
    "epoch",
    "seq",
    "hash",
    "message_count",
    "turn_count",
    "tokens_in",
    "tokens_out",
    "parent_id",
    "worker_id",
    "last_heartbeat_at",
    "preview",
]


def test_a_home_that_does_not_exist_yet_has_no_sessions(holdfast: Holdfast) -> None:
    ran = holdfast("sessions", "list", "--json")

    assert (ran.code, ran.json) == (0, {"sessions": [], "next": None})


def test_a_listed_session_has_every_promised_field(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("hello there", title="greeting", turns=2)

    ran = holdfast("sessions", "list", "--json")
    listed = ran.json["sessions"][0]

    assert list(listed)[: len(LISTED)] == LISTED
    assert listed["id"] == session_id
    assert (listed["title"], listed["source"], listed["model"]) == ("greeting", "chat", "scripted:echo")
    assert (listed["state"], listed["message_count"], listed["turn_count"], listed["seq"]) == ("waiting", 8, 2, 15)
    assert (listed["tokens_in"], listed["tokens_out"], listed["preview"]) == (32, 4, "hello there")
    assert listed["created_at"].endswith("Z") and len(listed["hash"]) == 64


def test_pages_continue_until_there_are_no_more(holdfast: Holdfast, seed: Seed) -> None:
    made = seed.sessions(7)
    found, cursor, pages = [], [], 0
    while True:
        page = holdfast("sessions", "list", "--json", "--limit", "3", *cursor).json
        found += [one["id"] for one in page["sessions"]]
        pages += 1
        if page["next"] is None:
            break
        cursor = ["--cursor", page["next"]]

    assert found == made[::-1]
    assert pages == 3


def test_list_all_equals_the_store(holdfast: Holdfast, seed: Seed) -> None:
    plain, trashed = seed.sessions(2)
    side = seed.session(side_of=plain)
    seed.trash(trashed, days_ago=1)

    usual = {one["id"] for one in holdfast("sessions", "list", "--json").json["sessions"]}
    everything = holdfast("sessions", "list", "--all", "--json").json

    assert usual == {plain}
    assert {one["id"] for one in everything["sessions"]} == {plain, trashed, side}
    assert everything["next"] is None


def test_a_list_of_everything_is_longer_than_a_page(holdfast: Holdfast, seed: Seed) -> None:
    made = seed.sessions(1_203, turns=0)

    listed = holdfast("sessions", "list", "--all", "--json").json["sessions"]

    assert [one["id"] for one in listed] == made[::-1]


def test_each_filter_lists_only_matching_sessions(holdfast: Holdfast, seed: Seed) -> None:
    chat, api = seed.session(), seed.session(source="api", channel="api:k", model="openai:gpt-x")
    pinned, trashed, ended = seed.session(), seed.session(), seed.session()
    assert holdfast("sessions", "pin", pinned).code == 0
    assert holdfast("sessions", "delete", trashed).code == 0
    assert holdfast("sessions", "end", ended).code == 0

    def listed(*options: str) -> set[str]:
        return {one["id"] for one in holdfast("sessions", "list", "--json", *options).json["sessions"]}

    assert listed("--source", "api") == {api}
    assert listed("--channel", "api:k") == {api}
    assert listed("--model", "openai:gpt-x") == {api}
    assert listed("--pinned") == {pinned}
    assert listed("--trash") == {trashed}
    assert listed("--state", "ended") == {ended}
    assert listed() == {chat, api, pinned, ended}


def test_the_text_output_is_a_table_and_says_how_to_continue(holdfast: Holdfast, seed: Seed) -> None:
    first, second = seed.sessions(2, title="greeting")

    ran = holdfast("sessions", "list", "--limit", "1")

    assert second in ran.out and first not in ran.out
    assert "greeting" in ran.out and "waiting" in ran.out
    assert "--cursor" in ran.err


def test_a_shown_session_has_every_message_in_the_documented_form(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("hello there")

    shown = holdfast("sessions", "show", session_id, "--json").json
    asked, called, result, answered = shown["messages"]

    assert shown["id"] == session_id
    for said in shown["messages"]:
        assert {"seq", "role", "content", "tool_calls", "tool_call_id", "partial", "at"} <= said.keys()
    assert (asked["role"], asked["content"], asked["tool_calls"]) == ("user", "hello there", [])
    assert called["tool_calls"][0]["id"] == result["tool_call_id"] == "call-1"
    assert called["tool_calls"][0]["function"] == {"name": "terminal", "arguments": '{"command":"ls"}'}
    assert (result["role"], result["content"], result["outcome"]) == ("tool", "a\nb", "ok")
    assert (answered["role"], answered["content"], answered["partial"]) == ("assistant", "hello to you", False)


def test_the_raw_events_can_be_shown(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    events = holdfast("sessions", "show", session_id, "--events", "--json").json["events"]
    plain = holdfast("sessions", "show", session_id, "--events")

    assert [event["seq"] for event in events] == list(range(1, 9))
    assert events[0]["kind"] == "session_opened" and events[0]["body"]["source"] == "chat"
    assert "user_said" in plain.out


def test_stored_text_never_controls_the_terminal(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(NASTY, title="\x1b]0;owned\x07 title")

    for args in (("show", session_id), ("show", session_id, "--events"), ("list",)):
        ran = holdfast("sessions", *args)
        for letter in "\x1b\x07\u202e\udc80":
            assert letter not in ran.out + ran.err
    assert "\\x1b[31m" in holdfast("sessions", "show", session_id).out
    assert "Füße 😀" in holdfast("sessions", "show", session_id).out


def test_json_is_ascii_and_keeps_every_character(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(NASTY)

    ran = holdfast("sessions", "show", session_id, "--json")

    assert ran.out.isascii()
    assert ran.json["messages"][0]["content"] == NASTY


@pytest.mark.process
def test_a_terminal_that_knows_only_ascii_gets_escapes(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session("Füße 😀")

    ran = holdfast.process("sessions", "show", session_id, env={**ENVIRONMENT, "PYTHONIOENCODING": "ascii"})

    assert ran.code == 0
    assert "F\\xfc\\xdfe \\U0001f600" in ran.out


def test_a_session_is_found_by_id_prefix_title_and_in_the_trash_by_its_id(holdfast: Holdfast, seed: Seed) -> None:
    session_id, other = seed.session(title="my notes"), seed.session(title="other")
    seed.trash(other, days_ago=0)

    for ref in (session_id, session_id[:-2], session_id[3:-2], "my notes", other):
        found = holdfast("sessions", "show", ref, "--json").json["id"]
        assert found == (other if ref == other else session_id)


def test_a_title_of_several_sessions_means_the_newest_and_that_is_reported(holdfast: Holdfast, seed: Seed) -> None:
    _, newest = seed.sessions(2, title="notes")

    ran = holdfast("sessions", "show", "notes", "--json")

    assert ran.json["id"] == newest
    assert "several sessions are titled 'notes'" in ran.err and newest in ran.err


def test_a_damaged_log_is_not_shown_as_complete(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    seed.write(lambda tx: tx.run("log_import.extend", session=session_id, seq=9, hash="f" * 64, had=8))

    ran = holdfast("sessions", "show", session_id)

    assert ran.code == 1
    assert "8 events are stored, but its row names event 9" in ran.err


def test_a_tree_shows_sub_agents_below_the_session_that_delegated(holdfast: Holdfast) -> None:
    said = 'use tool delegate {"task": "hello", "model": "scripted:echo"}'
    assert holdfast("run", "--no-stdin", "--model", "scripted:tools", said).code == 0

    [plain] = holdfast("sessions", "list", "--json").json["sessions"]
    tree = holdfast("sessions", "list", "--tree", "--json").json["sessions"]
    shown = holdfast("sessions", "list", "--tree").out.splitlines()

    assert plain["children"] == [tree[1]["id"]]
    assert [one["delegated_by"] for one in tree] == [None, plain["id"]]
    assert shown[2].startswith(f"└ {tree[1]['id']}")
    assert f"sub-agent of {plain['id']}" in holdfast("sessions", "show", tree[1]["id"]).out
    assert holdfast("sessions", "list", "--tree", "--children").code == 2
