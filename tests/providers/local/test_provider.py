"""The real embedded model. Nothing here depends on which words it chooses."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.model.errors import BadReply, ContextTooLong, ProviderFailed, Refused, Unreachable
from holdfast.model.event import Usage
from holdfast.model.message import Image, Message, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.provider import ModelReply, ModelRequest, ReasoningDelta, TextDelta, ToolSpec
from holdfast.providers.local import models
from holdfast.providers.local.provider import LocalProvider
from holdfast.providers.local.reply import LocalReply, map_error, partial_text
from holdfast.providers.local.request import build_request

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
]  # most of them run the embedded model, whose threads use every core

ROOT = Path(__file__).parents[3]
LIGHT = ToolSpec(
    "light",
    "Switch the light.\n\nA page about electricity.",
    {
        "type": "object",
        "properties": {"state": {"enum": ["on", "off"]}},
        "required": ["state"],
        "additionalProperties": False,
    },
)


def user(text, seq=1):
    return Message(seq, "user", (Text(text),), at=seq)


def asking(*messages, model="smollm2", **more):
    return ModelRequest(model=model, system="You are Holdfast.", messages=messages, **more)


async def heard(provider, request):
    """Everything that was streamed, and the reply."""
    *deltas, reply = [item async for item in provider.ask(request)]
    assert isinstance(reply, ModelReply)
    return deltas, reply


# Without a limit the model generates for minutes, longer than a test may take.
ENDLESS = "Tell me a very long story."


def model_processes():
    """The processes that run embedded models for this one."""
    return [child for child in psutil.Process().children() if any("model_server" in word for word in words_of(child))]


def words_of(process):
    try:
        return process.cmdline()
    except psutil.NoSuchProcess:
        return []


@pytest.fixture(scope="module")
def provider():
    provider = LocalProvider()
    yield provider
    asyncio.run(provider.close())


@pytest.fixture
def started():
    """Returns the processes of models that started since the test began and still run."""
    before = model_processes()
    return lambda: [process for process in model_processes() if process not in before]


@pytest.fixture
async def another(started):
    provider = LocalProvider()
    yield provider
    await provider.close()


async def test_a_reply_is_streamed(provider):
    deltas, reply = await heard(provider, asking(user("What is the capital of France?"), max_tokens=40))

    assert len(deltas) > 1
    assert reply.parts == (Text("".join(delta.text for delta in deltas)),)
    assert reply.parts[0].text.strip()
    assert reply.usage.tokens_in > 0
    assert len(deltas) <= reply.usage.tokens_out <= 40


async def test_a_conversation_continues(provider):
    opening = user("My dog is called Rex.")
    _, first = await heard(provider, asking(opening, max_tokens=20))

    so_far = (opening, Message(2, "assistant", first.parts, at=2), user("What do dogs eat?", seq=3))
    _, second = await heard(provider, asking(*so_far, max_tokens=20))

    assert second.parts[0].text.strip()
    assert second.usage.tokens_in > first.usage.tokens_in + first.usage.tokens_out


async def test_a_reply_that_reaches_the_limit_says_so(provider):
    _, reply = await heard(provider, asking(user("Tell me a long story."), max_tokens=5))

    assert (reply.finish, reply.usage.tokens_out) == ("length", 5)


async def test_two_requests_are_answered_concurrently(provider):
    questions = ("Name a fruit.", "Name an animal.")

    answers = await asyncio.gather(*(heard(provider, asking(user(text), max_tokens=20)) for text in questions))

    assert all(reply.parts[0].text.strip() for _, reply in answers)
    assert len(model_processes()) == 1


async def test_requests_beyond_the_slots_wait(provider):
    answers = await asyncio.gather(*(heard(provider, asking(user(f"Add {n} and 2."), max_tokens=5)) for n in range(5)))

    assert len(answers) == 5


async def test_a_prompt_that_is_too_long_is_refused_by_name_and_does_no_harm(provider):
    with pytest.raises(ContextTooLong, match="tokens"):
        await heard(provider, asking(user("word " * 9000)))

    _, reply = await heard(provider, asking(user("Hello"), max_tokens=5))
    assert reply.parts


async def test_text_that_is_not_unicode_does_no_harm(provider):
    _, reply = await heard(provider, asking(user("bytes \udcff and \x00 and \ud83d"), max_tokens=5))

    assert reply.parts


async def test_closing_the_iterator_stops_the_model(another, started):
    stream = another.ask(asking(user(ENDLESS), max_tokens=3000))
    async for _ in stream:
        break
    await stream.aclose()

    _, reply = await heard(another, asking(user("Hello"), max_tokens=5))
    await another.close()

    assert reply.parts
    assert started() == []


async def test_cancelling_the_task_stops_the_model(another, started):
    begun = asyncio.Event()

    async def listen():
        async for _ in another.ask(asking(user(ENDLESS), max_tokens=3000)):
            begun.set()

    task = asyncio.create_task(listen())
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await another.close()

    assert started() == []


async def test_closing_the_provider_ends_running_and_waiting_requests_by_name(another, started):
    async def listen():
        await heard(another, asking(user(ENDLESS), max_tokens=3000))

    tasks = [asyncio.create_task(listen()) for _ in range(4)]
    while not started():
        await asyncio.sleep(0)
    await another.close()
    await another.close()

    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [Unreachable] * 4
    assert started() == []


@pytest.mark.process
def test_closing_a_model_that_was_just_loaded_does_not_freeze_the_program():
    times = 20
    command = [sys.executable, "-m", "tests.providers.hasty", str(times)]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)

    assert (done.returncode, done.stdout.split()) == (0, ["closed"] * times), done.stderr


async def test_any_gguf_file_can_be_used_by_path_or_name(tmp_path):
    (tmp_path / "mine.gguf").symlink_to(models.find_model(tmp_path, "smollm2"))
    provider = LocalProvider(tmp_path, context=512)

    _, by_name = await heard(provider, asking(user("Hello"), model="mine", max_tokens=5))
    _, by_path = await heard(provider, asking(user("Hello"), model=str(tmp_path / "mine.gguf"), max_tokens=5))
    await provider.close()

    assert by_name.parts
    assert by_path.parts


async def test_a_model_with_tools_answers_with_a_call_or_with_text(tmp_path):
    (tmp_path / "mine.gguf").symlink_to(models.find_model(tmp_path, "smollm2"))
    provider = LocalProvider(tmp_path, context=1024, tool_models=["mine"])

    request = asking(user("Use the light tool to switch it on."), model="mine", tools=(LIGHT,), max_tokens=60)
    deltas, reply = await heard(provider, request)
    await provider.close()

    match reply.parts:
        case (ToolCall(name="light", arguments=arguments),):
            assert json.loads(arguments)["state"] in {"on", "off"}
            assert (reply.finish, deltas) == ("tool_calls", [])
        case (Text(text=text),):
            assert "".join(delta.text for delta in deltas) == text
        case _:
            pytest.fail(f"{reply.parts} is neither a call nor words")


async def test_a_missing_model_is_named_with_what_to_do(provider):
    with pytest.raises(ProviderFailed, match=r"holdfast model pull qwen2\.5-coder-1\.5b"):
        await heard(provider, asking(user("Hello"), model="qwen2.5-coder-1.5b"))


async def test_an_invalid_model_file_is_named(provider, tmp_path):
    path = tmp_path / "poem.gguf"
    path.write_text("roses are red")

    with pytest.raises(ProviderFailed, match=r"poem\.gguf could not be loaded"):
        await heard(provider, asking(user("Hello"), model=str(path)))


async def test_nobody_else_can_use_the_port_the_library_opens(another, started):
    await heard(another, asking(user("Hello"), max_tokens=2))

    (process,) = started()
    (port,) = {each.laddr.port for each in process.net_connections("tcp") if each.status == psutil.CONN_LISTEN}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        answer = await client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hello"}]})
    assert answer.status_code == 401


async def test_the_settings_of_the_library_are_not_inherited_by_child_processes(provider):
    before = dict(os.environ)

    await heard(provider, asking(user("Hello"), max_tokens=2))

    assert dict(os.environ) == before
    assert "GOMP_SPINCOUNT" not in os.environ


@pytest.mark.process
def test_the_library_is_imported_only_when_it_is_used():
    code = "import sys, holdfast.providers.local.provider; sys.exit('xllamacpp' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_window_is_the_smaller_of_ours_and_the_models(tmp_path):
    assert LocalProvider().window("smollm2") == 8192
    assert LocalProvider(context=512).window("smollm2") == 512
    assert LocalProvider(context=100_000).window("qwen2.5-coder-1.5b") == 32_768
    assert LocalProvider(context=4096).window("mine") == 4096


def test_the_smallest_model_gets_its_own_system_text_and_others_that_of_the_request():
    small = build_request(asking(user("Hello")), shows_tools=False)
    other = build_request(asking(user("Hello"), model="mine"), shows_tools=False)

    assert small["messages"][0] == {"role": "system", "content": models.SMOLLM2.system}
    assert other["messages"][0] == {"role": "system", "content": "You are Holdfast."}


def test_tools_are_described_briefly_and_the_reply_is_constrained_to_their_schema():
    body = build_request(asking(user("Hello"), model="mine", tools=(LIGHT,)), shows_tools=True)

    assert "Switch the light." in body["messages"][0]["content"]
    assert "electricity" not in body["messages"][0]["content"]
    words, light = body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert words["required"] == ["say"]
    assert light["properties"] == {"tool": {"const": "light"}, "args": LIGHT.parameters}


def test_arguments_with_references_are_not_constrained():
    tool = ToolSpec("odd", "", {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {}}})

    body = build_request(asking(user("Hello"), tools=(tool,)), shows_tools=True)

    _, odd = body["response_format"]["json_schema"]["schema"]["anyOf"]
    assert odd["properties"]["args"] == {"type": "object"}


HISTORY = (
    user("Light, please."),
    user("Now!", seq=2),
    Message(3, "assistant", (Reasoning("hm"), Text("Wait."), ToolCall("c", "light", '{"state": "on"}')), at=3),
    Message(4, "tool", (ToolResult("c", (Text("lit"), Image("https://example.org/a.png")), "ok"),), at=4),
    Message(5, "assistant", (), at=5),
    user("Thanks.", seq=6),
)


@pytest.mark.parametrize(
    ("shows_tools", "reply"),
    [(False, "Wait."), (True, '{"say": "Wait."}\n{"tool": "light", "args": {"state": "on"}}')],
    ids=["as words", "as the model would have written it"],
)
def test_the_history_alternates_between_two_roles(shows_tools, reply):
    body = build_request(asking(*HISTORY, tools=(LIGHT,)), shows_tools=shows_tools)

    _, *turns = ((turn["role"], turn["content"]) for turn in body["messages"])
    assert turns == [
        ("user", "Light, please.\n\nNow!"),
        ("assistant", reply),
        ("user", "Result of light (ok):\nlit\n[image or file that this model cannot read]\n\nThanks."),
    ]


def chunk(finish=None, **delta):
    return {"choices": [{"finish_reason": finish, "delta": delta}]}


def read(*pieces, finish="stop"):
    reading = LocalReply("m", constrained=True)
    deltas = [delta for piece in pieces for delta in reading.take(chunk(content=piece))]
    assert list(reading.take(chunk(finish))) == []
    return "".join(delta.text for delta in deltas), reading.reply()


def test_constrained_text_is_shown_as_text():
    shown, reply = read('{"say": "a \\', '"quo', 'te\\" \\ud83d', '\\ude00"', "}")

    assert shown == 'a "quote" \N{GRINNING FACE}'
    assert reply.parts == (Text(shown),)
    assert reply.finish == "stop"


def test_a_constrained_call_is_not_shown():
    shown, reply = read('{"tool": "light", ', '"args": {"state": "on"}}')

    assert shown == ""
    assert [(call.name, call.arguments) for call in reply.parts] == [("light", '{"state": "on"}')]
    assert reply.finish == "tool_calls"


def test_text_may_be_truncated_by_the_limit_but_a_call_may_not():
    shown, reply = read('{"say": "half a sen', finish="length")
    assert (shown, reply.parts, reply.finish) == ("half a sen", (Text("half a sen"),), "length")

    with pytest.raises(BadReply, match="tool call"):
        read('{"tool": "light", "ar', finish="length")


def test_reasoning_and_usage_are_kept():
    reading = LocalReply("m", constrained=False)
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}

    deltas = [*reading.take(chunk(reasoning_content="hm")), *reading.take(chunk(content="yes", finish="stop"))]
    assert list(reading.take({"choices": [], "usage": usage})) == []

    assert deltas == [ReasoningDelta("hm"), TextDelta("yes")]
    assert reading.reply() == ModelReply(
        parts=(Reasoning("hm", provider="local"), Text("yes")),
        model="m",
        finish="stop",
        usage=Usage(tokens_in=7, tokens_out=3, cache_read=5),
    )


def test_a_stream_without_an_end_is_a_bad_reply():
    reading = LocalReply("m", constrained=False)
    list(reading.take(chunk(content="and then")))

    with pytest.raises(BadReply):
        reading.reply()


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ({"code": 400, "type": "exceed_context_size_error", "message": "too long"}, ContextTooLong),
        ({"code": 400, "type": "invalid_request_error", "message": "no"}, Refused),
        ({"code": 500, "type": "server_error", "message": "oops"}, BadReply),
        ({}, BadReply),
    ],
)
def test_the_errors_of_the_library_become_ours(error, expected):
    assert type(map_error(error)) is expected


@given(st.text(), st.booleans(), st.integers(min_value=0))
@example("a backslash and \\ud83d", True, 0)
@example("\N{GRINNING FACE}!", True, 15)
@settings(deadline=None)
def test_the_text_shown_so_far_is_always_a_prefix_of_the_text(text, ascii_only, cut):
    raw = json.dumps({"say": text}, ensure_ascii=ascii_only)

    assert text.startswith(partial_text(raw[: cut % (len(raw) + 1)]))
    assert partial_text(raw) == text
