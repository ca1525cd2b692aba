"""The session layers of other systems beside Holdfast's store, each at its default durability, in rounds of one run."""

import asyncio
import json
import os
import statistics
import sys
from contextlib import AsyncExitStack
from pathlib import Path

from bench import texts
from bench.figures import Figure, Goal, Round, millis, ratio
from bench.peers.environments import PACKAGES, installed, version
from bench.processes import stop

PROGRAMS = Path(__file__).parent / "programs"
OURS = "Holdfast"
LAYERS = {
    "hermes-agent": "hermes_layer.py",
    "openai-agents": "openai_agents_layer.py",
    "langgraph": "langgraph_layer.py",
    "google-adk": "adk_layer.py",
}
LENGTHS = (50, 1_000, 10_000)
TEXTS = 200
ONE_GOAL, MANY_GOAL = Goal("≥", 1.3), Goal("≥", 6)
"""Against openai-agents, the fastest of the peers."""


class LayerProcess:
    """A program that plays one round for each line it is sent."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def start(self, folder: Path, appends: int) -> None:
        order: dict[str, object] = {"folder": str(folder), "lengths": LENGTHS, "texts": _write_texts(folder)}
        order |= {"appends": appends, "many_appends": 4 * appends}
        script = str(PROGRAMS / LAYERS.get(self.name, "holdfast_layer.py"))
        python = str(installed(self.name)) if self.name in PACKAGES else sys.executable
        pipe = asyncio.subprocess.PIPE
        environment = {**os.environ, "HERMES_HOME": str(folder)}
        if self.name == OURS:
            environment["PYTHONPATH"] = "."
        self._process = await asyncio.create_subprocess_exec(
            python, script, json.dumps(order), stdin=pipe, stdout=pipe, env=environment
        )
        while (await self._line()).strip() != "ready":
            pass

    async def play(self) -> Round:
        assert self._process.stdin is not None
        self._process.stdin.write(b"round\n")
        while not (line := await self._line()).startswith("{"):
            pass
        return {name: float(value) for name, value in json.loads(line).items()}

    async def _line(self) -> str:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"The program of {self.name} ended; its messages are above")
        return line.decode()

    async def stop(self) -> None:
        await stop(self._process)


def _write_texts(folder: Path) -> str:
    folder.mkdir()
    path = folder / "texts.json"
    path.write_text(json.dumps([texts.text(number) for number in range(TEXTS)]))
    return str(path)


async def measure(folder: Path, *, rounds: int, appends: int) -> list[Figure]:
    """The first round warms up and is not counted."""
    titles = {OURS: OURS, **{name: version(name) for name in LAYERS}}
    async with AsyncExitStack() as stack:
        layers = []
        for name in titles:
            layer = LayerProcess(name)
            # Fewer appends where one takes milliseconds.
            await layer.start(folder / name, appends if name in (OURS, "openai-agents") else appends // 4)
            stack.push_async_callback(layer.stop)
            layers.append(layer)
        results: list[dict[str, Round]] = []
        for _ in range(rounds + 1):
            results.append({layer.name: await layer.play() for layer in layers})
            layers.reverse()
    return describe(results[1:], titles)


def describe(results: list[dict[str, Round]], titles: dict[str, str]) -> list[Figure]:
    """The rows of all layers: rates, then CPU times and their growth."""

    def figure(what: str, key: str, *, rate: bool = False) -> Figure:
        pick = statistics.median if rate else min  # other programs can only add to a CPU time
        found = {name: pick([one[name][key] for one in results]) for name in titles}
        text = {name: f"{value:,.0f}/s" if rate else millis(value) for name, value in found.items()}
        others = {titles[name]: value for name, value in text.items() if name != OURS}
        judged = None if rate or key == "load" else found[OURS] * 1000
        return Figure(what=what, value=text[OURS], judged=judged, kind="other" if rate else "cpu", others=others)

    return [
        figure("durable appends of 1 KB, one session", "one", rate=True),
        figure("durable appends of 1 KB, 64 sessions at once", "many", rate=True),
        *_against(results, "openai-agents"),
        figure("CPU of one append", "cpu"),
        *(figure(f"CPU of one append behind {length:,} messages", f"behind-{length}") for length in LENGTHS),
        figure(f"load a session of {max(LENGTHS):,} messages", "load"),
    ]


def _against(results: list[dict[str, Round]], peer: str) -> list[Figure]:
    figures = []
    for what, key, goal in (("one session", "one", ONE_GOAL), ("64 sessions at once", "many", MANY_GOAL)):
        pairs = [{OURS: one[OURS][key], peer: one[peer][key]} for one in results]
        times = ratio(pairs, OURS, peer)
        name = f"durable appends, {what}, beside {peer}"
        figures.append(Figure(what=name, value=f"{times:,.1f} ×", judged=times, goal=goal, kind="ratio"))
    return figures
