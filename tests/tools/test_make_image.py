"""The model makes and edits images; what it may read, and what it gets."""

import base64
import stat
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import msgspec
import pytest

from holdfast.model.event import Rewound, UserSaid
from holdfast.model.message import Image, Text, text_of
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.providers.openai.images import OpenAiImages
from holdfast.store.database import Database
from holdfast.store.repos import log
from holdfast.tools.image_inputs import MAX_BYTES, MAX_MASK_BYTES
from holdfast.tools.make_image import MAY_COST, MakeImageTool
from tests.engine.stage import Stage, set_up
from tests.fakes.images_server import ImagesServer, draw, edited, sample, sample_mask


@pytest.fixture
def server() -> Iterator[ImagesServer]:
    with ImagesServer() as running:
        yield running


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = await set_up(tmp_path, model="echo")
    yield stage
    await stage.engine.close()
    await stage.database.close()


@pytest.fixture
async def tool(server: ImagesServer, stage: Stage, tmp_path: Path) -> AsyncIterator[MakeImageTool]:
    service = OpenAiImages("sk-test", server.url)
    yield MakeImageTool(stage.database, service, home=tmp_path / "home")
    await service.close()


def write(folder: Path, **files: bytes) -> None:
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_bytes(content)


def saved(output: ToolOutput, scene: ToolContext) -> list[bytes]:
    images = [part for part in output.parts if isinstance(part, Image)]
    return [(scene.files / image.saved_as).read_bytes() for image in images]


async def say(database: Database, session_id: str, *parts: Text | Image) -> None:
    said = UserSaid(turn_id="turn-0", parts=parts)
    await database.write(log.append_unheld, session_id, [said], at=1)


def as_url(content: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(content).decode()}"


async def test_a_new_image_is_a_private_file_and_is_shown_to_the_model(tool: MakeImageTool, scene: ToolContext) -> None:
    output = await tool.run({"prompt": "a tree"}, scene)
    text, image = output.parts
    [path] = scene.files.iterdir()

    assert output.ok
    assert isinstance(text, Text)
    assert isinstance(image, Image)
    assert text.text == f"Saved as {path} (96x64 PNG, {len(draw('a tree')):,} bytes)."
    assert (image.saved_as, image.media_type, image.url) == (path.name, "image/png", as_url(draw("a tree")))
    assert path.read_bytes() == draw("a tree")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(scene.files.stat().st_mode) == 0o700


async def test_two_inputs_and_a_mask_are_sent(tool: MakeImageTool, scene: ToolContext, server: ImagesServer) -> None:
    write(scene.workdir, a_png=sample(), b_webp=sample("WEBP"), mask_png=sample_mask())
    arguments = {"prompt": "inverted", "inputs": ["a.png", "b.webp"], "mask": "mask.png", "size": "auto"}
    output = await tool.run(arguments, scene)
    [request] = server.requests

    assert saved(output, scene) == [edited(sample(), sample_mask())]
    assert [part.content for part in request.files("image[]")] == [sample(), sample("WEBP")]
    assert [part.content for part in request.files("mask")] == [sample_mask()]
    assert request.text("size") == "auto"


async def test_a_result_is_the_input_of_the_next_edit(tool: MakeImageTool, scene: ToolContext) -> None:
    first = await tool.run({"prompt": "a tree"}, scene)
    path = text_of(first.parts).removeprefix("Saved as ").partition(" (")[0]
    second = await tool.run({"prompt": "inverted", "inputs": [path]}, scene)

    assert saved(second, scene) == [edited(draw("a tree"), None)]


async def test_the_images_of_the_newest_message_are_inputs(
    tool: MakeImageTool, scene: ToolContext, stage: Stage
) -> None:
    session = await stage.session()
    old, one, two, undone = (sample(size=(size, 10)) for size in (10, 20, 30, 40))
    await say(stage.database, session.id, Image(as_url(old)))
    await say(stage.database, session.id, Text("these"), Image(as_url(one)), Image(as_url(two)))
    await say(stage.database, session.id, Text("and no more"))
    after = await stage.database.read(log.read, session.id)
    await say(stage.database, session.id, Image(as_url(undone)))
    rewound = Rewound(to_seq=after[-1].seq)
    await stage.database.write(log.append_unheld, session.id, [rewound], at=1)
    scene = msgspec.structs.replace(scene, session_id=session.id)

    output = await tool.run({"prompt": "inverted", "inputs": ["attached:2"]}, scene)
    assert saved(output, scene) == [edited(two, None)]
    missing = await tool.run({"prompt": "inverted", "inputs": ["attached:3"]}, scene)
    assert "the newest one with images has 2" in text_of(missing.parts)


async def test_an_attached_link_is_not_fetched(tool: MakeImageTool, scene: ToolContext, stage: Stage) -> None:
    session = await stage.session()
    await say(stage.database, session.id, Image("http://127.0.0.1/secret.png"))
    output = await tool.run(
        {"prompt": "x", "inputs": ["attached:1"]}, msgspec.structs.replace(scene, session_id=session.id)
    )

    assert not output.ok
    assert "is a link" in text_of(output.parts)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ({"prompt": " "}, "the prompt is empty"),
        ({"prompt": "x" * 32_001}, "the limit is 32,000"),
        ({"prompt": "x", "size": "huge"}, "is not WIDTHxHEIGHT"),
        ({"prompt": "x", "mask": "mask.png"}, "a mask needs an input"),
        ({"prompt": "x", "inputs": ["a.png"] * 17}, "the limit is 16"),
        ({"prompt": "x", "inputs": ["none.png"]}, "does not exist"),
        ({"prompt": "x", "inputs": ["."]}, "is a folder"),
        ({"prompt": "x", "inputs": ["notes.txt"]}, "is not a PNG, JPEG or WebP image"),
        ({"prompt": "x", "inputs": ["moving.gif"]}, "is not a PNG, JPEG or WebP image"),
        ({"prompt": "x", "inputs": ["cut.png"]}, "is not a PNG, JPEG or WebP image"),
        ({"prompt": "x", "inputs": ["big.png"]}, "has more than"),
        ({"prompt": "x", "inputs": ["a.png"], "mask": "a.jpg"}, "the mask must be a PNG"),
        ({"prompt": "x", "inputs": ["a.png"], "mask": "small.png"}, "it has 8x8, the input 96x64"),
        ({"prompt": "x", "inputs": ["a.png"], "mask": "heavy.png"}, "the mask has"),
    ],
)
async def test_nothing_is_sent_for_bad_arguments(
    tool: MakeImageTool, scene: ToolContext, server: ImagesServer, arguments: dict[str, object], why: str
) -> None:
    write(
        scene.workdir,
        a_png=sample(),
        a_jpg=sample("JPEG"),
        moving_gif=sample("GIF"),
        notes_txt=b"no image",
        cut_png=sample()[:12],
        small_png=sample_mask((8, 8), (1, 1, 2, 2)),
        heavy_png=sample_mask() + bytes(MAX_MASK_BYTES),
        big_png=sample() + bytes(MAX_BYTES),
    )
    output = await tool.run(arguments, scene)

    assert not output.ok
    assert why in text_of(output.parts)
    assert server.requests == []
    assert not scene.files.exists()


async def test_the_home_and_links_to_secrets_are_not_read(
    tool: MakeImageTool, scene: ToolContext, server: ImagesServer, tmp_path: Path
) -> None:
    others = tmp_path / "home" / "files" / "hf-2"
    others.mkdir(parents=True)
    write(others, private_png=sample())
    (tmp_path / ".ssh").mkdir()
    write(tmp_path / ".ssh", id_rsa=sample())
    (tmp_path / ".ssh" / "id.rsa").rename(tmp_path / ".ssh" / "id_rsa")
    (scene.workdir / "home.png").symlink_to(others / "private.png")
    (scene.workdir / "key.png").symlink_to(tmp_path / ".ssh" / "id_rsa")
    named = [str(others / "private.png"), "../home/files/hf-2/private.png", "home.png", "key.png"]
    write(scene.workdir, a_png=sample())
    outputs = [await tool.run({"prompt": "x", "inputs": [name]}, scene) for name in named]
    outputs += [await tool.run({"prompt": "x", "inputs": ["a.png"], "mask": name}, scene) for name in named]

    assert [output.ok for output in outputs] == [False] * 8
    assert all("own directory" in text_of(output.parts) or "approval" in text_of(output.parts) for output in outputs)
    assert server.requests == []


async def test_only_secret_paths_need_approval(tool: MakeImageTool, scene: ToolContext) -> None:
    assert tool.risk({"prompt": "x", "inputs": ["a.png", "attached:1"], "mask": "b.png"}, scene) == ()
    assert tool.risk({"prompt": "x", "inputs": ["a.png", "~/.ssh/id_rsa"]}, scene)
    assert tool.risk({"prompt": "x", "inputs": ["a.png"], "mask": "~/.ssh/id_rsa"}, scene)


async def test_a_failure_is_reported_with_what_it_may_have_cost(
    tool: MakeImageTool, scene: ToolContext, server: ImagesServer
) -> None:
    server.acts.append(lambda handler: handler.answer(200, b"<html>", "text/html"))
    server.acts.append(lambda handler: handler.answer_error(400, "Blocked.", "moderation_blocked"))
    broken = await tool.run({"prompt": "a tree"}, scene)
    refused = await tool.run({"prompt": "a tree"}, scene)

    assert (broken.ok, refused.ok) == (False, False)
    assert MAY_COST in text_of(broken.parts)
    assert MAY_COST not in text_of(refused.parts)
    assert "Blocked." in text_of(refused.parts)


async def test_an_image_too_large_for_the_log_is_only_a_file(
    tool: MakeImageTool, scene: ToolContext, server: ImagesServer
) -> None:
    large = sample() + bytes(6 * 1024 * 1024)
    server.acts.append(lambda handler: handler.answer_images(large, sample()))
    output = await tool.run({"prompt": "a tree", "count": 2}, scene)
    first, second = (part for part in output.parts if isinstance(part, Image))

    assert first.url == f"file:{first.saved_as}"
    assert second.url == as_url(sample())
    assert saved(output, scene) == [large, sample()]


async def test_a_folder_that_cannot_be_written_is_reported(tool: MakeImageTool, scene: ToolContext) -> None:
    scene.files.write_text("in the way")
    output = await tool.run({"prompt": "a tree"}, scene)

    assert not output.ok
    assert "could not be read or saved" in text_of(output.parts)
