"""Guessing keys is slow: after some wrong keys an address must wait, at the API and at the dashboard's login."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from holdfast.api.transport.key_throttle import FREE_ATTEMPTS, MAX_ADDRESSES, MAX_WAIT_SECONDS, KeyThrottle
from tests.api.serving import KEY, Server
from tests.crash.programs import Process, wait_until
from tests.fakes.clock import FakeClock


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "home") as running:
        yield running


def guess(server: Server, number: int) -> httpx.Response:
    return httpx.get(f"{server.url}/v1/models", headers={"authorization": f"Bearer wrong-{number}"})


def log_in(server: Server, key: str) -> httpx.Response:
    return httpx.post(f"{server.url}/ui/login", data={"key": key})


def until_put_off(attempt: Callable[[int], httpx.Response], least_seconds: int = 4) -> list[httpx.Response]:
    """Guess until the address must wait this long; return all responses."""
    answers: list[httpx.Response] = []
    while not answers or int(answers[-1].headers.get("retry-after", "0")) < least_seconds:
        answers.append(attempt(len(answers)))
    return answers


def test_wrong_keys_are_refused_and_then_throttled(server: Server) -> None:
    answers = until_put_off(lambda number: guess(server, number))

    statuses = [answer.status_code for answer in answers]
    assert statuses[:FREE_ATTEMPTS] == [401] * FREE_ATTEMPTS
    assert statuses.count(401) <= FREE_ATTEMPTS + 3, "after that each further guess takes twice as long"
    assert answers[-1].status_code == 429
    assert answers[-1].json()["error"]["code"] == "too_many_attempts"


def test_logins_with_wrong_keys_are_throttled(server: Server) -> None:
    answers = until_put_off(lambda number: log_in(server, f"wrong-{number}"))

    assert [answer.status_code for answer in answers[:FREE_ATTEMPTS]] == [401] * FREE_ATTEMPTS
    assert answers[-1].status_code == 429
    assert log_in(server, KEY).status_code == 429, "while it waits, an address cannot find out whether a key is right"


def test_a_client_with_the_right_key_is_not_locked_out_by_others_at_its_address(server: Server) -> None:
    with server.http() as http:
        assert http.get("/v1/models").status_code == 200
        answers = until_put_off(lambda number: guess(server, number))

        assert answers[-1].status_code == 429
        assert http.get("/v1/models").status_code == 200


def test_requests_without_a_key_do_not_count_as_attempts(server: Server) -> None:
    statuses = {httpx.get(f"{server.url}/v1/models").status_code for _ in range(FREE_ATTEMPTS + 5)}

    assert statuses == {401}
    assert guess(server, 1).status_code == 401


def test_the_access_log_names_the_client_address(server: Server) -> None:
    guess(server, 1)

    log = server.home / "logs" / "holdfast.log"
    # The line is written after the answer was sent.
    wait_until(lambda: log.exists() and " GET /v1/models 401 " in log.read_text(), "the request is in the log")
    assert log.read_text().splitlines()[-1].endswith("from 127.0.0.1")


@pytest.mark.parametrize("key", ["k", "fifteen-chars-x"])
def test_a_short_key_is_refused_at_the_start(tmp_path: Path, key: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'model = "scripted:echo"\n[api]\nkey = "{key}"\n')
    (home / "config.toml").chmod(0o600)
    with Process(sys.executable, "-m", "holdfast", "--home", str(home), "serve", "--port", "0") as process:
        assert process.wait() != 0
        assert "[api] key" in process.stderr and "16" in process.stderr


def test_the_delay_doubles_up_to_a_limit_and_expires() -> None:
    clock = FakeClock()
    attempts = KeyThrottle(clock.monotonic)
    waits = []
    for _ in range(FREE_ATTEMPTS + 12):
        attempts.failed("10.0.0.1")
        waits.append(attempts.wait("10.0.0.1"))
        clock.pass_seconds(attempts.wait("10.0.0.1"))

    assert waits[: FREE_ATTEMPTS - 1] == [0] * (FREE_ATTEMPTS - 1)
    grown = waits[FREE_ATTEMPTS - 1 :]
    assert grown == sorted(grown) and grown[0] >= 1 and grown[-1] == MAX_WAIT_SECONDS
    assert attempts.wait("10.0.0.2") == 0
    clock.pass_seconds(3600)
    attempts.failed("10.0.0.1")
    assert attempts.wait("10.0.0.1") == 0


def test_addresses_of_one_ipv6_network_count_as_one() -> None:
    attempts = KeyThrottle(FakeClock().monotonic)
    for number in range(FREE_ATTEMPTS):
        attempts.failed(f"2001:db8::{number:x}")

    assert attempts.wait("2001:db8::ffff") > 0
    assert attempts.wait("2001:db8:1::1") == 0


def test_memory_is_bounded_for_any_number_of_addresses() -> None:
    attempts = KeyThrottle(FakeClock().monotonic)
    for number in range(MAX_ADDRESSES + 500):
        attempts.failed(f"host-{number}")

    assert len(attempts) <= MAX_ADDRESSES
