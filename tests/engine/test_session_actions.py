"""The actions on a session are the same in every interface: a dead holder does not block them, a live one does."""

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

import holdfast
from holdfast.engine.session_actions import SessionActions
from holdfast.model.errors import Busy, Invalid
from holdfast.model.ids import WORKER, Ids
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import leases, sessions, workers
from tests.engine.stage import Stage, elsewhere, gone, set_up

Action = Callable[[SessionActions, str], Awaitable[Session]]
ALONE: dict[str, Action] = {
    "end": lambda actions, session_id: actions.end(session_id),
    "reopen": lambda actions, session_id: actions.reopen(session_id, reason="asked for"),
    "trash": lambda actions, session_id: actions.trash(session_id, reason="asked for"),
    "change the model": lambda actions, session_id: actions.change(session_id, model="other"),
}
"""Actions that a live holder does not block."""
BESIDE: dict[str, Action] = {
    "rename": lambda actions, session_id: actions.rename(session_id, "A title"),
    "pin": lambda actions, session_id: actions.pin(session_id, pinned=True),
    "fork": lambda actions, session_id: actions.fork(session_id, title="A copy"),
    "restore": lambda actions, session_id: actions.restore(session_id),
}
CHANGES = {"rename", "pin", "end", "reopen", "fork", "fork_shared", "trash", "restore"}
FACES = ("api", "cli", "dashboard", "slash", "gateway", "batch")


async def held_by(stage: Stage, who: workers.Identity, *, ended: bool = False) -> str:
    """A session that such a worker holds."""
    session, database, at = await stage.session(), stage.database, stage.engine.services.clock.now()
    if ended:
        await database.write(sessions.end, session.id, "user", at=at)
    worker_id = Ids(stage.engine.services.clock.now).make(WORKER)
    await database.write(workers.register, worker_id, "serve", who, version="1", at=at)
    await database.write(leases.take, session.id, worker_id)
    return session.id


@pytest.mark.parametrize("action", [*ALONE, *BESIDE])
async def test_a_session_of_a_dead_worker_can_be_changed(tmp_path: Path, action: str) -> None:
    stage = await set_up(tmp_path)
    session_id = await held_by(stage, gone(), ended=action == "reopen")

    await (ALONE | BESIDE)[action](stage.engine.actions, session_id)

    if action in ALONE:
        assert (await stage.database.read(sessions.get, session_id)).lease_worker is None


@pytest.mark.parametrize("action", ALONE)
async def test_a_session_of_a_live_worker_is_busy(tmp_path: Path, action: str) -> None:
    stage = await set_up(tmp_path)
    session_id = await held_by(stage, elsewhere(), ended=action == "reopen")

    with pytest.raises(Busy):
        await ALONE[action](stage.engine.actions, session_id)


@pytest.mark.parametrize("action", BESIDE)
async def test_annotations_are_possible_while_a_live_worker_holds_the_session(tmp_path: Path, action: str) -> None:
    stage = await set_up(tmp_path)
    session_id = await held_by(stage, elsewhere())

    await BESIDE[action](stage.engine.actions, session_id)


async def test_sessions_are_trashed_all_or_none(tmp_path: Path) -> None:
    stage = await set_up(tmp_path)
    free, held = (await stage.session()).id, await held_by(stage, elsewhere())

    with pytest.raises(Busy):
        await stage.engine.actions.trash_all([free, held], reason="asked for")

    assert (await stage.database.read(sessions.get, free)).summary.trashed_at is None


async def test_a_change_of_several_properties_is_all_or_none(tmp_path: Path) -> None:
    stage = await set_up(tmp_path)
    session = await stage.session()

    with pytest.raises(Invalid):
        await stage.engine.actions.change(session.id, model="other", title=" ")

    assert (await stage.database.read(sessions.get, session.id)).summary.model == session.summary.model


def test_no_interface_changes_a_session_except_through_the_actions() -> None:
    found = []
    for face in FACES:
        for file in (Path(holdfast.__file__).parent / face).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text("utf-8"))):
                if isinstance(node, ast.Attribute) and node.attr in CHANGES and _is_store(node.value):
                    found.append(f"{file.relative_to(Path(holdfast.__file__).parent)}:{node.lineno} {node.attr}")
    assert not [one for one in found if not one.startswith("api/native/routes.py")], "use engine.session_actions"


def _is_store(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id in ("sessions", "stored", "store")


async def test_a_session_that_was_freed_meanwhile_can_be_changed(tmp_path: Path) -> None:
    stage = await set_up(tmp_path)
    session = await stage.session()
    tries = 0

    def work(tx: Transaction) -> str:
        nonlocal tries
        tries += 1
        if tries == 1:  # the janitor takes the session from its dead holder just after this
            raise Busy("held by a worker that is gone", session_id=session.id)
        return sessions.get(tx, session.id).id

    assert await stage.engine.actions.write(work, session.id) == session.id
