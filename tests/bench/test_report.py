"""The report of a benchmark as tables and as JSON."""

from pathlib import Path

import msgspec
import pytest
from rich.console import Console

from bench import machine, report
from bench.figures import Figure, Goal, alternate, median, millis, ratio
from bench.machine import Machine

MACHINE = Machine("some processor", 2, 24, "Linux 6", "ext4", "3.11.7", "3.54.1")
FIGURES = [
    Figure(what="CPU", value="2.00 ms", judged=2.0, goal=Goal("≤", 2.5, " ms"), kind="cpu", others={"peer": "200 ms"}),
    Figure(what="turns/s", value="100", judged=100, goal=Goal("≥", 500, " turns/s"), others={"direct": "6,000"}),
    Figure(what="appends", value="900/s", judged=0.9, beside="plain SQLite"),
]
REPORT = report.Report(MACHINE, "small", 0.2, {"api": FIGURES})


def printed(figures: list[Figure]) -> list[list[str]]:
    """The cells of each row as they are printed."""
    console = Console(width=200, force_terminal=False)
    with console.capture() as capture:
        console.print(report.table("api", figures))
    return [
        [cell.strip() for cell in line.strip("│┃").replace("┃", "│").split("│")]
        for line in capture.get().splitlines()
        if line[0] in "│┃"
    ]


def test_every_other_system_has_a_column():
    assert printed(FIGURES) == [
        ["what", "Holdfast", "peer", "direct", "compared with", "goal", ""],
        ["CPU", "2.00 ms", "200 ms", "", "", "≤ 2.5 ms", "ok"],
        ["turns/s", "100", "", "6,000", "", "≥ 500 turns/s", "miss"],
        ["appends", "900/s", "", "", "0.90 × plain SQLite", "", ""],
    ]


def test_columns_that_would_be_empty_are_left_out():
    assert printed([Figure(what="CPU", value="2.00 ms")])[0] == ["what", "Holdfast", "goal", ""]


def test_a_saved_report_reads_back(tmp_path: Path):
    path = tmp_path / "folder" / "report.json"

    report.save(REPORT, path)

    assert report.load(path) == REPORT
    assert REPORT.missed == 1


def test_a_file_that_is_no_report_is_refused(tmp_path: Path):
    path = tmp_path / "report.json"
    path.write_text('{"size": "small"}')

    with pytest.raises(msgspec.ValidationError):
        report.load(path)


def test_the_committed_baseline_reads_and_has_no_paths():
    path = Path(report.__file__).with_name("baseline.json")

    baseline = report.load(path)

    assert {"api", "history", "memory", "streams"} <= set(baseline.sections)
    assert "/home/" not in path.read_text() and str(Path.cwd()) not in path.read_text()


def test_a_machine_is_described_without_names_and_paths(tmp_path: Path):
    found = machine.describe(tmp_path)

    assert found.cores >= 1
    assert str(tmp_path) not in str(found)


@pytest.mark.parametrize(("seconds", "text"), [(0.00123, "1.23 ms"), (0.0123, "12.3 ms"), (1.234, "1,234 ms")])
def test_times_are_given_with_the_digits_that_matter(seconds: float, text: str):
    assert millis(seconds) == text


async def test_contestants_take_turns_and_the_first_round_is_not_counted():
    order: list[str] = []

    async def one() -> float:
        order.append("one")
        return float(len(order))

    async def other() -> float:
        order.append("other")
        return float(len(order))

    results = await alternate({"one": one, "other": other}, 2)

    assert order == ["one", "other", "other", "one", "one", "other"]
    assert results == [{"other": 3.0, "one": 4.0}, {"one": 5.0, "other": 6.0}]
    assert median(results, "one") == 4.5
    assert ratio(results, "one", "other") == pytest.approx((4 / 3 + 5 / 6) / 2)
