"""Errors for turns that fail."""

from holdfast.api.errors import turn_error


def test_an_exception_in_a_turn_is_a_server_error_with_its_reason() -> None:
    refusal = turn_error("internal", "failed", "KeyError: 'gone'")

    assert (refusal.status, refusal.code, refusal.message) == (500, "internal", "KeyError: 'gone'")


def test_a_client_does_not_retry_a_quarantined_turn() -> None:
    refusal = turn_error("quarantined", "failed", "the worker died 3 times in a row")

    assert refusal.response().headers["x-should-retry"] == "false"
