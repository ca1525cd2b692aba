"""HoldfastSessionService for Google ADK: an ordinary session, other processes, long histories, bad input, killed agents."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.events import Event, EventActions
from google.adk.sessions import Session
from google.genai import types

from holdfast.adapters import framework_session as session_module
from holdfast.adapters.adk import HoldfastSessionService
from holdfast.adapters.adk.stored_state import ADAPTER, SHARED_ADAPTER
from holdfast.adapters.framework_session import constant, framework_session
from holdfast.adapters.items import encode_item
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Busy, Invalid
from holdfast.model.session import as_message
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from tests.adapters.agent_kills import KILLED, AgentForks, start_agent
from tests.adapters.programs.adk_agent import APP, USER, run
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(120)]
NAME = "chat-1"
WHO: Any = {"app_name": APP, "user_id": USER, "session_id": NAME}
REF = f"{ADAPTER}:{APP}/{USER}/{NAME}"


def said(text: str, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(author="user", invocation_id="i", content=content, actions=EventActions(state_delta=delta))


def call(work: Callable[[Transaction], Any], url: str) -> Any:
    return shared_store(url).database.submit_read(work).result()


async def get(service: HoldfastSessionService, name: str = NAME) -> Session:
    found = await service.get_session(**{**WHO, "session_id": name})
    assert found is not None
    return found


async def test_events_are_shown_with_their_calls_and_results(url: str) -> None:
    function_call = types.FunctionCall(id="c", name="weather", args={"place": "Kiel"})
    answer = types.FunctionResponse(id="c", name="weather", response={"sky": "grey"})
    service = HoldfastSessionService(url)
    session = await service.create_session(**WHO)
    for author, part in (
        ("user", types.Part(text="How is the weather?")),
        ("agent", types.Part(function_call=function_call)),
        ("agent", types.Part(function_response=answer)),
        ("agent", types.Part(text="It is grey.")),
    ):
        await service.append_event(session, Event(author=author, content=types.Content(parts=[part])))

    entries = call(lambda tx: log.read_complete(tx, sessions.resolve(tx, REF).session), url)
    found = [message for entry in entries if (message := as_message(entry))]
    assert [message.role for message in found] == ["user", "assistant", "tool", "assistant"]
    assert [found[0].text, found[1].tool_calls[0].name, found[3].text] == [
        "How is the weather?",
        "weather",
        "It is grey.",
    ]
    assert "grey" in found[2].text


async def test_a_shared_state_has_a_title_and_that_of_a_user_is_no_session_of_lists(url: str) -> None:
    await HoldfastSessionService(url).create_session(**WHO, state={"app:a": 1, "user:u": 2})

    def read(tx: Transaction) -> list[Any]:
        names = (f"{SHARED_ADAPTER}:{APP}", f"{SHARED_ADAPTER}:{APP}/{USER}")
        return [sessions.resolve(tx, name).session for name in names]

    of_app, of_user = call(read, url)
    assert of_app.summary.title == "State of the app app"
    assert of_user.summary.side_of == of_app.id


async def test_names_with_slashes_colons_and_other_signs_do_not_mix(url: str) -> None:
    service = HoldfastSessionService(url)
    names = [("a/b", "c", "d"), ("a", "b/c", "d"), ("a", "b", "c/d:%ä")]
    for app, user, name in names:
        await service.create_session(app_name=app, user_id=user, session_id=name, state={"user:x": app + user})

    listed = [one for app in ("a/b", "a") for one in (await service.list_sessions(app_name=app)).sessions]
    assert {(one.app_name, one.user_id, one.id) for one in listed} == set(names)
    assert [one.state["user:x"] for one in listed if one.user_id == "b/c"] == ["ab/c"]


async def test_long_states_and_histories_are_read_from_the_newest_items(each_url: str) -> None:
    service = HoldfastSessionService(each_url)
    session = await service.create_session(**WHO, state={"app:kept": 1, "here": 0})
    for number in range(300):
        changes: dict[str, Any] = {"app:n": number, f"k{number % 7}": "x" * 600, "user:n": number}
        await service.append_event(session, said(str(number), **changes))
    close_stores()
    again = HoldfastSessionService(each_url)

    assert (await get(again)).state == session.state
    assert [one.state for one in (await again.list_sessions(app_name=APP)).sessions] == [session.state]
    more = await get(again)
    await again.append_event(more, said("more", **{"app:n": "last"}))
    assert (await get(again)).state == {**session.state, "app:n": "last"}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), "\ud800"])
async def test_what_is_not_json_is_refused_by_name_and_nothing_is_saved(url: str, bad: Any) -> None:
    service = HoldfastSessionService(url)
    session = await service.create_session(**WHO)

    with pytest.raises(Invalid, match="adk is not JSON"):
        await service.append_event(session, said("one", x=bad))
    assert (await get(service)).events == session.events == []


async def test_a_large_event_is_kept(each_url: str) -> None:
    service = HoldfastSessionService(each_url)
    session = await service.create_session(**WHO)
    await service.append_event(session, said("x" * 20_000_000))

    assert (await get(service)).events == session.events


async def test_events_of_another_release_keep_unknown_fields_or_are_named(url: str) -> None:
    service = HoldfastSessionService(url)
    session = await service.create_session(**WHO)
    await service.append_event(session, said("one"))
    stored = framework_session(shared_store(url), ADAPTER, REF.removeprefix(f"{ADAPTER}:"))
    known: dict[str, Any] = {"id": "e", "author": "user", "timestamp": 1.0, "of_next_year": [1]}
    await stored.write(constant([encode_item(ADAPTER, known)]))
    assert [one.id for one in (await get(service)).events][1:] == ["e"]
    await stored.write(constant([encode_item(ADAPTER, {**known, "actions": {"of_next_year": 1}})]))

    with pytest.raises(Invalid, match="cannot read the events of session chat-1; they are stored unchanged"):
        await get(service)
    entries = call(lambda tx: log.read_complete(tx, sessions.resolve(tx, REF).session), url)
    assert '"of_next_year":[1]' in entries[-1].event.item


# Other processes.


@pytest.mark.slow
async def test_a_second_process_is_told_who_holds_the_session_and_then_that_its_copy_is_outdated(
    each_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "WAIT_SECONDS", 0.0)
    service = HoldfastSessionService(each_url)
    await run(service, NAME, "mine")
    old = await get(service)
    await service.close()
    with start_agent("adk_agent", each_url, NAME, 0) as agent:
        assert agent.wait_for_output("0\n"), agent.stderr
        with pytest.raises(Busy, match=rf"adapter, pid {agent.pid} "):
            await service.append_event(await get(service), said("too early"))
        agent.kill()

    with pytest.raises(StaleSessionError, match="Get it again"):
        await service.append_event(old, said("late"))
    await service.append_event(await get(service), said("again"))
    assert (await get(service)).events[-1].content == said("again").content


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_event_of_a_killed_agent_is_there_once_and_in_order(each_url: str) -> None:
    first = acknowledged = 0
    with AgentForks("adk_agent") as agents:
        for _ in range(KILLED):
            acknowledged += len(agents.kill_one(each_url, NAME, first))
            session = asyncio.run(get(HoldfastSessionService(each_url)))
            texts = [one.content.parts[0].text or "" for one in session.events if one.content and one.content.parts]
            asked = [int(text.removeprefix("say ")) for text in texts if text.startswith("say ")]
            answered = [int(text.removeprefix("reply ")) for text in texts if text.startswith("reply ")]
            assert asked == list(range(asked[-1] + 1))
            assert answered == list(range(answered[-1] + 1))
            assert acknowledged <= len(answered) <= len(asked)
            assert session.state == {"n": answered[-1], "user:n": answered[-1]}
            first = asked[-1] + 1
            close_stores()
