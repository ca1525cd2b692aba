"""A summary without a model: requests and replies, files, commands, decisions and open items.

It quotes messages with their numbers, by which `recall` finds the rest. The first and the newest messages have
priority; what does not fit is counted.
"""

import json
import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.engine.context.system_notes import NOTE_PREFIX
from holdfast.engine.context.tokens import BYTES_PER_TOKEN, estimate_text
from holdfast.model.message import Message, ToolCall, ToolResult, text_of
from holdfast.model.session import collapse_line

QUOTE_MOST, QUOTE_LEAST = 160, 40
"""Characters per quotation: fewer for a smaller budget."""
PATHS = ("path", "file", "file_path", "filename")
COMMANDS = ("command", "cmd")
RECENT_FILES = 200
"""A file touched again within this many calls is noted once."""
CHANGING = ("write", "edit", "create", "delete", "move", "patch")
DECIDED = (
    r"\b(decid\w+|chose|choose|agreed?|instead of|let's|we(?:'ll| will) use|from now on|always|never|prefer\w*"
    r"|must(?: not)?|do not|don't|remember)\b"
)
OPEN = r"\b(to-?do|fixme|still (?:open|missing|to do)|next steps?|not yet|pending)\b"
SHARES = (
    ("Asked", 0.28),
    ("Answered", 0.17),
    ("Decided", 0.15),
    ("Files", 0.12),
    ("Commands", 0.16),
    ("Open", 0.12),
)


class DigestLine(msgspec.Struct, frozen=True):
    seq: int
    text: str

    def __str__(self) -> str:
        return f"- [{self.seq}] {self.text}"


def digest(before: str, messages: Sequence[Message], budget: int) -> str:
    """The digest of the messages, after the summary of everything before them, within the token budget."""
    kept = f"Before that:\n{_shorten(before, budget * 2 // 5)}" if before else ""
    left = budget - estimate_text(kept)
    found = _Notes(budget // 2).read(messages)
    parts = [
        f"{title}:\n" + "\n".join(_fit(found[title], int(left * share))) for title, share in SHARES if found[title]
    ]
    return _shorten("\n\n".join([kept, *parts] if kept else parts) or "Nothing was said.", budget)


class _Notes:
    """Collects findings from the messages under headings."""

    def __init__(self, quote: int) -> None:
        self._length = max(QUOTE_LEAST, min(QUOTE_MOST, quote))
        self._found: dict[str, list[DigestLine]] = {title: [] for title, _ in SHARES}

    def read(self, messages: Sequence[Message]) -> dict[str, list[DigestLine]]:
        results = _results(messages)
        for message in messages:
            if message.role == "user" and not message.text.startswith(f"[{NOTE_PREFIX}"):
                self._note("Asked", message.seq, self._quote(message.text))
            elif message.text.strip() and message.role == "assistant" and not message.tool_calls:
                self._note("Answered", message.seq, self._quote(message.text))
            for call in message.tool_calls:
                self._call(message.seq, call, results.get(call.id))
            if message.role != "tool":
                self._sentences("Decided", message, DECIDED)
                self._sentences("Open", message, OPEN)
            self._unfinished(message)
        if messages and messages[-1].text.rstrip().endswith(("?", "？")):
            self._note("Open", messages[-1].seq, f"asked, not answered yet: {self._last_line(messages[-1].text)}")
        return self._found

    def _note(self, title: str, seq: int, text: str) -> None:
        self._found[title].append(DigestLine(seq, text))

    def _call(self, seq: int, call: ToolCall, result: ToolResult | None) -> None:
        """Note a file that was touched or a command that ran, with the outcome."""
        arguments = _arguments(call)
        outcome = "no result" if result is None else result.outcome
        last_line = "" if result is None else self._last_line(text_of(result.parts))
        path = next((arguments[name] for name in PATHS if arguments.get(name)), None)
        command = next((arguments[name] for name in COMMANDS if arguments.get(name)), None)
        if path is None:
            what = self._quote(command or f"{call.name} {call.arguments}")
            self._note("Commands", seq, f"{what} → {outcome}" + (f": {last_line}" if last_line else ""))
            return
        verb = "changed" if any(word in call.name for word in CHANGING) else "read"
        line = f"{self._quote(path)} {verb} by {call.name}" + ("" if outcome == "ok" else f" ({outcome}: {last_line})")
        self._found["Files"] = [one for one in self._found["Files"][-RECENT_FILES:] if one.text != line]
        self._note("Files", seq, line)

    def _sentences(self, title: str, message: Message, keywords: str) -> None:
        """Sentences with a decision keyword: at most two per message, from its beginning."""
        sentences = re.split(r"(?<=[.!?。！？])\s+|\n+", message.text[:20_000])
        pattern = re.compile(keywords, re.IGNORECASE)
        for sentence in [sentence for sentence in sentences if pattern.search(sentence)][:2]:
            self._note(title, message.seq, self._quote(sentence))

    def _unfinished(self, message: Message) -> None:
        """Calls with an unknown outcome or denied, and replies that were cut off."""
        for part in message.parts:
            if isinstance(part, ToolResult) and part.outcome in ("unknown", "denied"):
                self._note(
                    "Open", message.seq, f"call {part.call_id}: {part.outcome}: {self._last_line(text_of(part.parts))}"
                )
        if message.partial:
            self._note("Open", message.seq, f"this reply was cut off: {self._quote(message.text)}")

    def _quote(self, text: str) -> str:
        line = collapse_line(text[: 4 * self._length])
        return line if len(line) <= self._length else line[: self._length - 1].rstrip() + "…"

    def _last_line(self, text: str) -> str:
        lines = [line for line in text[-2_000:].splitlines() if line.strip()]
        return self._quote(lines[-1]) if lines else ""


def _results(messages: Iterable[Message]) -> dict[str, ToolResult]:
    return {part.call_id: part for message in messages for part in message.parts if isinstance(part, ToolResult)}


def _arguments(call: ToolCall) -> dict[str, str]:
    try:
        value = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}  # not JSON: the text is quoted unchanged
    return {key: inner for key, inner in value.items() if isinstance(inner, str)} if isinstance(value, dict) else {}


def _fit(lines: Sequence[DigestLine], budget: int) -> list[str]:
    """The first line and as many of the newest as fit; between them, how many are missing."""
    first, *rest = lines
    shown: list[str] = []
    left = budget - estimate_text(str(first))
    for line in reversed(rest):
        left -= estimate_text(str(line)) + 1
        if left < 0:
            break
        shown.insert(0, str(line))
    missing = len(rest) - len(shown)
    note = [f"- (… {missing:,} more …)"] if missing else []
    return [str(first), *note, *shown]


def _shorten(text: str, budget: int) -> str:
    """The beginning of the text, as far as the budget allows: it contains what matters most."""
    if estimate_text(text) <= budget:
        return text
    max_bytes = max(0, budget * BYTES_PER_TOKEN - 4)
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore").rstrip() + " …"
