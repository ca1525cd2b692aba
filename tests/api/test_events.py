"""The log as it grows: nothing is missed, nothing comes twice, and live text is what it says it is."""

import asyncio
import dataclasses
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from holdfast import config, serve
from holdfast.api import server as listening
from holdfast.api.app import create
from holdfast.api.events import Teller
from holdfast.app import open_app
from holdfast.assemble import open_engine
from holdfast.engine.bus import Live
from holdfast.model.entry import GENESIS, Entry
from holdfast.model.event import ModelSaid
from holdfast.model.message import Text
from tests.api import native
from tests.api.native import Listener, Pieces, begin, said, say, wait_for_end
from tests.api.serving import BRISKLY, KEY, SLOWLY, Server, write_config


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with native.client(server) as opened:
        yield opened


def hear_turn(listener: Listener, http: httpx.Client) -> None:
    for kind in listener.listen(http):
        if kind == "turn_ended":
            return


def test_events_come_in_pages_and_as_a_stream_alike(http: httpx.Client) -> None:
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


def test_one_who_comes_in_the_middle_of_a_reply_hears_its_beginning(server: Server, http: httpx.Client) -> None:
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

    assert heard[0].startswith(first.preview), "all that was said before comes at once"
    assert heard[-1] == SLOWLY == late.text
    hear_turn(first, http)
    assert first.text == SLOWLY


def test_one_who_comes_again_goes_on_from_the_last_event(server: Server, http: httpx.Client) -> None:
    one = begin(http, model=server.model("brisk"))
    say(http, one, "go")
    listener = Listener(one)
    for stop_after in (3, 20, 50, 10**6):
        for kind in listener.listen(http):  # what comes twice, or is left out, is noticed there
            if kind == "turn_ended" or listener.deltas >= stop_after:
                break

    assert listener.text == BRISKLY


def test_a_turn_can_be_heard_through_another_server(own: Server) -> None:
    with Server(own.home) as other, native.client(own) as http, native.client(other) as elsewhere:
        one = begin(http, model=own.model("slow"))
        say(http, one, "go")
        listener = Listener(one)
        hear_turn(listener, elsewhere)
        known = http.get(f"/v1/sessions/{one}/events").json()["events"]

    assert listener.text == SLOWLY
    assert listener.deltas > 1, "what was kept of the reply is shown while it is made"
    assert listener.events == known


def test_the_header_counts_more_than_the_address(http: httpx.Client) -> None:
    one = begin(http)
    said(http, one, "hello")
    place, headers = f"/v1/sessions/{one}/events?after=1", {"accept": "text/event-stream", "last-event-id": "3"}
    with http.stream("GET", place, headers=headers) as response:
        first = next(iter(Pieces(response.iter_lines())))

    wrong = http.get(place, headers=headers | {"last-event-id": "x"})

    assert first[1] == "4"
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (400, "invalid_header")


def test_sigterm_ends_a_stream_with_a_last_event(own: Server) -> None:
    with native.client(own) as http:
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
    """A server in this process whose streams are never silent for long."""
    write_config(home)
    async with (
        open_app(config.load(home)) as app,
        open_engine(app.database, app.settings, {}, kind="serve") as engine,
    ):
        house = dataclasses.replace(serve._house(app, engine), heartbeat_seconds=heartbeat_seconds)
        listener = listening.listen("127.0.0.1", 0)
        started = asyncio.Event()
        serving = listening.Server(create(house, KEY), started.set)
        task = asyncio.create_task(serving.serve([listener]))
        await started.wait()
        headers = {"authorization": f"Bearer {KEY}"}
        async with httpx.AsyncClient(base_url=listening.address(listener), headers=headers, timeout=30) as http:
            yield http
        house.leaving.set()
        serving.stop()
        await task
        listener.close()


async def test_a_stream_with_nothing_to_say_says_that_it_is_there(tmp_path: Path) -> None:
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


def test_words_that_belong_to_a_known_reply_are_not_told_again() -> None:
    teller = Teller(0, GENESIS)
    committed = Entry(1, 0, ModelSaid(turn_id="t", parts=(Text("abc"),)))

    assert b'"text":"ab"' in teller.tell(Live("t", "text", "ab", at=0, behind=0))
    assert b'"text":"c"' in teller.tell(Live("t", "text", "bc", at=1, behind=0))
    assert teller.tell(Live("t", "text", "late", at=7, behind=0)) == b"", "some are missing before these"
    assert teller.tell(Live("t", "text", "early", at=0, behind=9)) == b"", "its events are still to come"
    assert teller.tell(committed).startswith(b"id: 1\n")
    assert teller.tell(Live("t", "text", "c", at=2, behind=0)) == b"", "it is in the event"
    assert b'"at":0' in teller.tell(Live("t", "text", "x", at=0, behind=1))


async def test_a_turn_is_over_for_the_store_when_a_listener_hears_so(tmp_path: Path) -> None:
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


def test_a_fork_has_a_stream_of_its_own(http: httpx.Client) -> None:
    one = begin(http)
    wait_for_end(http, one, say(http, one, "hello"))
    fork = Listener(http.post(f"/v1/sessions/{one}/fork").json()["id"])

    for kind in fork.listen(http):
        if kind == "forked":
            break

    assert [event["seq"] for event in fork.events] == list(range(1, len(fork.events) + 1))
