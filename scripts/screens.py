"""Makes the screenshots of the dashboard in docs/images: fills a store with an invented day, serves it, and opens it in Chromium."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from bench import population  # noqa: E402 - needs the path above
from holdfast.model.times import MINUTE  # noqa: E402
from holdfast.store.database import Transaction  # noqa: E402
from holdfast.store.repos import inbox, outbox, platforms, schedules  # noqa: E402
from holdfast.store.repos.inbox import NewInboundMessage  # noqa: E402
from holdfast.store.repos.schedules import Schedule, ScheduleSlot  # noqa: E402
from holdfast.store.sqlite.driver import open_sqlite  # noqa: E402

IMAGES = ROOT / "docs" / "images"
KEY = "hfk-for-the-screenshots"
CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--hide-scrollbars"]
WIDE, PHONE = {"width": 1360, "height": 850}, {"width": 390, "height": 800}


def now() -> int:
    return time.time_ns() // 1000


def add_messages_and_schedules(tx: Transaction) -> None:
    """Add a platform with a dead letter, and two schedules with past runs."""
    at = now()
    platforms.take(tx, "telegram", "worker-laptop", at=at - 90 * MINUTE)
    platforms.record_state(tx, "telegram", "worker-laptop", "connected", at=at - 90 * MINUTE)
    post = NewInboundMessage(
        id="in-1",
        chat="4021",
        message="m",
        payload='{"sticker": {}}',
        digest="d",
        fault="unsupported message type: sticker",
    )
    inbox.put(tx, "telegram", [post], at=at - 12 * MINUTE)
    outbox.put(
        tx, "out-1", outbox.Address("telegram", "4021"), outbox.OutboundMessage(text="The build is green again."), at=at
    )
    for number, (cron, prompt) in enumerate(
        (
            ("0 7 * * 1-5", "Summarize last night's alerts."),
            ("30 18 * * 5", "Write the weekly report."),
        )
    ):
        one = Schedule(
            f"cron-{number}", cron, "Europe/Berlin", prompt, "telegram:4021", None, "run", at + 600 * MINUTE, at
        )
        schedules.add(tx, one)
        for place in range(12):
            due = at - (13 - place) * 1440 * MINUTE
            state: schedules.SlotState = (
                "failed" if (place, number) == (4, 0) else "missed" if (place, number) == (7, 1) else "done"
            )
            schedules.open_slot(tx, ScheduleSlot(one.id, due, state, "", None, None, due, due))


async def fill(home: Path) -> str:
    """Fill the store. Returns the id of the session to show."""
    database = await open_sqlite(home / "holdfast.db")
    for worker_id, kind in (("worker-laptop", "chat"), ("worker-nightly", "batch"), ("worker-office", "library")):
        await database.write(population.hire, worker_id, kind, now())
    await database.write(population.crowd, 2_000, 420, now())
    await database.write(population.busy, 3_000, 24, "worker-nightly", now())
    await database.write(population.busy, 3_100, 9, "worker-office", now())
    shown = await database.write(population.people_at_work, "worker-laptop", now())
    await database.write(add_messages_and_schedules)
    await database.close()
    return shown


def write_scripts(home: Path) -> None:
    """Write models that delegate three tasks: two take long, one of which delegates a part, and one asks a question."""
    work = {"name": "terminal", "arguments": {"command": "sleep 600"}}
    clean = {"name": "terminal", "arguments": {"command": "rm -rf build/staging"}}
    part = {"name": "delegate", "arguments": {"task": "Run the tests of the parser", "model": "scripted:work.json"}}
    tasks = {"Read the changelog": "work", "Run the slow tests": "part", "Clean the build": "clean"}
    calls = [
        {"name": "delegate", "arguments": {"task": task, "model": f"scripted:{name}.json"}}
        for task, name in tasks.items()
    ]
    for name, made in {"work": [work], "clean": [clean], "part": [part], "parent": calls}.items():
        (home / f"{name}.json").write_text(json.dumps({"steps": [{"call": made}, {"say": "It is done."}]}))


def start_family(url: str) -> str:
    """Start a session whose sub-agents are at work. Returns its id."""

    def post(path: str, body: dict[str, str]) -> str:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request) as response:
            found = json.load(response)
        return str(found.get("id") or found["session_id"])

    parent = post("/v1/sessions", {"title": "Is the release ready?"})
    return post(f"/v1/sessions/{parent}/turns", {"input": "Is the release ready? Check everything at once."})


@contextmanager
def serving(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=home)
    assert process.stdout is not None
    try:
        found = re.search(r"(http://\S+);", process.stdout.readline())
        assert found is not None, "the server prints its URL"
        yield found[1]
    finally:
        process.terminate()
        process.wait()


def log_in(browser: Browser, url: str, *, dark: bool = False, phone: bool = False) -> Page:
    context = browser.new_context(
        viewport=PHONE if phone else WIDE,  # type: ignore[arg-type] # a width and a height
        color_scheme="dark" if dark else "light",
        device_scale_factor=2 if phone else 1.5,
        timezone_id="Europe/Berlin",
    )
    page = context.new_page()
    page.goto(f"{url}/ui/login")
    page.fill("#key", KEY)
    page.click("text=Log in")
    page.wait_for_url(f"{url}/")
    return page


def take_screenshot(
    page: Page, url: str, path: str, name: str, *, ready: str = "#connection:not(.offline, .pending)"
) -> None:
    page.goto(url + path)
    page.wait_for_selector(ready)
    page.wait_for_timeout(2_500)  # until the animations have settled
    page.screenshot(path=IMAGES / f"{name}.png")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="holdfast-screens-") as folder:
        home = Path(folder) / "home"
        home.mkdir(mode=0o700)
        write_scripts(home)
        (home / "config.toml").write_text(
            f'model = "scripted:parent.json"\n[api]\nkey = "{KEY}"\nidle_minutes = 100000\n'
        )
        (home / "config.toml").chmod(0o600)
        shown = asyncio.run(fill(home))
        with serving(home) as url, sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
            light, dark, phone = log_in(browser, url), log_in(browser, url, dark=True), log_in(browser, url, phone=True)
            take_screenshot(light, url, "/", "dashboard-sessions", ready="#counts b")
            take_screenshot(light, url, f"/ui/s/{shown}", "dashboard-session")
            take_screenshot(dark, url, "/ui/space", "dashboard-space", ready="#space-canvas[data-ready]")
            take_screenshot(dark, url, "/ui/health", "dashboard-health", ready=".uplot canvas")
            take_screenshot(phone, url, f"/ui/s/{shown}", "dashboard-phone")
            family = start_family(url)
            take_screenshot(light, url, f"/ui/s/{family}", "dashboard-agents", ready=".agents .depth-2")
            browser.close()


if __name__ == "__main__":
    main()
