"""The model sends a file with its reply."""

from pathlib import Path

import pytest

from holdfast.model.message import File, text_of
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.store.repos import outbox
from holdfast.tools.send_file import MAX_BYTES, SendFileTool
from tests.engine.stage import set_up


async def send(folder: Path, path: str, *, recipient: bool = True) -> ToolOutput:
    stage = await set_up(folder, model="echo")
    session = await stage.session()
    if recipient:
        address = outbox.Address("telegram", "42")
        await stage.database.write(outbox.add_reply_address, session.id, "turn-1", address, at=1)
    scene = ToolContext(
        session_id=session.id, turn_id="turn-1", call_id="c/../1", workdir=folder, files=folder / "files"
    )
    output = await SendFileTool(stage.database, home=folder / "home").run({"path": path}, scene)
    await stage.engine.close()
    await stage.database.close()
    return output


async def test_a_copy_of_the_file_goes_out_with_the_reply(tmp_path: Path) -> None:
    (tmp_path / "a plan.txt").write_text("a plan")
    output = await send(tmp_path, "a plan.txt")
    (tmp_path / "a plan.txt").write_text("changed since")
    _, file = output.parts

    assert output.ok
    assert "will be sent with the reply" in text_of(output.parts)
    assert isinstance(file, File)
    copy = tmp_path / "files" / file.url.removeprefix("file:")
    assert (file.name, copy.name, copy.read_text()) == ("a plan.txt", "a plan.txt", "a plan")
    assert copy.resolve().is_relative_to(tmp_path / "files")


async def test_without_a_platform_it_fails(tmp_path: Path) -> None:
    (tmp_path / "plan.txt").write_text("a plan")
    output = await send(tmp_path, "plan.txt", recipient=False)

    assert not output.ok
    assert "tell the user the path" in text_of(output.parts)


@pytest.mark.parametrize(
    ("path", "why"), [("none.txt", "does not exist"), (".", "is a folder"), ("big", "the limit is"), ("", "is empty")]
)
async def test_a_file_that_cannot_be_sent_is_reported(tmp_path: Path, path: str, why: str) -> None:
    with (tmp_path / "big").open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    output = await send(tmp_path, path)

    assert not output.ok
    assert why in text_of(output.parts)


async def test_files_with_secrets_are_sent_only_after_approval(tmp_path: Path) -> None:
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "id_rsa").write_text("a key")
    (tmp_path / "harmless").symlink_to(tmp_path / ".ssh" / "id_rsa")
    output = await send(tmp_path, "harmless")
    stage = await set_up(tmp_path, model="echo")
    tool = SendFileTool(stage.database)
    await stage.database.close()

    scene = ToolContext(session_id="s", turn_id="t", call_id="c", workdir=tmp_path, files=tmp_path / "files")
    assert tool.risk({"path": "~/.ssh/id_rsa"}, scene)
    assert tool.risk({"path": "plan.txt"}, scene) == ()
    assert not output.ok
    assert not (tmp_path / "files").exists()
