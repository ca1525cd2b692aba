"""Runs of the writer that nothing happens to: what all others are compared with."""

from dataclasses import dataclass
from pathlib import Path

from tests.crash import effort, traced
from tests.crash.programs import program
from tests.crash.say import acknowledged, places
from tests.crash.traced import Call, Run

GONE_SOON = "trashed for good"
"""From this step on, the session it names may be gone."""
VOLUME = ("--scenario", "volume", "--rounds", 1 + effort.TURNS, "--checkpoint-pages", 10)
VARIANTS: dict[str, tuple[object, ...]] = {
    "everything": ("--scenario", "everything", "--rounds", effort.TURNS),
    "checkpoints": VOLUME,
    "truncations": (*VOLUME, "--truncate"),
}


@dataclass(frozen=True)
class Reference:
    """`states` holds the digest of the store after each acknowledged step, `calls` what was asked of the kernel."""

    arguments: tuple[object, ...]
    steps: list[object]
    states: list[str]
    calls: list[Call]

    def ordered(self, phase: str, name: str) -> list[Call]:
        """The calls of one kind in a phase: the nth of them is the one that strace counts as the nth."""
        return [call for call in self.calls if (call.phase, call.name) == (phase, name)]

    def count(self, phase: str, name: str) -> int:
        return len(self.ordered(phase, name))

    def may_be_gone(self, run: Run) -> set[str]:
        """Sessions that had been put away for good, so that the next step may have removed them."""
        return {place[0] for place in places(line for line in run.lines if line.get("ack") == GONE_SOON)}

    def may_hold(self, run: Run) -> list[str]:
        """What the store may hold after the run: all that was acknowledged, and perhaps the write under way."""
        done = len(run.acknowledged)
        assert [line["ack"] for line in run.acknowledged] == self.steps[:done]
        return self.states[max(0, done - 1) : done + 1]


def make(variant: str, folder: Path) -> Reference:
    arguments = VARIANTS[variant]
    with program("writer", folder / "watched", "--states", *arguments) as writer:
        assert writer.wait() == 0, writer.complaints
        told = acknowledged(writer.lines())
    clean = traced.run(folder / "traced", arguments)
    assert clean.code == 0, clean.complaints
    return Reference(
        arguments, [line["ack"] for line in clean.acknowledged], [str(line["state"]) for line in told], clean.calls
    )
