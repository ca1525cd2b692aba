"""Decides whether a sed script runs commands or writes files."""

import re

_sed_address = re.compile(r"\s*(\d+(~\d+)?|\$|/(?:[^/\\]|\\.)*/[IM]*|[+~]\d+|\\(.)(?:(?!\3).)*\3[IM]*)\s*", re.DOTALL)
SED_UNKNOWN = "its sed script is not understood"


def sed_problem(script: str) -> str:
    """Why a sed script needs approval: it runs commands, or cannot be parsed."""
    at = 0
    while at < len(script):
        if script[at] in " \t\n;{}":
            at += 1
            continue
        for _ in range(2):
            if found := _sed_address.match(script, at):
                at = found.end()
            if not script.startswith(",", at):
                break
            at += 1
        while at < len(script) and script[at] in " !":
            at += 1
        if at >= len(script):
            return SED_UNKNOWN
        problem, at = _sed_command(script, at)
        if problem:
            return problem
    return ""


def _sed_command(script: str, at: int) -> tuple[str, int]:
    """The problem of the command at this position, and where the next begins."""
    char = script[at]
    end_of_line = script.find("\n", at) if "\n" in script[at:] else len(script)
    if char in {"{", "#"}:
        return "", at + 1 if char == "{" else end_of_line
    if char in "sy":
        return _sed_substitution(script, at)
    if char in "aic":
        return "", end_of_line
    if char in "bt:T":
        stop = re.compile(r"[;\n}]|$").search(script, at)
        return "", stop.start() if stop else len(script)
    if char in "rRwW":
        return ("it writes files from a sed script" if char in "wW" else ""), end_of_line
    if char in "dDgGhHlLnNpPqQxzF=":
        found = re.compile(r".\s*\d*\s*(?=[;\n}#]|$)").match(script, at)
        return ("", found.end()) if found else (SED_UNKNOWN, at)
    if char == "e":
        return "its sed script runs commands", at
    return SED_UNKNOWN, at


def _sed_substitution(script: str, at: int) -> tuple[str, int]:
    delimiter = script[at + 1 : at + 2]
    if not delimiter or delimiter in "\\\n":
        return SED_UNKNOWN, at
    quoted = re.escape(delimiter)
    shape = re.compile(rf".{quoted}((?:[^\\{quoted}]|\\.)*){quoted}((?:[^\\{quoted}]|\\.)*){quoted}", re.DOTALL)
    found = shape.match(script, at)
    if found is None or re.search(r"\[[^\]]*$", found.group(1)):
        return SED_UNKNOWN, at
    flags = re.compile(r"[gpiImM0-9]*(?P<more>[^;\n}\s]?)").match(script, found.end())
    assert flags is not None, "the expression matches any text"
    if flags["more"] == "e":
        return "its sed script runs commands", at
    if flags["more"] == "w":
        return "it writes files from a sed script", at
    return (SED_UNKNOWN, at) if flags["more"] not in {"", "#"} else ("", flags.end())
