"""`holdfast.open()`, as the page for library users shows it."""

from pathlib import Path

import holdfast
from holdfast.engine.bus import Live
from holdfast.model.entry import Entry


async def test_a_program_gets_or_creates_a_session_by_its_own_key(tmp_path: Path) -> None:
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        session = await hf.session(key="notes")
        kinds = [item.kind async for item in session.say("Hello") if isinstance(item, Entry)]
    async with holdfast.open(home=tmp_path, model="scripted:echo") as hf:
        again = await hf.session(key="notes")
        live = [item.text async for item in again.say("And again") if isinstance(item, Live)]
        said = [message.text for message in await again.messages()]

    assert again.id == session.id
    assert kinds == ["turn_started", "user_said", "model_said", "turn_ended"]
    assert "".join(live) == "You said: And again"
    assert said == ["Hello", "You said: Hello", "And again", "You said: And again"]


async def test_a_program_can_open_a_session_by_reference_or_begin_a_new_one(tmp_path: Path) -> None:
    async with holdfast.open(f"sqlite:///{tmp_path}/mine.db", home=tmp_path, model="scripted:echo") as hf:
        one = await hf.session(title="Plans")
        other = await hf.session()
        found = await hf.session("Plans")

    assert found.id == one.id != other.id
    assert (tmp_path / "mine.db").exists()
