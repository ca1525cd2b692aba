"""Code in the arguments or on the input of a command: shells, programming languages, awk, sed and others.

Code of a programming language can build any name at run time, so it needs approval unless it is certainly
harmless. Shell text is returned to the caller, which checks it like any other.
"""

import re
from dataclasses import dataclass

from holdfast.tools.command_guard.harmless_python import is_harmless_python
from holdfast.tools.command_guard.sed_script import sed_problem
from holdfast.tools.command_guard.shell_syntax import ShellCommand, ShellWord

SHELLS = frozenset({"sh", "bash", "zsh", "dash", "ksh", "mksh", "fish", "ash", "csh", "tcsh", "rbash"})
SHELL_VALUES = frozenset({"--rcfile", "--init-file"})
FISH_SCRIPT = re.compile(r"-[A-Za-z]*[cC](.*)|--(?:init-)?command=?(.*)", re.DOTALL)
VI = r"[egnr]{0,2}(vi|vim|view|vimdiff|ex)(\.\w+)?"
LANGUAGES = (
    (r"i?python|pypy", "c", "", "WXQ"),
    (r"perl", "eE", "", "IMm"),
    (r"ruby|jruby", "e", "", "rIEC"),
    (r"node|nodejs", "ep", "eval print", "rC"),
    (r"bun", "ep", "eval print", ""),
    (r"deno", "", "eval", ""),
    (r"php", "rBRE", "run process-code process-begin process-end", "cd"),
    (r"lua|luajit", "e", "", "l"),
    (r"Rscript|R", "e", "", ""),
    (r"julia", "eE", "eval print", "L"),
    (r"elixir|groovy|scala|osascript|ghc", "e", "eval", ""),
    (r"pwsh|powershell", "ce", "command encodedcommand", ""),
    (r"tclsh|expect", "c", "", ""),
    (r"emacs", "f", "eval execute funcall", ""),
    (r"emacsclient", "e", "eval", ""),
    (rf"{VI}", "cS", "cmd", ""),
    (r"gdb|lldb", "eo", "ex eval-command one-line", ""),
)
"""Names, the letters and long names of options that take code, and the letters of options that take another value."""
_languages = [
    (re.compile(rf"({names})[\d.]*"), codes, long_options.split(), values)
    for names, codes, long_options, values in LANGUAGES
]
ASKS_VERSION = frozenset({"-V", "-v", "-h", "--version", "--help", "-VV", "-version"})
INPUT_FILE = re.compile(r"/dev/(stdin|fd/.*)|/proc/.*|-")
PYTHON_MODULE = re.compile(r"-[bBdEiIOPqRsSuvx]*m([A-Za-z_][\w.]*)?")
CODE_MODULES = frozenset({"timeit", "pdb", "code", "asyncio", "IPython"})
"""Modules of Python that run code from the command line or the input."""
RUNS_MODULES = frozenset({"cProfile", "profile", "trace", "runpy", "coverage"})
"""Modules of Python that run another module."""
PERL_LOADS = re.compile(r"-[alnpswtTuUWXc]*[Mm]")
PERL_MODULE = re.compile(r"-\w*?[Mm]-?[\w:.]+(=[\w:,]*)?")
PHP_SETTING = re.compile(r"(-d)?(auto_(pre|ap)pend_file|(zend_)?extension)=.*")
NEEDS_NO_SCRIPT = re.compile(rf"({VI}|emacs|emacsclient|gdb|lldb|R|ghc|scala)[\d.]*")
PLAIN_EDITOR_COMMAND = re.compile(r"\+(\d*|\$|/[\w .-]*|w?q?a?)")

AWKS = frozenset({"awk", "gawk", "mawk", "nawk", "original-awk"})
SEDS = frozenset({"sed", "gsed"})
AWK_RUNS = re.compile(r"\bsystem\b|\bgetline\b|(?<!\|)\|(?!\|)|@|\bprintf?\b[^;}\n]*>")
AWK_REGEX = re.compile(r"(?P<before>^|[(,~!&|{;\n])(?P<blank>\s*)/(?:[^/\\\n]|\\.)+/")

FROM_INPUT = "runs what it reads from its input"
INLINE = "runs inline code, which cannot be checked"
COMPUTED = "what it runs is only known at run time"


@dataclass(frozen=True, slots=True)
class InlineCode:
    """What is known about the code of a command."""

    problem: str = ""
    script: str | None = None
    """Shell text that it runs."""


NOTHING = InlineCode()


def find_inline_code(name: str, words: list[ShellWord], command: ShellCommand) -> InlineCode:
    """The code that a command runs. `words` begin with its name."""
    if name in SHELLS:
        return _shell(words, command)
    if name in AWKS:
        return _awk(words)
    if name in SEDS:
        return _sed(words)
    for names, codes, long_options, values in _languages:
        if names.fullmatch(name):
            if re.fullmatch(VI, name) and command.has_input:
                return InlineCode(FROM_INPUT)
            return _language(words, codes, long_options, values)
    return NOTHING


def is_editor(name: str) -> bool:
    """Whether the program can run code but starts without a script."""
    return NEEDS_NO_SCRIPT.fullmatch(name) is not None


def is_language(name: str) -> bool:
    return any(names.fullmatch(name) for names, _, _, _ in _languages)


def runs_code(name: str) -> bool:
    """Whether the program runs code in its words or on its input: a shell, a language, awk or sed."""
    return name in SHELLS or name in AWKS or name in SEDS or is_language(name)


def _shell(words: list[ShellWord], command: ShellCommand) -> InlineCode:
    index, has_script = 1, False
    while index < len(words) and words[index].text[:1] in {"-", "+"} and words[index].text != "-":
        text = words[index].text
        index += 1
        if words[index - 1].is_computed:
            return InlineCode(COMPUTED)
        if text in ASKS_VERSION - {"-v"}:
            return NOTHING
        if text == "--":
            break
        if found := FISH_SCRIPT.fullmatch(text if words[0].text.endswith("fish") else ""):
            value = found[1] or found[2]
            return _shell_script([ShellWord.literal(value)] if value else words[index:])
        if text.startswith("--"):
            index += text in SHELL_VALUES
            continue
        if "s" in text[1:]:
            return InlineCode(FROM_INPUT)
        has_script |= "c" in text[1:]
        index += len(re.findall("[oO]", text[1:]))  # each takes a word of its own, also in one word with others
    return _shell_script(words[index:]) if has_script else _script_file(words[index:])


def _shell_script(words: list[ShellWord]) -> InlineCode:
    """The text of `-c`; further words are its arguments."""
    if not words:
        return InlineCode(COMPUTED)
    return InlineCode(COMPUTED) if words[0].is_computed else InlineCode(script=words[0].text)


def _script_file(words: list[ShellWord]) -> InlineCode:
    """A script by its name; without one, or for a device, it is read from the input."""
    if not words or words[0].text == "<()" or INPUT_FILE.fullmatch(words[0].text):
        return InlineCode(FROM_INPUT)
    is_whole = words[0].starts_computed and len(words[0].parts) == 1
    may_be_option = words[0].may_split or (is_whole and any(word.starts_computed for word in words[1:]))
    return InlineCode(COMPUTED) if may_be_option and words[0].starts_computed else NOTHING


def _language(words: list[ShellWord], codes: str, long_options: list[str], values: str) -> InlineCode:
    name = words[0].text.rpartition("/")[2]
    index = 1
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "-":
        text = words[index].text
        if words[index].starts_computed:
            return InlineCode(COMPUTED)
        if text in ASKS_VERSION:
            return NOTHING
        if name.startswith(("python", "pypy")) and (found := PYTHON_MODULE.fullmatch(text)):
            return _module([found[1] or "", *(word.text for word in words[index + 1 :])])
        if name.startswith(("python", "pypy")) and re.fullmatch(r"-[bBdEIOPqRsSuvx]*i\w*", text):
            return InlineCode(FROM_INPUT)
        if _has_code_in_value(name, words[index : index + 2]):
            return InlineCode(INLINE)
        if _takes_code(text, codes, long_options, values):
            return _checked(name, text, words[index + 1 :])
        index += 2 if re.fullmatch(rf"-[{values or ' '}]", text) else 1
    rest = words[index:]
    if rest and rest[0].text in [*long_options, "e"] and name in {"deno", "bun", "node"}:
        return InlineCode(INLINE)
    if name in {"deno", "bun"} and any(word.text == "-" for word in rest):
        return InlineCode(FROM_INPUT)
    if any(word.text.startswith("data:") for word in rest) and name in {"deno", "bun", "node"}:
        return InlineCode(INLINE)
    if is_editor(name):
        texts = [word.text for word in words[1:]]
        problem = any(
            re.match(r"-.*!", text) or (text.startswith("+") and not PLAIN_EDITOR_COMMAND.fullmatch(text))
            for text in texts
        )
        return InlineCode(INLINE) if problem else NOTHING
    return _script_file(rest)


def _module(texts: list[str]) -> InlineCode:
    """The verdict on a module of Python that is run. `texts` are its name and what follows."""
    module, *arguments = texts if texts[0] else texts[1:] or [""]
    is_code = module in CODE_MODULES or (
        module in RUNS_MODULES and any(re.sub(r"^-m", "", text) in CODE_MODULES for text in arguments)
    )
    return InlineCode(INLINE) if is_code else NOTHING


def _has_code_in_value(name: str, words: list[ShellWord]) -> bool:
    """Whether an option that loads a module or sets a value contains code. `words` are the option and the next word."""
    texts = [word.text for word in words]
    if name.startswith("perl") and PERL_LOADS.match(texts[0]):
        return not PERL_MODULE.fullmatch(texts[0])
    if name.startswith("php"):
        return any(PHP_SETTING.fullmatch(text) for text in texts)
    return name in {"node", "nodejs", "deno", "bun"} and any(re.match(r"(-.*=)?data:", text) for text in texts)


def _takes_code(text: str, codes: str, long_options: list[str], values: str) -> bool:
    """Whether an option is followed by code, abbreviated or in one word with others."""
    if text.startswith("--"):
        option = text[2:].partition("=")[0].lower()
        return bool(option) and any(full.startswith(option) for full in long_options)
    if text[1:].lower() in long_options:
        return True
    for letter in text[1:]:
        if letter in codes:
            return True
        if letter in values:
            return False
    return False


def _checked(name: str, option: str, words: list[ShellWord]) -> InlineCode:
    is_plain = name.startswith("python") and option == "-c" and len(words) >= 1 and not words[0].is_computed
    return NOTHING if is_plain and is_harmless_python(words[0].text) else InlineCode(INLINE)


def _awk(words: list[ShellWord]) -> InlineCode:
    index = 1
    while index < len(words) and words[index].text.startswith("-") and words[index].text != "-":
        text = words[index].text
        if words[index].starts_computed or text.startswith(("-e", "-E", "-l", "-i", "--")):
            known = ("--version", "--help", "--field-separator", "--assign", "--csv")
            if words[index].starts_computed or not text.startswith(known):
                return InlineCode("an option of awk is not understood, so its program cannot be checked")
        if text.startswith("-f"):
            return _script_file([ShellWord.literal(text[2:])] if text != "-f" else words[index + 1 :])
        index += 2 if text in {"-F", "-v", "--field-separator", "--assign"} else 1
    if index >= len(words):
        return NOTHING
    if words[index].is_computed:
        return InlineCode(COMPUTED)
    text = re.sub(r'"(?:[^"\\]|\\.)*"', '""', words[index].text)
    text = AWK_REGEX.sub(r"\g<before>\g<blank>", text)
    return InlineCode("its program runs commands or writes files") if AWK_RUNS.search(text) else NOTHING


def _sed(words: list[ShellWord]) -> InlineCode:
    scripts: list[ShellWord] = []
    has_file, index = False, 1
    rest: list[ShellWord] = []
    while index < len(words):
        text = words[index].text
        if text.startswith("-") and text != "-" and not words[index].starts_computed:
            if re.fullmatch(r"--expression=.*|-[nErsuz]*e.+", text, re.DOTALL):
                scripts.append(ShellWord.literal(re.sub(r"^(--expression=|-[nErsuz]*e)", "", text)))
            elif re.fullmatch(r"-[nErsuz]*e|--expression", text) and index + 1 < len(words):
                scripts.append(words[index + 1])
                index += 1
            if found := re.match(r"-[nErsuz]*f|--file=?", text):
                has_file = True
                value = text[found.end() :] or (words[index + 1].text if index + 1 < len(words) else "-")
                if INPUT_FILE.fullmatch(value):
                    return InlineCode(FROM_INPUT)
        else:
            rest.append(words[index])
        index += 1
    if not scripts and not has_file:
        scripts = rest[:1]
    if any(script.starts_computed and len(script.parts) == 1 for script in scripts):
        return InlineCode(COMPUTED)
    problems = (sed_problem(script.text) for script in scripts)
    return InlineCode(next((problem for problem in problems if problem), ""))
