"""The path of one message through the program, traced: how many files it passes through, and which statements it runs."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from holdfast.api.app import create_app
from holdfast.api.context import ApiContext
from holdfast.api.models import ModelList
from holdfast.clock import SystemClock
from holdfast.model.event import Event, ModelSaid, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.server_clock import open_clock
from holdfast.supervisor import Supervisor
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App, open_store
from tests.fakes.request_trace import RequestTrace, TracedDatabase, Tracer

KEY = "hfk-for-the-tests-only"
ATTEMPTS = 12
"""A background task that uses the store beside the request spoils a trace; then the next message is traced."""
CLEAN_TRACES = 5
"""Of these the shortest counts: on a busy machine a slow step starts helpers that others do not need."""
MAX_FILES = 69
MAX_FILE_CHANGES = 344
MAX_STATEMENTS = 15
LONG_HISTORY = 1_000
CALLS_OF_THE_MODEL = (("model/message.py", "Message.text"), ("model/message.py", "text_of"))
"""The scripted model reads every message that it gets."""
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


async def _no_sweep() -> None:
    raise AssertionError("nobody asks for a sweep")


class TracedApi(msgspec.Struct, frozen=True):
    """An API whose requests are traced, on a store of its own."""

    api: object
    tracer: Tracer
    database: TracedDatabase


@pytest.fixture
async def traced(tmp_path: Path) -> AsyncIterator[TracedApi]:
    settings = Settings(home=tmp_path, model="scripted:echo", store=f"sqlite:///{tmp_path}/holdfast.db")
    tracer = Tracer()
    with tracer.installed():
        async with Supervisor(SystemClock()) as supervisor:
            await (await open_store(settings, supervisor)).close()
            database = TracedDatabase(tmp_path / "holdfast.db", tracer, supervisor)
            app = App(settings, database, await open_clock(database), supervisor)
            try:
                async with open_engine(database, settings, {}, kind="test", supervisor=supervisor) as engine:
                    assert isinstance(engine.processes, ProcessRegistry)
                    api = create_app(
                        ApiContext(
                            engine,
                            database,
                            settings,
                            ModelList(settings),
                            search=app.search,
                            processes=engine.processes,
                            sweep=_no_sweep,
                            window=lambda model: 8192,
                        ),
                        KEY,
                    )
                    yield TracedApi(api, tracer, database)
            finally:
                await app.close()


@pytest.fixture
async def trace(traced: TracedApi) -> RequestTrace:
    """The second message of a session, from the request to the last byte of the reply."""
    return await _trace(traced, ["traced"] * ATTEMPTS)


async def _trace(traced: TracedApi, sessions: list[str]) -> RequestTrace:
    """A message to one of the sessions, after one to the first of them."""
    transport = httpx.ASGITransport(app=traced.api)  # type: ignore[arg-type]
    headers = {"authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        await _say(client, sessions[0], "first")
        clean: list[RequestTrace] = []
        for number, session in enumerate(sessions):
            with traced.tracer.record() as trace:
                await _say(client, session, f"message {number}")
            if trace.is_clean:
                clean.append(trace)
            if len(clean) == CLEAN_TRACES:
                break
    assert clean, "background tasks used the store beside every message"
    return min(clean, key=lambda trace: len(trace.calls))


async def _say(client: httpx.AsyncClient, session: str, text: str) -> None:
    body = {"model": "holdfast", "messages": [{"role": "user", "content": text}]}
    reply = await client.post("/v1/chat/completions", json=body, headers={"x-session-id": session})
    assert reply.status_code == 200, reply.text
    assert text in reply.json()["choices"][0]["message"]["content"]


async def test_a_message_passes_few_files_and_runs_few_statements(trace: RequestTrace) -> None:
    print(f"{len(trace.files)} files, {trace.functions} functions, {trace.file_changes} file changes")
    print(f"{len(trace.statements)} statements: {', '.join(trace.statements)}")

    assert len(trace.files) <= MAX_FILES
    assert trace.file_changes <= MAX_FILE_CHANGES
    assert len(trace.statements) <= MAX_STATEMENTS


async def test_no_row_of_a_session_is_read_twice_in_one_transaction(trace: RequestTrace) -> None:
    repeated = [
        f"{query} with {params}"
        for transaction in trace.transactions
        for (query, params), count in Counter(transaction).items()
        if count > 1
    ]

    assert repeated == []


async def test_the_first_message_of_a_session_is_two_transactions_as_every_other(traced: TracedApi) -> None:
    trace = await _trace(traced, [f"new-{number}" for number in range(ATTEMPTS)])

    assert len(trace.transactions) == 2


async def test_promise_32_a_message_after_a_long_history_calls_as_many_functions(traced: TracedApi) -> None:
    short = await _trace(traced, ["traced"] * ATTEMPTS)
    for first in range(0, LONG_HISTORY, 200):
        await traced.database.write(_add_messages, first, first + 200)

    long = await _trace(traced, ["traced"] * ATTEMPTS)

    counts = [sum(call not in CALLS_OF_THE_MODEL for call in trace.calls) for trace in (short, long)]
    print(f"{counts[0]} calls after few messages, {counts[1]} after {LONG_HISTORY}")
    assert counts[1] <= counts[0] * 1.02


def _add_messages(tx: Transaction, first: int, last: int) -> None:
    found = tx.one("aliases.find_alias_and_channel", alias="traced", channel="key:traced")
    assert found is not None
    events: list[Event] = []
    for number in range(first, last, 2):
        turn_id = f"turn-{number:020}"
        events += [
            TurnStarted(turn_id=turn_id, worker_id="worker-1"),
            UserSaid(turn_id=turn_id, parts=(Text(f"earlier {number}"),)),
            ModelSaid(turn_id=turn_id, parts=(Text("yes"),), model="m", finish="stop"),
            TurnEnded(turn_id=turn_id, outcome="done"),
        ]
    log.append_unheld(tx, str(found[1]), events, at=1_800_000_000_000_000)


async def test_the_architecture_page_lists_the_files_that_a_message_passes(trace: RequestTrace) -> None:
    _, _, after = PAGE.read_text("utf-8").partition("<!-- files of one message -->")
    listed = re.findall(r"^\d+\. `([^`]+)`", after, re.MULTILINE)
    lines = "\n".join(f"1. `{file}`" for file in trace.files)

    assert set(listed) ^ set(trace.files) == set(), f"replace the list in {PAGE.name} with:\n{lines}"
