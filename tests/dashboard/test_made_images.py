"""Images that the model made, on a session's page in a real browser."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.api.serving import Server, ask, session
from tests.dashboard.conftest import serving
from tests.fakes.images_server import ImagesServer, sample, sample_mask

SIZE, BOX = (1200, 800), (300, 200, 900, 600)
LIMIT = 30_000
pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
expect.set_options(timeout=LIMIT)


@pytest.fixture(scope="module")
def service() -> Iterator[ImagesServer]:
    with ImagesServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, service: ImagesServer) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("dashboard") / "home", images=service.url) as running:
        yield running


def use_tool(server: Server, **arguments: object) -> str:
    with server.http() as http:
        return session(ask(http, f"use tool make_image {json.dumps(arguments)}", model=server.model("tools")))


def edit(server: Server, folder: Path) -> str:
    """A session in which a photo was edited."""
    (folder / "photo.png").write_bytes(sample(size=SIZE))
    (folder / "mask.png").write_bytes(sample_mask(SIZE, BOX))
    inputs, mask = [str(folder / "photo.png")], str(folder / "mask.png")
    return use_tool(server, prompt="Invert the middle of this sunset", inputs=inputs, mask=mask)


def test_an_edited_image_is_shown_without_a_click(page: Page, server: Server, tmp_path: Path) -> None:
    page.goto(f"{server.url}/ui/s/{edit(server, tmp_path)}")
    picture = page.locator("details.call .image img")

    expect(picture).to_be_visible()
    expect(picture).to_have_attribute("alt", re.compile("Image made by make_image: Invert the middle"))
    expect(picture).to_have_js_property("naturalWidth", 1200)
    box = picture.bounding_box()
    assert box is not None
    assert box["width"] < 600  # a thumbnail
    assert box["width"] / box["height"] == pytest.approx(1.5, abs=0.05)


def test_an_image_appears_on_an_open_page(page: Page, server: Server) -> None:
    name = use_tool(server, prompt="a tree")
    page.goto(f"{server.url}/ui/s/{name}")
    expect(page.locator("details.call .image img")).to_have_count(1)
    with server.http() as http:
        words = 'use tool make_image {"prompt": "a house"}'
        ask(http, words, model=server.model("tools"), headers={"x-session-id": name})

    expect(page.locator("details.call .image img")).to_have_count(2)
    expect(page.locator("details.call .image img").last).to_be_visible()


def test_an_image_is_served_only_to_those_who_have_logged_in(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/ui/s/{use_tool(server, prompt='a tree')}")
    address = page.locator("details.call .image img").get_attribute("src")
    allowed = page.request.get(f"{server.url}{address}")
    stranger = httpx.get(f"{server.url}{address}")

    assert (allowed.status, allowed.headers["content-type"]) == (200, "image/png")
    assert allowed.headers["x-content-type-options"] == "nosniff"
    assert "img-src 'self'" in allowed.headers["content-security-policy"]
    assert (stranger.status_code, stranger.headers["location"].partition("?")[0]) == (303, "/ui/login")


def test_an_image_too_large_for_the_log_is_shown_from_its_file(
    page: Page, server: Server, service: ImagesServer
) -> None:
    service.acts.append(lambda handler: handler.answer_images(sample() + bytes(6 * 1024 * 1024)))
    page.goto(f"{server.url}/ui/s/{use_tool(server, prompt='something large')}")

    expect(page.locator("details.call .image img")).to_have_js_property("naturalWidth", 96)
