"""`holdfast serve` serves platforms, runs schedules, and stops both cleanly."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from holdfast.cron import next_slot
from holdfast.store.repos import inbox, platforms, schedules
from holdfast.store.repos.schedules import Schedule
from holdfast.store.sqlite.driver import open_sqlite
from tests.gateway.crash_loop import ROOT
from tests.gateway.platforms.test_webhook import CONFIG, SECRET, Far, payload, serving, signed
from tests.gateway.synapse import free_port

pytestmark = [pytest.mark.clients, pytest.mark.timeout(120)]


async def test_serve_answers_a_bridge_runs_a_missed_slot_and_stops_at_a_signal(tmp_path: Path) -> None:
    import httpx2

    home, port, far = tmp_path / "home", free_port(), Far()
    home.mkdir()
    database = await open_sqlite(home / "holdfast.db")
    slot = next_slot("0 8 * * *", "UTC", 1)
    missed = Schedule("cron-abcdef", "0 8 1 1 *", "UTC", "Happy new year", "bridge:c", None, "run", slot, 1)
    await database.write(schedules.add, missed)
    async with serving(far.handle) as url:
        (home / "config.toml").write_text(CONFIG.format(port=port, url=url, secret=SECRET))
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        assert server.stdout is not None
        await server.stdout.readline()
        try:
            async with asyncio.timeout(60), httpx2.AsyncClient() as client:
                while not far.taken or not any("hello" in str(one["text"]) for one in far.taken):
                    body = payload("hello")
                    try:
                        await client.post(f"http://127.0.0.1:{port}/", content=body, headers=signed(body))
                    except httpx2.ConnectError:
                        pass
                    await asyncio.sleep(0.2)
                while len(far.taken) < 2:
                    await asyncio.sleep(0.1)
        finally:
            server.send_signal(signal.SIGTERM)
            code = await server.wait()

    assert code == 0
    assert {one["text"] for one in far.taken} == {"You said: hello", "You said: Happy new year"}
    states = await database.read(schedules.count_slots, "cron-abcdef")
    assert states["done"] == 1
    assert set(states) == {"done", "missed"}
    bridge = await database.read(platforms.get, "bridge")
    assert bridge is not None
    assert (bridge.state, bridge.worker_id) == ("off", None)
    assert await database.read(inbox.count_by_state) == []
    await database.close()
