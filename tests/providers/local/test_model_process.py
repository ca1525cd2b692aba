"""The process of the embedded model: it blocks nobody while it loads, and never outlives its worker."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import uvloop

from holdfast.model.errors import Unreachable
from holdfast.model.message import Message, Text
from holdfast.model.provider import ModelReply, ModelRequest
from holdfast.providers.local.provider import LocalProvider

pytestmark = [pytest.mark.slow, pytest.mark.process]

ROOT = Path(__file__).parents[3]
ENDLESS = "Tell me a very long story."


def asking(text: str, max_tokens: int = 5) -> ModelRequest:
    said = Message(1, "user", (Text(text),), at=1)
    return ModelRequest(model="smollm2", system="", messages=(said,), max_tokens=max_tokens)


async def heard(provider: LocalProvider, request: ModelRequest) -> ModelReply:
    *_, reply = [item async for item in provider.ask(request)]
    assert isinstance(reply, ModelReply)
    return reply


def model_processes(of: int | None = None) -> list[psutil.Process]:
    return [child for child in psutil.Process(of).children() if _is_model(child)]


def _is_model(process: psutil.Process) -> bool:
    try:
        return any(word.endswith("model_server.py") for word in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def wait_until_gone(descriptor: int) -> None:
    """Wait until the process of a pidfd has ended; the time limit of the test is the limit."""
    select.select([descriptor], [], [])
    os.close(descriptor)


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def test_the_event_loop_goes_on_while_the_model_loads(loop_factory) -> None:  # type: ignore[no-untyped-def]
    async def ask_and_count() -> int:
        provider = LocalProvider(context=512)
        asked = asyncio.ensure_future(heard(provider, asking("Hello")))
        beats = 0
        while not asked.done():
            beats += 1
            await asyncio.sleep(0)
        assert (await asked).parts
        await provider.close()
        return beats

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        beats = runner.run(ask_and_count())

    assert beats > 1_000
    assert "xllamacpp" not in sys.modules  # it holds Python's lock while it loads


async def test_a_model_process_that_dies_fails_its_replies_and_the_next_request_starts_another() -> None:
    provider = LocalProvider(context=512)
    replies = provider.ask(asking(ENDLESS, 400))
    await anext(replies)
    (process,) = model_processes()
    watched = os.pidfd_open(process.pid)

    process.kill()
    with pytest.raises(Unreachable, match="process of the embedded model ended"):
        [item async for item in replies]
    wait_until_gone(watched)
    reply = await heard(provider, asking("Hello"))
    await provider.close()

    assert reply.parts
    assert model_processes() == []


async def test_more_requests_than_can_wait_are_refused_by_name() -> None:
    provider = LocalProvider(context=512)
    await heard(provider, asking("Hello"))
    (process,) = model_processes()
    process.suspend()

    waiting: list[asyncio.Future[None]] = []
    try:
        with pytest.raises(Unreachable, match="too many requests"):
            while True:
                replies = provider.ask(asking("Hello"))
                waiting.append(asyncio.ensure_future(anext(replies)))  # type: ignore[arg-type]
                await asyncio.sleep(0)
                if waiting[-1].done():
                    await waiting[-1]
    finally:
        await provider.close()
    await asyncio.wait(waiting)
    assert {type(one.exception()) for one in waiting} == {Unreachable}


async def test_signals_of_a_terminal_or_a_service_manager_do_not_end_a_reply() -> None:
    provider = LocalProvider(context=512)
    replies = provider.ask(asking("Count to ten.", 30))
    await anext(replies)
    (process,) = model_processes()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        process.send_signal(number)
    *_, reply = [item async for item in replies]
    await provider.close()

    assert isinstance(reply, ModelReply)


@pytest.mark.parametrize("is_loaded", [False, True], ids=["while it loads", "while it answers"])
def test_a_killed_worker_leaves_no_model_process(is_loaded: bool) -> None:
    command = [sys.executable, "-m", "tests.providers.talkative"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == b"asked\n"
        if is_loaded:
            assert worker.stdout.readline() == b"answering\n"
        while not (found := model_processes(worker.pid)):
            assert worker.poll() is None
        watched = os.pidfd_open(found[0].pid)

        worker.kill()
        worker.wait()

    wait_until_gone(watched)


def test_interrupts_while_the_model_loads_end_the_command(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "holdfast", "--home", str(tmp_path), "run", "--model", "local:smollm2", ENDLESS]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as running:
        while not (found := model_processes(running.pid)):
            assert running.poll() is None
        watched = os.pidfd_open(found[0].pid)

        while running.poll() is None:  # the first one drains, and the second one ends the process
            os.killpg(running.pid, signal.SIGINT)

    wait_until_gone(watched)
    assert running.returncode == 130
