"""Timeouts for the response of a provider."""

import msgspec

from holdfast.model.errors import Unreachable


class RequestTimeouts(msgspec.Struct, frozen=True, kw_only=True):
    connect_seconds: float = 10.0
    first_seconds: float = 600.0
    """Until the first event, and between two events: models that reason without output take minutes, and so do long
    contexts on small machines."""
    idle_seconds: float = 120.0
    """Without any byte, once the reply has begun."""


DEFAULT_TIMEOUTS = RequestTimeouts()


def timeout_error(who: str, seconds: float) -> Unreachable:
    return Unreachable(f"{who} sent nothing for {seconds:g} s: try again later or choose another model")


def connection_error(who: str) -> Unreachable:
    return Unreachable(f"the connection to {who} failed: check the address and the network, or try again later")


def proxy_refusal(who: str, status: int) -> Unreachable:
    return Unreachable(f"the proxy refused the connection to {who} ({status}): check its URL")


def proxy_failure(who: str) -> Unreachable:
    return Unreachable(
        f"the connection to the proxy for {who} failed: check the address of the proxy, or try again later"
    )
