"""Promise 19: a client that sends its whole history is matched against the log; an edited history becomes a fork."""

import uuid

import httpx

from tests.api.serving import ask, session, text


def unique(words: str) -> str:
    """A unique text, so that its history matches no other session."""
    return f"{words} {uuid.uuid4().hex}"


def test_a_history_is_matched_without_a_session_name(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, hello)
    second = ask(http, hello, text(first), "how are you?")
    third = ask(http, hello, text(first), "how are you?", text(second), "bye")

    assert session(first) == session(second) == session(third)
    assert second.headers["x-session-new"] == third.headers["x-session-new"] == "0"
    assert third.headers["x-session-seq"] == "13", "no message was added twice"


def test_promise_19_two_clients_with_the_same_messages_never_share_a_session(http: httpx.Client) -> None:
    hello = unique("hello")
    anna, bert = ask(http, hello), ask(http, hello)
    assert text(anna) == text(bert)

    anna2 = ask(http, hello, text(anna), "I am Anna")
    bert2 = ask(http, hello, text(bert), "I am Bert")
    anna3 = ask(http, hello, text(anna), "I am Anna", text(anna2), "who am I?")

    assert len({session(anna), session(bert), session(anna2), session(bert2)}) == 4
    assert session(anna3) == session(anna2)


def test_users_that_the_client_distinguishes_never_share_a_session(http: httpx.Client) -> None:
    hello = unique("hello")
    anna = ask(http, hello, user="anna")

    bert = ask(http, hello, text(anna), "go on", user="bert")
    anna2 = ask(http, hello, text(anna), "go on", user="anna")

    assert session(bert) != session(anna) == session(anna2)


def test_an_unknown_history_starts_a_session_that_contains_it(http: httpx.Client) -> None:
    hello = unique("hello")

    first = ask(http, hello, "Good day, from another server.", "go on")
    second = ask(http, hello, "Good day, from another server.", "go on", text(first), "and on")

    assert first.headers["x-session-new"] == "1"
    assert session(first) == session(second)


def test_promise_19_an_edited_history_becomes_a_fork_and_the_name_points_to_it(http: httpx.Client) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, "one", headers=name)
    second = ask(http, "one", text(first), "two", headers=name)
    ask(http, "one", text(first), "two", text(second), "three", headers=name)

    edited = ask(http, "one", text(first), "two, but better", headers=name)
    after = ask(http, "one", text(first), "two, but better", text(edited), "three", headers=name)
    newest = ask(http, "four", headers=name)

    assert edited.headers["x-session-forked-from"] == session(second) == session(first)
    assert session(edited) == session(after) == session(newest) != session(first)
    assert "x-session-forked-from" not in after.headers


def test_the_branch_that_was_left_can_still_be_continued(http: httpx.Client) -> None:
    first = ask(http, "one")
    name = {"x-session-id": session(first)}
    second = ask(http, "one", text(first), "two", headers=name)
    third = ask(http, "one", text(first), "two", text(second), "three", headers=name)
    edited = ask(http, "one", text(first), "zwei", headers=name)

    back = ask(http, "one", text(first), "two", text(second), "three", text(third), "four", headers=name)
    there = ask(http, "one", text(first), "zwei", text(edited), "drei", headers=name)

    assert session(back) == session(first)
    assert session(there) == session(edited)


def test_a_history_edited_from_its_first_message_on_is_a_fork(http: httpx.Client) -> None:
    name = {"x-session-key": unique("name")}
    first = ask(http, "one", headers=name)

    edited = ask(http, "uno", "Dijiste: uno", "dos", headers=name)

    assert edited.headers["x-session-forked-from"] == session(first)
    assert text(edited) == "You said: dos"


def test_a_history_with_changed_white_space_still_matches(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, f"  {hello}\r\nworld \n")

    second = ask(http, f"{hello}\nworld", text(first).strip() + "\n", "go on")

    assert session(first) == session(second)


def test_parts_and_plain_text_match(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, {"role": "user", "content": [{"type": "text", "text": hello}]})

    second = ask(http, hello, text(first), "go on")

    assert session(first) == session(second)


def test_a_history_matches_with_another_system_text(http: httpx.Client) -> None:
    hello = unique("hello")
    first = ask(http, {"role": "system", "content": "It is Monday."}, {"role": "user", "content": hello})

    second = ask(
        http,
        {"role": "system", "content": "It is Tuesday."},
        {"role": "user", "content": hello},
        {"role": "assistant", "content": text(first)},
        {"role": "user", "content": "go on"},
    )

    assert session(first) == session(second)


def test_an_auxiliary_request_is_answered_in_its_own_session(http: httpx.Client) -> None:
    name = {"x-session-key": unique("name")}
    system = {"role": "system", "content": "Be kind."}
    first = ask(http, system, {"role": "user", "content": "hello"}, headers=name)

    titling = {"role": "system", "content": "Give a title of three words."}
    side = ask(http, titling, {"role": "user", "content": "hello"}, headers=name)
    second = ask(http, system, {"role": "user", "content": "go on"}, headers=name)

    assert session(side) != session(first) == session(second)
    assert side.headers["x-session-new"] == "1"
    assert second.headers["x-session-seq"] == "9"


def test_input_during_a_turn_extends_it(http: httpx.Client) -> None:
    """The first turn failed, so the log ends with an unanswered message."""
    name = {"x-session-key": unique("name")}
    first = ask(http, "one", headers=name)

    both = ask(http, {"role": "user", "content": "two"}, {"role": "user", "content": "three"}, headers=name)
    after = ask(
        http,
        "one",
        text(first),
        {"role": "user", "content": "two"},
        {"role": "user", "content": "three"},
        {"role": "assistant", "content": text(both)},
        {"role": "user", "content": "four"},
        headers=name,
    )

    assert session(first) == session(both) == session(after)
    assert "x-session-forked-from" not in after.headers
