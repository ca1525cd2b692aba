"""What ADK's documentation says of a session service, for its own services and for ours."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.errors import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events import Event, EventActions
from google.adk.runners import Runner
from google.adk.sessions import BaseSessionService, DatabaseSessionService, InMemorySessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.genai import types

from holdfast.adapters.adk import HoldfastSessionService
from holdfast.adapters.shared_store import close_stores
from tests.adapters.programs.adk_agent import Counter, run
from tests.contract.store_urls import new_place

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(120)]
PERSISTENT = ["adk-sqlite", "adk-database", "holdfast-sqlite", "holdfast-postgres"]
OURS = ["holdfast-sqlite", "holdfast-postgres"]
ALL = ["adk-memory", *PERSISTENT]
WHO: Any = {"app_name": "app", "user_id": "bo"}
Open = Callable[[], BaseSessionService]


@pytest.fixture(params=ALL)
async def opened(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that opens the same service, again or for the first time."""
    monkeypatch.setenv("HOLDFAST_HOME", str(tmp_path / "home"))
    found: list[Any] = []
    make = _opener(request.param, tmp_path)

    def open_() -> BaseSessionService:
        found.append(make())
        return found[-1]

    yield open_
    for one in found:
        if hasattr(one, "close"):
            await one.close()
    close_stores()


def _opener(kind: str, folder: Path) -> Open:
    match kind:
        case "adk-memory":
            memory = InMemorySessionService()
            return lambda: memory
        case "adk-sqlite":
            return lambda: SqliteSessionService(str(folder / "adk.db"))
        case "adk-database":
            return lambda: DatabaseSessionService(f"sqlite+aiosqlite:///{folder / 'adk.db'}")
    url = new_place(kind.removeprefix("holdfast-"), folder)

    def open_ours() -> BaseSessionService:
        close_stores()
        return HoldfastSessionService(url)

    return open_ours


def event(text: str = "", *, author: str = "user", at: float = 0.0, **delta: Any) -> Event:
    content = types.Content(role="user", parts=[types.Part(text=text)]) if text else None
    when = {"timestamp": at} if at else {}
    actions = EventActions(state_delta={key.replace("_", ":"): value for key, value in delta.items()})
    return Event(author=author, invocation_id="i-1", content=content, actions=actions, **when)


async def add(service: BaseSessionService, session: Session, *texts: str) -> None:
    for text in texts:
        await service.append_event(session, event(text, at=2e9 + len(session.events)))


async def get(service: BaseSessionService, session_id: str = "s", **config: Any) -> Session:
    found = await service.get_session(**WHO, session_id=session_id, config=GetSessionConfig(**config))
    assert found is not None
    return found


def texts_of(session: Session) -> list[str]:
    return [one.content.parts[0].text for one in session.events if one.content and one.content.parts]  # type: ignore[misc]


async def test_a_new_session_has_the_given_state_by_scope(opened: Open) -> None:
    state = {"here": [1, None], "app:all": 1, "user:mine": {"a": "ä"}, "temp:gone": 1}
    created = await opened().create_session(**WHO, session_id=" s ", state=state)
    found = await get(opened(), " s ")

    assert (created.id, created.app_name, created.user_id, created.events) in [
        (name, "app", "bo", []) for name in ("s", " s ")
    ]
    assert {**created.state, "temp:gone": 1} == state
    assert found.state == created.state
    assert found.last_update_time == created.last_update_time > 0


async def test_a_session_without_an_id_gets_one(opened: Open) -> None:
    service = opened()
    one, two = await service.create_session(**WHO), await service.create_session(**WHO)

    assert one.id != two.id
    assert (await get(service, one.id)).state == {}


async def test_an_id_is_used_once_per_user_and_app(opened: Open) -> None:
    service = opened()
    await service.create_session(**WHO, session_id="s", state={"n": 1})
    await service.create_session(app_name="app", user_id="al", session_id="s")
    await service.create_session(app_name="other", user_id="bo", session_id="s")

    with pytest.raises(AlreadyExistsError, match="s already exists"):
        await service.create_session(**WHO, session_id="s")
    assert (await get(service)).state == {"n": 1}


async def test_what_does_not_exist_is_none_and_its_deletion_does_nothing(opened: Open) -> None:
    service = opened()

    assert await service.get_session(**WHO, session_id="s") is None
    await service.delete_session(**WHO, session_id="s")
    assert (await service.list_sessions(app_name="app")).sessions == []
    assert await service.get_user_state(**WHO) == {}


async def test_events_come_back_unchanged_and_in_order(opened: Open) -> None:
    call = types.FunctionCall(id="c", name="weather", args={"place": "Kiel", "deep": [{"n": None}]})
    answer = types.FunctionResponse(id="c", name="weather", response={"sky": "grey"})
    image = types.Part(inline_data=types.Blob(data=b"\0\xff", mime_type="image/png"))
    events = [
        event("say häl\0lo 😀"),
        Event(
            author="agent",
            invocation_id="i-1",
            branch="a.b",
            content=types.Content(role="model", parts=[types.Part(function_call=call)]),
            long_running_tool_ids={"x", "y"},
        ),
        Event(author="agent", content=types.Content(role="user", parts=[types.Part(function_response=answer)])),
        Event(author="agent", content=types.Content(role="model", parts=[image]), turn_complete=True, error_code="E"),
        Event(author="agent", actions=EventActions(escalate=True, transfer_to_agent="b", artifact_delta={"f": 2})),
    ]
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    for number, one in enumerate(events):
        one.timestamp = 2e9 + number
        returned = await service.append_event(session, one)
        assert returned.id == one.id

    assert session.events == events
    assert (await get(opened())).events == events
    assert (await get(opened())).last_update_time == session.last_update_time == events[-1].timestamp


async def test_a_partial_event_is_not_stored(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    await service.append_event(session, Event(author="agent", partial=True, content=types.Content(parts=[])))

    assert session.events == (await get(service)).events == []


async def test_changes_of_state_reach_the_sessions_of_their_scope(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s", state={"a": 1})
    await service.create_session(**WHO, session_id="t")
    await service.create_session(app_name="app", user_id="al", session_id="u")
    await service.create_session(app_name="other", user_id="bo", session_id="v")
    delta: dict[str, Any] = {"a": {"x": None}, "b": None, "app_all": [1], "user_mine": "m"}
    await service.append_event(session, event("one", **delta))
    again = opened()
    others = [("app", "bo", "t"), ("app", "al", "u"), ("other", "bo", "v")]
    states = [
        found.state
        for app, user, name in others
        if (found := await again.get_session(app_name=app, user_id=user, session_id=name))
    ]

    assert session.state == {"a": {"x": None}, "b": None, "app:all": [1], "user:mine": "m"}
    assert (await get(again)).state == session.state
    assert states == [{"app:all": [1], "user:mine": "m"}, {"app:all": [1]}, {}]
    assert await again.get_user_state(**WHO) == {"mine": "m"}
    assert await again.get_user_state(app_name="app", user_id="al") == {}


async def test_temporary_state_is_only_in_the_running_session(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    returned = await service.append_event(session, event("one", temp_x=1, y=2))

    assert session.state == {"temp:x": 1, "y": 2}
    assert returned.actions.state_delta == {"y": 2}
    found = await get(opened())
    assert (found.state, found.events[0].actions.state_delta) == ({"y": 2}, {"y": 2})


async def test_only_the_wanted_events_are_returned_with_the_whole_state(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    for number in range(1, 101):
        await service.append_event(session, event(str(number), at=2e9 + number, n=number, **{f"k{number}": 1}))
    again = opened()

    wanted: list[tuple[dict[str, Any], list[int]]] = [
        ({"num_recent_events": 2}, [99, 100]),
        ({"num_recent_events": 0}, []),
        ({"num_recent_events": 200}, list(range(1, 101))),
        ({"after_timestamp": 2e9 + 98}, [98, 99, 100]),
        ({"after_timestamp": 2e9 + 500}, []),
        ({"after_timestamp": 2e9 + 98, "num_recent_events": 2}, [99, 100]),
        ({"after_timestamp": 2e9 + 99, "num_recent_events": 9}, [99, 100]),
    ]
    for config, numbers in wanted:
        found = await get(again, **config)
        assert texts_of(found) == list(map(str, numbers)), config
        assert found.state == session.state
        assert found.last_update_time == 2e9 + 100


async def test_sessions_are_listed_by_last_use_without_events(opened: Open) -> None:
    service = opened()
    made = [
        await service.create_session(app_name="app", user_id=user, session_id=name, state={name: 1})
        for user, name in (("bo", "a"), ("bo", "b"), ("al", "c"))
    ]
    await service.create_session(app_name="apps", user_id="bo", session_id="d")
    await service.append_event(made[0], event("one", app_x=1, user_y=2, at=3e9))
    again = opened()
    everybody, one = await again.list_sessions(app_name="app"), await again.list_sessions(**WHO)

    assert [(found.user_id, found.id) for found in everybody.sessions] == [("bo", "b"), ("al", "c"), ("bo", "a")]
    assert [found.id for found in one.sessions] == ["b", "a"]
    assert [found.events for found in everybody.sessions] == [[], [], []]
    assert one.sessions[1].state == {"a": 1, "app:x": 1, "user:y": 2}
    assert everybody.sessions[1].state == {"c": 1, "app:x": 1}
    assert one.sessions[1].last_update_time == 3e9


async def test_a_deleted_session_is_gone_and_the_shared_state_stays(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s", state={"user:mine": 1, "app:all": 2, "n": 3})
    await add(service, session, "one")
    await service.delete_session(**WHO, session_id="s")

    assert await service.get_session(**WHO, session_id="s") is None
    assert (await service.list_sessions(**WHO)).sessions == []
    assert await service.get_user_state(**WHO) == {"mine": 1}
    with pytest.raises(SessionNotFoundError, match="Session s not found"):
        await service.append_event(session, event("late"))
    created = await service.create_session(**WHO, session_id="s")
    assert (created.state, created.events) == ({"user:mine": 1, "app:all": 2}, [])


@pytest.mark.parametrize("opened", PERSISTENT, indirect=True)
async def test_an_event_for_an_outdated_session_is_refused(opened: Open) -> None:
    service = opened()
    old = await service.create_session(**WHO, session_id="s")
    new = await get(service)
    await add(service, new, "one", "two")

    with pytest.raises(StaleSessionError):
        await service.append_event(old, event("late"))
    assert texts_of(await get(service)) == ["one", "two"]
    again = await get(service)
    await add(service, again, "three")
    assert texts_of(await get(service)) == ["one", "two", "three"]


@pytest.mark.parametrize("opened", [name for name in PERSISTENT if name != "adk-sqlite"], indirect=True)
async def test_a_session_that_was_not_read_from_the_service_is_compared_by_its_last_event(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    await add(service, session, "one")
    copy = Session(**WHO, id="s", events=list(session.events), last_update_time=1.0)
    await add(service, copy, "two")

    outdated = Session(**WHO, id="s", events=list(session.events), last_update_time=1.0)
    with pytest.raises(StaleSessionError):
        await service.append_event(outdated, event("late"))
    assert texts_of(await get(service)) == ["one", "two"]


async def test_branches_that_share_a_session_append_at_the_same_time(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    await asyncio.gather(*(service.append_event(session, event(str(n), at=2e9 + n)) for n in range(20)))

    assert sorted(map(int, texts_of(session))) == list(range(20))
    assert sorted(map(int, texts_of(await get(opened())))) == list(range(20))


@pytest.mark.parametrize("opened", ["adk-memory", *OURS], indirect=True)
async def test_an_event_that_is_appended_again_is_there_once(opened: Open) -> None:
    service = opened()
    session = await service.create_session(**WHO, session_id="s")
    one = event("one", n=1)
    await service.append_event(session, one)
    await service.append_event(session, one.model_copy(deep=True))
    again = await get(service)
    await service.append_event(again, one.model_copy(deep=True))
    await service.append_event(again, Event(**{**event("two").model_dump(), "id": one.id}))

    assert texts_of(await get(service)) == ["one", "two"]
    assert texts_of(session) == ["one"]


async def test_a_runner_continues_and_rewinds_a_session(opened: Open) -> None:
    await run(opened(), "s", "one")
    second = (await run(opened(), "s", "two"))[-1].invocation_id
    before = await get(opened())
    runner = Runner(app_name="app", agent=Counter(name="counter"), session_service=opened())
    await runner.rewind_async(user_id="bo", session_id="s", rewind_before_invocation_id=second)
    rewound = await get(opened())
    await run(opened(), "s", "three")

    assert texts_of(before) == ["one", "reply 0", "two", "reply 1"]
    assert rewound.state == {"n": 0, "user:n": 1}
    assert rewound.events[-1].actions.rewind_before_invocation_id == second
    assert texts_of(await get(opened()))[-2:] == ["three", "reply 1"]
