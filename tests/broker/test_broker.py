"""Promise 24, for many users: each has a home, a key and a worker, and none of them can reach, stop or starve another."""

import json
import re
import subprocess
import threading
import uuid
from pathlib import Path
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from tests.api.serving import SLOWLY, ask, events, session, text, told
from tests.broker.brokers import Brokers
from tests.crash.programs import wait_until


def test_messages_of_one_user_are_invisible_to_another(broker: Brokers) -> None:
    with broker.http("ada") as ada, broker.http("bo") as bo:
        said = f"secret {uuid.uuid4().hex}"
        found = session(ask(ada, said))

        assert ada.get(f"/v1/sessions/{found}").status_code == 200
        assert bo.get(f"/v1/sessions/{found}").status_code == 404
        assert said not in bo.get("/v1/sessions").text
        assert bo.get("/v1/search", params={"q": said.split()[1]}).json()["hits"] == []
        assert ask(bo, "hello", headers={"x-session-id": found}).status_code == 404


def test_the_same_session_name_is_another_session_for_another_user(broker: Brokers) -> None:
    named = {"x-session-key": "notes"}
    with broker.http("ada") as ada, broker.http("bo") as bo:
        assert session(ask(ada, "hello", headers=named)) != session(ask(bo, "hello", headers=named))


@pytest.mark.parametrize("key", [None, "wrong", "hfu-ada.wrong", "hfu-nobody.x"])
def test_a_request_without_a_valid_key_is_refused(broker: Brokers, key: str | None) -> None:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    with broker.http(headers=headers) as http:
        answer = http.get("/v1/sessions")

        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert http.get("/health").json() == {"status": "ok"}
        assert http.get("/", follow_redirects=False).headers["location"] == "/ui/login"


def test_a_key_may_be_in_the_header_of_anthropics_clients(broker: Brokers) -> None:
    with Anthropic(base_url=broker.url, api_key=broker.keys["ada"], max_retries=0) as client:
        said = client.messages.create(model="holdfast", max_tokens=9, messages=[{"role": "user", "content": "hello"}])

    assert said.content[0].type == "text" and said.content[0].text == "You said: hello"


def test_a_key_of_a_worker_does_not_work_for_the_broker(broker: Brokers) -> None:
    """The key between broker and worker is of no use to a client."""
    with broker.http("ada") as http:
        assert ask(http, "hello").status_code == 200
    found = broker.state("ada")
    assert found is not None
    with broker.http(headers={"authorization": f"Bearer {found.key}"}) as http:
        assert http.get("/v1/sessions").status_code == 401


def test_only_the_owner_can_read_any_file(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        ask(ada, "hello")

    folders = [broker.places.broker, broker.places.user("ada")]
    found = [path for folder in folders for path in (folder, *folder.rglob("*")) if not path.is_symlink()]
    assert found
    assert [path for path in found if path.stat().st_mode & 0o077] == []


def test_no_file_contains_the_key_of_a_user(broker: Brokers) -> None:
    key = broker.keys["ada"].partition(".")[2].encode()
    with broker.http("ada") as ada:
        ask(ada, "hello")

    assert [path for path in broker.home.rglob("*") if path.is_file() and key in path.read_bytes()] == []


def test_a_stream_is_forwarded_as_it_arrives(broker: Brokers) -> None:
    body = {"model": broker.model("slow"), "messages": [{"role": "user", "content": "go"}], "stream": True}
    with broker.http("ada") as ada, ada.stream("POST", "/v1/chat/completions", json=body) as answer:
        found = answer.headers["x-session-id"]
        lines = answer.iter_lines()
        while "word1 " not in next(lines):
            pass
        with broker.http("ada") as other:
            assert other.get(f"/v1/sessions/{found}").json()["state"] == "running"
        rest = "\n".join(lines)

    assert "[DONE]" in rest


def test_a_chat_stream_survives_a_kill_of_its_worker(broker: Brokers) -> None:
    body = {"model": broker.model("slow"), "messages": [{"role": "user", "content": "go"}], "stream": True}
    heard = ""
    with broker.http("ada") as ada, ada.stream("POST", "/v1/chat/completions", json=body) as answer:
        found, struck = answer.headers["x-session-id"], False
        for line in answer.iter_lines():
            heard += line + "\n"
            if "word9 " in line and not struck:
                struck = broker.strike("ada")
        messages = ada.get(f"/v1/sessions/{found}/messages").json()["messages"]

    assert struck
    assert told(events(heard)) == SLOWLY
    assert heard.count("[DONE]") == 1
    assert [m["content"] for m in messages if m["role"] == "user"] == ["go"]
    assert [m["content"] for m in messages if m["role"] == "assistant" and not m["partial"]] == [SLOWLY]


def test_a_response_stream_survives_a_kill_of_its_worker(broker: Brokers) -> None:
    body = {"model": broker.model("slow"), "input": "go", "stream": True}
    heard: list[dict[str, Any]] = []
    with broker.http("bo") as bo, bo.stream("POST", "/v1/responses", json=body) as answer:
        struck = False
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                heard.append(json.loads(line.removeprefix("data: ")))
                if len(heard) == 8 and not struck:
                    struck = broker.strike("bo")

    numbers = [event["sequence_number"] for event in heard]
    final = heard[-1]["response"]
    deltas = [event for event in heard if event["type"] == "response.output_text.delta"]
    assert struck
    assert numbers == list(range(len(heard))), "no event is missing or sent twice"
    assert final["status"] == "completed"
    assert "".join(one["delta"] for one in deltas if one["item_id"] == final["output"][0]["id"]) == SLOWLY


def test_a_pending_request_whose_worker_is_killed_gets_its_reply(broker: Brokers) -> None:
    replies: list[httpx.Response] = []

    def wait_for_reply() -> None:
        with broker.http("ada") as ada:
            replies.append(ask(ada, "go", model=broker.model("slow"), headers={"x-session-key": "waits"}))

    waiting = threading.Thread(target=wait_for_reply)
    waiting.start()
    with broker.http("ada") as ada:
        wait_until(lambda: '"state":"running"' in ada.get("/v1/sessions", params={"limit": 1}).text, "it is running")
    assert broker.strike("ada")
    waiting.join()

    assert text(replies[0]) == SLOWLY
    with broker.http("ada") as ada:
        said = ada.get(f"/v1/sessions/{session(replies[0])}/messages").json()["messages"]
    assert [m["content"] for m in said if m["role"] == "user"] == ["go"]


def test_too_many_open_requests_of_one_user_are_refused_and_another_is_served(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        found = session(ask(ada, "hello"))
        path, accept = f"/v1/sessions/{found}/events", {"accept": "text/event-stream"}
        streams = [ada.stream("GET", path, headers=accept) for _ in range(4)]
        try:
            assert [stream.__enter__().status_code for stream in streams] == [200] * 4
            refused = ada.get("/v1/sessions")
            with broker.http("bo") as bo:
                served = ask(bo, "hello")
        finally:
            for stream in streams:
                stream.__exit__(None, None, None)

        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "rate_limited"
        assert refused.headers["retry-after"] == "1"
        assert text(served) == "You said: hello"
        wait_until(lambda: ada.get("/v1/sessions").status_code == 200, "the streams are over")


def test_large_bodies_pass_up_to_the_limit(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        assert ask(ada, "x" * 3_000_000).json()["error"]["code"] == "context_too_long", "the request reached the model"
        too_large = ada.post("/v1/chat/completions", content=b"x" * (33 * 2**20))
        unending = ada.post("/v1/chat/completions", content=(b"x" * 2**20 for _ in range(40)))

    assert too_large.status_code == unending.status_code == 413
    assert too_large.json()["error"]["code"] == "request_too_large"


def test_headers_have_a_limit(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        assert ada.get("/v1/sessions", headers={"x-long": "x" * 300_000}).status_code == 431


def test_an_unknown_host_is_refused(broker: Brokers) -> None:
    with broker.http("ada", headers={"host": "evil.example"}) as ada:
        assert ada.get("/v1/sessions").json()["error"]["code"] == "host_not_allowed"


def test_workers_have_limits(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        ask(ada, "hello")
    limits = Path(f"/proc/{broker.pid('ada')}/limits").read_text()

    assert re.search(rf"Max data size\s+{2048 * 2**20}\s", limits)
    assert re.search(r"Max core file size\s+0\s", limits)


def test_a_worker_has_no_access_to_the_broker(broker: Brokers) -> None:
    """Its environment names its own home, and it starts in its own directory."""
    with broker.http("ada") as ada:
        ask(ada, "hello")
    pid = broker.pid("ada")
    environment = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")

    assert f"HOME={broker.places.user('ada') / 'work'}" in environment
    assert not [line for line in environment if line.startswith(("HOLDFAST_HOME=", "HOLDFAST_STORE=", "PYTEST"))]
    assert Path(f"/proc/{pid}/cwd").readlink() == broker.places.user("ada") / "work"


# the dashboard


def log_in(broker: Brokers, http: httpx.Client, key: str) -> httpx.Response:
    return http.post("/ui/login", data={"key": key}, headers={"origin": broker.url})


def test_a_key_opens_the_dashboard_of_its_user(broker: Brokers) -> None:
    marks = {name: uuid.uuid4().hex for name in ("ada", "bo")}
    for name, mark in marks.items():
        with broker.http(name) as http:
            ask(http, f"hello {mark}")
    for name, mark in marks.items():
        with broker.http() as browser:
            assert log_in(broker, browser, broker.keys[name]).status_code == 303
            page = browser.get("/").text

        assert mark in page
        assert not [other for other in marks.values() if other != mark and other in page]


def test_without_a_key_there_is_a_login_page(broker: Brokers) -> None:
    with broker.http() as browser:
        page = browser.get("/ui/space?day=1", follow_redirects=False)
        assert page.headers["location"] == "/ui/login?next=/ui/space%3Fday%3D1"
        login_page = browser.get(page.headers["location"])
        assert "API key" in login_page.text
        assert "api-key</code>" not in login_page.text
        assert "script-src 'self'" in login_page.headers["content-security-policy"]
        assert browser.get("/ui/static/style.css").status_code == 200
        assert browser.get("/ui/static/..%2F..%2Fdoor.py").status_code == 404
        assert log_in(broker, browser, "hfu-ada.wrong").status_code == 401
        assert browser.get("/ui/pulse", headers={"accept": "text/event-stream"}).status_code == 401
        assert browser.post("/ui/login", content=b"\xff" * 10).status_code in (400, 401)
        assert browser.post("/ui/login", content=b"k" * 100_000).status_code == 400


def test_a_forged_cookie_never_starts_a_worker(new_broker: Any) -> None:
    broker = new_broker("ada")
    with broker.http() as browser:
        for value in ("1", "9999999999999999.x.y", "a.b.c"):
            name = broker.users_cookie("ada")
            answer = browser.get("/", headers={"cookie": f"{name}={value}"}, follow_redirects=False)
            assert answer.headers["location"] == "/ui/login"

    assert broker.state("ada") is None


def test_a_status_file_that_cannot_be_written_stops_nothing(broker: Brokers) -> None:
    draft = broker.places.status_file.with_suffix(".tmp")
    draft.mkdir()
    try:
        with broker.http("ada") as http:
            broker.strike("ada")  # another worker will be started, which changes the status
            assert ask(http, "hello").status_code == 200
            wait_until(lambda: "cannot write the broker's status file" in broker.process.stderr, "it is said")
            assert ask(http, "are you still there?").status_code == 200
    finally:
        draft.rmdir()


def test_a_second_login_in_one_browser_replaces_the_first(broker: Brokers) -> None:
    with broker.http("ada") as ada:
        theirs = session(ask(ada, "a secret of Ada's", headers={"x-session-key": "ada's"}))
    with broker.http() as browser:
        for name in ("ada", "bo", "ada", "bo"):
            assert log_in(broker, browser, broker.keys[name]).status_code == 303
            assert (theirs in browser.get("/").text) == (name == "ada")


@pytest.mark.parametrize("text", ["modle = 'x'", "model = ", "\0\xff"])
def test_a_user_with_settings_that_prevent_a_start_is_not_added(broker: Brokers, tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text, "latin-1")
    with pytest.raises(subprocess.CalledProcessError) as refused:
        broker.command("add", "zoe", "--json", "--config", str(tmp_path / "config.toml"))

    assert refused.value.returncode == 2
    assert "zoe" not in [one["name"] for one in broker.status()["users"]]
