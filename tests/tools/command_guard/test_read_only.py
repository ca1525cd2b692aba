"""Commands that run in plan mode: only those that certainly change nothing."""

import pytest

from holdfast.tools.command_guard.read_only import is_read_only

READS = [
    "ls -la",
    "cat a | grep -n x | sort -k2 | uniq -c",
    "git status",
    "git -C /x log --oneline -5",
    "git diff HEAD~1 -- src",
    "git branch -a",
    "git stash list",
    "find . -name '*.py' -type f",
    "cd src && rg -n foo",
    "sed -n 1,5p x",
    "for f in *.py; do wc -l $f; done",
    "if test -f x; then cat x; fi",
    "ls 2>/dev/null 2>&1",
    "cat $(git ls-files | head -1)",
    "grep -rn 'a > b' .",
    "cat <<E\nhi\nE",
    "date",
    "date +%s",
    "date -u -d tomorrow +%F",
    "uniq -c x",
    'for f in *.py; do test -f "$f" && printf "%s\\n" "${f%.py}" ${#f} ${1:-x}; done',
    'test "$a" = b || test ! -d x',
]
CHANGES = [
    *("", "# c", "rm x", "tee x", "kill 1", "x=1", "PATH=. ls", "export PATH=.", "./ls", "/bin/ls", "$x", "curl x"),
    *("ls > out", "ls >| f", "ls 3<> g", "ls &> x", "ls >& x", "echo hi > $x", "exec 3> x"),
    *("ls; rm y", "ls & rm x", "! rm x", "{ rm x; }", "time rm x", "cat x | sh", "f() { ls; }; f", "coproc rm x"),
    *("echo $(rm x)", "echo `rm x`", "cat <(rm y)", "cat <<E\n$(rm z)\nE", "echo ${a[$(rm b)]}", "[[ a[$(rm x)] ]]"),
    *(
        "test -v 'a[$(rm x)]'",
        "test -v 'a[`rm x`]'",
        "printf -v PATH %s .",
        "eval ls",
        "command rm x",
        "source x",
        ". x",
    ),
    *("alias ls=rm", "trap 'rm x' EXIT", "read x", "let x=1", "set -e", "builtin cd", "history -w x", "xargs rm"),
    *(
        "sort -o x y",
        "sort -uo x y",
        "sort --outp=x y",
        "sort {-o,x} y",
        "sort *",
        "uniq a b",
        "hostname x",
        "date -s now",
    ),
    *("sed -i s/a/b/ x", "sed -n 'w x' y", "sed -n 1w\\ x y", "awk '{print > \"x\"}'", "python -c 1", "file -C"),
    *(
        "find . -delete",
        "find . -exec ls {} ;",
        "find . -fprint x",
        "tree -o x",
        "rg --pre x y",
        "base64 x >y",
        "base64 -o y x",
    ),
    *("git", "git checkout x", "git branch new", "git tag v1", "git stash", "git stash drop", "git remote add a b"),
    *("git -c a=b log", "git --git-dir=x log", "git log --output=x", "git log --out x", "git diff --ext-diff"),
    *("git grep -O vi", "git show --textconv", "git config a b", "git reflog expire", "git worktree add x"),
    *("echo '", "ls " + "x" * 20_000),
    *("date 010112002025", "date -u 0101", "date -d now 0101", "uniq - x", "uniq -- - x", "rg -z x"),
    # Variables that decide what runs later.
    *("for PATH in .; do ls; done", "select PATH in .; do ls; done", "for f in -vPATH; do printf $f .; ls; done"),
    *("printf {-v,PATH} .", ": ${PATH:=.}", ": ${PATH=.}", "coproc PATH { ls; }; ls", "cat {PATH}< x; ls"),
    # Text that bash evaluates once more: arithmetic, indexes of arrays, names of variables, prompts.
    *(r": ${x:=a[\$\(rm\ z\)]}; echo $((x))", r"""printf %s "${a[$'\x24(rm z)']}" """, "echo ${!x}", "echo ${x@P}"),
    *("for f in *; do echo $((f)); done", "for f in *; do echo $\\\n((f)); done", "for ((; x; )); do ls; done"),
    *("for f in *; do echo $[f]; done", "((x))", "echo ${x:$y}", "cat < ${x:=y}", "cat <<E\n${a[$'\\x24(rm z)']}\nE"),
    *("for f in *; do test -v $f; done", 'for f in -v; do test "$f" *; done', "for f in *; do test -f $f; done"),
]


@pytest.mark.parametrize("command", READS)
def test_a_command_that_only_reads_runs(command: str) -> None:
    assert is_read_only(command)


@pytest.mark.parametrize("command", CHANGES)
def test_a_command_that_may_change_something_or_is_not_understood_does_not(command: str) -> None:
    assert not is_read_only(command)
