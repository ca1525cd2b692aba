"""The container of a session outlives workers, is never duplicated or orphaned, and its loss is reported."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from holdfast.engine.context.context import Context
from holdfast.model.errors import Unavailable
from holdfast.model.event import ContainerCreated, ContainerLost, ContainerRemoved, ContainerRestarted, Event
from holdfast.model.tool import ToolContext
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import containers, log, meta, session_pruning, sessions
from holdfast.tools.backends.container import ContainerBackend
from tests.fakes.clock import FakeClock
from tests.tools.backends.conftest import ENVIRONMENT
from tests.tools.backends.container_engine import IMAGE, LIMITS, Podman

pytestmark = [pytest.mark.process, pytest.mark.timeout(180)]
KINDS = (ContainerCreated, ContainerRestarted, ContainerLost, ContainerRemoved)
NewBackend = Callable[..., ContainerBackend]
NewContext = Callable[..., Awaitable[ToolContext]]


@pytest.fixture
def new_backend(
    request: pytest.FixtureRequest, podman: Podman, database: Database, clock: FakeClock, home: Path
) -> NewBackend:
    """Makes the backend of one more worker."""
    request.addfinalizer(podman.remove_all)

    def make(host: str | None = None, **settings: object) -> ContainerBackend:
        identity = current_identity()
        identity = msgspec.structs.replace(identity, host=host or identity.host)
        return ContainerBackend(database, clock, identity, podman.settings(**settings), ENVIRONMENT, home)

    return make


@pytest.fixture
async def context(new_context: NewContext) -> ToolContext:
    return await new_context("hf-1", "container")


async def recorded(database: Database, session_id: str = "hf-1") -> list[Event]:
    entries = await database.read(log.read, session_id)
    return [entry.event for entry in entries if isinstance(entry.event, KINDS)]


async def kinds(database: Database, session_id: str = "hf-1") -> list[str]:
    return [type(event).__name__.removeprefix("Container") for event in await recorded(database, session_id)]


async def last_note(database: Database) -> str:
    return list(Context(await database.read(log.read, "hf-1")).view)[-1].text


async def say(backend: ContainerBackend, context: ToolContext, *words: str) -> str:
    return (await backend.run(context, list(words))).output.decode()


async def test_a_second_worker_uses_the_running_container(new_backend, context, database, podman):
    await say(new_backend(), context, "touch", "/only-here")

    assert "only-here" in await say(new_backend(), context, "ls", "/")
    assert len(podman.containers()) == 1
    assert await kinds(database) == ["Created"]


async def test_a_container_is_recorded_with_its_settings_before_its_first_command(
    new_backend, context, database, podman
):
    await new_backend().prepare(context)

    [created] = await recorded(database)
    assert [created.container_id] == podman.containers()
    assert created.image == IMAGE
    assert created.settings_hash == podman.run(
        "inspect", "--format", '{{index .Config.Labels "holdfast.settings"}}', created.container_id
    )


async def test_a_stopped_container_is_started_again_and_the_model_learns_it(new_backend, context, database, podman):
    await say(new_backend(), context, "touch", "/kept", "/tmp/gone")
    podman.run("stop", "--time", "0", *podman.containers())

    listed = await say(new_backend(), context, "ls", "/", "/tmp")

    assert "kept" in listed
    assert "gone" not in listed
    assert await kinds(database) == ["Created", "Restarted"]
    assert "started again" in await last_note(database)


async def test_a_container_removed_by_others_is_reported_as_lost_and_replaced(new_backend, context, database, podman):
    await say(new_backend(), context, "touch", "/only-here")
    podman.remove_all()

    assert "only-here" not in await say(new_backend(), context, "ls", "/")
    first, lost, second = await recorded(database)
    assert isinstance(lost, ContainerLost)
    assert lost.container_id == first.container_id != second.container_id
    assert podman.containers() == [second.container_id]
    note = await last_note(database)
    assert "the container of the terminal was lost (it no longer exists)" in note


async def test_other_settings_replace_the_container(new_backend, context, database, podman):
    await say(new_backend(), context, "touch", "/only-here")
    changed = new_backend(tmpfs=("/tmp:size=8m",))

    assert "only-here" not in await say(changed, context, "ls", "/")
    assert await kinds(database) == ["Created", "Removed", "Created"]
    assert len(podman.containers()) == 1
    assert "the settings changed" in await last_note(database)


async def create_unrecorded(backend: ContainerBackend, context: ToolContext, database: Database) -> str:
    """The state after a worker was killed between the creation of a container and its record."""
    await backend.prepare(context)
    current = await database.read(containers.get_current, context.session_id)

    def forget(tx):
        tx.run("session_pruning.erase_containers", id=context.session_id)

    await database.write(forget)
    return current.id


async def test_a_container_that_a_dead_worker_did_not_record_is_adopted(new_backend, context, database, podman):
    made = await create_unrecorded(new_backend(), context, database)

    await new_backend().prepare(context)

    assert podman.containers() == [made]
    assert (await database.read(containers.get_current, "hf-1")).id == made


async def test_an_unrecorded_container_with_other_settings_is_replaced(new_backend, context, database, podman):
    made = await create_unrecorded(new_backend(tmpfs=("/tmp:size=8m",)), context, database)

    await new_backend().prepare(context)

    [left] = podman.containers()
    assert left != made
    assert (await database.read(containers.get_current, "hf-1")).id == left


async def test_a_name_that_a_killed_engine_left_reserved_does_not_block_the_session(
    new_backend, context, database, podman
):
    """As after a power cut: the storage has the name, but the engine does not know the container."""
    backend = new_backend()
    await backend.prepare(context)
    name = (await database.read(containers.get_current, "hf-1")).name
    podman.remove_all()
    podman.reserve_name(name)

    assert (await say(new_backend(), context, "printf", "works")).strip() == "works"
    assert len(podman.containers()) == 1


async def test_workers_that_need_the_container_at_once_create_only_one(new_backend, context, database, podman):
    await asyncio.gather(*(new_backend().prepare(context) for _ in range(3)))

    assert len(podman.containers()) == 1
    assert await kinds(database) == ["Created"]


async def test_a_session_that_moves_to_another_machine_and_back_gets_new_containers(
    new_backend, context, database, podman
):
    await new_backend().prepare(context)
    [first] = podman.containers()
    # The other machine has an engine of its own, so it does not see the container of this one.
    podman.run("rename", first, "elsewhere")
    await new_backend("other").prepare(context)
    podman.run("rename", (set(podman.containers()) - {first}).pop(), "on-the-other")
    podman.run("rename", "elsewhere", (await database.read(containers.get_current, "hf-1")).name)

    await new_backend().prepare(context)

    assert await kinds(database) == ["Created", "Lost", "Created", "Lost", "Created"]
    assert first not in podman.containers(), "it was reported as lost, so it must not be used"
    assert "it is on other" in await last_note(database)


async def test_an_engine_that_cannot_be_reached_is_not_a_lost_container(
    new_backend, context, database, podman, tmp_path
):
    await new_backend().prepare(context)
    away = new_backend(engine_args=("--remote", "--url", f"unix://{tmp_path}/absent.sock"))

    with pytest.raises(Unavailable, match="no such file"):
        await away.prepare(context)
    with pytest.raises(Unavailable):
        await away.remove_unused()

    assert await kinds(database) == ["Created"]


@pytest.mark.parametrize("finish", ["ended", "trashed"])
async def test_the_sweep_removes_the_container_of_a_finished_session(
    new_backend, context, database, clock, podman, finish
):
    await new_backend().prepare(context)
    assert await new_backend().remove_unused() == []
    if finish == "ended":
        await database.write(sessions.end, "hf-1", "user", at=clock.now())
    else:
        await database.write(sessions.trash, "hf-1", at=clock.now())

    done = await new_backend().remove_unused()

    assert [session for session, _ in done] == ["hf-1"]
    assert podman.containers() == []
    assert await kinds(database) == ["Created", "Removed"]
    assert await new_backend().remove_unused() == []


async def test_a_removal_that_was_recorded_and_not_done_is_repeated(new_backend, context, database, clock, podman):
    await new_backend().prepare(context)
    current = await database.read(containers.get_current, "hf-1")
    await database.write(sessions.end, "hf-1", "user", at=clock.now())
    await database.write(containers.record_removal, current, "the session has ended", at=clock.now())

    assert len(await new_backend().remove_unused()) == 1
    assert podman.containers() == []


async def test_a_session_that_continues_after_a_recorded_removal_gets_a_new_container(
    new_backend, context, database, clock, podman
):
    await new_backend().prepare(context)
    current = await database.read(containers.get_current, "hf-1")
    await database.write(containers.record_removal, current, "the session has ended", at=clock.now())

    await new_backend().prepare(context)

    [left] = podman.containers()
    assert left != current.id
    assert await kinds(database) == ["Created", "Removed", "Created"]


async def test_the_sweep_reports_a_container_that_vanished(new_backend, context, database, podman):
    await new_backend().prepare(context)
    podman.remove_all()

    assert len(await new_backend().remove_unused()) == 1
    assert await kinds(database) == ["Created", "Lost"]


async def test_the_sweep_removes_only_containers_of_this_store_that_no_session_needs(
    new_backend, new_context, context, database, podman
):
    store = await database.read(meta.get_store_id)
    await new_context("hf-2", "container")

    def create(store_id: str, session_id: str, name: str) -> str:
        labels = (f"--label=holdfast.store={store_id}", f"--label=holdfast.session={session_id}")
        return podman.run("create", f"--name={name}", *labels, "--label=holdfast.settings=x", *LIMITS, IMAGE, "sh")

    await new_backend().prepare(context)
    [used] = podman.containers()
    unknown = create(store, "hf-9", "unknown")
    foreign = create("store-of-another", "hf-1", "foreign")
    unlabelled = podman.run("create", "--name=unlabelled", *LIMITS, IMAGE, "sh")
    about_to_be_recorded = create(store, "hf-2", "open")
    second = create(store, "hf-1", "second")

    done = await new_backend().remove_unused()

    assert sorted(session for session, _ in done) == ["hf-1", "hf-9"]
    assert set(podman.containers()) == {used, foreign, unlabelled, about_to_be_recorded}
    assert {unknown, second}.isdisjoint(podman.containers())


async def test_a_session_with_containers_can_be_pruned_and_its_container_is_removed(
    new_backend, context, database, clock, podman
):
    await new_backend().prepare(context)
    await database.write(sessions.trash, "hf-1", at=clock.now())

    assert await database.write(session_pruning.prune, "hf-1", before=clock.now() + 1)
    assert len(await new_backend().remove_unused()) == 1
    assert podman.containers() == []


async def test_holdfasts_home_and_the_users_secrets_are_hidden_in_a_working_directory_that_contains_them(
    new_backend, context, database, clock, home, podman, tmp_path
):
    user = tmp_path / "user"
    (user / ".ssh").mkdir(parents=True)
    (user / ".ssh" / "id").write_text("private")
    (user / ".netrc").write_text("private")
    store = tmp_path / "store.db"
    store.write_text("private")
    environment = {**ENVIRONMENT, "HOME": str(user)}
    backend = ContainerBackend(
        database, clock, current_identity(), podman.settings(), environment, home, hidden_files=[store]
    )
    context = msgspec.structs.replace(context, workdir=tmp_path)

    done = await backend.run(context, ["sh", "-c", 'cat "$@"; ls "$0"; echo done', str(home), str(home / "api-key"), str(user / ".ssh/id"), str(user / ".netrc"), str(store)])  # fmt: skip

    assert done.output.decode().split() == ["files", "done"], done
    with pytest.raises(Unavailable, match="moved"):
        home.rename(tmp_path / "moved")
        await backend.prepare(context)


async def test_a_working_directory_with_a_colon_is_refused(new_backend, context, tmp_path):
    (tmp_path / "a:").mkdir()

    with pytest.raises(Unavailable, match="colon"):
        await new_backend().prepare(msgspec.structs.replace(context, workdir=tmp_path / "a:"))


async def test_a_replaced_program_of_the_container_cannot_exhaust_the_memory_of_the_worker(new_backend, context):
    backend = new_backend()
    await say(
        backend, context, "sh", "-c", "rm /bin/head; printf '#!/bin/sh\\nexec yes\\n' >/bin/head; chmod 755 /bin/head"
    )

    with pytest.raises(Unavailable, match="64 MiB"):
        await backend.run(context, ["head", "-c", "10", "--", "/etc/hosts"])
