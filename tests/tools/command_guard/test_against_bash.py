"""The parser compared with bash: a program that bash runs is found in the text, or the text needs approval."""

import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from holdfast.tools.command_guard.command_risk import find_risks
from tests.sampling import SOAK

SCRIPTS = 40_000 if SOAK else 4_000
PROGRAM = "shred"
"""A program that always needs approval. Its namesake in the test only leaves a mark."""
PIECES = [
    *[
        "\n",
        "\n",
        "\n",
        " ",
        " ",
        ";",
        " & ",
        " | ",
        "\\\n",
        "\t",
        "#",
        "x",
        "A",
        "AB",
        "echo ",
        "cat <<A",
        "cat <<'A'",
    ],
    *[
        "cat <<\\A",
        "cat <<-A",
        "cat <<A'B'",
        "cat <<A$B",
        "cat <<$'A'",
        "<<",
        "<<< ",
        "'",
        '"',
        "\\",
        "$(",
        ")",
        "`",
        "{ ",
    ],
    *[
        "; }",
        "((",
        "))",
        "$((1",
        "$[",
        "]",
        "(",
        "${x:-",
        "${x#",
        "}",
        "$x",
        '"$x"',
        "${x}",
        "x=1 ",
        "x=1;",
        "a=(",
        "a=()",
    ],
    *[
        "a[0]=",
        "case x in x)",
        ";;",
        " esac",
        "if true; then ",
        "; fi",
        "[[ a",
        "]]",
        "for i in 1; do ",
        "; done",
        "! ",
    ],
    *["time ", "f() ", "function g ", "coproc ", "> f", "2>&1 ", "&>f ", "<>f", "{fd}>f ", "env ", "command ", "exec "],
    *["export y=", "sh -c ", "bash -c ", "eval ", "$'", '$"', "@(", "{a,b}", "\r", "-- ", "-e "],
    *[PROGRAM] * 6,
    *[f"'{PROGRAM}'", f'"{PROGRAM}"', "shr''ed", "s\\hred", f"{{x,{PROGRAM}}}", f"{{{PROGRAM},-u}}", f"$'{PROGRAM}'"],
]


def scripts(seed: int) -> list[str]:
    chance = random.Random(seed)
    made = []
    for _ in range(SCRIPTS):
        text = "".join(chance.choices(PIECES, k=chance.randint(3, 16)))
        made.append(f"{text}\n{PROGRAM}" if chance.random() < 0.5 else text)
    return made


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.timeout(1200 if SOAK else 120)
def test_no_program_that_bash_runs_is_missed(tmp_path: Path) -> None:
    programs, workdir, mark = tmp_path / "bin", tmp_path / "work", tmp_path / "mark"
    programs.mkdir()
    workdir.mkdir()
    (programs / PROGRAM).write_text(f"#!/bin/sh\n: > {mark}\n")
    (programs / PROGRAM).chmod(0o755)
    for name in ("cat", "env", "bash", "sh"):
        (programs / name).symlink_to(shutil.which(name) or "missing")
    environment = {"PATH": str(programs), "HOME": str(workdir)}

    missed, ran = [], 0
    for text in scripts(7):
        if find_risks(text, workdir=workdir):
            continue
        ran += 1
        command = [os.fsdecode(programs / "bash"), "-c", text]
        subprocess.run(
            command, env=environment, cwd=workdir, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
        if mark.exists():
            missed.append(text)
            mark.unlink()

    assert missed == []
    assert ran > SCRIPTS // 100
