"""The private `/tmp` of a session in bubblewrap."""

from holdfast.model.event import Ended, SessionOpened
from holdfast.store.repos import log, sessions
from holdfast.tools.backends.private_tmp import private_tmp, remove_unused


async def test_it_is_removed_when_its_session_has_ended_and_never_before(database, clock, tmp_path):
    for session_id in ("hf-open", "hf-ended"):
        await database.write(sessions.create, session_id, SessionOpened(source="api"), at=clock.now())
    await database.write(log.append_unheld, "hf-ended", [Ended(reason="user")], at=clock.now())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    for session_id in ("hf-open", "hf-ended", "hf-of-another-store"):
        folder = private_tmp(tmp_path, session_id)
        (folder / "sub").mkdir(parents=True)
        (folder / "link").symlink_to(outside)

    await remove_unused(tmp_path, database)

    assert sorted(path.name for path in (tmp_path / "tmp").iterdir()) == ["hf-of-another-store", "hf-open"]
    assert (outside / "kept").exists()


async def test_without_any_there_is_nothing_to_do(database, tmp_path):
    await remove_unused(tmp_path, database)
