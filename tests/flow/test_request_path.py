"""The path of one message through the program, traced: how many files it passes through, and which statements it runs."""

import re
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from holdfast.api.app import create_app
from holdfast.api.context import ApiContext
from holdfast.api.models import ModelList
from holdfast.clock import SystemClock
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.store.server_clock import open_clock
from holdfast.supervisor import Supervisor
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App, open_store
from tests.fakes.request_trace import RequestTrace, TracedDatabase, Tracer

KEY = "hfk-for-the-tests-only"
ATTEMPTS = 12
"""A background task that uses the store beside the request spoils a trace; then the next message is traced."""
CLEAN_TRACES = 3
"""Of these the shortest counts: on a busy machine a slow step starts helpers that others do not need."""
MAX_FILES = 68
MAX_FILE_CHANGES = 340
MAX_STATEMENTS = 15
PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"


async def _no_sweep() -> None:
    raise AssertionError("nobody asks for a sweep")


@pytest.fixture
async def trace(tmp_path: Path) -> AsyncIterator[RequestTrace]:
    """The second message of a session, from the request to the last byte of the reply."""
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
                    yield await _trace(api, tracer)
            finally:
                await app.close()


async def _trace(api: object, tracer: Tracer) -> RequestTrace:
    transport = httpx.ASGITransport(app=api)  # type: ignore[arg-type]
    headers = {"authorization": f"Bearer {KEY}", "x-session-id": "traced"}
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
        await _say(client, "first")
        clean: list[RequestTrace] = []
        for number in range(ATTEMPTS):
            with tracer.record() as trace:
                await _say(client, f"message {number}")
            if trace.is_clean:
                clean.append(trace)
            if len(clean) == CLEAN_TRACES:
                break
    assert clean, "background tasks used the store beside every message"
    return min(clean, key=lambda trace: len(trace.calls))


async def _say(client: httpx.AsyncClient, text: str) -> None:
    body = {"model": "holdfast", "messages": [{"role": "user", "content": text}]}
    reply = await client.post("/v1/chat/completions", json=body)
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


async def test_the_architecture_page_lists_the_files_that_a_message_passes(trace: RequestTrace) -> None:
    _, _, after = PAGE.read_text("utf-8").partition("<!-- files of one message -->")
    listed = re.findall(r"^\d+\. `([^`]+)`", after, re.MULTILINE)
    lines = "\n".join(f"1. `{file}`" for file in trace.files)

    assert set(listed) ^ set(trace.files) == set(), f"replace the list in {PAGE.name} with:\n{lines}"
