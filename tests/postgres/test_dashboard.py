"""The dashboard over a store in PostgreSQL: all pages, actions and the stream, as a browser requests them."""

import json
import re
from pathlib import Path

import httpx
import pytest

from holdfast.dashboard import app
from tests.api.serving import KEY, Server, ask, session
from tests.dashboard.conftest import refuse_errors

pytestmark = pytest.mark.timeout(120)


class OnPostgres(Server):
    """A server whose store is a database."""

    def __init__(self, home: Path, url: str) -> None:
        self._url = url
        super().__init__(home)

    def start(self) -> None:
        config = self.home / "config.toml"
        if "store" not in config.read_text():
            config.write_text(f"store = {json.dumps(self._url)}\n" + config.read_text())
        super().start()


def test_every_page_and_action_works_on_postgresql(tmp_path: Path, url: str) -> None:
    with OnPostgres(tmp_path / "home", url) as server:
        with server.http() as http:
            name = session(ask(http, "Is there a nightingale?"))
        with httpx.Client(base_url=server.url, timeout=60) as client:
            client.post("/ui/login", data={"key": KEY})
            found = re.search(r'name="csrf" content="(\w+)"', client.get("/").text)
            assert found is not None
            for route, _ in app.GET_ROUTES:
                path = route.replace("{id}", name).replace("{seq:count}", "1")
                if "/processes/" in path or "/image/" in path or path == "/ui/live":
                    continue
                assert (path, client.get(path).status_code) == (path, 200)
            assert name in client.get("/", params={"q": "nightingale"}).text
            assert name not in client.get("/", params={"q": "nightingale", "pinned": "1"}).text
            for action, fields in (
                ("rename", {"title": "Birds"}),
                ("pin", {}),
                ("end", {}),
                ("reopen", {}),
                ("trash", {}),
            ):
                answer = client.post(f"/ui/s/{name}/{action}", data={"csrf": found[1], **fields})
                assert (action, answer.status_code) == (action, 303)
            assert name in client.get("/", params={"q": "nightingale", "trash": "1"}).text
            assert name in client.get("/", params={"trash": "1"}).text
            assert client.post(f"/ui/s/{name}/restore", data={"csrf": found[1]}).status_code == 303
            with client.stream("GET", f"/ui/live?pulse=1&s={name}:0") as stream:
                assert client.post(f"/ui/s/{name}/say", data={"csrf": found[1], "words": "Sing!"}).status_code == 303
                assert next(line for line in stream.iter_lines() if "Sing!" in line and '"items"' in line)
            assert "Birds" in client.get("/ui/health").text
            assert client.post("/ui/logout", data={"csrf": found[1]}).status_code == 303
            assert client.get("/").status_code == 303
        server.stop()
    refuse_errors(server)
