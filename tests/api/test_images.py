"""Images that the model makes: as files over the API, and after a kill."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.api import native_client
from tests.api.native_client import begin, say, wait_for_end
from tests.api.serving import Server, ask
from tests.crash.programs import wait_until
from tests.fakes.images_server import ImagesServer, draw, edited, sample

CALL = 'use tool make_image {"prompt": "a tree"}'


@pytest.fixture(scope="module")
def service() -> Iterator[ImagesServer]:
    with ImagesServer() as running:
        yield running


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, service: ImagesServer) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("images") / "home", images=service.url) as running:
        yield running


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with native_client.client(server) as opened:
        yield opened


def results(http: httpx.Client, session_id: str) -> list[dict[str, Any]]:
    found = http.get(f"/v1/sessions/{session_id}/events?limit=1000").json()["events"]
    return [event["body"] for event in found if event["kind"] == "tool_ended"]


def make(http: httpx.Client, server: Server, words: str = CALL) -> tuple[str, dict[str, Any]]:
    """A session in which an image was made, and the image in the log."""
    session_id = begin(http, model=server.model("tools"))
    assert wait_for_end(http, session_id, say(http, session_id, words))["state"] == "done"
    [result] = results(http, session_id)
    assert result["outcome"] == "ok", result
    return session_id, next(part for part in result["parts"] if part["type"] == "image")


def test_a_made_image_is_a_file_of_the_session(http: httpx.Client, server: Server) -> None:
    session_id, image = make(http, server)
    response = http.get(f"/v1/sessions/{session_id}/files/{image['saved_as']}")

    assert (response.status_code, response.content) == (200, draw("a tree"))
    assert response.headers["content-type"] == "image/png"
    assert response.headers["content-length"] == str(len(draw("a tree")))
    assert response.headers["x-content-type-options"] == "nosniff"
    assert "sandbox" in response.headers["content-security-policy"]
    assert response.headers["content-disposition"].startswith("inline;")


def test_an_image_of_the_user_is_edited(server: Server, service: ImagesServer) -> None:
    url = f"data:image/png;base64,{base64.b64encode(sample()).decode()}"
    words = 'use tool make_image {"prompt": "inverted", "inputs": ["attached:1"]}'
    content = [{"type": "text", "text": words}, {"type": "image_url", "image_url": {"url": url}}]
    with server.http() as http:
        body = {"model": server.model("tools"), "messages": [{"role": "user", "content": content}]}
        response = http.post("/v1/chat/completions", json=body)
        session_id = response.headers["x-session-id"]
        [result] = results(http, session_id)
        image = next(part for part in result["parts"] if part["type"] == "image")

        assert http.get(f"/v1/sessions/{session_id}/files/{image['saved_as']}").content == edited(sample(), None)
    assert service.requests[-1].files("image")[0].content == sample()


def test_only_the_files_of_the_session_are_served(http: httpx.Client, server: Server) -> None:
    session_id, image = make(http, server)
    other = begin(http)
    folder = server.home / "files" / session_id
    (folder / "link").symlink_to(server.home / "config.toml")
    (folder / "folder").mkdir()
    (folder / ".hidden").write_text("unfinished")
    names = ["none.png", "link", "folder", ".hidden", "..%2f..%2fconfig.toml", "%2e%2e", "a%00b", "%2fetc%2fpasswd"]

    assert [http.get(f"/v1/sessions/{session_id}/files/{name}").status_code for name in names] == [404] * len(names)
    assert http.get(f"/v1/sessions/{other}/files/{image['saved_as']}").status_code == 404
    assert httpx.get(f"{server.url}/v1/sessions/{session_id}/files/{image['saved_as']}").status_code == 401


def test_a_file_that_is_no_image_is_a_download(http: httpx.Client, server: Server) -> None:
    session_id, _ = make(http, server)
    page = "<script>alert(1)</script>"
    (server.home / "files" / session_id / "page.html").write_text(page)
    (server.home / "files" / session_id / "fake.png").write_text(page)
    answers = [http.get(f"/v1/sessions/{session_id}/files/{name}") for name in ("page.html", "fake.png")]

    assert [answer.text for answer in answers] == [page, page]
    assert {answer.headers["content-type"] for answer in answers} == {"application/octet-stream"}
    assert all(answer.headers["content-disposition"].startswith("attachment;") for answer in answers)


def test_the_model_sees_the_image_that_it_made(
    tmp_path: Path, vendor: str, record: Path, service: ImagesServer
) -> None:
    with Server(tmp_path / "home", vendor=vendor, images=service.url) as server, server.http() as http:
        ask(http, CALL)
    *_, last = (json.loads(line) for line in record.read_text().splitlines())
    shown = [part for message in last["messages"] for part in message["content"] or () if isinstance(part, dict)]

    url = f"data:image/png;base64,{base64.b64encode(draw('a tree')).decode()}"
    assert [part["image_url"]["url"] for part in shown if part["type"] == "image_url"] == [url]


def test_without_a_service_the_tool_is_not_offered(own: Server) -> None:
    with native_client.client(own) as http:
        session_id = begin(http, model=own.model("tools"))
        wait_for_end(http, session_id, say(http, session_id, CALL))
        [result] = results(http, session_id)

        assert result["outcome"] == "failed"
        assert "there is no tool called 'make_image'" in json.dumps(result)


def test_an_interrupted_call_ends_the_request(tmp_path: Path) -> None:
    with ImagesServer() as service, Server(tmp_path / "home", images=service.url) as server:
        service.acts.append(service.hang)
        with native_client.client(server) as http:
            session_id = begin(http, model=server.model("tools"))
            turn_id = say(http, session_id, CALL)
            wait_until(service.hanging.is_set, "the request to the service")
            http.post(f"/v1/sessions/{session_id}/interrupt")

            assert wait_for_end(http, session_id, turn_id)["state"] == "interrupted"
            assert [result["outcome"] for result in results(http, session_id)] == ["unknown"]


@pytest.mark.crash
@pytest.mark.timeout(120)
def test_a_call_cut_off_by_a_kill_is_unknown_and_not_paid_twice(tmp_path: Path) -> None:
    with ImagesServer() as service, Server(tmp_path / "home", images=service.url) as server:
        service.acts.append(service.hang)
        with native_client.client(server) as http:
            session_id = begin(http, model=server.model("tools"))
            turn_id = say(http, session_id, CALL)
            wait_until(service.hanging.is_set, "the request to the service")
        server.kill()
        server.restart()
        with native_client.client(server) as http:
            wait_for_end(http, session_id, turn_id)
            [result] = results(http, session_id)
            files = list((server.home / "files" / session_id).glob("*"))

    assert result["outcome"] == "unknown"
    assert len(service.requests) == 1
    assert files == []
