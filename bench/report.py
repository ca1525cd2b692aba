"""The report of a run: as tables to read, and as JSON to keep and compare."""

from pathlib import Path

import msgspec
from rich.table import Table

from bench.figures import Figure
from bench.machine import Machine

VERDICTS = {True: "[green]ok[/]", False: "[red]miss[/]", None: ""}


class Report(msgspec.Struct, frozen=True):
    """All figures of a run by section, with what they depend on."""

    machine: Machine
    size: str
    load_before: float
    """Load average of the machine when the run began: above about 0.3, times mean little."""
    sections: dict[str, list[Figure]]

    @property
    def missed(self) -> int:
        return sum(figure.met is False for figures in self.sections.values() for figure in figures)


def save(report: Report, path: Path) -> None:
    """Write the report as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def load(path: Path) -> Report:
    """Read a saved report. Raises msgspec.ValidationError if it is of another format."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def table(title: str, figures: list[Figure]) -> Table:
    """One section. Figures of other systems get a column each."""
    names = list(dict.fromkeys(name for figure in figures for name in figure.others))
    compared = any(figure.beside for figure in figures)
    result = Table(title=title, title_justify="left", expand=False)
    result.add_column("what")
    for column in ("Holdfast", *names):
        result.add_column(column, justify="right")
    for column in (*(["compared with"] if compared else []), "goal", ""):
        result.add_column(column)
    for figure in figures:
        others = [figure.others.get(name, "") for name in names]
        beside = [_beside(figure)] if compared else []
        result.add_row(figure.what, figure.value, *others, *beside, str(figure.goal or ""), VERDICTS[figure.met])
    return result


def _beside(figure: Figure) -> str:
    if figure.judged is None or not figure.beside:
        return figure.beside
    return f"{figure.judged:,.2f} × {figure.beside}"
