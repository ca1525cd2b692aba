"""Permission modes."""

import itertools

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.mode import MODE_HELP, MODES, Mode, least_permissive, model_note, next_mode, parse_mode


def test_a_sub_agent_is_never_more_permissive_than_any_of_its_ancestors() -> None:
    for own, parent, grandparent in itertools.product(MODES, repeat=3):
        found = least_permissive(own, parent, grandparent)

        assert all(MODES.index(found) <= MODES.index(one) for one in (own, parent, grandparent))
        assert found in (own, parent, grandparent)


def test_the_key_cycles_through_the_modes_but_never_to_trusted() -> None:
    mode: Mode = "edits"
    seen: list[Mode] = []
    for _ in range(3):
        mode = next_mode(mode)
        seen.append(mode)

    assert seen == ["plan", "ask", "edits"]
    assert next_mode("trusted") == "ask"


def test_the_model_is_told_every_change_and_the_end_of_plan_mode() -> None:
    for before, after in itertools.permutations(MODES, 2):
        told = model_note(after, before)
        assert after in told
        assert ("Plan mode has ended" in told) == (before == "plan")
    assert model_note("edits") == ""
    assert "read-only" in model_note("plan")


def test_a_mode_is_named_exactly() -> None:
    assert parse_mode(" Plan ") == "plan"
    assert set(MODE_HELP) == set(MODES)
    with pytest.raises(Invalid, match="plan, ask, edits or trusted"):
        parse_mode("yolo")
