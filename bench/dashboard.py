"""The dashboard of a real server process: how soon the list begins and how large it is, in a small store and in a large one; what
both cost while many browsers show it, how soon a long session is painted, and what Space costs a browser with two thousand
sessions in it.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import psutil

from bench import population
from bench.figures import Figure, Goal
from bench.processes import started, wait_until_idle
from bench.stores import now
from holdfast.model.event import SessionOpened
from holdfast.store.database import Database
from holdfast.store.repos import log, sessions
from holdfast.store.sqlite.driver import open_sqlite

KEY = "hfk-for-the-benchmark"
CONFIG = f"""
model = "scripted:echo"
[api]
key = "{KEY}"
idle_minutes = 100000
"""
FEW = 100
IN_SPACE = 2_000
AT_WORK = 200
"""How many of those in Space are at work: they are the ones that move."""
ROUNDS = 15
WATCH_SECONDS = 10.0
PATHS = (("the list", "/"), ("a rare filter", "/?state=quarantined"), ("those at work", "/?state=running"))
SAME = Goal("≤", 3, " ×")
"""The list of a large store beside that of a small one: the same work, with colder pages."""
CHROMIUM = "/usr/bin/chromium"
WATCHED, WATCHERS = 5_000, 500
PAUSE_SECONDS = 0.5
"""Between a change and the measured request, so that the open pages reload at various times of it."""
LIST_GOAL, PAINT_GOAL = Goal("≤", 100, " ms"), Goal("≤", 500, " ms")
LONG, LONG_MESSAGES, TURNS_PER_WRITE = "hf-00000000000000000000long50", 50_000, 500
REPLY = "Because of **this**:\n\n```python\ndef why(): return 42\n```\n\n|a|b|\n|-|-|\n|1|2|\n"
PAINTS = 9


@asynccontextmanager
async def serving(
    folder: Path, sessions: int, at_work: int = 0, prepare: Callable[[Database], Awaitable[None]] | None = None
) -> AsyncIterator[str]:
    """A server over so many sessions, and what `prepare` adds; its address."""
    home = Path(tempfile.mkdtemp(prefix="home-", dir=folder))
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)
    await _fill(home / "holdfast.db", sessions, at_work, prepare)
    async with started("-m", "holdfast", "--home", str(home), "serve", "--port", "0") as (process, port):
        await wait_until_idle(process)
        yield f"http://127.0.0.1:{port}"


async def _fill(
    path: Path, sessions: int, at_work: int, prepare: Callable[[Database], Awaitable[None]] | None = None
) -> None:
    db = await open_sqlite(path)
    await db.write(population.hire, "worker-bench", "chat", now())
    for first in range(1, sessions - at_work + 1, 2_000):
        await db.write(population.crowd, first, min(2_000, sessions - at_work + 1 - first), now())
    await db.write(population.busy, 10_000_000, at_work, "worker-bench", now())
    if prepare is not None:
        await prepare(db)
    await db.close()


async def measure(folder: Path, *, session_count: int) -> list[Figure]:
    few: dict[str, tuple[float, int]] = {}
    async with serving(folder, FEW) as url:
        few = await _pages(url)
    async with serving(folder, session_count) as url:
        many = await _pages(url)
    figures: list[Figure] = []
    for what, _ in PATHS:
        figures.append(Figure(what=f"{what}, {FEW} sessions", value=_told(few[what])))
        ratio = many[what][0] / few[what][0]
        goal = SAME if what == "the list" else None
        beside = f"that of {FEW} sessions"
        figures.append(
            Figure(
                what=f"{what}, {session_count:,} sessions",
                value=_told(many[what]),
                judged=ratio,
                goal=goal,
                beside=beside,
            )
        )
    async with serving(folder, WATCHED) as url:
        figures += await _watched(url)
    async with serving(folder, 1, prepare=add_long_session) as url:
        figures.append(await asyncio.to_thread(_first_paint, url))
    async with serving(folder, IN_SPACE, AT_WORK) as url:
        figures += await asyncio.to_thread(_space, url)
    return figures


async def add_long_session(db: Database) -> None:
    """A session with fifty thousand messages: prompts, formatted replies and calls."""
    await db.write(sessions.create, LONG, SessionOpened(source="api", title="A long one"), at=now())
    turns = LONG_MESSAGES // 2
    for first in range(0, turns, TURNS_PER_WRITE):
        events = [
            event
            for number in range(first, first + TURNS_PER_WRITE)
            for event in population.turn(f"turn-{number}", f"Question {number}: why?", REPLY)
        ]
        await db.write(log.append_unheld, LONG, events, at=now())


async def _watched(url: str) -> list[Figure]:
    """The list and its filters while many browsers show the list and reload it after each change, and one session changes."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with _watchers(url), httpx2.AsyncClient(base_url=url, timeout=60) as client:
        assert (await client.post("/ui/login", data={"key": KEY})).status_code == 303
        figures = []
        for what, path in (*PATHS[:1], ("sorted by tokens", "/?sort=tokens"), ("failed", "/?state=failed")):
            took = []
            for _ in range(ROUNDS):
                said = {"model": "scripted:echo", "messages": [{"role": "user", "content": "go"}]}
                await client.post("/v1/chat/completions", json=said, headers=headers)
                await asyncio.sleep(PAUSE_SECONDS)
                start = time.perf_counter()
                assert (await client.get(path)).status_code == 200
                took.append(time.perf_counter() - start)
            median, least = 1000 * statistics.median(took), 1000 * min(took)
            about = f"{what}, {WATCHED:,} sessions, {WATCHERS} open pages: whole page"
            value = f"{median:,.0f} ms (least {least:,.0f} ms)"
            figures.append(Figure(what=about, value=value, judged=median, goal=LIST_GOAL))
        return figures


@asynccontextmanager
async def _watchers(url: str) -> AsyncIterator[None]:
    """Open pages, in a process of their own."""
    command = [sys.executable, "-m", "bench.dashboard_watchers", url, KEY, str(WATCHERS)]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    assert process.stdin is not None and process.stdout is not None
    try:
        assert await process.stdout.readline() == b"open\n"
        yield
    finally:
        process.stdin.close()
        await process.wait()


def _first_paint(url: str) -> Figure:
    """How long a browser takes from the request to the first paint of a long session, as the median."""
    from playwright.sync_api import sync_playwright

    took = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.goto(f"{url}/ui/login")
        page.fill("#key", KEY)
        page.click("text=Log in")
        page.wait_for_url(f"{url}/")
        for _ in range(PAINTS):
            page.goto(f"{url}/ui/s/{LONG}")
            took.append(page.evaluate(PAINTED))
        browser.close()
    median = statistics.median(took)
    what = f"first paint of a session with {LONG_MESSAGES:,} messages"
    return Figure(what=what, value=f"{median:,.0f} ms (least {min(took):,.0f} ms)", judged=median, goal=PAINT_GOAL)


PAINTED = """() => new Promise((done) => new PerformanceObserver((list) => {
  const paint = list.getEntriesByName("first-contentful-paint")[0];
  if (paint) done(paint.startTime);
}).observe({ type: "paint", buffered: true }))"""
"""The milliseconds from the request to the first paint with content."""


def _told(found: tuple[float, int]) -> str:
    return f"first byte {1000 * found[0]:,.1f} ms, {found[1] / 1024:,.0f} KB"


async def _pages(url: str) -> dict[str, tuple[float, int]]:
    """For each page, how long its first byte took, as the median, and how many bytes it has."""
    async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
        assert (await client.post("/ui/login", data={"key": KEY})).status_code == 303
        found = {}
        for what, path in PATHS:
            took, size = [], 0
            for _ in range(ROUNDS):
                start = time.perf_counter()
                async with client.stream("GET", path) as answer:
                    took.append(time.perf_counter() - start)
                    size = len(await answer.aread())
            found[what] = statistics.median(took), size
        return found


def _space(url: str) -> list[Figure]:
    """Space in a browser without a graphics processor: what all its processes use, in cores."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1360, "height": 860})
        page.goto(f"{url}/ui/login")
        page.fill("#key", KEY)
        page.click("text=Log in")
        page.wait_for_url(f"{url}/")
        idle = _cores(WATCH_SECONDS)
        page.goto(f"{url}/ui/space")
        page.wait_for_selector("#space-canvas[data-ready]")
        page.wait_for_timeout(3000)
        shown = page.locator("#space-canvas").get_attribute("data-count")
        used = _cores(WATCH_SECONDS)
        drawn = page.evaluate(FRAMES)
        browser.close()
    what = f"Space, {shown} sessions of which {AT_WORK} move, drawn in software"
    value = f"{100 * used:,.0f} % of a core, {drawn:,.0f} pictures/s"
    return [
        Figure(what=what, value=value),
        Figure(what="the list, open in the same browser", value=f"{100 * idle:,.0f} % of a core"),
    ]


FRAMES = """() => new Promise((done) => {
  const pen = document.getElementById("space-canvas").getContext("2d"), draw = pen.drawImage.bind(pen), sky = pen.canvas.width;
  let frames = 0;
  pen.drawImage = (one, ...rest) => { if (one.width === sky) frames++; return draw(one, ...rest); };
  setTimeout(() => { delete pen.drawImage; done(frames / 5); }, 5000);
})"""
"""Counts how often the whole sky is painted in five seconds."""


def _cores(seconds: float) -> float:
    """What all processes of the browser use in that time."""
    before = _cpu()
    time.sleep(seconds)
    return (_cpu() - before) / seconds


def _cpu() -> float:
    total = 0.0
    for one in psutil.Process().children(recursive=True):
        try:
            if "chrom" in one.name():
                times = one.cpu_times()
                total += times.user + times.system
        except psutil.NoSuchProcess:
            continue
    return total
