"""The event stream: no event is missed or repeated, and live text equals the committed text."""

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from holdfast import config
from holdfast import http_server as listening
from holdfast.api.app import create_app
from holdfast.api.native.events import EventStreamEncoder
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import GENESIS, Entry
from holdfast.model.event import ModelSaid
from holdfast.model.message import Text
from holdfast.wiring import server as serve
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app
from tests.api import native_client
from tests.api.native_client import Listener, Pieces, begin, said, say, wait_for_end
from tests.api.serving import BRISKLY, KEY, SLOWLY, Server, write_config


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with native_client.client(server) as opened:
        yield opened


def hear_turn(listener: Listener, http: httpx.Client) -> None:
    for kind in listener.listen(http):
        if kind == "turn_ended":
            return


def test_pages_and_the_stream_have_the_same_events(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "hello")
    listener = Listener(one)
    hear_turn(listener, http)

    pages, after = [], 0
    while after is not None:
        page = http.get(f"/v1/sessions/{one}/events", params={"after": after, "limit": 2}).json()
        pages += page["events"]
        after = page["next"]

    assert pages == listener.events
    assert http.get(f"/v1/sessions/{one}/events", params={"after": 999}).json()["events"] == []


def test_live_events_have_the_hashes_of_the_log(http: httpx.Client) -> None:
    one = begin(http)
    listener = Listener(one)
    for kind in listener.listen(http):
        if kind == "session_opened":
            say(http, one, "hello")
        if kind == "turn_ended":
            break

    assert listener.events == http.get(f"/v1/sessions/{one}/events").json()["events"]


def test_a_client_that_connects_during_a_reply_gets_its_beginning(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("slow"))
    say(http, one, "go")
    first = Listener(one)
    for _ in first.listen(http):
        if first.deltas == 40:
            break

    late = Listener(one)
    heard: list[str] = []
    for kind in late.listen(http):
        if kind == "delta":
            heard.append(late.preview)
        if kind == "turn_ended":
            break

    assert heard[0].startswith(first.preview), "all earlier events come at once"
    assert heard[-1] == SLOWLY == late.text
    hear_turn(first, http)
    assert first.text == SLOWLY


def test_a_client_that_reconnects_continues_after_its_last_event(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("brisk"))
    say(http, one, "go")
    listener = Listener(one)
    for stop_after in (3, 20, 50, 10**6):
        for kind in listener.listen(http):  # duplicates and gaps are detected there
            if kind == "turn_ended" or listener.deltas >= stop_after:
                break

    assert listener.text == BRISKLY


def test_a_turn_can_be_streamed_from_another_server(own: Server) -> None:
    with Server(own.home) as other, native_client.client(own) as http, native_client.client(other) as elsewhere:
        one = begin(http, model=own.model("slow"))
        say(http, one, "go")
        listener = Listener(one)
        hear_turn(listener, elsewhere)
        known = http.get(f"/v1/sessions/{one}/events").json()["events"]

    assert listener.text == SLOWLY
    assert listener.deltas > 1, "the stored part of the reply is shown while it is generated"
    assert listener.events == known


def test_the_last_event_id_header_overrides_the_query(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "hello")
    place, headers = f"/v1/sessions/{one}/events?after=1", {"accept": "text/event-stream", "last-event-id": "3"}
    with http.stream("GET", place, headers=headers) as response:
        first = next(iter(Pieces(response.iter_lines())))

    wrong = http.get(place, headers=headers | {"last-event-id": "x"})

    assert first[1] == "4"
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_header")


def test_sigterm_ends_a_stream_with_a_last_event(own: Server) -> None:
    with native_client.client(own) as http:
        one = begin(http)
        said(http, one, "hello")
        listener = Listener(one)
        for kind in listener.listen(http):
            if kind == "turn_ended":
                own.process.signal(signal.SIGTERM)

    assert listener.goodbye is not None and listener.goodbye["error"]["code"] == "unavailable"
    assert own.process.wait() == 0


@asynccontextmanager
async def at_home(home: Path, heartbeat_seconds: float) -> AsyncIterator[httpx.AsyncClient]:
    """A server in this process with frequent heartbeats."""
    write_config(home)
    async with (
        open_app(config.load(home)) as app,
        open_engine(app.database, app.settings, {}, kind="serve") as engine,
    ):
        context = dataclasses.replace(serve._api_context(app, engine, None), heartbeat_seconds=heartbeat_seconds)
        listener = listening.listen("127.0.0.1", 0)
        started = asyncio.Event()
        serving = listening.HttpServer(create_app(context, KEY), started.set)
        task = asyncio.create_task(serving.serve([listener]))
        await started.wait()
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(
            base_url=listening.listener_address(listener), headers=headers, timeout=30
        ) as http:
            yield http
        context.leaving.set()
        serving.stop()
        await task
        listener.close()


async def test_an_idle_event_stream_sends_heartbeats(tmp_path: Path) -> None:
    async with at_home(tmp_path / "home", heartbeat_seconds=0.003) as http:
        one = (await http.post("/v1/sessions", json={})).json()["id"]
        words = [{"role": "user", "content": "go"}]
        chat = {"model": f"scripted:{tmp_path}/home/brisk.json", "messages": words, "stream": True}
        comments = 0
        headers = {"accept": "text/event-stream"}
        async with http.stream("GET", f"/v1/sessions/{one}/events", headers=headers) as response:
            async for line in response.aiter_lines():
                comments += line.startswith(":")
                if comments == 3:
                    break
        async with http.stream("POST", "/v1/chat/completions", json=chat) as response:
            told = [line async for line in response.aiter_lines()]

    assert comments == 3
    assert told[-2] == "data: [DONE]" and any(line.startswith(":") for line in told)


def test_live_text_of_a_committed_reply_is_not_sent_again() -> None:
    encoder = EventStreamEncoder(0, GENESIS)
    committed = Entry(1, 0, ModelSaid(turn_id="t", parts=(Text("abc"),)))

    assert b'"text":"ab"' in encoder.encode(LiveText("t", "text", "ab", at=0, behind=0))
    assert b'"text":"c"' in encoder.encode(LiveText("t", "text", "bc", at=1, behind=0))
    assert encoder.encode(LiveText("t", "text", "late", at=7, behind=0)) == b"", "some are missing before these"
    assert encoder.encode(LiveText("t", "text", "early", at=0, behind=9)) == b"", "its events are still to come"
    assert encoder.encode(committed).startswith(b"id: 1\n")
    assert encoder.encode(LiveText("t", "text", "c", at=2, behind=0)) == b"", "it is in the event"
    assert b'"at":0' in encoder.encode(LiveText("t", "text", "x", at=0, behind=1))


async def test_the_end_of_a_turn_is_committed_before_it_is_streamed(tmp_path: Path) -> None:
    async with at_home(tmp_path / "home", heartbeat_seconds=10) as http:
        one = (await http.post("/v1/sessions", json={})).json()["id"]
        headers = {"accept": "text/event-stream"}
        async with http.stream("GET", f"/v1/sessions/{one}/events", headers=headers) as response:
            await http.post(f"/v1/sessions/{one}/turns", json={"input": "hello"})
            async for line in response.aiter_lines():
                if '"turn_ended"' in line:
                    break
        found = (await http.get(f"/v1/sessions/{one}")).json()

    assert found["state"] == "waiting" and found["message_count"] == 2


def test_a_fork_has_its_own_stream(http: httpx.Client) -> None:
    one = begin(http)
    wait_for_end(http, one, say(http, one, "hello"))
    fork = Listener(http.post(f"/v1/sessions/{one}/fork").json()["id"])

    for kind in fork.listen(http):
        if kind == "forked":
            break

    assert [event["seq"] for event in fork.events] == list(range(1, len(fork.events) + 1))
