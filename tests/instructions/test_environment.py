"""What the model is told about where it works."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.instructions.environment import describe_environment, find_branch

NOON = datetime(2026, 11, 18, 12, 0, tzinfo=UTC)


def test_it_states_date_system_directory_and_branch(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text("ref: refs/heads/feature/x\n")

    text = describe_environment(NOON, tmp_path, "bubblewrap").text

    assert "Date: Wednesday, 18 November 2026 (UTC)" in text
    assert "Operating system: " in text
    assert f"Working directory: {tmp_path}" in text
    assert "Git branch: feature/x" in text
    assert "Commands run in: bubblewrap" in text


def test_it_is_the_same_all_day(tmp_path: Path) -> None:
    texts = {describe_environment(NOON.replace(hour=hour), tmp_path, "local").text for hour in range(24)}

    assert len(texts) == 1


def test_without_a_directory_nothing_of_the_host_but_its_system_is_named() -> None:
    lines = describe_environment(NOON, None, "local").text.splitlines()

    assert [line.partition(":")[0] for line in lines] == ["# Environment", "- Date", "- Operating system"]


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("0123456789" * 4 + "\n", "none, at commit 012345678901"),
        ("root:x:0:0\n", ""),
        ("ref: refs/heads/" + "x" * 5000, ""),
        ("", ""),
    ],
)
def test_the_branch_is_read_from_the_repository_without_starting_git(tmp_path: Path, head: str, branch: str) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git/HEAD").write_text(head)
    (tmp_path / "deep").mkdir()

    assert find_branch(tmp_path / "deep") == branch


def test_the_branch_of_a_linked_worktree_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "main/.git/worktrees/side").mkdir(parents=True)
    (tmp_path / "main/.git/worktrees/side/HEAD").write_text("ref: refs/heads/side\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {tmp_path}/main/.git/worktrees/side\n")

    assert find_branch(tmp_path / "side") == "side"


def test_a_repository_that_points_elsewhere_reveals_nothing(tmp_path: Path) -> None:
    (tmp_path / "HEAD").write_text("a secret\n")
    (tmp_path / "side").mkdir()
    (tmp_path / "side/.git").write_text(f"gitdir: {tmp_path}\n")

    assert find_branch(tmp_path / "side") == ""


@pytest.mark.parametrize("target", ["x" * 300, "/" + "x/" * 2040, ".git", "/dev/zero", "/proc/1/root"])
def test_a_repository_that_is_a_link_to_something_else_has_no_branch(tmp_path: Path, target: str) -> None:
    (tmp_path / ".git").symlink_to(target)

    assert find_branch(tmp_path) == ""
