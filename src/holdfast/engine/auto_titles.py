"""Automatic titles: after the first exchange, a model writes one in the background.

The call belongs to no turn; the session's log records its usage. A failure is only a line in the log file: the session
stays untitled, and the next exchange tries again.
"""

import logging
from collections.abc import Callable, Sequence

from holdfast.engine.services import EngineServices
from holdfast.engine.spending.meter import Meter
from holdfast.engine.turn.whole_reply import ask_for_reply
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError
from holdfast.model.event import Titled
from holdfast.model.message import Message, Text, text_of
from holdfast.model.provider import AskModel, ModelRequest
from holdfast.model.session import Session, messages, standing, title_line
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions
from holdfast.tasks import Tasks

logger = logging.getLogger(__name__)
ASKED = (
    "You name conversations. Answer with a title of at most six words for the exchange below, in its language. "
    "No quotation marks, no full stop, nothing else."
)
LIMIT_SECONDS = 30.0
EXCERPT = 2_000
"""Characters of each message that the model gets: enough to recognise the subject."""
MAX_TOKENS = 200
"""Some models reason before they answer."""
MARKS = "#*\"'“”„«»` "
WORDS = 6
LENGTH = 60


class Titles:
    """Gives titles to sessions that have none. `by_words` names the models for which a call is not worthwhile."""

    def __init__(
        self, services: EngineServices, ask: AskModel, by_words: Callable[[str], bool], meter: Meter | None = None
    ) -> None:
        self._services = services
        self._ask = ask
        self._by_words = by_words
        self._meter = meter
        self._tasks = Tasks()
        self._asking: set[str] = set()

    def give(self, session_id: str) -> None:
        """Start writing a title if the session has none and there was an exchange. Returns at once."""
        if session_id in self._asking:
            return
        self._asking.add(session_id)
        task = self._tasks.start(self._give(session_id), name=f"title {session_id}")
        task.add_done_callback(lambda _: self._asking.discard(session_id))

    @property
    def is_at_work(self) -> bool:
        return bool(self._asking)

    async def close(self) -> None:
        await self._tasks.close()

    async def _give(self, session_id: str) -> None:
        try:
            session = await self._services.database.read(sessions.get, session_id)
            if session.summary.title is not None:
                return
            entries = await self._services.database.read(log.read, session_id)
            exchange = first_exchange(entries)
            if exchange is None:
                return
            title = first_words(exchange[0].text)
            if not self._by_words(session.summary.model):
                title = clean_title(await self._asked(session, exchange)) or title
            if title:
                await self._services.database.write(_title, session_id, title, at=self._services.clock.now())
        except HoldfastError as e:
            logger.info("session %s got no title: %s", session_id, e)

    async def _asked(self, session: Session, exchange: tuple[Message, Message]) -> str:
        """Ask the session's model for a title."""
        ask = self._ask if self._meter is None else self._meter.recording(self._ask, session.id, "title")
        said, answered = (message.text[:EXCERPT] for message in exchange)
        message = Message(1, "user", (Text(f"Person:\n{said}\n\nAgent:\n{answered}"),), exchange[0].at)
        request = ModelRequest(model=session.summary.model, system=ASKED, messages=(message,), max_tokens=MAX_TOKENS)
        return text_of((await ask_for_reply(ask, request, seconds=LIMIT_SECONDS)).parts)


def _title(tx: Transaction, session_id: str, title: str, *, at: int) -> None:
    """Commit the title, unless the session got one in the meantime."""
    if sessions.get(tx, session_id).summary.title is None:
        log.annotate(tx, session_id, Titled(title=title, by="model"), at=at)


def first_exchange(entries: Sequence[Entry]) -> tuple[Message, Message] | None:
    """The first user message and the first reply to it, without undone ones; None if there is no reply yet."""
    said: Message | None = None
    for message in messages(standing(entries)):
        if message.role == "user" and message.text.strip():
            said = said or message
        elif message.role == "assistant" and said is not None and message.text.strip():
            return said, message
    return None


def first_words(text: str) -> str:
    """A title from the beginning of the user's message."""
    words = title_line(text[:1000]).split()
    title = " ".join(words[:WORDS])
    return title[:LENGTH].rstrip(" ,;:") + ("…" if len(words) > WORDS or len(title) > LENGTH else "")


def clean_title(text: str) -> str:
    """A model's reply as a title: its first line without quotation marks, label or full stop. Empty if too long."""
    lines = [line for line in text.splitlines() if line.strip()]
    title = title_line(lines[0]).strip(MARKS) if lines else ""
    if title.lower().startswith("title:"):
        title = title[len("title:") :].strip(MARKS)
    title = title.removesuffix(".").rstrip(MARKS)
    return title if len(title) <= 2 * LENGTH else ""
