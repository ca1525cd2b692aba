"""Checks the sender of a mail by the Authentication-Results (RFC 8601) of our own mail server. Pure.

Anybody can put any header into a mail, so only the topmost Authentication-Results counts, and only if it carries the
name of our own server, which adds its header above all others. It must say `dmarc=pass` for the domain in From. If the
domain has no DMARC policy (`none`, or no result), a DKIM or SPF result that passed for that domain or a parent of it is
enough. A header that cannot be parsed authenticates nobody.
"""

import re
from email.message import EmailMessage

import msgspec

from holdfast.model.errors import Invalid

RESULTS_HEADER = "authentication-results"
TOKEN = re.compile(r'[^\s;="()\\]+')
SPACE = re.compile(r"\s+")


class AuthResult(msgspec.Struct, frozen=True):
    """The result of one method, and its properties: `header.from`, `smtp.mailfrom` …"""

    method: str
    result: str
    properties: dict[str, str]


class AuthReport(msgspec.Struct, frozen=True):
    authserv: str
    results: tuple[AuthResult, ...]


def parse_results(value: str) -> AuthReport:
    """Parse an Authentication-Results header. Raises Invalid."""
    segments = _split_segments(value)
    name = segments[0]
    if not name or name[0] == "=" or len(name) > 2 or (len(name) == 2 and not name[1].isdecimal()):
        raise Invalid("it does not name the server that wrote it")
    results = [_parse_result(segment) for segment in segments[1:] if segment and segment != ["none"]]
    return AuthReport(name[0].strip('"').lower(), tuple(results))


def _split_segments(value: str) -> list[list[str]]:
    """The tokens between semicolons: words, quoted strings with their opening quotation mark, and `=`. Comments are dropped."""
    found: list[list[str]] = [[]]
    at = 0
    while at < len(value):
        if space := SPACE.match(value, at):
            at = space.end()
        elif value[at] == "(":
            at = _skip_comment(value, at)
        elif value[at] == '"':
            text, at = _read_quoted(value, at)
            found[-1].append(f'"{text}')
        elif value[at] == ";":
            found.append([])
            at += 1
        elif value[at] == "=":
            found[-1].append("=")
            at += 1
        elif token := TOKEN.match(value, at):
            found[-1].append(token.group())
            at = token.end()
        else:
            raise Invalid(f"{value[at]!r} is unexpected")
    return found


def _skip_comment(value: str, at: int) -> int:
    """Return the position after a comment. Comments nest."""
    depth = 0
    while at < len(value):
        if value[at] == "\\":
            at += 1
        elif value[at] == "(":
            depth += 1
        elif value[at] == ")":
            depth -= 1
            if depth == 0:
                return at + 1
        at += 1
    raise Invalid("a comment is not closed")


def _read_quoted(value: str, at: int) -> tuple[str, int]:
    text = ""
    at += 1
    while at < len(value):
        if value[at] == '"':
            return text, at + 1
        if value[at] == "\\":
            at += 1
        text += value[at : at + 1]
        at += 1
    raise Invalid("a quoted string is not closed")


def _parse_result(tokens: list[str]) -> AuthResult:
    """Parse `method=result`, followed by properties with values."""
    if len(tokens) % 3 or any(tokens[index] != "=" for index in range(1, len(tokens), 3)):
        raise Invalid(f"{' '.join(tokens)[:100]!r} is not a result")
    pairs = [(tokens[index], tokens[index + 2]) for index in range(0, len(tokens), 3)]
    if any(key[0] in '"=' or value == "=" for key, value in pairs) or pairs[0][1].startswith('"'):
        raise Invalid(f"{' '.join(tokens)[:100]!r} is not a result")
    method, result = pairs[0]
    properties: dict[str, str] = {}
    for key, value in pairs[1:]:
        if properties.setdefault(key.lower(), value.removeprefix('"').lower()) != value.removeprefix('"').lower():
            raise Invalid(f"{key} is given twice")
    return AuthResult(method.lower().partition("/")[0], result.lower(), properties)


def rejection_reason(mail: EmailMessage, sender: str, authserv: str) -> str:
    """Why the sender of a mail is not authenticated; empty if it is."""
    if len(mail.get_all("from") or ()) != 1:
        return "it has more than one From"
    # The raw header: the library would decode encoded words that can hide a semicolon.
    given = next((str(value) for name, value in mail.raw_items() if name.lower() == RESULTS_HEADER), None)
    if given is None:
        return f"{authserv} has not checked its sender"
    try:
        report = parse_results(given)
    except Invalid as e:
        return f"its Authentication-Results cannot be read: {e}"
    if report.authserv != authserv.lower():
        return f"{authserv} has not checked its sender; the topmost result is of {report.authserv!r}"
    return "" if is_authentic(report, sender.rpartition("@")[2]) else f"{authserv} did not authenticate its sender"


def is_authentic(report: AuthReport, domain: str) -> bool:
    """Whether the report authenticates mail from this domain."""
    domain = domain.lower().rstrip(".")
    judged = [one for one in report.results if one.method == "dmarc" and one.result != "none"]
    if judged:
        return all(
            one.result == "pass" and one.properties.get("header.from", "").rstrip(".") == domain for one in judged
        )
    return any(one.result == "pass" and _is_aligned(one, domain) for one in report.results)


def _is_aligned(one: AuthResult, domain: str) -> bool:
    """Whether the authenticated domain is this domain or a parent of it."""
    names = {"dkim": ("header.d", "header.i"), "spf": ("smtp.mailfrom", "smtp.mail")}.get(one.method, ())
    given = next((one.properties[name] for name in names if name in one.properties), "")
    passed = given.rpartition("@")[2].rstrip(".")
    return "." in passed and (passed == domain or domain.endswith(f".{passed}"))
