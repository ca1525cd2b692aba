"""`holdfast doctor` shows everything but secrets, and changes nothing."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed
from tests.store.damage import settle

pytestmark = pytest.mark.process

CONFIG = """
model = "openai:gpt-x"
[models.openai]
api_key = "sk-very-secret-indeed"
[api]
key = "another-secret"
[gateway.telegram]
token = "123:third-secret"
[mcp.files]
command = ["server"]
env = { TOKEN = "fourth-secret" }
"""


def test_a_missing_home_is_not_created(holdfast: Holdfast, home: Path) -> None:
    ran = holdfast("doctor", "--json")

    assert ran.code == 0
    assert ran.json["store"]["exists"] is False and ran.json["ok"] is True
    assert not home.exists()


def test_secrets_are_shown_as_set_and_nothing_more(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o644)

    plain, document = holdfast("doctor"), holdfast("doctor", "--json")

    for secret in ("sk-very", "another-secret", "third-secret", "fourth-secret"):
        assert secret in CONFIG
        assert secret not in plain.out + plain.err + document.out + document.err
    assert document.json["settings"]["models.openai.api_key"] == "set"
    assert document.json["settings"]["models.anthropic.api_key"] == "not set"
    (warning,) = document.json["warnings"]
    assert "chmod 600" in warning and "models, api, gateway, mcp" in warning


def test_a_private_file_with_secrets_causes_no_warning(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text(CONFIG)
    (home / "config.toml").chmod(0o600)

    assert holdfast("doctor", "--json").json["warnings"] == []


def test_a_store_that_cannot_be_written_is_a_problem(holdfast: Holdfast, seed: Seed, home: Path) -> None:
    seed.sessions(1)
    subprocess.run(["mount", "--bind", "-o", "ro", home, home], check=True)
    try:
        ran = holdfast("doctor", "--json")
    finally:
        subprocess.run(["umount", home], check=True)

    assert ran.code == 1
    assert ran.json["problems"] == [f"{home / 'holdfast.db'} is not writable, so nothing can be saved"]
    assert ran.json["store"]["sessions"] == 1


def test_a_full_disk_is_a_problem(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=700", "tmpfs", home], check=True)
    try:
        holdfast("run", "hello", "--model", "scripted:echo")
        subprocess.run(["dd", "if=/dev/zero", f"of={home / 'fill'}", "bs=4k"], check=False, capture_output=True)
        ran = holdfast("doctor", "--json")
    finally:
        subprocess.run(["umount", home], check=True)

    assert ran.code == 1
    assert ran.json["problems"] == ["the disk of the store is full, so nothing can be saved; free some space"]


def test_the_store_is_described(holdfast: Holdfast, seed: Seed) -> None:
    seed.sessions(2)
    worker = seed.worker()

    document = holdfast("doctor", "--json").json
    plain = holdfast("doctor").out

    assert (document["store"]["sessions"], document["store"]["events"]) == (2, 16)
    assert document["store"]["workers"][0]["id"] == worker
    assert worker in plain and "No problems found." in plain


def test_a_damaged_store_is_reported_without_a_crash(holdfast: Holdfast, seed: Seed) -> None:
    seed.session()
    settle(seed.path)
    content = seed.path.read_bytes()
    seed.path.write_bytes(content[:100] + b"\xff" * 4000 + content[4100:])

    ran = holdfast("doctor", "--json")

    assert ran.code == 1
    assert any("damaged" in problem for problem in ran.json["problems"])


def test_it_reports_the_active_sandbox(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)

    assert holdfast("doctor", "--json").json["sandbox"]["active"] is True
    assert "program  /" in holdfast("doctor").out


def test_a_disabled_sandbox_causes_a_warning_with_its_reason(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('[terminal]\nsandbox = "off"\n')

    document = holdfast("doctor", "--json").json

    assert document["sandbox"] == {
        "active": False,
        "program": None,
        "reason": "turned off by [terminal] sandbox",
    }
    assert "can read the home: turned off by [terminal] sandbox" in document["warnings"][0]
