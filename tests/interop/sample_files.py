"""Files as other programs write them, made from the documented formats."""

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

BEGAN = 1_780_000_000.0
"""A time in 2026, in seconds."""


def iso(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(BEGAN + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def write_lines(path: Path, values: Iterable[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


# Hermes. Each version of the schema has the columns of those before it.

SESSION_COLUMNS = {
    1: "id TEXT PRIMARY KEY, source TEXT NOT NULL, user_id TEXT, model TEXT, model_config TEXT, system_prompt TEXT, "
    "parent_session_id TEXT, started_at REAL NOT NULL, ended_at REAL, end_reason TEXT, message_count INTEGER DEFAULT 0, "
    "tool_call_count INTEGER DEFAULT 0, input_tokens INTEGER DEFAULT 0, output_tokens INTEGER DEFAULT 0",
    3: "title TEXT",
    5: "cache_read_tokens INTEGER DEFAULT 0, cache_write_tokens INTEGER DEFAULT 0, reasoning_tokens INTEGER DEFAULT 0, "
    "estimated_cost_usd REAL, actual_cost_usd REAL",
    11: "api_call_count INTEGER DEFAULT 0, handoff_state TEXT, cwd TEXT",
    16: "rewind_count INTEGER DEFAULT 0",
    22: "archived INTEGER DEFAULT 0, session_key TEXT, profile_name TEXT",
}
MESSAGE_COLUMNS = {
    1: "id INTEGER PRIMARY KEY AUTOINCREMENT, session_id TEXT NOT NULL, role TEXT NOT NULL, content TEXT, "
    "tool_call_id TEXT, tool_calls TEXT, tool_name TEXT, timestamp REAL NOT NULL, token_count INTEGER",
    2: "finish_reason TEXT",
    6: "reasoning TEXT, reasoning_details TEXT, codex_reasoning_items TEXT",
    11: "reasoning_content TEXT, platform_message_id TEXT",
    16: "observed INTEGER DEFAULT 0, active INTEGER DEFAULT 1",
    20: "compacted INTEGER DEFAULT 0",
    22: "effect_disposition TEXT, codex_message_items TEXT, api_content TEXT",
}
VERSIONS = (1, 3, 6, 11, 16, 22)


class Hermes:
    """A `state.db` of a given version, open as in a running Hermes."""

    def __init__(self, path: Path, version: int = 22, *, wal: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path = path
        self.connection = sqlite3.connect(path, isolation_level=None)
        if wal:
            self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute("CREATE TABLE schema_version (version INTEGER NOT NULL)")
        self.connection.execute("INSERT INTO schema_version VALUES (?)", (version,))
        for table, columns in (("sessions", SESSION_COLUMNS), ("messages", MESSAGE_COLUMNS)):
            there = ", ".join(text for since, text in columns.items() if since <= version)
            self.connection.execute(f"CREATE TABLE {table} ({there})")
        self.connection.execute("CREATE INDEX idx_messages_session ON messages(session_id, timestamp)")
        self.columns = {table: self._names(table) for table in ("sessions", "messages")}
        self._clock = 0.0

    def _names(self, table: str) -> set[str]:
        return {row[1] for row in self.connection.execute(f"PRAGMA table_info({table})")}

    def _insert(self, table: str, values: dict[str, Any]) -> None:
        kept = {name: value for name, value in values.items() if name in self.columns[table]}
        marks = ", ".join("?" * len(kept))
        self.connection.execute(f"INSERT INTO {table} ({', '.join(kept)}) VALUES ({marks})", list(kept.values()))

    def session(self, name: str, **values: Any) -> str:
        self._clock += 10
        given = {
            "id": name,
            "source": "cli",
            "model": "hermes-4",
            "started_at": BEGAN + self._clock,
            "system_prompt": "x" * 50,
        }
        self._insert("sessions", given | values)
        return name

    def end(self, name: str, reason: str) -> None:
        self._clock += 1
        ended = BEGAN + self._clock
        self.connection.execute("UPDATE sessions SET ended_at = ?, end_reason = ? WHERE id = ?", (ended, reason, name))

    def say(self, session: str, role: str, content: str | None, **values: Any) -> None:
        self._clock += 1
        given = {"session_id": session, "role": role, "content": content, "timestamp": BEGAN + self._clock}
        self._insert("messages", given | values)

    def exchange(self, session: str, words: str, reply: str, **values: Any) -> None:
        self.say(session, "user", words, **values)
        self.say(session, "assistant", reply, finish_reason="stop", **values)

    def tool(self, session: str, call: str, output: str | None, **values: Any) -> None:
        function = {"name": "terminal", "arguments": '{"command": "ls"}'}
        calls = json.dumps([{"id": call, "type": "function", "function": function}])
        self.say(session, "assistant", "", tool_calls=calls, finish_reason="tool_calls", **values)
        if output is not None:
            self.say(session, "tool", output, tool_call_id=call, tool_name="terminal", **values)

    def count(self) -> int:
        return int(self.connection.execute("SELECT count(*) FROM messages").fetchone()[0])

    def close(self) -> None:
        self.connection.close()


SUMMARY = (
    "[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted into the summary below.\n\nWe spoke of cats."
)


def hermes_plain(path: Path, version: int = 22) -> Hermes:
    """Examples of everything that every version can contain."""
    made = Hermes(path, version)
    made.session("20260101_000000_aaaaaa", title="About cats", input_tokens=100, output_tokens=20, cache_read_tokens=7)
    made.exchange("20260101_000000_aaaaaa", "hello", "hi there")
    made.say("20260101_000000_aaaaaa", "user", "list the files")
    made.tool("20260101_000000_aaaaaa", "call_1", "a.txt\nb.txt")
    made.say("20260101_000000_aaaaaa", "assistant", "two files", reasoning="I saw two.")
    made.end("20260101_000000_aaaaaa", "cli_close")
    made.session("20260101_000100_bbbbbb")
    made.say("20260101_000100_bbbbbb", "user", "run it")
    made.tool("20260101_000100_bbbbbb", "call_2", None)  # Hermes died here
    made.session("20260101_000200_empty0")
    return made


def hermes_rotated(path: Path, version: int = 22) -> Hermes:
    """A session that was compacted twice into a new one, with a subagent and a branch."""
    made = Hermes(path, version)
    made.session("root", title="Long work", output_tokens=5)
    for n in range(6):
        made.exchange("root", f"question {n}", f"answer {n}")
    made.end("root", "compression")
    made.session("second", parent_session_id="root", title="Long work #2", output_tokens=7)
    made.exchange("second", "question 0", "answer 0")
    made.say("second", "user", SUMMARY)
    made.exchange("second", "question 5", "answer 5")
    made.exchange("second", "question 6", "answer 6")
    made.end("second", "compression")
    made.session("third", parent_session_id="second", title="Long work #3")
    made.exchange("third", "question 0", "answer 0")
    made.say("third", "user", SUMMARY + " And dogs.")
    made.exchange("third", "question 6", "answer 6")
    made.exchange("third", "question 7", "answer 7")
    made.session("helper", parent_session_id="root", source="tool", model_config='{"_delegate_from": "root"}')
    made.exchange("helper", "look it up", "found")
    made.session("branch", parent_session_id="third", model_config='{"_branched_from": "third"}')
    made.exchange("branch", "question 0", "another answer")
    return made


def hermes_in_place(path: Path) -> Hermes:
    """A session compacted twice in place, with undone messages."""
    made = Hermes(path, 22)
    made.session("c1", title="In place")
    archived = {"active": 0, "compacted": 1}
    for n in range(4):
        made.exchange("c1", f"question {n}", f"answer {n}", **archived)
    made.exchange("c1", "a mistake", "an answer to it", active=0, compacted=0)
    made.exchange("c1", "question 0", "answer 0", **archived)
    made.say("c1", "user", SUMMARY, **archived)
    made.exchange("c1", "question 3", "answer 3", **archived)
    made.exchange("c1", "question 4", "answer 4", **archived)
    made.exchange("c1", "question 0", "answer 0")
    made.say("c1", "user", SUMMARY + " And dogs.")
    made.exchange("c1", "question 4", "answer 4")
    made.exchange("c1", "question 5", "answer 5")
    return made


# Codex


def codex_line(seconds: float, kind: str, payload: object) -> dict[str, object]:
    return {"timestamp": iso(seconds), "type": kind, "payload": payload}


def codex_said(seconds: float, role: str, words: str) -> dict[str, object]:
    kind = "output_text" if role == "assistant" else "input_text"
    content = [{"type": kind, "text": words}]
    return codex_line(seconds, "response_item", {"type": "message", "role": role, "content": content})


CODEX_ID = "019a0000-0000-7000-8000-000000000001"


def codex_lines(session_id: str = CODEX_ID) -> list[dict[str, object]]:
    def item(seconds: float, **payload: object) -> dict[str, object]:
        return codex_line(seconds, "response_item", payload)

    counts = {"input_tokens": 100, "cached_input_tokens": 40, "output_tokens": 9, "reasoning_output_tokens": 3}
    meta = {"id": session_id, "timestamp": iso(0), "cwd": "/tmp", "originator": "codex_cli_rs", "cli_version": "0.50.0"}
    return [
        codex_line(0, "session_meta", meta | {"instructions": None, "git": None}),
        codex_said(1, "user", "<environment_context>\n  <cwd>/tmp</cwd>\n</environment_context>"),
        codex_line(2, "turn_context", {"cwd": "/tmp", "model": "gpt-5-codex", "summary": "auto"}),
        codex_said(3, "user", "How many files are here?"),
        codex_line(3, "event_msg", {"type": "user_message", "message": "How many files are here?"}),
        item(
            4,
            type="reasoning",
            summary=[{"type": "summary_text", "text": "I should look."}],
            content=None,
            encrypted_content="gAAA",
        ),
        item(5, type="function_call", name="shell", arguments='{"command":["ls"]}', call_id="call_a"),
        item(5, type="function_call", name="shell", arguments='{"command":["pwd"]}', call_id="call_b"),
        codex_line(
            5, "event_msg", {"type": "token_count", "info": {"total_token_usage": counts, "last_token_usage": counts}}
        ),
        item(
            6, type="function_call_output", call_id="call_a", output='{"output":"a\\nb\\n","metadata":{"exit_code":0}}'
        ),
        item(7, type="function_call_output", call_id="call_b", output={"content": "no", "success": False}),
        codex_said(8, "assistant", "Two files."),
        codex_line(8, "event_msg", {"type": "agent_message", "message": "Two files."}),
        item(
            9,
            type="custom_tool_call",
            call_id="call_c",
            name="apply_patch",
            input="*** Begin Patch",
            status="completed",
        ),
        item(9, type="ghost_snapshot", ghost_commit={"id": "x"}),
    ]


def codex(path: Path) -> Path:
    """A rollout that ends in the middle of a call."""
    return write_lines(path, codex_lines())


def codex_old(path: Path) -> Path:
    """As releases of the summer of 2025 wrote them."""
    said = [codex_said(1, "user", "Hello?"), codex_said(2, "assistant", "Hello!")]
    first = {"id": "0199-old", "timestamp": iso(0), "instructions": "Be brief."}
    return write_lines(path, [first, {"record_type": "state"}, *(line["payload"] for line in said)])


# Claude Code


class Claude:
    """Writes lines that follow one another."""

    def __init__(self, session_id: str = "11111111-2222-4333-8444-555555555555") -> None:
        self.session_id = session_id
        self.lines: list[dict[str, Any]] = []
        self.tip: str | None = None
        self.side = False

    def line(self, kind: str, message: dict[str, Any], **more: Any) -> str:
        uuid = f"uuid-{len(self.lines)}"
        base = {
            "parentUuid": self.tip,
            "isSidechain": self.side,
            "userType": "external",
            "cwd": "/tmp",
            "sessionId": self.session_id,
        }
        rest = {"version": "2.0.1", "type": kind, "message": message, "uuid": uuid, "timestamp": iso(len(self.lines))}
        self.lines.append(base | rest | more)
        self.tip = uuid
        return uuid

    def user(self, content: object, **more: Any) -> str:
        return self.line("user", {"role": "user", "content": content}, **more)

    def assistant(self, block: dict[str, Any], name: str = "", **more: Any) -> str:
        usage = {"input_tokens": 10, "cache_read_input_tokens": 5, "cache_creation_input_tokens": 1, "output_tokens": 4}
        name = name or f"msg_{len(self.lines)}"
        message = {
            "id": name,
            "role": "assistant",
            "model": "claude-x",
            "content": [block],
            "usage": usage,
            "stop_reason": None,
        }
        return self.line("assistant", message, **more)

    def result(self, call: str, content: object, **more: Any) -> str:
        return self.user([{"type": "tool_result", "tool_use_id": call, "content": content, **more}])


def words_block(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def use_block(call: str, name: str = "Bash") -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": name, "input": {"command": "ls"}}


def claude(path: Path) -> Path:
    """Reasoning, parallel calls, a subagent, an edited prompt, a compaction and a title."""
    made = Claude()
    made.lines.append({"type": "file-history-snapshot", "messageId": "m", "snapshot": {}, "isSnapshotUpdate": False})
    made.user("<command-name>/clear</command-name>", isMeta=True)
    first = made.user("Count the files")
    made.assistant({"type": "thinking", "thinking": "I look.", "signature": "sig"}, "msg_a")
    made.assistant(words_block("Looking."), "msg_a")
    one = made.assistant(use_block("toolu_1"), "msg_a")
    two = made.assistant(use_block("toolu_2"), "msg_a")
    made.tip = one
    made.result("toolu_1", "a.txt")
    made.tip = two
    made.result("toolu_2", [{"type": "text", "text": "boom"}], is_error=True)
    answer = made.assistant(words_block("One file."))
    made.user("Now delete it")
    made.assistant(words_block("Deleted."))
    made.tip = answer
    made.user(
        [
            words_block("No, keep it"),
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}},
        ]
    )
    made.assistant(words_block("Kept."))
    tip, made.tip, made.side = made.tip, None, True
    made.user("You are a helper: search")
    made.assistant(use_block("toolu_3", "Grep"))
    made.result("toolu_3", "nothing")
    made.assistant(words_block("Nothing found."))
    made.tip, made.side = None, False
    made.lines.append(
        {
            "type": "system",
            "subtype": "compact_boundary",
            "uuid": "b",
            "parentUuid": None,
            "sessionId": made.session_id,
            "timestamp": iso(50),
        }
    )
    made.tip = "b"
    made.user(
        "This session is being continued. Files were counted.", isCompactSummary=True, isVisibleInTranscriptOnly=True
    )
    made.user("And now?")
    made.assistant(words_block("Done."))
    made.lines.append({"type": "summary", "summary": "Counting files", "leafUuid": made.tip})
    assert first and tip
    return write_lines(path, made.lines)


# ChatGPT


def node(uid: str, parent: str | None, role: str, content: dict[str, Any], **more: Any) -> dict[str, Any]:
    message = {"id": uid, "author": {"role": role, "name": more.pop("name", None), "metadata": {}}, "content": content}
    message |= {
        "create_time": BEGAN + more.pop("at", 1),
        "status": "finished_successfully",
        "recipient": "all",
        "metadata": {},
    }
    return {"id": uid, "message": message | more, "parent": parent, "children": []}


def said(*parts: object) -> dict[str, Any]:
    return {"content_type": "text", "parts": list(parts)}


def tree(nodes: Sequence[dict[str, Any]]) -> dict[str, Any]:
    found = {one["id"]: one for one in nodes}
    for one in nodes:
        if one["parent"] in found:
            found[one["parent"]]["children"].append(one["id"])
    return found


def chatgpt_sessions() -> list[dict[str, Any]]:
    root: dict[str, Any] = {"id": "root", "message": None, "parent": None, "children": []}
    nodes = [
        root,
        node("sys", "root", "system", said("")),
        node("u1", "sys", "user", said("Draw a cat"), at=2),
        node("a1", "u1", "assistant", said("Which colour?"), at=3, metadata={"model_slug": "gpt-4o"}),
        node("u2", "a1", "user", said("Black"), at=4),
        node("t2", "u2", "assistant", {"content_type": "thoughts", "thoughts": [{"summary": "Cats", "content": "Black."}]}, at=5),
        node("c2", "t2", "assistant", {"content_type": "code", "language": "python", "text": "draw()"}, at=6, recipient="python"),
        node("r2", "c2", "tool", {"content_type": "execution_output", "text": "ok"}, at=7, name="python"),
        node("a2", "r2", "assistant", said("Here it is."), at=8, metadata={"model_slug": "gpt-4o"}),
        node("u2b", "a1", "user", said("White"), at=9),
        node("a2b", "u2b", "assistant", said("A white cat."), at=10),
        node("u1b", "sys", "user", {"content_type": "multimodal_text", "parts": [
            {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-1"}, "What is this?"]}, at=11),
    ]  # fmt: skip
    plain = [
        root | {"children": []},
        node("p1", "root", "user", said("Hello")),
        node("p2", "p1", "assistant", said("Hi")),
    ]
    return [
        {"title": "A cat", "create_time": BEGAN, "update_time": BEGAN + 20, "mapping": tree(nodes), "current_node": "a2", "conversation_id": "conv-1", "id": "conv-1"},
        {"title": None, "create_time": BEGAN + 100, "mapping": tree(plain), "current_node": "p2", "id": "conv-2"},
    ]  # fmt: skip


def chatgpt(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(chatgpt_sessions()))
    return path
