"""Which changes between two reports count as regressions."""

import msgspec
import pytest

from bench.compare import Change, DifferentRuns, compare, table
from bench.figures import Figure, Goal
from bench.machine import Machine
from bench.report import Report

MACHINE = Machine("some processor", 2, 24, "Linux 6", "ext4", "3.11.7", "3.54.1")
CPU = Figure(what="CPU per turn", value="2.00 ms", judged=2.0, kind="cpu")
RATIO = Figure(what="appends", value="900/s", judged=0.9, beside="plain SQLite", goal=Goal("≥", 0.8))


def report(*figures: Figure, size: str = "small") -> Report:
    return Report(MACHINE, size, 0.1, {"api": list(figures)})


def with_number(figure: Figure, number: float) -> Figure:
    return msgspec.structs.replace(figure, judged=number)


def only_change(before: Figure, after: Figure) -> Change:
    [change] = compare(report(before), report(after))
    return change


def test_a_cpu_time_that_grows_by_more_than_a_tenth_is_a_regression():
    assert only_change(CPU, with_number(CPU, 2.21)).is_regression
    assert not only_change(CPU, with_number(CPU, 2.19)).is_regression
    assert not only_change(CPU, with_number(CPU, 1.0)).is_regression


def test_a_ratio_that_should_be_high_is_a_regression_if_it_falls():
    assert only_change(RATIO, with_number(RATIO, 0.8)).is_regression
    assert not only_change(RATIO, with_number(RATIO, 1.5)).is_regression


def test_a_ratio_that_should_be_low_is_a_regression_if_it_grows():
    growth = msgspec.structs.replace(RATIO, judged=1.0, goal=Goal("≤", 1.2))

    assert only_change(growth, with_number(growth, 1.15)).is_regression
    assert not only_change(growth, with_number(growth, 0.5)).is_regression


def test_times_rates_and_ratios_without_a_goal_are_not_compared():
    rate = Figure(what="turns/s", value="500", judged=500, goal=Goal("≥", 400, " turns/s"))
    no_goal = msgspec.structs.replace(RATIO, goal=None)
    no_number = Figure(what="p50", value="3 ms", kind="cpu")
    before, after = (report(*(with_number(one, number) for one in (rate, no_goal)), no_number) for number in (500, 1))

    assert compare(before, after) == []


def test_figures_that_only_one_report_has_are_not_compared():
    assert compare(report(CPU), report(RATIO)) == []


def test_the_same_figure_beside_two_others_is_two_figures():
    beside_other = msgspec.structs.replace(RATIO, beside="psycopg", judged=0.5)

    changes = compare(report(RATIO, beside_other), report(RATIO, with_number(beside_other, 0.4)))

    assert [change.is_regression for change in changes] == [False, True]
    assert changes[1].what == "appends, beside psycopg"


def test_runs_of_different_sizes_are_not_compared():
    with pytest.raises(DifferentRuns, match="size small, this run full"):
        compare(report(CPU), report(CPU, size="full"))


def test_the_table_has_only_what_changed_with_the_worst_first():
    changes = [Change("api", f"figure {worse}", 1, 1 + worse, worse) for worse in (0.05, 0.2, -0.5, 0.9)]

    listed = table(changes)

    assert list(listed.columns[1].cells) == ["figure 0.9", "figure 0.2", "figure -0.5"]
    assert list(listed.columns[4].cells) == ["[red]90% worse[/]", "[red]20% worse[/]", "[green]50% better[/]"]
