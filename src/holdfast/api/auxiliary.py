"""The prompts of auxiliary requests: a client asks for a title, tags, suggestions or a search query for its own use.

Such a request is not part of the conversation. Clients often send it under the name of the conversation, before its first
message or after each reply. To support another client, add a line.
"""

import re
from typing import Literal

import msgspec

LOOKED_AT = 4000
"""Characters at the start of a text in which a pattern is searched; the conversation itself may follow."""
SYSTEM: Literal["system"] = "system"
LAST: Literal["last"] = "last"


class Template(msgspec.Struct, frozen=True):
    """A prompt of a client."""

    client: str
    purpose: str
    place: Literal["system", "last"]
    """The pattern is anywhere in the system text, or where the last message of the user begins."""
    pattern: re.Pattern[str]
    contains: str = ""
    """Text that must also be there."""


def _prompt(client: str, purpose: str, place: Literal["system", "last"], pattern: str, contains: str = "") -> Template:
    return Template(client, purpose, place, re.compile(pattern, re.IGNORECASE | re.DOTALL), contains)


TEMPLATES = (
    # Open WebUI puts a real question into the same form if it comes with documents.
    _prompt("Open WebUI", "title, tags, queries", LAST, r"### Task:(?!\s*Respond to the user query)", "<chat_history>"),
    _prompt("Open WebUI", "autocomplete", LAST, r"### Task:\s*You are an autocompletion system"),
    _prompt("Open WebUI", "emoji", LAST, r"Your task is to reflect the speaker's .{0,20}facial expression"),
    _prompt("Open WebUI", "merged reply", LAST, r"You have been provided with a set of responses from various models"),
    _prompt("Open WebUI", "choice of tools", SYSTEM, r"task is to choose and return the correct tool\(s\) from"),
    _prompt("opencode", "title", SYSTEM, r"You are a title generator"),
    _prompt("opencode", "summary", SYSTEM, r"^\s*Summarize what was done in this conversation"),
    _prompt("LibreChat", "title", LAST, r"Provide a concise, 5-word-or-less title"),
    _prompt("LibreChat", "title", LAST, r"Analyze this conversation and provide:\s*1\. The detected language"),
    _prompt("LibreChat", "title", LAST, r"Please generate a concise title \(max \d+ characters\)"),
    _prompt("LibreChat", "title", SYSTEM, r"a concise, 5-word-or-less title for the conversation"),
    _prompt("LobeChat", "title", SYSTEM, r"professional conversation summarizer\. Generate a concise title"),
    _prompt("LobeChat, Cherry Studio", "title", SYSTEM, r"擅长会话的助理.{0,80}标题"),
    _prompt("Cherry Studio", "title", SYSTEM, r"summarize the user's conversation into a title"),
    _prompt("NextChat", "title", LAST, r"Please generate a four to five word title"),
    _prompt("Chatbox", "title", LAST, r"Based on the chat history, give this conversation a name"),
    _prompt("aider", "summary", SYSTEM, r"\*Briefly\* summarize this partial conversation"),
    _prompt("aider", "commit message", SYSTEM, r"that generates \w+, one-line Git commit messages"),
    _prompt("Codex", "title", LAST, r"Generate a concise, single-line task title"),
    _prompt("Claude Code", "title", SYSTEM, r"You are naming a coding session|Summarize this coding conversation in"),
    _prompt("Claude Code", "topic", SYSTEM, r"Analyze if this message indicates a new conversation topic"),
)
LIKELY = re.compile(
    r"\b(?:generate|create|write|give|provide|suggest|make|produce|return|output|summari[sz]e)\b[^.\n]{0,80}"
    r"\b(?:titles?|tags?|headline|follow-?ups?|search quer(?:y|ies))\b",
    re.IGNORECASE,
)
"""A system text that asks for one of these things, in the words of a client that is not in the table."""
