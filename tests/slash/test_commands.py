"""What each slash command does, on a real engine, independent of the interface."""

import json
from pathlib import Path

import pytest

from holdfast.model.event import InputDropped, Rewound, UserSaid
from holdfast.model.file_change import NewFileChange, hash_content
from holdfast.model.message import Text, text_of
from holdfast.slash.context import RunningProcess
from holdfast.slash.registry import run
from holdfast.store.database import Transaction
from holdfast.store.repos import file_changes, input_queue, session_list, sessions
from tests.slash.conftest import TestContext


async def test_new_leaves_the_session(context: TestContext) -> None:
    await context.say_text("Hello")
    first = context.session_id

    await run(context, "/new My next one")

    assert "(title My next one)" in context.shown
    assert context.session_id is None
    session, _ = await context.engine.read(first or "")
    assert session.summary.end_reason == "cli_close"


async def test_new_is_cancelled_without_a_choice_for_the_processes(context: TestContext) -> None:
    await context.say_text("Hello")
    first = context.session_id
    context.running = [RunningProcess("p1", "npm run dev")]

    await run(context, "/new My next one")

    assert context.shown[0].startswith("Cancelled; you are still in this session. 1 background process is running:")
    assert "p1  npm run dev" in context.shown[0]
    assert "/new stop, /new keep, /new move" in context.shown[0]
    assert context.session_id == first
    assert (await context.engine.read(first or ""))[0].summary.ended_at is None
    await run(context, "/kill p1")
    assert context.last == "p1 was ended"


async def test_resume_by_title_id_and_prefix(context: TestContext) -> None:
    await context.say_text("One")
    one = context.session_id or ""
    await run(context, "/title First")
    for ref in ("First", one, one[:14]):
        await run(context, "/new")
        await run(context, f"/resume {ref}")
        assert context.session_id == one
    await run(context, "/resume First")
    assert context.last == "You are already in this session."


async def test_resume_of_a_title_that_two_sessions_have_says_so(context: TestContext) -> None:
    for _ in range(2):
        await context.say_text("x")
        await run(context, "/title Twice")
        await run(context, "/new")

    await run(context, "/resume Twice")

    assert "Several sessions are titled 'Twice'" in context.shown[-1]


async def test_resume_without_a_name_lists_the_others_with_a_preview(context: TestContext) -> None:
    await context.say_text("About lighthouses")
    one = context.session_id
    await run(context, "/new")
    context.answer = one

    await run(context, "/resume")

    assert [option.value for option in context.offered] == [one]
    assert "About lighthouses" in context.previewed
    assert context.session_id == one


async def test_nothing_chosen_changes_nothing(context: TestContext) -> None:
    await run(context, "/resume")
    assert context.last == "There are no other sessions."

    await context.say_text("x")
    await run(context, "/new")
    await run(context, "/resume")
    assert context.last.startswith("Cancelled.")
    assert context.session_id is None


async def test_fork_from_any_event(context: TestContext) -> None:
    await context.say_text("One")
    await context.say_text("Two")
    first = context.session_id

    await run(context, "/fork 5")
    forked, _ = await context.engine.read(context.session_id or "")
    assert (forked.summary.parent_id, forked.summary.message_count) == (first, 2)

    await run(context, "/fork nonsense")
    assert context.last == "! 'nonsense' is not an event number"
    await run(context, "/fork 999")
    assert "cannot be forked at 999" in context.last


async def test_a_fork_that_is_refused_leaves_no_copy_behind(context: TestContext) -> None:
    await context.say_text("One")
    context.is_busy = True
    await run(context, "/fork 4")

    assert context.last == "! a turn is running"
    page = await context.stage.database.read(session_list.list_page, session_list.SessionFilters(), limit=10)
    assert [one.id for one in page.sessions] == [context.session_id]


async def test_no_session_list_opens_during_a_turn(context: TestContext) -> None:
    await context.say_text("One")
    await run(context, "/new")
    await context.say_text("Two")
    context.is_busy = True
    await run(context, "/resume")

    assert context.last == "! a turn is running"
    assert not context.offered


async def test_sessions_marks_the_current_one(context: TestContext) -> None:
    await context.say_text("One")
    await run(context, "/new")
    await context.say_text("Two")

    await run(context, "/sessions")

    lines = context.last.splitlines()
    assert [line[0] for line in lines] == ["*", " "]
    assert context.session_id is not None
    assert context.session_id in lines[0]
    await run(context, "/sessions 1")
    assert "more sessions" in context.last


async def test_undo_and_retry(context: TestContext) -> None:
    await context.say_text("One")
    await context.say_text("Two")
    await run(context, "/undo 2")
    assert context.last == "Undid 4 messages, starting with “One”. Your message is back in the input line."
    assert context.line == "One"
    await run(context, "/undo")
    assert "there is nothing to undo" in context.last
    await run(context, "/undo -1")
    assert "is not a number of exchanges" in context.last

    await context.say_text("Three")
    await run(context, "/retry")

    _, entries = await context.engine.read(context.session_id or "")
    assert [entry.event.why for entry in entries if isinstance(entry.event, Rewound)] == ["undo", "retry"]
    assert [message.text for message in context.stage.requests[-1].messages] == ["Three"]
    await run(context, "/retry but shorter")
    assert [message.text for message in context.stage.requests[-1].messages] == ["Three\n\nbut shorter"]


async def test_recall_and_show_read_the_log(context: TestContext) -> None:
    await context.say_text("A lighthouse by the sea")
    await run(context, "/show 3")
    assert "A lighthouse by the sea" in context.last
    await run(context, "/recall 3-4")
    assert "[3] you" in context.last
    assert "[4] agent" in context.last
    await run(context, "/recall lighthouse")
    assert str(context.session_id) in context.last and "    [3] " in context.last
    await run(context, "/recall submarine")
    assert context.last == "No matches."
    await run(context, "/show 1")
    assert context.last == "! this session has no message 1"
    await run(context, "/recall 90-99")
    assert context.last == "! this session has no messages 90 to 99"
    for number in ("9" * 20, "9" * 5000):
        await run(context, f"/recall 1-{number}")
        assert context.last == f"! '{number}' is not an event number"


async def test_search_finds_words_in_other_sessions(context: TestContext) -> None:
    await context.say_text("A lighthouse by the sea")
    first = context.session_id
    await run(context, "/new")

    await run(context, "/search lighthouse")

    assert str(first) in context.last
    await run(context, "/search --role tool lighthouse")
    assert context.last == "No matches."
    await run(context, "/search --role user lighthuose")
    assert str(first) in context.last and "similar words" in context.last
    await run(context, "/search --role nobody lighthouse")
    assert context.last == "! unknown role 'nobody'; use user, assistant, tool"


async def test_status_and_why_describe_the_session(context: TestContext) -> None:
    await context.say_text("Hello")

    await run(context, "/status")
    assert f"{context.session_id}" in context.last
    assert "waiting" in context.last
    assert "message during a turn: queue (is sent when the turn has ended)" in context.last
    await run(context, "/why")
    assert f"{context.session_id} is waiting" in context.last
    assert "next: it ends when its owner closes it" in context.last


async def test_busy_is_changed_and_invalid_modes_are_refused(context: TestContext) -> None:
    await run(context, "/busy steer")
    assert context.busy == "steer"
    await run(context, "/busy stop")
    assert context.last.startswith("! unknown mode")
    assert context.busy == "steer"


async def test_model_is_shown_and_changed(context: TestContext) -> None:
    await context.say_text("Hello")
    await run(context, "/model scripted:tools")
    await run(context, "/model")
    assert context.last.startswith("Model: scripted:tools")
    await run(context, "/model scripted:tools")
    assert context.last == "The model is already scripted:tools."
    await run(context, "/model nonsense")
    assert context.last.startswith("! ")


async def test_processes_are_listed_and_ended(context: TestContext) -> None:
    await run(context, "/ps")
    assert context.last == "No background processes."
    context.running = [RunningProcess("p1", "npm run dev")]
    await run(context, "/ps")
    assert context.last == "p1  npm run dev"
    await run(context, "/kill p2")
    assert "has no background process 'p2'" in context.last
    await run(context, "/kill p1")
    assert context.last == "p1 was ended"


async def test_kill_accepts_a_unique_id_prefix(context: TestContext) -> None:
    context.running = [
        RunningProcess("proc-abc1", "one"),
        RunningProcess("proc-abd2", "two"),
        RunningProcess("proc", "three"),
    ]

    await run(context, "/kill proc-ab")
    assert context.last == "! 'proc-ab' is ambiguous: proc-abc1, proc-abd2"
    await run(context, "/kill proc-abc")
    assert context.last == "proc-abc1 was ended"
    await run(context, "/kill proc")
    assert context.last == "proc was ended"


@pytest.mark.parametrize("typed", ["/quit now", "/mcp all", "/why not"])
async def test_arguments_of_a_command_that_takes_none_are_refused(context: TestContext, typed: str) -> None:
    await context.say_text("Hello")

    await run(context, typed)

    name, _, rest = typed.partition(" ")
    assert context.last == f"! {name} takes no arguments; got {rest!r}"
    assert not context.is_left


async def test_stop_ignores_its_arguments(context: TestContext) -> None:
    await context.say_text("Hello")
    await run(context, "/stop please")
    assert context.last == "No turn is running."


async def test_history_shows_the_messages_and_says_how_many_came_before(context: TestContext) -> None:
    await context.say_text("One")
    await context.say_text("Two")

    await run(context, "/history")
    assert "One" in context.last and "You said: Two" in context.last and "earlier" not in context.last
    await run(context, "/history 2")
    assert context.last.startswith("2 earlier messages; show all with /history 4")
    assert "Two" in context.last and "One" not in context.last


@pytest.mark.parametrize("typed", ["--force notes.md", "notes.md --force", "md --force notes.md"])
async def test_export_replaces_a_file_if_it_is_forced(context: TestContext, tmp_path: Path, typed: str) -> None:
    await context.say_text("Hello")
    (tmp_path / "notes.md").write_text("old")

    await run(context, f"/export {typed}")

    assert "You said: Hello" in (tmp_path / "notes.md").read_text()
    assert [path.name for path in tmp_path.glob("*force*")] == []


# queued messages


async def put_two_in_the_queue(context: TestContext) -> None:
    """A session without a worker and with two queued messages."""
    await context.say_text("Hello")
    session_id = context.session_id or ""

    def work(tx: Transaction) -> None:
        for name in ("first", "second"):
            said = UserSaid(turn_id=f"turn-{name}", parts=(Text(f"the {name}"),))
            input_queue.put(tx, session_id, input_queue.Input(f"turn-{name}", "queue", said), at=1)

    await context.stage.database.write(work)


async def waiting(context: TestContext) -> list[str]:
    return [
        item.turn_id
        for item in await context.engine.services.database.read(input_queue.list_waiting, context.session_id or "")
    ]


async def test_queued_messages_are_listed_edited_and_dropped(context: TestContext) -> None:
    await put_two_in_the_queue(context)

    await run(context, "/queue")
    assert context.last.startswith("  1  the first\n  2  the second\n")
    await run(context, "/queue edit 1")
    assert (context.line, await waiting(context)) == ("the first", ["turn-second"])
    await run(context, "/queue edit 7")
    assert context.last == "! no queued message 7; /queue lists them"
    await run(context, "/queue drop")
    assert (context.last, await waiting(context)) == ("Dropped 1 queued message.", [])
    await run(context, "/queue")
    assert context.last == "No messages are queued."
    dropped = [event for event in await context.stage.log(context.session_id or "") if isinstance(event, InputDropped)]
    assert [text_of(event.parts) for event in dropped] == ["the first", "the second"], "the log keeps them"


async def test_queued_messages_without_a_worker_are_sent(context: TestContext) -> None:
    await put_two_in_the_queue(context)

    await run(context, "/queue send")
    await context.engine.settled()

    assert await waiting(context) == []
    assert [message.text for message in context.stage.requests[-1].messages][-1] == "the second"


async def test_queue_refuses_what_it_cannot_do(context: TestContext) -> None:
    await put_two_in_the_queue(context)
    await run(context, "/queue burn")
    assert context.last.startswith("! unknown action 'burn'; use edit, drop, send")


@pytest.mark.parametrize(
    ("typed", "name"),
    [("", "{id}.md"), ("html", "{id}.html"), ("jsonl my file.x", "my file.x"), ("notes.html", "notes.html")],
)
async def test_export_writes_a_file_and_replaces_none(
    context: TestContext, tmp_path: Path, typed: str, name: str
) -> None:
    await context.say_text("Hello")
    await run(context, f"/export {typed}")

    path = tmp_path / name.format(id=context.session_id)
    text = path.read_text()
    assert "You said: Hello" in text
    if typed.startswith("jsonl"):
        assert json.loads(text.splitlines()[0])["format"] == "holdfast-log"
    if "html" in path.name:
        assert "<section" in text
    await run(context, f"/export {typed}")
    assert "already exists" in context.last


async def test_export_with_an_unknown_format_lists_the_known_ones(context: TestContext, tmp_path: Path) -> None:
    await context.say_text("Hello")
    await run(context, "/export pdf")

    assert "unknown format 'pdf'; use jsonl, md, html" in context.last
    assert not (tmp_path / "pdf").exists()


async def test_a_title_is_cleaned_or_refused(context: TestContext) -> None:
    await context.say_text("Hello")
    await run(context, "/title  New\tname ")
    assert context.last == "Title set to 'New name'."
    await run(context, "/title \x07")
    assert context.last.startswith("! a title needs at least one visible character")


async def test_takeover_takes_a_session_without_an_owner_and_otherwise_asks_the_owner(context: TestContext) -> None:
    await context.say_text("Hello")
    session_id = context.session_id or ""

    await run(context, "/takeover")

    assert context.last == "This terminal owns the session."
    session = await context.engine.services.database.read(sessions.get, session_id)
    assert session.owner_worker == context.engine.services.worker_id


async def test_rewind_previews_asks_and_goes_back(context: TestContext, tmp_path: Path) -> None:
    await context.say_text("Hello")
    session_id = context.session_id
    assert session_id is not None
    (tmp_path / "a.txt").write_text("new\n")
    change = NewFileChange(path=str(tmp_path / "a.txt"), before=b"old\n", after_hash=hash_content(b"new\n"), mode=0o644)
    host = context.engine.services.identity.host
    await context.stage.database.write(
        file_changes.add, session_id, file_changes.encode([change]), seq=5, host=host, at=1
    )

    await run(context, "/rewind")
    assert "-new\n+old" in context.shown[-2] and context.last == "Nothing was changed."
    assert [one.value for one in context.offered] == ["both", "files", "conversation"]
    context.answer = "files"
    await run(context, "/rewind")
    assert "-new\n+old" in context.previewed
    assert (tmp_path / "a.txt").read_text() == "old\n"

    await run(context, "/rewind undo files")
    assert (tmp_path / "a.txt").read_text() == "new\n"
    await run(context, "/rewind 1 both")
    assert (tmp_path / "a.txt").read_text() == "old\n"
    assert context.line == "Hello"
    for wrong in ("/rewind x", "/rewind @0", "/rewind 'a", "/rewind 9 both"):
        await run(context, wrong)
        assert context.last.startswith("! ")
