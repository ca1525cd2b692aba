"""Rules for Dockerfile and compose.yaml that need no container engine."""

import json
import re

import pytest
import yaml

from holdfast.cli.service.unit import STOP_SECONDS
from holdfast.config import SECRET_FILES
from holdfast.engine.engine import DRAIN_SECONDS
from holdfast.settings import ApiSettings
from tests.packaging.wheelhouse import ROOT

LONGEST_DRAIN = DRAIN_SECONDS + ApiSettings().handover_seconds


@pytest.fixture
def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile with their arguments."""
    text = (ROOT / "Dockerfile").read_text()
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line.strip()]


@pytest.fixture
def compose():
    return yaml.safe_load((ROOT / "compose.yaml").read_text())


def arguments(steps, instruction):
    return [text for name, text in steps if name == instruction]


def test_the_last_stage_runs_as_an_unprivileged_user_with_an_init(steps):
    [user] = arguments(steps, "USER")
    assert int(user.split(":")[0]) >= 1000
    assert json.loads(arguments(steps, "ENTRYPOINT")[0])[0] == "tini", "an init reaps orphans and passes SIGTERM on"
    assert json.loads(arguments(steps, "CMD")[0])[0] == "serve"
    assert arguments(steps, "STOPSIGNAL") == ["SIGTERM"]
    assert arguments(steps, "VOLUME") == ["/data"]
    assert "/health'" in arguments(steps, "HEALTHCHECK")[0]


def test_the_base_can_be_chosen_and_has_a_version(steps):
    assert steps[0] == ("ARG", "BASE=docker.io/library/python:3.13-slim-bookworm")
    assert {text.split(" AS ")[0] for text in arguments(steps, "FROM")} == {"${BASE}"}


def test_the_image_has_no_caches_and_no_secrets(steps):
    assert not arguments(steps, "ADD")
    for run in arguments(steps, "RUN"):
        assert "apt-get install" not in run or ("--no-install-recommends" in run and "rm -rf /var/lib/apt/lists" in run)
        assert "pip install" not in run or "--no-cache-dir" in run
    for text in arguments(steps, "ENV") + arguments(steps, "ARG"):
        assert not re.search("KEY|SECRET|TOKEN|PASSWORD", text)


def test_everything_that_is_copied_exists_and_is_sent_to_the_engine(steps):
    allowed = {line.removeprefix("!") for line in (ROOT / ".dockerignore").read_text().splitlines() if line[0] == "!"}
    copied = [text.split()[:-1] for text in arguments(steps, "COPY") if not text.startswith("--from")]

    assert {name for names in copied for name in names} == allowed
    assert all((ROOT / name).exists() for name in allowed)


def test_the_services_are_private_and_read_their_secrets_from_files(compose):
    holdfast, postgres = compose["services"]["holdfast"], compose["services"]["postgres"]

    assert all(port.startswith("127.0.0.1:") for port in holdfast["ports"])
    assert "ports" not in postgres
    assert postgres["healthcheck"]["test"]
    assert holdfast["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    given = {name for name in holdfast["environment"] if name.endswith("_FILE")}
    assert given <= SECRET_FILES.keys()
    for service in (holdfast, postgres):
        files = {str(value) for value in service["environment"].values() if str(value).startswith("/run/secrets/")}
        assert files == {f"/run/secrets/{name}" for name in service["secrets"]}
    assert set(compose["secrets"]) == set(holdfast["secrets"]) | set(postgres["secrets"])


def test_the_engine_and_systemd_wait_longer_than_a_drain_takes(compose):
    assert int(compose["services"]["holdfast"]["stop_grace_period"].removesuffix("s")) > LONGEST_DRAIN
    assert STOP_SECONDS > LONGEST_DRAIN
