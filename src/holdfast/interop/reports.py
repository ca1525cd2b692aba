"""What the engine finds out about sessions and workers, as outsiders see it: the JSON of commands and of the API."""

import msgspec

from holdfast.engine.fill import Fill
from holdfast.engine.janitor import Sweep, Verdict
from holdfast.engine.why import Why
from holdfast.interop import shapes
from holdfast.interop.shapes import Json
from holdfast.store.approvals import Approval
from holdfast.store.workers import Worker

TIMES = ("started_at", "beat_at", "stalled_since", "ended_at", "cleared_at", "leaving_at")


def worker(found: Worker, verdict: Verdict | None) -> Json:
    """A worker, and whether it lives."""
    shape: Json = msgspec.structs.asdict(found) | {name: shapes.time(getattr(found, name)) for name in TIMES}
    return shape | ({} if verdict is None else {"state": verdict.state, "evidence": verdict.evidence})


def sweep(found: Sweep) -> Json:
    """What a sweep found and did."""
    judged = [worker(one, verdict) for one, verdict in found.workers]
    return {"workers": judged, "done": [msgspec.structs.asdict(deed) for deed in found.deeds]}


def approval(found: Approval) -> Json:
    """A question to a person."""
    return msgspec.structs.asdict(found) | {"asked_at": shapes.time(found.asked_at)}


def why(found: Why) -> Json:
    """All that explains a session."""
    return {
        "session": shapes.session(found.session),
        "owner": None if found.owner is None else worker(found.owner, found.verdict),
        "doing": found.doing,
        "decisions": [
            msgspec.structs.asdict(decision) | {"at": shapes.time(decision.at)} for decision in found.decisions
        ],
        "context": None if found.fill is None else context(found.fill),
        "attempts": found.attempts,
        "questions": [approval(question) for question in found.questions],
        "next": found.next,
        "processes": [shapes.process(process, seen) for process, seen in found.processes],
        "reset": found.reset,
    }


def context(fill: Fill) -> Json:
    """How full a context is, and what its summary stands for."""
    last, failed = fill.last, fill.failed
    return {
        "epoch": fill.epoch,
        "tokens": fill.tokens,
        "window": fill.window,
        "share": round(fill.share, 4),
        "compacted_at": fill.limit,
        "last": None
        if last is None
        else {"seq": last.seq, "at": shapes.time(last.at), **msgspec.to_builtins(last.event)},
        "failed": None if failed is None else {"code": failed.code, "reason": failed.reason, "tokens": failed.tokens},
        "next": fill.next,
    }
