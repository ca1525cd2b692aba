"""Derives metrics from the spans of ended turns. Pure. Each export has the values since the one before (delta)."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from holdfast.telemetry.turn_spans import Attributes, Span

SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = (1, 4, 16, 64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304, 16777216, 67108864)
"""The bounds that the conventions recommend for durations of model calls and for tokens."""
MICROS = 1_000_000
KEPT = ("gen_ai.operation.name", "gen_ai.provider.name", "gen_ai.request.model", "gen_ai.tool.name")
"""The attributes of a span that its measurements keep: few values each, no ids."""


class Instrument(msgspec.Struct, frozen=True):
    """A histogram."""

    name: str
    unit: str
    description: str
    bounds: tuple[float, ...]


MODEL_SECONDS = Instrument("gen_ai.client.operation.duration", "s", "Duration of model calls.", SECONDS)
MODEL_TOKENS = Instrument("gen_ai.client.token.usage", "{token}", "Tokens of model calls.", TOKENS)
TOOL_SECONDS = Instrument("holdfast.tool.duration", "s", "Duration of tool calls.", SECONDS)
TURN_SECONDS = Instrument("holdfast.turn.duration", "s", "Duration of turns.", SECONDS)


class HistogramPoint(msgspec.Struct):
    """The measurements of one instrument with the same attributes."""

    instrument: Instrument
    attributes: Attributes
    counts: list[int]
    total: float = 0.0


def histogram_points(spans: Iterable[Span]) -> list[HistogramPoint]:
    """The points of an export, one for each instrument and set of attributes."""
    points: dict[tuple[str, frozenset[tuple[str, object]]], HistogramPoint] = {}
    for instrument, attributes, value in _measurements(spans):
        key = instrument.name, frozenset(attributes.items())
        point = points.setdefault(key, HistogramPoint(instrument, attributes, [0] * (len(instrument.bounds) + 1)))
        point.counts[bisect_left(instrument.bounds, value)] += 1
        point.total += value
    return list(points.values())


def _measurements(spans: Iterable[Span]) -> Iterator[tuple[Instrument, Attributes, float]]:
    for span in spans:
        attributes = {name: span.attributes[name] for name in KEPT if name in span.attributes}
        failed: Attributes = {"error.type": span.error} if span.error else {}
        seconds = (span.end - span.start) / MICROS
        match span.attributes.get("gen_ai.operation.name"):
            case "chat":
                yield MODEL_SECONDS, attributes | failed, seconds
                for kind in ("input", "output"):
                    tokens = span.attributes[f"gen_ai.usage.{kind}_tokens"]
                    assert isinstance(tokens, int)
                    yield MODEL_TOKENS, {**attributes, "gen_ai.token.type": kind}, tokens
            case "execute_tool":
                yield TOOL_SECONDS, attributes | failed, seconds
            case "invoke_agent":
                outcome = span.attributes.get("holdfast.turn.outcome", "")
                yield TURN_SECONDS, {**attributes, "holdfast.turn.outcome": outcome}, seconds
            case _:
                pass
