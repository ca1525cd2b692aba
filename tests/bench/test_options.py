"""What a benchmark cannot use ends it before the run, with a message."""

from pathlib import Path

import pytest

from bench import report
from bench.__main__ import parse_options
from bench.profile import main as profile
from tests.bench.test_compare import CPU
from tests.bench.test_compare import report as report_of


@pytest.fixture
def baseline(tmp_path: Path) -> Path:
    report.save(report_of(CPU), tmp_path / "baseline.json")
    return tmp_path / "baseline.json"


def test_the_report_to_compare_with_is_read_before_the_run(tmp_path: Path, baseline: Path) -> None:
    given = parse_options(["--folder", str(tmp_path / "new"), "--compare", str(baseline)])

    assert given.baseline == report_of(CPU)
    assert given.folder.is_dir()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--compare", "HERE/missing.json"], "missing.json: No such file"),
        (["--compare", "HERE/note"], "is no report"),
        (["--compare", "HERE/baseline.json", "--size", "full"], "has size small, this run full"),
        (["--folder", "HERE/note"], "note: File exists"),
        (["--json", "HERE"], "is a directory"),
        (["--only", "nothing"], "invalid choice"),
    ],
)
def test_silly_options_are_refused_before_the_run(
    tmp_path: Path, baseline: Path, capsys: pytest.CaptureFixture[str], words: list[str], problem: str
) -> None:
    (tmp_path / "note").write_text("no report")

    with pytest.raises(SystemExit) as ended:
        parse_options(["--folder", str(tmp_path), *(word.replace("HERE", str(tmp_path)) for word in words)])

    assert ended.value.code == 2
    assert problem in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--seconds", "0"], ["--sessions", "-1"], ["--words", "many"]])
def test_a_profile_of_nothing_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.profile", *words])

    with pytest.raises(SystemExit):
        profile()

    assert f"argument {words[0]}: invalid positive value" in capsys.readouterr().err
