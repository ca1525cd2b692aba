"""Memory with real processes and a model server that records what it is sent; and the commands."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.api.serving import recording_vendor
from tests.cli.conftest import ENVIRONMENT, Holdfast


def texts(holdfast: Holdfast, *options: str) -> list[str]:
    return [fact["text"] for fact in holdfast("memory", "list", "--json", *options).json["facts"]]


def test_commands_change_and_export_facts(holdfast: Holdfast, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert holdfast("memory").out == "No facts.\n"
    assert holdfast("memory", "add", "likes tea", "--json").json["id"] == "fact-1"
    assert (
        holdfast("memory", "add", "uses make", "--scope", "project").out == f"Saved as fact-2 (project {tmp_path}).\n"
    )
    assert holdfast("memory", "add", "for all", "--scope", "global").code == 0
    assert holdfast("memory", "add", "Ann's", "--owner", "telegram:1").code == 0
    assert texts(holdfast) == ["for all", "uses make", "likes tea"]
    assert texts(holdfast, "--scope", "project") == ["uses make"]
    assert texts(holdfast, "--owner", "telegram:1") == ["Ann's", "for all"]
    assert texts(holdfast, "--all") == ["Ann's", "for all", "uses make", "likes tea"]
    assert texts(holdfast, "TEA") == ["likes tea"]
    assert holdfast("memory", "list", "--limit", "1", "--json").json["next"] == "fact-3"

    assert holdfast("memory", "correct", "fact-1", "likes coffee").out == "fact-5 replaces fact-1.\n"
    shown = holdfast("memory", "show", "1", "--json").json
    assert [one["state"] for one in shown["versions"]] == ["superseded", "current"]
    assert shown["fact"]["replaced_by"] == "fact-5"
    assert "superseded by fact-5" in holdfast("memory", "show", "1").out
    assert holdfast("memory", "forget", "1", "4").out == "Forgot fact-1 (2 versions).\nForgot fact-4 (1 version).\n"
    assert texts(holdfast, "--all") == ["for all", "uses make"]
    assert "coffee" not in holdfast("memory", "show", "1").out

    exported = [json.loads(line) for line in holdfast("memory", "export").out.splitlines()]
    assert holdfast("memory", "export", "-").out == holdfast("memory", "export").out
    assert exported[0] == {"format": "holdfast-memory", "version": 1, "facts": 2}
    assert [one["text"] for one in exported[1:]] == ["uses make", "for all"]
    file = tmp_path / "facts.jsonl"
    assert holdfast("memory", "export", str(file), "--all", "--history").out == f"Wrote 5 facts to {file}\n"
    assert "coffee" not in file.read_text()


@pytest.mark.parametrize(
    ("args", "code", "expected"),
    [
        (("add", ""), 2, "the fact has no text"),
        (("add", "x" * 1001), 2, "1,001 characters"),
        (("add", "x", "--owner", "bob"), 2, "unknown owner 'bob'"),
        (("add", "x", "--scope", "mine"), 2, "'mine' is not one of"),
        (("show", "nothing"), 3, "the id of a fact is like fact-12"),
        (("show", "7"), 3, "there is no fact-7"),
        (("forget", "1", "7"), 3, "there is no fact-7"),
        (("correct", "2", "again"), 1, "fact-3 is the newer version"),
        (("export", "/"), 2, "directory"),
    ],
)
def test_wrong_input_is_answered_with_what_to_do(
    holdfast: Holdfast, args: tuple[str, ...], code: int, expected: str
) -> None:
    for text in ("one", "two"):
        holdfast("memory", "add", text)
    holdfast("memory", "correct", "2", "three")

    ran = holdfast("memory", *args)

    assert (ran.code, ran.out) == (code, "")
    assert expected in ran.err
    assert texts(holdfast) == ["three", "one"], "nothing was changed"


@pytest.fixture
def record(tmp_path: Path) -> Path:
    return tmp_path / "requests.jsonl"


@pytest.fixture
def vendor(record: Path) -> Iterator[dict[str, str]]:
    """The environment for a model server that records its requests."""
    with recording_vendor(record) as url:
        yield {**ENVIRONMENT, "OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": url, "HOLDFAST_MODEL": "openai:gpt-fake"}


def system_texts(record: Path) -> list[str]:
    bodies: list[dict[str, Any]] = [json.loads(line) for line in record.read_text().splitlines()]
    return [
        "\n".join(str(one["content"]) for one in body["messages"] if one["role"] in ("system", "developer"))
        for body in bodies
        if body.get("tools")
    ]


@pytest.mark.process
def test_promise_29_the_model_server_receives_what_is_on_record(
    holdfast: Holdfast, vendor: dict[str, str], record: Path, tmp_path: Path
) -> None:
    project, other = tmp_path / "project", tmp_path / "other"
    for folder in (project, other):
        folder.mkdir()
    call = 'use tool remember {"fact": "The tests need 茶.", "scope": "project"}'
    assert holdfast.process("run", call, cwd=project, env=vendor).code == 0
    assert texts(holdfast) == ["The tests need 茶."]
    record.write_text("")

    first = holdfast.process("run", "Hello", "--json", cwd=project, env=vendor).json["session_id"]
    holdfast.process("run", "Hello", cwd=other, env=vendor)
    holdfast("memory", "forget", "1")
    holdfast.process("run", "Again", "--session", first, cwd=project, env=vendor)

    assert ["The tests need 茶." in text for text in system_texts(record)] == [True, False, False]
    events = holdfast("sessions", "show", first, "--events", "--json").json["events"]
    parts = [event["body"] for event in events if event["kind"] == "instructions_loaded"]
    recorded = [part.get("text", "") for part in parts if part["part"] == "memory"]
    assert recorded[0] in system_texts(record)[0]
    assert recorded[1:] == [""]


@pytest.mark.process
def test_a_fact_of_a_turn_that_was_killed_is_there_once(
    holdfast: Holdfast, scripted: Callable[..., str], tmp_path: Path
) -> None:
    calls = [
        {"name": "remember", "arguments": {"fact": "It was killed."}},
        {"name": "terminal", "arguments": {"command": "touch begun; sleep 30"}},
    ]
    environment = {**ENVIRONMENT, "HOLDFAST_MODEL": scripted({"call": calls}, {"say": "done"})}
    holdfast.home.mkdir(mode=0o700, exist_ok=True)
    (holdfast.home / "config.toml").write_text('[agent]\napprovals = "allow"\n')
    holdfast.kill_once_there(tmp_path / "begun", "run", "Go", "--key", "k", cwd=tmp_path, env=environment)

    holdfast.process("run", "Again", "--key", "k", cwd=tmp_path, env=environment)

    (fact,) = holdfast("memory", "list", "--history", "--json").json["facts"]
    assert fact["text"] == "It was killed."
    events = holdfast("sessions", "show", fact["session_id"], "--events", "--json").json["events"]
    assert [event["seq"] for event in events if event["kind"] == "fact_remembered"] == [fact["seq"]]
    assert holdfast("sessions", "verify").code == 0
