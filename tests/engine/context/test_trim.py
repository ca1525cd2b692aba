"""A context that has dropped messages shows what one with all messages shows, or says that it is incomplete."""

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionUndone,
    Event,
    InputRefused,
    MessagePinned,
    MessageUnpinned,
    ModelSaid,
    ProcessExpired,
    Rewound,
    SessionOpened,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall

Draw = Callable[[st.SearchStrategy[object]], object]


class Log:
    """A log that grows at random, as the engine would write it."""

    def __init__(self, data: st.DataObject) -> None:
        self.data = data
        self.entries: list[Entry] = []
        self.context = Context()
        self.add(SessionOpened(source="api", system="Be brief."))

    def add(self, event: Event) -> None:
        self.entries.append(Entry(len(self.entries) + 1, 1, event))
        self.context.add(self.entries[-1])

    def turn(self) -> None:
        number = len(self.entries)
        turn_id = f"turn-{number}"
        self.add(TurnStarted(turn_id=turn_id))
        self.add(UserSaid(turn_id=turn_id, parts=(Text(f"ask {number}"),)))
        if self.data.draw(st.booleans()):
            self.add(ModelSaid(turn_id=turn_id, parts=(Text("let me"), ToolCall(f"c{number}", "look", "{}"))))
            if self.data.draw(st.booleans()):
                self.add(ProcessExpired(process_id="p", command="sleep", ttl_seconds=60, evidence="it only listens"))
            self.add(ToolEnded(turn_id=turn_id, call_id=f"c{number}", name="look", outcome="ok", parts=(Text("seen"),)))
        self.add(ModelSaid(turn_id=turn_id, parts=(Text("cut"),), partial=True))
        counted = Usage(tokens_in=self.data.draw(st.sampled_from([0, 500])))
        self.add(ModelSaid(turn_id=turn_id, parts=(Text(f"answer {number}"),), usage=counted))
        self.add(TurnEnded(turn_id=turn_id, outcome="done"))

    def grow(self) -> None:
        """One more turn, or a change of the view."""
        ends = [entry.seq for entry in self.entries if isinstance(entry.event, TurnEnded)]
        said = [message.seq for message in self.context.messages]
        match self.data.draw(
            st.sampled_from(["turn"] * 4 + ["compact"] * 3 + ["pin", "unpin", "undo", "rewind", "refuse"])
        ):
            case "compact" if len(ends) > 1:
                upto = max(self.data.draw(st.sampled_from(ends[-3:-1])), self.context.upto_seq)
                how = self.data.draw(st.sampled_from(["summary", "summary", "digest"]))
                pinned = [seq for seq in self.context.pins if seq <= upto and seq in said]
                newest = self.context.newest
                if newest is not None and self.context.messages[newest].seq <= upto:
                    pinned.append(self.context.messages[newest].seq)
                after = self.data.draw(st.sampled_from([0, 300]))
                self.add(
                    Compacted(
                        epoch=self.context.epoch + 1,
                        upto_seq=upto,
                        summary=f"so far {upto}",
                        how=how,
                        pinned=tuple(sorted(pinned)),
                        tokens_after=after,
                        thinned_upto=ends[-1],
                        thinned_to=2,
                    )
                )
            case "pin" if said:
                self.add(MessagePinned(seq=self.data.draw(st.sampled_from(said))))
            case "unpin" if self.context.pins:
                self.add(MessageUnpinned(seq=self.data.draw(st.sampled_from(sorted(self.context.pins)))))
            case "undo" if self.context.compaction is not None:
                self.add(CompactionUndone(epoch=self.context.epoch - 1))
            case "rewind" if ends:
                to_seq = self.data.draw(st.sampled_from(ends[-3:]))
                for undone in self.context.undone_by(to_seq):
                    self.add(undone)
                self.add(Rewound(to_seq=to_seq))
            case "refuse" if said and said[-1] > self.context.upto_seq:
                self.add(InputRefused(turn_id="", seqs=(said[-1],), reason="no"))
            case _:
                self.turn()


def state(context: Context) -> object:
    newest = context.newest
    return (
        list(context.view),
        [message for message in context.messages if message.seq > context.upto_seq],
        None if newest is None else context.messages[newest],
        context.estimate_size(10),
        context.estimate_messages(),
        context.call_ids,
        context.pins,
        context.compactions,
        context.system,
        context.last_attempt,
    )


@pytest.mark.slow
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_context_that_dropped_messages_shows_the_same(data: st.DataObject) -> None:
    log, trimmed, seen = Log(data), Context(), 0
    for _ in range(data.draw(st.integers(1, 25))):
        log.grow()
        for entry in log.entries[seen:]:
            trimmed.add(entry)
        seen = len(log.entries)
        if trimmed.is_incomplete:
            trimmed = Context(log.entries)
        assert state(trimmed) == state(Context(log.entries))
        match data.draw(st.sampled_from(["", "trim", "unload"])):
            case "trim":
                trimmed.trim()
            case "unload":
                trimmed.trim()
                trimmed.unload()
                trimmed.reload(Context(log.entries[trimmed.needed_from - 1 :]))
        assert state(trimmed) == state(Context(log.entries))


def compacted(how: str = "summary") -> list[Entry]:
    events: list[Event] = [SessionOpened(source="api")]
    for number in range(50):
        turn_id = f"turn-{number}"
        said = [UserSaid(turn_id=turn_id, parts=(Text("x"),)), ModelSaid(turn_id=turn_id, parts=(Text("y"),))]
        events += [TurnStarted(turn_id=turn_id), *said, TurnEnded(turn_id=turn_id, outcome="done")]
    events.append(Compacted(epoch=1, upto_seq=181, summary="They talked.", how=how))
    return [Entry(seq, 1, event) for seq, event in enumerate(events, 1)]


def test_messages_that_a_summary_replaced_take_no_memory() -> None:
    context = Context(compacted())
    before = context.memory_bytes

    context.trim()

    assert len(context.messages) == 10
    assert context.memory_bytes < before / 3


@pytest.mark.parametrize(
    "change", [Compacted(epoch=2, upto_seq=190, summary="More.", how="summary"), CompactionUndone(epoch=0)]
)
def test_what_was_rendered_for_another_view_takes_no_memory(change: Event) -> None:
    entries = compacted()
    context = Context(entries)
    context.request_cache.value, context.request_cache.size = object(), 1_000_000

    context.add(Entry(len(entries) + 1, 1, change))

    assert (context.request_cache.value, context.request_cache.size) == (None, 0)
    assert context.memory_bytes < 1_000_000


def test_messages_that_only_a_digest_replaced_stay_because_the_next_summary_needs_them() -> None:
    context = Context(compacted("digest"))

    context.trim()

    assert len(context.messages) == 100


@pytest.mark.parametrize("event", [CompactionUndone(epoch=0), MessagePinned(seq=3), Rewound(to_seq=9)])
def test_an_event_that_needs_a_dropped_message_makes_the_context_incomplete(event: Event) -> None:
    context = Context(compacted())
    context.trim()

    context.add(Entry(1_000, 1, event))

    assert context.is_incomplete


@pytest.mark.parametrize("event", [MessagePinned(seq=184), Rewound(to_seq=185), TurnEnded(turn_id="t", outcome="done")])
def test_other_events_do_not(event: Event) -> None:
    context = Context(compacted())
    context.trim()

    context.add(Entry(1_000, 1, event))

    assert not context.is_incomplete
