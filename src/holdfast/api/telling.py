"""What every answer tells of a turn that was taken in, whatever its form. To stop telling does not stop the turn."""

from collections.abc import Callable
from contextlib import aclosing

from holdfast.api.errors import Refusal, translate, turn_failed
from holdfast.api.house import House
from holdfast.api.reply import Reply
from holdfast.engine.bus import Live
from holdfast.engine.engine import Received
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError

LATER = (429, 502, 503, 504)
"""Statuses of what may go better another time."""


class Telling:
    """A turn, what is known of it so far, and the headers that go with it."""

    def __init__(self, house: House, received: Received, *, keyed: bool, echo: str | None) -> None:
        self.house = house
        self.received = received
        self.reply = Reply(hears_live=not received.arrived.admission.repeated)
        self._keyed = keyed
        self._echo = echo

    async def hear_all(self, also: Callable[[Entry | Live], object] = lambda _: None) -> None:
        """Follow the turn to its end, and have `also` hear of it. Raises a Refusal if that is not a good one."""
        try:
            async with aclosing(self.received.follow()) as items:
                async for item in items:
                    self.reply.add(item)
                    also(item)
            self.refuse_failed()
        except HoldfastError as e:
            raise self.refusal(translate(e)) from e
        except Refusal as refusal:
            raise self.refusal(refusal) from None
        finally:
            self.received.close()

    def refuse_failed(self) -> None:
        """Raise a Refusal for a turn that has ended badly."""
        ended = self.reply.ended
        assert ended is not None, "a turn is followed to its end"
        if ended.outcome != "done":
            raise turn_failed(ended.code, ended.outcome, ended.reason)

    def refusal(self, refusal: Refusal) -> Refusal:
        """The refusal with what the client needs to go on. To repeat what was taken in is safe only under a key."""
        retry = self._keyed and refusal.status in LATER
        seq = {"x-session-seq": str(self.reply.seq)} if self.reply.seq else {}
        refusal.headers |= self.headers() | seq | {"x-should-retry": str(retry).lower()}
        return refusal

    @property
    def epoch(self) -> int:
        before = self.received.arrived.admission.session.summary.epoch
        return before if self.reply.epoch is None else self.reply.epoch

    def headers(self) -> dict[str, str]:
        """Those of every reply; one in one piece has `x-session-seq` as well."""
        arrived = self.received.arrived
        session = arrived.admission.session
        found = {
            "x-session-id": session.id,
            "x-session-new": str(int(arrived.new)),
            "x-session-epoch": str(self.epoch),
            "x-turn-id": arrived.admission.turn_id,
        }
        if arrived.forked_from is not None:
            found["x-session-forked-from"] = arrived.forked_from
        if self._echo is not None:
            found[self._echo] = session.id
        return found

    def about(self) -> dict[str, object]:
        """The field `holdfast` of a reply that is whole."""
        admission = self.received.arrived.admission
        return {
            "session_id": admission.session.id,
            "turn_id": admission.turn_id,
            "epoch": self.epoch,
            "seq": self.reply.seq,
            "compacted": self.reply.epoch is not None,
        }
