"""`holdfast skills`: list, show and add."""

from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast


@pytest.fixture
def skill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A skill that was downloaded; the working directory is an empty project."""
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    folder = tmp_path / "downloads/forms"
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: forms\ndescription: Fills forms.\nlicense: MIT\nmetadata:\n  version: '2'\n---\nUse ink.\n"
    )
    (folder / "scripts/fill.sh").write_text("echo filled")
    (folder / "scripts/fill.sh").chmod(0o755)
    return folder


def test_a_skill_is_added_listed_and_shown(holdfast: Holdfast, skill: Path) -> None:
    assert holdfast("skills", "list").err == "no skills; add one with holdfast skills add DIRECTORY\n"

    added = holdfast("skills", "add", str(skill))

    assert added.out == f"Added the skill forms to {holdfast.home}/skills/forms; it applies from the next turn on.\n"
    (listed,) = holdfast("skills", "list", "--json").json["skills"]
    assert (listed["name"], listed["scope"], listed["description"], listed["problem"]) == (
        *("forms", "user", "Fills forms."),
        "",
    )
    assert "Fills forms." in holdfast("skills", "list").out
    shown = holdfast("skills", "show", "forms", "--json").json
    assert shown["files"] == ["scripts/fill.sh"]
    assert shown["fields"] == {"license": "MIT", "metadata.version": "2"}
    assert shown["skill"] == listed
    text = holdfast("skills", "show", "forms").out
    assert text.endswith("\nUse ink.\n") and "license: MIT\n" in text and "file: scripts/fill.sh\n" in text
    copy = holdfast.home / "skills/forms"
    assert [copy.stat().st_mode & 0o777, (copy / "SKILL.md").stat().st_mode & 0o777] == [0o700, 0o600]
    assert (copy / "scripts/fill.sh").stat().st_mode & 0o777 == 0o700


def test_a_skill_is_replaced_only_with_force(holdfast: Holdfast, skill: Path) -> None:
    holdfast("skills", "add", str(skill))
    (skill / "SKILL.md").write_text("---\nname: forms\ndescription: New.\n---\n")
    (skill / "scripts/fill.sh").unlink()

    refused = holdfast("skills", "add", str(skill))
    kept = holdfast("skills", "list", "--json").json["skills"][0]["description"]
    replaced = holdfast("skills", "add", str(skill / "SKILL.md"), "--force", "--json")

    assert refused.code != 0 and "there is a skill 'forms'; replace it with --force" in refused.err
    assert kept == "Fills forms."
    assert replaced.json["description"] == "New."
    assert holdfast("skills", "show", "forms", "--json").json["files"] == []


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("no file", "it has no SKILL.md"),
        ("no header", "does not begin with a header"),
        ("other name", "both must be the same"),
        ("link", "key is a link; a skill may contain only files and directories"),
        ("link to the file", "SKILL.md is a link; a skill may contain only files and directories"),
        ("large", "larger than 5,242,880 bytes together"),
    ],
)
def test_what_is_no_skill_is_refused_and_nothing_is_written(
    holdfast: Holdfast, skill: Path, damage: str, reason: str
) -> None:
    match damage:
        case "no file":
            (skill / "SKILL.md").unlink()
        case "no header":
            (skill / "SKILL.md").write_text("Use ink.")
        case "other name":
            skill = skill.rename(skill.with_name("other"))
        case "link":
            (skill / "key").symlink_to("/etc/passwd")
        case "link to the file":
            (skill / "SKILL.md").rename(skill.parent / "SKILL.md")
            (skill / "SKILL.md").symlink_to(skill.parent / "SKILL.md")
        case _:
            (skill / "data").write_bytes(bytes(10_000_000))

    ran = holdfast("skills", "add", str(skill))

    assert ran.code != 0 and reason in ran.err
    assert not (holdfast.home / "skills").exists()


def test_what_does_not_exist_is_said_so(holdfast: Holdfast, skill: Path) -> None:
    assert "https://x.example/y is not a directory" in holdfast("skills", "add", "https://x.example/y").err
    assert "there is no skill 'none' here" in holdfast("skills", "show", "none").err


def test_a_skill_of_the_project_hides_one_of_the_user(holdfast: Holdfast, skill: Path) -> None:
    holdfast("skills", "add", str(skill))
    near = Path(".claude/skills/forms")
    near.mkdir(parents=True)
    (near / "SKILL.md").write_text("---\nname: forms\ndescription: Near.\n---\n")

    project, user = holdfast("skills", "list", "--json").json["skills"]

    assert (project["scope"], project["problem"]) == ("project", "")
    assert user["scope"] == "user" and "is nearer" in user["problem"]
    assert "description: Near." in holdfast("skills", "show", "forms").out
