"""The OpenAPI document is complete and correct, and no request generated from it crashes the server."""

import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import httpx
import pytest

from holdfast.api.app import ENDPOINTS, ROUTES, openapi_document
from holdfast.api.native.endpoint import EndpointReply
from holdfast.interop.documents.explanation import CompactResponse
from tests.api import native_client
from tests.api.native_client import begin, said
from tests.api.serving import KEY, Server
from tests.sampling import SOAK

CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance"
EXAMPLES = "50" if SOAK else "4"
DOCS = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


def test_every_route_is_described_and_documented(http: httpx.Client) -> None:
    served = {(method, path) for method, path, _ in ROUTES} | {
        (endpoint.method, endpoint.path) for endpoint in ENDPOINTS
    }
    document = http.get("/openapi.json").json()
    told = {(method.upper(), path) for path, ways in document["paths"].items() for method in ways}
    rows = re.findall(r"^\| `((?:GET|POST|PUT|PATCH|DELETE)(?:\\?\|\w+)*) (/[^`?]*)", DOCS, flags=re.MULTILINE)
    written = {(method, path) for methods, path in rows for method in re.findall(r"\w+", methods)}

    assert told == served
    assert written == served
    assert all(way["summary"] for ways in document["paths"].values() for way in ways.values())


def test_every_reference_in_the_document_resolves() -> None:
    text = str(openapi_document())

    assert set(re.findall(r"#/components/schemas/([\w.]+)", text)) <= set(openapi_document()["components"]["schemas"])


def test_every_handler_returns_the_type_that_the_document_describes() -> None:
    for endpoint in ENDPOINTS:
        returned = get_type_hints(endpoint.handler)["return"]
        types = get_args(returned) or (returned,)
        if endpoint.response is not None and endpoint.response is not CompactResponse:
            assert endpoint.response in types or EndpointReply in types, f"{endpoint.method} {endpoint.path}"


def test_the_html_page_loads_nothing_from_elsewhere(http: httpx.Client) -> None:
    response = http.get("/docs")

    assert response.headers["content-type"].startswith("text/html")
    assert not re.search(r"<(script|link|img|iframe)|src=|href=|@import|url\(", response.text)
    assert all(path in response.text for path in openapi_document()["paths"])


@pytest.mark.timeout(900)
def test_no_request_generated_from_the_document_crashes_the_server(server: Server, tmp_path: Path) -> None:
    with native_client.client(server) as http:
        one = begin(http, title="Tried")
        first = said(http, one, "hello")
    given = f'[parameters]\n"path.ref" = "{one}"\n"path.turn_id" = "{first["id"]}"\n'
    (tmp_path / "known.toml").write_text(given)

    tried = subprocess.run(
        _command(server, tmp_path / "known.toml"), check=False, capture_output=True, text=True, cwd=tmp_path
    )

    assert tried.returncode == 0, tried.stdout[:8000] + tried.stderr[-2000:]
    with server.http() as http:
        assert http.get(f"/v1/sessions/{one}").status_code == 200
    log = (server.home / "logs" / "holdfast.log").read_text()
    assert "Traceback" not in log


def _command(server: Server, config: Path) -> list[str]:
    program = str(Path(sys.executable).parent / "schemathesis")
    what = ["--phases", "coverage,fuzzing", "--max-examples", EXAMPLES, "--seed", "1", "--checks", CHECKS, "--no-color"]
    key = ["-H", f"Authorization: Bearer {KEY}", "--request-timeout", "30"]
    return [program, "--config-file", str(config), "run", f"{server.url}/openapi.json", *key, *what]
