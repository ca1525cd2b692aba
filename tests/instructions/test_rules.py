"""Project rules: which files apply, in which order, and what happens to those that cannot be used."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.instructions import text_file
from holdfast.instructions.rules import MAX_FILE, load_rules
from holdfast.model.event import InstructionsLoaded
from holdfast.model.instructions import LoadedPart, changed_parts


def record(part: LoadedPart, before: InstructionsLoaded | None = None) -> InstructionsLoaded | None:
    """The recorded event after a turn has begun with this part."""
    events = changed_parts("turn-1", {} if before is None else {"rules": before}, [part])
    return events[0] if events else before


def loaded(workdir: Path | None, home: Path) -> InstructionsLoaded:
    found = record(load_rules(workdir, home, None))
    assert found is not None
    return found


def test_the_files_from_the_repository_root_to_the_working_directory_apply_and_the_nearest_comes_last(
    home: Path, project: Path
) -> None:
    (project.parent / "AGENTS.md").write_text("outside of the repository")
    for number, path in enumerate(("AGENTS.md", "CLAUDE.md", "deep/CLAUDE.md", "deep/er/AGENTS.md")):
        (project / path).write_text(f"rule {number}\n")
    (home / "AGENTS.md").write_text("mine")

    text = load_rules(project / "deep/er", home, None).text

    places = [text.index(words) for words in ("mine", "rule 0", "rule 1", "rule 2", "rule 3")]
    assert places == sorted(places)
    assert "outside" not in text


def test_outside_a_repository_only_the_working_directory_is_searched(home: Path, tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("planted")
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain/AGENTS.md").write_text("here")

    text = load_rules(tmp_path / "plain", home, None).text

    assert "here" in text
    assert "planted" not in text


def test_the_search_ends_at_a_directory_of_another_user(home: Path, tmp_path: Path) -> None:
    shared, own = tmp_path / "shared", tmp_path / "shared/own"
    own.mkdir(parents=True)
    (shared / ".git").mkdir()
    (shared / "AGENTS.md").write_text("planted")
    (own / "AGENTS.md").write_text("here")
    if os.geteuid() == 0:
        os.chown(own, 1234, 1234)
    else:  # only root can give a directory away; /tmp belongs to root
        own = Path("/tmp")

    text = load_rules(own, home, None).text

    assert "planted" not in text


def test_a_file_of_another_user_is_refused(project: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "AGENTS.md").write_text("planted")
    status = (project / "AGENTS.md").stat()
    foreign = os.stat_result((*status[:4], 4321, *status[5:10]))
    monkeypatch.setattr(text_file.os, "fstat", lambda _: foreign)

    part = load_rules(project, home, None)

    assert part.text == ""
    assert part.notices == (f"{project}/AGENTS.md is not used: it belongs to another user",)


@pytest.mark.parametrize(
    ("target", "notice"),
    [
        ("/etc/passwd", "it is a link to a file outside the project"),
        ("../secret.md", "it is a link to a file outside the project"),
        (".env", "it is a link to a file that is not a .md file"),
        ("nowhere.md", "it is a link to nothing"),
        ("AGENTS.md", "Too many levels of symbolic links"),
    ],
)
def test_a_link_must_lead_to_a_text_in_the_project(project: Path, home: Path, target: str, notice: str) -> None:
    (project.parent / "secret.md").write_text("SECRET")
    (project / ".env").write_text("SECRET=1")
    (project / "AGENTS.md").symlink_to(target)

    part = load_rules(project, home, None)

    assert part.text == ""
    assert part.notices == (f"{project}/AGENTS.md is not used: {notice}",)


def test_a_link_within_the_project_is_followed_and_the_same_text_is_shown_once(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("be brief")
    (project / "CLAUDE.md").symlink_to("AGENTS.md")

    assert load_rules(project, home, None).text.count("be brief") == 1


@pytest.mark.parametrize(
    ("content", "notice"),
    [
        (b"\x89PNG\0\xff", "it is not UTF-8 text"),
        (b"a\0b", "it is a binary file"),
        (b"caf\xe9", "it is not UTF-8 text"),
        (b"x" * 10_000_000, "it has 10,000,000 bytes; at most 1,048,576 are read"),
    ],
)
def test_a_file_that_is_not_a_text_of_sensible_size_is_refused(
    project: Path, home: Path, content: bytes, notice: str
) -> None:
    (project / "AGENTS.md").write_bytes(content)
    (project / "CLAUDE.md").write_text("be brief")

    part = load_rules(project, home, None)

    assert f"{project}/AGENTS.md is not used: {notice}" in part.notices
    assert "be brief" in part.text


def test_a_pipe_or_a_directory_does_not_block(project: Path, home: Path) -> None:
    os.mkfifo(project / "AGENTS.md")
    (project / "CLAUDE.md").mkdir()

    part = load_rules(project, home, None)

    assert part.text == ""
    assert len(part.notices) == 2


def test_a_long_file_is_cut_at_a_line_and_the_notice_says_so(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("a rule\n" * 10_000)

    part = load_rules(project, home, None)

    (source,) = part.sources
    assert source.cut
    assert MAX_FILE - 7 < source.shown <= MAX_FILE
    assert part.text[source.start : source.start + source.shown].endswith("a rule\n")
    assert part.notices == (
        f"{project}/AGENTS.md was loaded; only its first {source.shown:,} characters are used, because it has 70,000 bytes",
    )


def test_if_there_is_too_much_the_nearest_files_are_shown(project: Path, home: Path) -> None:
    for folder in (project, project / "deep", project / "deep/er"):
        (folder / "AGENTS.md").write_text(f"of {folder.name}\n" * 10)

    part = load_rules(project / "deep/er", home, None, limit=83)

    assert [source.shown > 0 for source in part.sources] == [False, True, True]
    assert len(part.text) < 600


def test_a_byte_order_mark_and_strange_names_are_no_problem(tmp_path: Path, home: Path) -> None:
    folder = tmp_path / "new\nline \x1b[31m"
    folder.mkdir()
    (folder / "AGENTS.md").write_bytes(b"\xef\xbb\xbfbe brief")

    part = load_rules(folder, home, None)

    assert "\nbe brief" in part.text
    assert "\x1b" not in part.text
    assert "\n" not in part.notices[0]


def test_a_file_that_is_gone_keeps_its_recorded_text_and_this_is_announced_once(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("be brief")
    first = loaded(project, home)
    (project / "AGENTS.md").unlink()

    second = load_rules(project, home, first)
    third = load_rules(project, home, record(second, first))

    assert second.text == first.text
    assert second.notices == (
        f"{project}/AGENTS.md: it no longer exists; this session keeps its text. An empty file in its place drops it",
    )
    assert third.text == first.text
    assert changed_parts("t", {"rules": record(second, first)}, [third]) == []  # type: ignore[dict-item]


def test_an_empty_file_drops_the_text_for_good(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("be brief")
    first = loaded(project, home)
    (project / "AGENTS.md").write_text("")
    second = record(load_rules(project, home, first), first)
    (project / "AGENTS.md").unlink()

    third = load_rules(project, home, second)

    assert second is not None
    assert (second.text, third.text) == ("", "")
    assert second.notices == (f"{project}/AGENTS.md was changed",)


def test_a_whole_directory_that_is_gone_keeps_its_rules(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("be brief")
    first = loaded(project, home)
    project.rename(project.with_name("moved"))

    assert load_rules(project, home, first).text == first.text


def test_a_renamed_file_is_not_applied_twice(project: Path, home: Path) -> None:
    (project / "CLAUDE.md").write_text("be brief")
    first = loaded(project, home)
    (project / "CLAUDE.md").rename(project / "AGENTS.md")

    assert load_rules(project, home, first).text.count("be brief") == 1


def test_a_file_that_became_unreadable_keeps_its_recorded_text(project: Path, home: Path) -> None:
    (project / "AGENTS.md").write_text("be brief")
    first = loaded(project, home)
    (project / "AGENTS.md").write_bytes(b"\xff\xfe")
    second = load_rules(project, home, first)

    assert second.text == first.text
    assert "it is not UTF-8 text; this session keeps its text" in second.notices[0]


def test_rules_of_a_directory_that_is_no_longer_the_working_directory_no_longer_apply(
    project: Path, home: Path
) -> None:
    (project / "deep/AGENTS.md").write_text("be brief")
    first = loaded(project / "deep", home)

    part = load_rules(project, home, first)

    assert part.text == ""
    assert part.notices == (f"{project}/deep/AGENTS.md no longer applies",)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(
    edits=st.lists(
        st.tuples(
            st.sampled_from(["AGENTS.md", "CLAUDE.md", "deep/AGENTS.md"]),
            st.sampled_from([b"one", b"two\n", b"", None, b"\xff", b"long\n" * 30]),
        ),
        max_size=8,
    )
)
def test_whatever_happens_to_the_files_what_is_recorded_is_what_the_model_is_told(
    tmp_path: Path, edits: list[tuple[str, bytes | None]]
) -> None:
    """After each edit: the places of the sources are right, nothing changes without an edit, and a text is never lost."""
    home, project = tmp_path / "home", tmp_path / "project"
    for path in (home, project / ".git", project / "deep"):
        path.mkdir(parents=True, exist_ok=True)
    for name in ("AGENTS.md", "CLAUDE.md", "deep/AGENTS.md"):
        (project / name).unlink(missing_ok=True)
    recorded: InstructionsLoaded | None = None
    for name, content in edits:
        if content is None:
            (project / name).unlink(missing_ok=True)
        else:
            (project / name).write_bytes(content)
        part = load_rules(project / "deep", home, recorded, limit=100)
        recorded = record(part, recorded)
        for source in part.sources:
            if source.path == str(project / name) and content in (b"one", b"two\n"):
                shown = part.text[source.start : source.start + source.shown]
                assert not source.refused
                assert "one".startswith(shown) or "two".startswith(shown), "at most cut"
        again = load_rules(project / "deep", home, recorded, limit=100)
        assert changed_parts("t", {} if recorded is None else {"rules": recorded}, [again]) == []
