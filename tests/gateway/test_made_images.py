"""An image that the model made arrives as an attachment of the reply."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.gateway.gateway import Gateway
from holdfast.settings import GatewaySettings, ImageSettings, PlatformSettings, Secret, Settings
from holdfast.tasks import stop
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app
from tests.contract.channel_subjects import SUBJECTS, Subject
from tests.fakes.images_server import ImagesServer, draw
from tests.gateway.gateway_fixture import no_index, serve

CALL = 'use tool make_image {"prompt": "a tree"}'
LIMIT_SECONDS = 50.0


def configure(home: Path, subject: Subject, service: ImagesServer) -> Settings:
    options = PlatformSettings({"kind": subject.kind, "allow": ["*"], **subject.options})
    return Settings(
        home=home,
        store=f"sqlite:///{home}/holdfast.db",
        model="scripted:tools",
        images=ImageSettings(base_url=service.url, api_key=Secret("sk-images")),
        gateway=GatewaySettings(platforms={subject.kind: options}),
    )


async def wait_for(check: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_SECONDS):
        while not await check():
            await asyncio.sleep(0.05)


@pytest.mark.clients
@pytest.mark.parametrize("name", ["telegram", "slack"])
async def test_an_image_arrives_with_the_reply(name: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with ImagesServer() as service:
        async with SUBJECTS[name](request) as subject:
            settings = configure(home, subject, service)
            async with open_app(settings) as app, open_engine(app.database, settings, {}, kind="gateway") as engine:
                task = asyncio.create_task(serve(engine, Gateway(engine, settings, no_index)))
                try:
                    await subject.say(CALL)
                    await wait_for(lambda: has_files(subject))
                finally:
                    await stop(task)
            [(file_name, content)] = await subject.received()
            heard = await subject.heard()

    assert content == draw("a tree")
    assert file_name.startswith("image-")
    assert file_name.endswith(".png")
    assert any("done: make_image" in text for text in heard)
    assert len(service.requests) == 1


async def has_files(subject: Subject) -> bool:
    return bool(await subject.received())
