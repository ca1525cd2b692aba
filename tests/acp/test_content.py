"""Prompts with images, files and links: what the model gets, and what a load shows again."""

import base64
from pathlib import Path

import pytest
from acp import helpers
from acp.schema import AudioContentBlock

from holdfast.acp.content import Block, to_blocks, to_parts
from holdfast.model.errors import Invalid
from holdfast.model.message import File, Image, Text
from tests.acp.editor import editing

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


def test_each_kind_of_content_becomes_a_part() -> None:
    blob = base64.b64encode(b"%PDF").decode()
    blocks: list[Block] = [
        helpers.text_block("Look:"),
        helpers.image_block(PIXEL, "image/png"),
        helpers.resource_link_block("a.py", "file:///p/a.py"),
        helpers.resource_block(helpers.embedded_text_resource("file:///p/b.py", "x = 1")),
        helpers.resource_block(helpers.embedded_blob_resource("file:///p/c.pdf", blob, mime_type="application/pdf")),
        helpers.resource_block(helpers.embedded_blob_resource("file:///p/d.png", PIXEL, mime_type="image/png")),
    ]

    assert to_parts(blocks) == (
        Text("Look:"),
        Image(f"data:image/png;base64,{PIXEL}", "image/png"),
        Text("[a.py](file:///p/a.py)"),
        Text("\n<resource uri='file:///p/b.py'>\nx = 1\n</resource>\n"),
        File(f"data:application/pdf;base64,{blob}", "file:///p/c.pdf", "application/pdf"),
        Image(f"data:image/png;base64,{PIXEL}", "image/png"),
    )


def test_parts_become_the_same_content_again() -> None:
    blocks: list[Block] = [helpers.text_block("Look:"), helpers.image_block(PIXEL, "image/png")]

    assert to_blocks(to_parts(blocks)) == blocks
    assert to_blocks([Image("file:a.png", saved_as="a.png")]) == [helpers.text_block("[image: a.png]")]


def test_content_that_no_model_gets_is_refused() -> None:
    with pytest.raises(Invalid, match="audio"):
        to_parts([AudioContentBlock(type="audio", data="AAAA", mime_type="audio/wav")])
    with pytest.raises(Invalid, match="empty"):
        to_parts([helpers.text_block(" \n")])


@pytest.mark.process
async def test_an_image_is_stored_and_shown_again(home: Path, folder: Path) -> None:
    image = helpers.image_block(PIXEL, "image/png")
    async with editing(home) as editor:
        session = await editor.new(folder)
        await editor.connection.prompt(session_id=session, prompt=[helpers.text_block("Look: "), image])
    async with editing(home) as other:
        await other.load(folder, session)
        said = [update["content"] for _, update in other.updates if update["sessionUpdate"] == "user_message_chunk"]

    assert [content["type"] for content in said] == ["text", "image"]
    assert said[1]["data"] == PIXEL
