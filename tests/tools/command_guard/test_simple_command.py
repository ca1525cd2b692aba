"""Which commands are simple enough for a rule by prefix."""

import shlex
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.tools.command_guard.simple_command import simple_words
from holdfast.tools.command_guard.wrappers import WRAPPERS

SIMPLE = {
    "git push --force origin main": ("git", "push", "--force", "origin", "main"),
    "  rm -rf build ": ("rm", "-rf", "build"),
    "git commit -m 'a; b | c $x'": ("git", "commit", "-m", "a; b | c $x"),
    'git commit -m "a b"': ("git", "commit", "-m", "a b"),
    "/usr/bin/git push": ("/usr/bin/git", "push"),
    "a 'b'c": ("a", "bc"),
}
OTHERS = [
    *(
        "",
        " ",
        "a; b",
        "a & b",
        "a && b",
        "a || b",
        "a | b",
        "a > b",
        "a < b",
        "a\nb",
        "a $x",
        "a `b`",
        "a $(b)",
        "a *",
    ),
    *(
        "a ~",
        "a ?",
        "a [b]",
        "a {b,c}",
        "a \\b",
        "a !b",
        "a # b",
        "(a)",
        "X=1 a",
        "a 'b",
        'a "$b"',
        'a "`b`"',
        'a "b\\c"',
    ),
    *(
        "bash -c 'rm -rf /'",
        "sh x",
        "env a",
        "sudo a",
        "xargs a",
        "eval a",
        "python3 -c 'x'",
        "ssh host a",
        "find . -delete",
    ),
    *("/bin/bash x", "time a", "awk x", "sed 1e", ". x", "source x", "if a", "a\u00a0b", "a\tb\x00", "make -f -"),
]


@pytest.mark.parametrize("command", SIMPLE)
def test_a_simple_command_is_its_words(command: str) -> None:
    assert simple_words(command) == SIMPLE[command]


@pytest.mark.parametrize("command", OTHERS)
def test_anything_else_has_none(command: str) -> None:
    assert simple_words(command) == ()


@pytest.mark.parametrize("program", [*WRAPPERS, "bwrap", "vim", "gmake", "pypy3"])
def test_a_program_that_runs_its_arguments_has_none(program: str) -> None:
    assert simple_words(f"{program} a b") == ()


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=30))
def test_the_words_are_those_that_a_shell_would_pass_on(text: str) -> None:
    words = simple_words(f"git {text}")

    if words:
        assert list(words) == shlex.split(f"git {text}")


@pytest.mark.process
def test_bash_passes_on_the_same_words() -> None:
    command = "printf '%s\\n' a=b 'c d'e \"f;g\" --h=i,j"
    printed = subprocess.run(["/bin/bash", "-c", command], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines() == list(simple_words(command)[2:])
