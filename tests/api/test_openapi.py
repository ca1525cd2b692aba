"""The description of the API: complete, true, and of nothing that breaks when it is tried."""

import re
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from holdfast.api.app import ROUTES, described
from holdfast.api.native import DOORS
from tests.api import native
from tests.api.native import begin, said
from tests.api.serving import KEY, Server

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


def test_every_route_is_described_and_documented(http: httpx.Client) -> None:
    served = {(method, path) for method, path, _ in ROUTES} | {(door.method, door.path) for door in DOORS}
    document = http.get("/openapi.json").json()
    told = {(method.upper(), path) for path, ways in document["paths"].items() for method in ways}
    rows = re.findall(r"^\| `((?:GET|POST|PATCH|DELETE)(?:\\?\|\w+)*) (/[^`?]*)", DOCS, flags=re.MULTILINE)
    written = {(method, path) for methods, path in rows for method in re.findall(r"\w+", methods)}

    assert told == served
    assert written == served
    assert all(way["summary"] for ways in document["paths"].values() for way in ways.values())


def test_every_reference_in_it_leads_somewhere() -> None:
    text = str(described())

    assert set(re.findall(r"#/components/schemas/([\w.]+)", text)) <= set(described()["components"]["schemas"])


def test_the_page_for_people_fetches_nothing(http: httpx.Client) -> None:
    response = http.get("/docs")

    assert response.headers["content-type"].startswith("text/html")
    assert not re.search(r"<(script|link|img|iframe)|src=|href=|@import|url\(", response.text)
    assert all(path in response.text for path in described()["paths"])


@pytest.mark.timeout(180)
def test_nothing_that_fits_the_description_or_nearly_does_breaks_the_server(server: Server, tmp_path: Path) -> None:
    with native.client(server) as http:
        one = begin(http, title="Tried")
        first = said(http, one, "hello")
    given = f'[parameters]\n"path.ref" = "{one}"\n"path.turn_id" = "{first["id"]}"\n'
    (tmp_path / "known.toml").write_text(given)

    tried = subprocess.run(
        _command(server, tmp_path / "known.toml"), check=False, capture_output=True, text=True, cwd=tmp_path
    )

    assert tried.returncode == 0, tried.stdout[-4000:] + tried.stderr[-2000:]
    with server.http() as http:
        assert http.get(f"/v1/sessions/{one}").status_code == 200
    log = (server.home / "logs" / "holdfast.log").read_text()
    assert "Traceback" not in log


def _command(server: Server, config: Path) -> list[str]:
    program = str(Path(sys.executable).parent / "schemathesis")
    what = ["--phases", "coverage,fuzzing", "--max-examples", "4", "--seed", "1", "--checks", CHECKS, "--no-color"]
    key = ["-H", f"Authorization: Bearer {KEY}", "--request-timeout", "30"]
    return [program, "--config-file", str(config), "run", f"{server.url}/openapi.json", *key, *what]
