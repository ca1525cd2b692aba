import pytest

from holdfast.tools.command_guard.shell_parser import parse


def words(text):
    return [[word.text for word in command.words] for command in parse(text)]


@pytest.mark.parametrize(
    ("text", "commands"),
    [
        ("", []),
        ("  # only a remark", []),
        ("a b  c", [["a", "b", "c"]]),
        ("a;b&&c||d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a 'b c' \"d e\" f\\ g", [["a", "b c", "d e", "f g"]]),
        ("r''m \\rm \"r\"m", [["rm", "rm", "rm"]]),
        ("a \\\n b", [["a", "b"]]),
        ("a 'x;y' # z; w", [["a", "x;y"]]),
        ("a#b", [["a#b"]]),
        ("a $(b c) `d e`", [["b", "c"], ["d", "e"], ["a", "$()", "$()"]]),
        ('a "$(b "c d")"', [["b", "c d"], ["a", "$()"]]),
        ("a `b \\`c\\``", [["c"], ["b", "$()"], ["a", "$()"]]),
        ("a ${x:-$(b)} $y", [["b"], ["a", "${x:-$()}", "$y"]]),
        ("a '$(b)' \\$x \"\\$y\"", [["a", "$(b)", "$x", "$y"]]),
        ("(a; b) | c", [["a"], ["b"], ["c"]]),
        ("f() { a b; }", [[], ["a", "b"]]),
        ("a <(b) >(c)", [["b"], ["c"], ["a", "<()", ">()"]]),
        ("a > f 2>&1 < g &> h", [["a"]]),
        ("echo $((1 + $(b))) ", [["b"], ["echo", "$()"]]),
        ("((i++)); a", [["a"]]),
        ("((a b); (c))", [["a", "b"], ["c"]]),
        ("((a b) )", [["a", "b"]]),
        ("case $x in y) a;; *) b;; esac", [["a"], ["b"]]),
        ("x=1 a=(b c)", [["b", "c"], ["x=1", "a=()"]]),
        ("echo $(case x in a) b;; esac) c", [["b"], ["echo", "$()", "c"]]),
        ("[[ $x =~ ^(a|b)$ ]] && c", [["[[", "$x", "=~", "^", "a", "b", "$", "]]"], ["c"]]),
        ("for x in a b; do c; done", [["a", "b"], ["c"]]),
        ("if ! a; then time -p b; fi", [["a"], ["b"]]),
        ("a=($(b) c)", [["b"], ["$()", "c"], ["a=()"]]),
        ("$'a' $'\\x62'", [["a", "b"]]),
    ],
)
def test_text_is_parsed_into_the_commands_it_would_run(text, commands):
    assert words(text) == commands


@pytest.mark.parametrize(
    "text",
    [
        "echo 'a",
        'echo "a',
        "echo $(a",
        "echo `a",
        "echo ${a",
        "echo $'a",
        "a )",
        "a (b)",
        "a !(b)",
        "a=(b",
        "[[ a",
        "case x",
        "echo ${x:-'}' y",
        "$(" * 10_000,
    ],
)
def test_text_that_cannot_be_parsed_is_refused(text):
    with pytest.raises((ValueError, RecursionError)):
        parse(text)


def test_redirections_are_separate_from_words():
    (command,) = parse("a >> 'x y' 2> z <in")

    assert [(sign, word.text) for sign, word in command.targets] == [(">>", "x y"), (">", "z"), ("<", "in")]


def test_a_command_that_reads_from_a_pipe_is_marked():
    reads_pipe = {command.words[0].text: command.reads_pipe for command in parse("a | b && c |\n d; (e) | (f) || g")}

    assert reads_pipe == {"a": False, "b": True, "c": False, "d": True, "e": False, "f": True, "g": False}


def test_a_here_document_belongs_to_its_command_and_is_not_a_command():
    first, second = parse("cat <<'END' > f\nrm -rf $(x)\nEND\nls")

    assert first.input_text == "rm -rf $(x)"
    assert [word.text for word in second.words] == ["ls"]


def test_substitutions_in_an_open_here_document_are_run():
    assert words("cat <<END\n$(rm x)\nEND\n") == [["cat"], ["rm", "x"]]


def test_tabs_before_the_end_of_a_here_document_may_be_stripped():
    assert words("cat <<-END\n\tx\n\tEND\nls") == [["cat"], ["ls"]]


def test_computed_words_are_marked():
    (command,) = parse("a $x \"$y\" '$z' \\$w")

    assert [word.is_computed for word in command.words] == [False, True, True, False, False]
