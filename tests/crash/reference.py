"""Runs of the writer without any fault, for comparison with the others."""

from dataclasses import dataclass
from pathlib import Path

from tests import sampling
from tests.crash import strace
from tests.crash.output import acknowledged, heads
from tests.crash.programs import program
from tests.crash.strace import Call, Run

GONE_SOON = "trashed for good"
"""From this step on, the session may be deleted."""
VOLUME = ("--scenario", "volume", "--rounds", 1 + sampling.TURNS, "--checkpoint-pages", 10)
VARIANTS: dict[str, tuple[object, ...]] = {
    "everything": ("--scenario", "everything", "--rounds", sampling.TURNS),
    "checkpoints": VOLUME,
    "truncations": (*VOLUME, "--truncate"),
}


@dataclass(frozen=True)
class Reference:
    """`states` are the digests of the store after each acknowledged step; `calls` are the system calls."""

    arguments: tuple[object, ...]
    steps: list[object]
    states: list[str]
    calls: list[Call]

    def ordered(self, phase: str, name: str) -> list[Call]:
        """The calls of one kind in a phase, numbered as strace counts them."""
        return [call for call in self.calls if (call.phase, call.name) == (phase, name)]

    def count(self, phase: str, name: str) -> int:
        return len(self.ordered(phase, name))

    def may_be_gone(self, run: Run) -> set[str]:
        """Sessions that were trashed for good, so that the next step may have deleted them."""
        return {place[0] for place in heads(line for line in run.lines if line.get("ack") == GONE_SOON)}

    def may_hold(self, run: Run) -> list[str]:
        """The states that the store may have after the run: everything acknowledged, and perhaps the write under way."""
        done = len(run.acknowledged)
        assert [line["ack"] for line in run.acknowledged] == self.steps[:done]
        return self.states[max(0, done - 1) : done + 1]


def make(variant: str, folder: Path) -> Reference:
    arguments = VARIANTS[variant]
    with program("writer", folder / "watched", "--states", *arguments) as writer:
        assert writer.wait() == 0, writer.stderr
        steps = acknowledged(writer.lines())
    clean = strace.run(folder / "strace", arguments)
    assert clean.code == 0, clean.stderr
    return Reference(
        arguments, [line["ack"] for line in clean.acknowledged], [str(line["state"]) for line in steps], clean.calls
    )
