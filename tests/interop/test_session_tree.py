"""A drawn tree connects each session with its parent."""

import pytest

from holdfast.interop.session_tree import draw_branches


@pytest.mark.parametrize(
    ("depths", "drawn"),
    [
        ([], []),
        ([0, 0], ["", ""]),
        ([0, 1, 1, 0, 1], ["", "├ ", "└ ", "", "└ "]),
        ([0, 1, 2, 2, 1, 2], ["", "├ ", "│ ├ ", "│ └ ", "└ ", "  └ "]),
    ],
)
def test_each_node_is_connected_with_its_parent(depths: list[int], drawn: list[str]) -> None:
    assert draw_branches(depths) == drawn
