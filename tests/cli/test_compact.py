"""`holdfast compact`, pinned messages, and what `run` and `why` say about compactions."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed

pytestmark = pytest.mark.process

WORDS = "something about the garden and the rain and the bees " * 6


@pytest.fixture
def env(tmp_path: Path, home: Path) -> dict[str, str]:
    """A model that echoes, and another that writes summaries."""
    script = tmp_path / "summary.json"
    script.write_text(json.dumps({"steps": [{"say": "They talked about bees."}], "loop": True}))
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(f'[context]\nsummary_model = "scripted:{script}"\nkeep_last = 2\n')
    return {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:echo", "HOLDFAST_CONTEXT_TOKENS": "4000"}


def conversation(holdfast: Holdfast, env: dict[str, str], turns: int) -> str:
    for number in range(turns):
        ran = holdfast.process("run", f"Turn {number}: {WORDS}", "--key", "bees", "--json", env=env)
        assert ran.code == 0, ran.err
    return str(ran.json["session_id"])


def test_promise_16_and_17_a_session_is_compacted_explained_and_restored(
    holdfast: Holdfast, env: dict[str, str]
) -> None:
    session_id = conversation(holdfast, env, 6)
    count = holdfast("sessions", "show", session_id, "--json").json["message_count"]
    done = holdfast.process("compact", session_id, "--about", "the bees", "--json", env=env)
    why = holdfast.process("why", session_id, "--json", env=env).json
    words = holdfast.process("why", session_id, env=env).out
    undone = holdfast.process("compact", "--undo", session_id, "--json", env=env)
    again = holdfast.process("compact", "--undo", session_id, env=env)
    shown = holdfast("sessions", "show", session_id, "--json").json

    assert (done.code, undone.code, again.code) == (0, 0, 2)
    assert done.json["session_id"] == session_id
    assert (done.json["compacted"], done.json["epoch"], done.json["how"]) == (True, 1, "summary")
    assert (done.json["summary"], done.json["about"]) == ("They talked about bees.", "the bees")
    assert done.json["tokens_after"] < done.json["tokens_before"]
    assert (why["context"]["epoch"], why["context"]["window"]) == (1, 4000)
    assert why["context"]["last"]["upto_seq"] == done.json["upto_seq"]
    assert "context: epoch 1" in words
    assert "the context was compacted (summary, epoch 1)" in words
    assert undone.json == {"session_id": session_id, "epoch": 0, "undone": True}
    assert "nothing to undo" in again.err
    assert (shown["epoch"], shown["message_count"]) == (0, count)


def test_a_compaction_without_gain_is_reported_with_a_status(holdfast: Holdfast, env: dict[str, str]) -> None:
    session_id = conversation(holdfast, env, 1)

    ran = holdfast.process("compact", session_id, env=env)
    as_json = holdfast.process("compact", session_id, "--json", env=env)

    assert (ran.code, as_json.code) == (1, 1)
    assert "was not compacted" in ran.out
    assert (as_json.json["compacted"], as_json.json["code"]) == (False, "no_gain")
    assert holdfast.process("compact", "hf-99999999999999999999", env=env).code == 3
    assert holdfast.process("compact", session_id, "--undo", "--about", "x", env=env).code == 2


def test_promise_16_run_says_whether_its_turn_compacted(holdfast: Holdfast, env: dict[str, str]) -> None:
    replies = []
    for number in range(12):
        ran = holdfast.process("run", f"Turn {number}: {WORDS * 4}", "--key", "bees", "--json", env=env)
        assert ran.code == 0, ran.err
        replies.append(ran.json)

    assert len({reply["session_id"] for reply in replies}) == 1
    assert [reply["epoch"] for reply in replies] == sorted(reply["epoch"] for reply in replies)
    epochs = [0, *(reply["epoch"] for reply in replies)]
    assert [reply["compacted"] for reply in replies] == [now > before for before, now in pairwise(epochs)]
    assert replies[-1]["epoch"] > 0


def test_a_message_is_pinned_and_unpinned(holdfast: Holdfast, env: dict[str, str]) -> None:
    session_id = conversation(holdfast, env, 6)
    messages = holdfast("sessions", "show", session_id, "--json").json["messages"]
    first = messages[0]["seq"]
    pinned = holdfast("sessions", "pin", session_id, "--message", str(first))
    done = holdfast.process("compact", session_id, "--json", env=env).json
    unpinned = holdfast("sessions", "pin", session_id, "--message", str(first), "--off")
    wrong = holdfast("sessions", "pin", session_id, "--message", "1")

    assert pinned.out == f"Pinned message {first} of {session_id}\n"
    assert done["pinned"] == [first]
    assert unpinned.out == f"Unpinned message {first} of {session_id}\n"
    assert (wrong.code, "session_opened" in wrong.err) == (2, True)
    assert holdfast("sessions", "show", session_id, "--json").json["pinned"] == 0, "the session itself is not"


def test_promise_18_fallback_models_write_the_summary_when_the_first_fails(
    holdfast: Holdfast, env: dict[str, str], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text(json.dumps({"steps": [{"say": ""}], "loop": True}))
    config = holdfast.home / "config.toml"
    good = config.read_text().split('"')[1]
    config.write_text(
        f'fallback_models = ["scripted:{broken}", "{good}"]\n[context]\nsummary_model = "scripted:{broken}"\n'
    )
    session_id = conversation(holdfast, env, 8)

    done = holdfast.process("compact", session_id, "--json", env=env).json

    assert (done["how"], done["model"]) == ("summary", good)
    assert f"scripted:{broken}: the summary is empty" in done["reason"]
    assert "scripted:echo: the summary" in done["reason"], "the session's own model was called, too"


def test_promise_11_a_session_held_by_another_process_is_busy(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(turns=9)
    worker_id = seed.worker(holds=session_id)

    ran = holdfast.process("compact", session_id)

    assert ran.code == 4
    assert f"held by {worker_id}" in ran.err
