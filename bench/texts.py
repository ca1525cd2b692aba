"""Messages that read like prose: slices of the Python manual's topics, each with a word and a number of its own."""

import hashlib
import itertools
from collections.abc import Iterator
from functools import cache
from pydoc_data.topics import topics

from holdfast.model.event import Event, ModelSaid, TurnEnded, TurnStarted, Usage, UserSaid
from holdfast.model.message import Text

MESSAGE_BYTES = 1024
STRIDE = 997
"""Prime, so that slices seldom begin at the same place."""


@cache
def corpus() -> str:
    return "\n".join(topics[name] for name in sorted(topics)).encode("ascii", "ignore").decode("ascii")


def name(number: int) -> str:
    """A word of letters that is in one message only, as an identifier might be; its trigrams are rare too."""
    digest = hashlib.sha256(str(number).encode("ascii")).digest()
    return "".join(chr(ord("a") + byte % 26) for byte in digest[:12])


def numeral(number: int) -> str:
    """A number that is in one message only, while all its trigrams are in many."""
    return f"{number:09}"


def text(number: int) -> str:
    """The nth message, of exactly MESSAGE_BYTES bytes."""
    words = corpus()
    start = number * STRIDE % (len(words) - MESSAGE_BYTES)
    return f"{name(number)} {numeral(number)} {words[start : start + MESSAGE_BYTES]}"[:MESSAGE_BYTES]


def said(number: int) -> ModelSaid:
    """The nth message as the model's."""
    return reply(text(number), f"turn-{number:020}")


def reply(content: str, turn_id: str = "turn-bench") -> ModelSaid:
    """A reply of the model with this text."""
    return ModelSaid(
        turn_id=turn_id,
        parts=(Text(content),),
        model="scripted:bench",
        finish="stop",
        usage=Usage(tokens_in=250, tokens_out=250),
    )


def turn(number: int) -> list[Event]:
    """A whole turn of two messages, the one of this number and the next."""
    turn_id = f"turn-{number:020}"
    return [
        TurnStarted(turn_id=turn_id, worker_id="worker-bench"),
        UserSaid(turn_id=turn_id, parts=(Text(text(number)),)),
        said(number + 1),
        TurnEnded(turn_id=turn_id, outcome="done", usage=Usage(tokens_in=250, tokens_out=250)),
    ]


def turns(first: int, count: int) -> Iterator[Event]:
    """Turns that carry `count` messages, from the given number on."""
    return itertools.chain.from_iterable(turn(number) for number in range(first, first + count, 2))
