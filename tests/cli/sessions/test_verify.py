"""`sessions verify` finds changes made outside the program."""

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed
from tests.store.damage import overwrite


def test_a_sound_store_verifies(holdfast: Holdfast, seed: Seed) -> None:
    seed.sessions(3, turns=2)

    ran = holdfast("sessions", "verify", "--json")

    assert (ran.code, ran.json) == (0, {"ok": True, "sessions": 3, "events": 45, "problems": []})


def test_one_session_can_be_verified(holdfast: Holdfast, seed: Seed) -> None:
    first, _ = seed.sessions(2)

    ran = holdfast("sessions", "verify", first, "--json")

    assert (ran.json["sessions"], ran.json["events"]) == (1, 8)


@pytest.mark.parametrize("as_json", [True, False])
def test_a_changed_word_is_found_and_the_exit_status_says_so(holdfast: Holdfast, seed: Seed, as_json: bool) -> None:
    seed.session("an untouched session")
    session_id = seed.session("the treasure is in Lyon")
    overwrite(seed.path, b"treasure is in Lyon", b"treasure is in Bonn")

    ran = holdfast("sessions", "verify", *(["--json"] if as_json else []))

    assert ran.code == 1
    if as_json:
        (problem,) = ran.json["problems"]
        assert (problem["session_id"], problem["seq"]) == (session_id, 3)
        assert ran.json["sessions"] == 2
    else:
        assert session_id in ran.out and "event 3 was changed" in ran.out and "1 problem" in ran.out
