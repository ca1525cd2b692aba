"""Titles that nobody had to think of: after the first exchange a model is asked for a few words, in the background.

The call is no part of any turn and of no session's usage. Whatever goes wrong with it is a line in the
program's log and nothing else: the session stays untitled, and the next exchange tries again.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import aclosing

from holdfast.engine.ask import AskModel
from holdfast.engine.hand import Ground
from holdfast.engine.together import stop
from holdfast.model.asking import Reply, Request
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.message import Message, Text, text_of
from holdfast.model.session import messages, standing, title_line
from holdfast.store import log, sessions
from holdfast.store.database import Transaction

logger = logging.getLogger(__name__)
ASKED = (
    "You name conversations. Answer with a title of at most six words for the exchange below, in its language. "
    "No quotation marks, no full stop, nothing else."
)
LIMIT_SECONDS = 30.0
EXCERPT = 2_000
"""Characters of each side that are shown: enough to know what it is about."""
MAX_TOKENS = 200
"""Some models think before they answer."""
MARKS = "#*\"'“”„«»` "
WORDS = 6
LENGTH = 60


class Titles:
    """Gives titles to sessions that have none. `by_words` says for which models no call is worth it."""

    def __init__(self, ground: Ground, ask: AskModel, by_words: Callable[[str], bool]) -> None:
        self._ground = ground
        self._ask = ask
        self._by_words = by_words
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def give(self, session_id: str) -> None:
        """See to it that the session gets a title, if it has none and something was said. Returns at once."""
        if session_id in self._tasks:
            return
        task = asyncio.create_task(self._give(session_id), name=f"title {session_id}")
        self._tasks[session_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(session_id, None))

    @property
    def is_at_work(self) -> bool:
        return bool(self._tasks)

    async def close(self) -> None:
        await stop(*self._tasks.values())

    async def _give(self, session_id: str) -> None:
        try:
            session = await self._ground.database.read(sessions.get, session_id)
            if session.summary.title is not None:
                return
            entries = await self._ground.database.read(log.read, session_id)
            exchange = first_exchange(entries)
            if exchange is None:
                return
            title = first_words(exchange[0].text)
            if not self._by_words(session.summary.model):
                title = tidy(await self._asked(session.summary.model, exchange)) or title
            if title:
                await self._ground.database.write(_title, session_id, title, at=self._ground.clock.now())
        except (HoldfastError, TimeoutError) as e:
            logger.info("session %s got no title: %s", session_id, e or "the model took too long")

    async def _asked(self, model: str, exchange: tuple[Message, Message]) -> str:
        """What the model calls it."""
        said, answered = (message.text[:EXCERPT] for message in exchange)
        words = Message(1, "user", (Text(f"Person:\n{said}\n\nAgent:\n{answered}"),), exchange[0].at)
        request = Request(model=model, system=ASKED, messages=(words,), max_tokens=MAX_TOKENS)
        async with asyncio.timeout(LIMIT_SECONDS), aclosing(self._ask(request)) as stream:  # type: ignore[type-var] # every provider's stream is an async generator
            async for item in stream:
                if isinstance(item, Reply):
                    return text_of(item.parts)
        return ""


def _title(tx: Transaction, session_id: str, title: str, *, at: int) -> None:
    """Write the title down, unless somebody has given one meanwhile."""
    if sessions.get(tx, session_id).summary.title is None:
        log.annotate(tx, session_id, Titled(title=title, by="model"), at=at)


def first_exchange(entries: Sequence[Entry]) -> tuple[Message, Message] | None:
    """The first words that still count and the first reply to them; None if there is no reply yet."""
    said: Message | None = None
    for message in messages(standing(entries)):
        if message.role == "user" and message.text.strip():
            said = said or message
        elif message.role == "assistant" and said is not None and message.text.strip():
            return said, message
    return None


def first_words(text: str) -> str:
    """A title made of the beginning of what was said."""
    words = title_line(text[:1000]).split()
    title = " ".join(words[:WORDS])
    return title[:LENGTH].rstrip(" ,;:") + ("…" if len(words) > WORDS or len(title) > LENGTH else "")


def tidy(text: str) -> str:
    """What a model answered, as a title: its first line, without quotation marks, label or full stop. Empty if it is too long for one."""
    lines = [line for line in text.splitlines() if line.strip()]
    title = title_line(lines[0]).strip(MARKS) if lines else ""
    if title.lower().startswith("title:"):
        title = title[len("title:") :].strip(MARKS)
    title = title.removesuffix(".").rstrip(MARKS)
    return title if len(title) <= 2 * LENGTH else ""
