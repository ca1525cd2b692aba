"""What each slash command does, over a real engine; the faces add nothing to it."""

import json
from pathlib import Path

import pytest

from holdfast.model.event import Rewound
from holdfast.slash.registry import run
from holdfast.slash.seat import Running
from holdfast.store import sessions
from tests.slash.conftest import TestSeat


async def test_new_leaves_the_session_and_warns_of_processes_that_go_on(seat: TestSeat) -> None:
    await seat.say_text("Hello")
    first = seat.session_id
    seat.running = [Running("p1", "npm run dev")]

    await run(seat, "/new My next one")

    assert "! 1 background processes go on" in seat.told[0]
    assert "p1  npm run dev" in seat.told[0]
    assert "(title My next one)" in seat.told
    assert seat.session_id is None
    session, _ = await seat.engine.read(first or "")
    assert session.summary.end_reason == "cli_close"


async def test_resume_by_title_id_and_prefix(seat: TestSeat) -> None:
    await seat.say_text("One")
    one = seat.session_id or ""
    await run(seat, "/title First")
    for ref in ("First", one, one[:14]):
        await run(seat, "/new")
        await run(seat, f"/resume {ref}")
        assert seat.session_id == one
    await run(seat, "/resume First")
    assert seat.last == "You are in this session already."


async def test_resume_of_a_title_that_two_sessions_have_says_so(seat: TestSeat) -> None:
    for _ in range(2):
        await seat.say_text("x")
        await run(seat, "/title Twice")
        await run(seat, "/new")

    await run(seat, "/resume Twice")

    assert "Several sessions are titled 'Twice'" in seat.told[-1]


async def test_resume_without_a_name_offers_the_others_with_a_preview(seat: TestSeat) -> None:
    await seat.say_text("About lighthouses")
    one = seat.session_id
    await run(seat, "/new")
    seat.answer = one

    await run(seat, "/resume")

    assert [option.value for option in seat.offered] == [one]
    assert "About lighthouses" in seat.previewed
    assert seat.session_id == one


async def test_nothing_chosen_changes_nothing(seat: TestSeat) -> None:
    await run(seat, "/resume")
    assert seat.last == "There is no other session."

    await seat.say_text("x")
    await run(seat, "/new")
    await run(seat, "/resume")
    assert "Nothing was chosen" in seat.last
    assert seat.session_id is None


async def test_fork_from_any_event(seat: TestSeat) -> None:
    await seat.say_text("One")
    await seat.say_text("Two")
    first = seat.session_id

    await run(seat, "/fork 5")
    forked, _ = await seat.engine.read(seat.session_id or "")
    assert (forked.summary.parent_id, forked.summary.message_count) == (first, 2)

    await run(seat, "/fork nonsense")
    assert seat.last == "! 'nonsense' is not the number of an event"
    await run(seat, "/fork 999")
    assert "cannot be forked at 999" in seat.last


async def test_a_fork_that_is_refused_leaves_no_copy_behind(seat: TestSeat) -> None:
    await seat.say_text("One")
    seat.is_busy = True
    await run(seat, "/fork 4")

    assert seat.last == "! a turn is under way"
    page = await seat.stage.database.read(sessions.list_page, sessions.Filters(), limit=10)
    assert [one.id for one in page.sessions] == [seat.session_id]


async def test_nobody_is_made_to_choose_a_session_during_a_turn(seat: TestSeat) -> None:
    await seat.say_text("One")
    await run(seat, "/new")
    await seat.say_text("Two")
    seat.is_busy = True
    await run(seat, "/resume")

    assert seat.last == "! a turn is under way"
    assert not seat.offered


async def test_sessions_marks_the_current_one(seat: TestSeat) -> None:
    await seat.say_text("One")
    await run(seat, "/new")
    await seat.say_text("Two")

    await run(seat, "/sessions")

    lines = seat.last.splitlines()
    assert [line[0] for line in lines] == ["*", " "]
    assert seat.session_id is not None
    assert seat.session_id in lines[0]
    await run(seat, "/sessions 1")
    assert "and more" in seat.last


async def test_undo_and_retry(seat: TestSeat) -> None:
    await seat.say_text("One")
    await seat.say_text("Two")
    await run(seat, "/undo 2")
    assert seat.last == "Taken back: 4 messages, from “One” on."
    await run(seat, "/undo")
    assert "there is nothing to take back" in seat.last
    await run(seat, "/undo -1")
    assert "is not a number of exchanges" in seat.last

    await seat.say_text("Three")
    await run(seat, "/retry")

    _, entries = await seat.engine.read(seat.session_id or "")
    assert [entry.event.why for entry in entries if isinstance(entry.event, Rewound)] == ["undo", "retry"]
    assert [message.text for message in seat.stage.requests[-1].messages] == ["Three"]


async def test_recall_and_show_read_the_log(seat: TestSeat) -> None:
    await seat.say_text("A lighthouse by the sea")
    await run(seat, "/show 3")
    assert "A lighthouse by the sea" in seat.last
    await run(seat, "/recall 3-4")
    assert "[3] you" in seat.last
    assert "[4] agent" in seat.last
    await run(seat, "/recall lighthouse")
    assert f"{seat.session_id} [3]" in seat.last
    await run(seat, "/recall submarine")
    assert seat.last == "Nothing was found."
    await run(seat, "/show 1")
    assert seat.last.startswith("! no message of this session stands at 1")


async def test_search_finds_words_in_other_sessions(seat: TestSeat) -> None:
    await seat.say_text("A lighthouse by the sea")
    first = seat.session_id
    await run(seat, "/new")

    await run(seat, "/search lighthouse")

    assert str(first) in seat.last


async def test_status_and_why_say_how_it_stands(seat: TestSeat) -> None:
    await seat.say_text("Hello")

    await run(seat, "/status")
    assert f"{seat.session_id}" in seat.last
    assert "queue: they wait" in seat.last
    await run(seat, "/why")
    assert "is waiting: waiting for input" in seat.last
    assert "next: it is ended when its owner leaves it" in seat.last


async def test_busy_is_switched_and_nonsense_refused(seat: TestSeat) -> None:
    await run(seat, "/busy steer")
    assert seat.busy == "steer"
    await run(seat, "/busy stop")
    assert seat.last.startswith("! words during a turn can queue, steer or interrupt")
    assert seat.busy == "steer"


async def test_model_is_shown_and_changed(seat: TestSeat) -> None:
    await seat.say_text("Hello")
    await run(seat, "/model scripted:tools")
    await run(seat, "/model")
    assert seat.last.startswith("Model: scripted:tools")
    await run(seat, "/model scripted:tools")
    assert seat.last == "The model is scripted:tools already."
    await run(seat, "/model nonsense")
    assert seat.last.startswith("! ")


async def test_processes_are_listed_and_ended(seat: TestSeat) -> None:
    await run(seat, "/ps")
    assert seat.last == "No background processes."
    seat.running = [Running("p1", "npm run dev")]
    await run(seat, "/ps")
    assert seat.last == "p1  npm run dev"
    await run(seat, "/kill p2")
    assert "has no background process 'p2'" in seat.last
    await run(seat, "/kill p1")
    assert seat.last == "p1 was ended"


@pytest.mark.parametrize(
    ("typed", "name"),
    [("", "{id}.md"), ("html", "{id}.html"), ("jsonl my file.x", "my file.x"), ("notes.html", "notes.html")],
)
async def test_export_writes_a_file_and_replaces_none(seat: TestSeat, tmp_path: Path, typed: str, name: str) -> None:
    await seat.say_text("Hello")
    await run(seat, f"/export {typed}")

    path = tmp_path / name.format(id=seat.session_id)
    text = path.read_text()
    assert "You said: Hello" in text
    if typed.startswith("jsonl"):
        assert json.loads(text.splitlines()[0])["format"] == "holdfast-log"
    if "html" in path.name:
        assert "<section" in text
    await run(seat, f"/export {typed}")
    assert "exists already" in seat.last


async def test_export_of_a_format_that_is_none_names_those_there_are(seat: TestSeat, tmp_path: Path) -> None:
    await seat.say_text("Hello")
    await run(seat, "/export pdf")

    assert "there is no format 'pdf'; there are md, html, jsonl" in seat.last
    assert not (tmp_path / "pdf").exists()


async def test_a_title_is_cleaned_or_refused(seat: TestSeat) -> None:
    await seat.say_text("Hello")
    await run(seat, "/title  New\tname ")
    assert seat.last == "Titled 'New name'."
    await run(seat, "/title \x07")
    assert seat.last.startswith("! a title needs at least one visible character")


async def test_takeover_takes_what_nobody_has_and_asks_whoever_has_it(seat: TestSeat) -> None:
    await seat.say_text("Hello")
    session_id = seat.session_id or ""

    await run(seat, "/takeover")

    assert seat.last == "This terminal has the session open."
    session = await seat.engine.ground.database.read(sessions.get, session_id)
    assert session.owner_worker == seat.engine.ground.worker_id
