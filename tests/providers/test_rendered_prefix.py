"""A request with a cache is, byte for byte, the request without it."""

import threading
from collections.abc import Callable

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from holdfast.model.message import Image, Message, MessageSnapshot, Reasoning, Text
from holdfast.model.provider import ModelRequest, RequestCache
from holdfast.providers.anthropic import request as anthropic_request
from holdfast.providers.body_chunks import CHUNK_BYTES
from holdfast.providers.openai import request as openai_request
from holdfast.providers.rendered_prefix import RenderedBody, render_in_thread_if_long
from tests.providers.messages import TERMINAL, asking, called, model, result, user
from tests.providers.test_render_properties import PNG, messages, tools

Render = Callable[[ModelRequest], RenderedBody]
VENDORS = {"openai": openai_request.render, "anthropic": anthropic_request.render}
each_vendor = pytest.mark.parametrize("render", VENDORS.values(), ids=VENDORS)

PICTURE = Image(f"data:image/png;base64,{PNG}", "", "")
usual = st.sampled_from(
    [
        user("hi"),
        user("look", PICTURE),
        model("hello"),
        model(called("c1")),
        model("let me", called("c1"), called("c2")),
        result("c1"),
        result("c2", "other"),
        model(Reasoning("hm", "openai", {"server": "api.openai.com", "field": "reasoning"}), called("c3")),
        model(Reasoning("hm", "openai", {"server": "api.openai.com", "field": "reasoning_content"}), "so"),
        result("c3"),
    ]
)
histories = st.lists(usual | messages, max_size=30)
exchanges = st.lists(
    st.sampled_from([[user("hi"), model("hello")], [user("go"), model(called("c1")), result("c1"), model("done")]]),
    max_size=8,
).map(lambda lists: [message for one in lists for message in one])


@pytest.mark.slow
@each_vendor
@settings(deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_conversation_that_grows_is_rendered_as_without_the_cache(render: Render, data: st.DataObject) -> None:
    cache = RequestCache()
    said: list[Message] = []
    request = asking()
    for _ in range(data.draw(st.integers(1, 5))):
        match data.draw(st.sampled_from(["grow", "grow", "grow", "rewind", "system", "tools"])):
            case "grow":
                said = said + data.draw(exchanges) + data.draw(histories)
            case "rewind":
                said = said[: data.draw(st.integers(0, len(said)))]
            case "system":
                request = msgspec.structs.replace(request, system=data.draw(st.text(max_size=3)))
            case _:
                request = msgspec.structs.replace(request, tools=tuple(data.draw(st.lists(tools, max_size=2))))
        request = msgspec.structs.replace(request, messages=tuple(said))

        cached = render(msgspec.structs.replace(request, cache=cache))
        fresh = render(request)

        assert cached.body == fresh.body
        assert getattr(cached, "fingerprint", "") == getattr(fresh, "fingerprint", "")
        ids = {call.id for message in said for call in message.tool_calls} | {"c1", "c2", "c3"}
        assert [cached.prefix.has_call(id) for id in ids] == [fresh.prefix.has_call(id) for id in ids]


@each_vendor
@pytest.mark.parametrize("place", [0, 1, 9])
def test_a_changed_message_is_rendered_again(render: Render, place: int) -> None:
    said = [message for n in range(20) for message in (user(f"question {n}"), model(f"answer {n}"))]
    cache = RequestCache()
    render(msgspec.structs.replace(asking(*said, user("one")), cache=cache))
    said[place] = msgspec.structs.replace(said[place], parts=(Text("something else"),))
    request = asking(*said, user("one"), model("two"), user("three"))

    assert render(msgspec.structs.replace(request, cache=cache)).body == render(request).body


@each_vendor
def test_only_new_messages_are_rendered(render: Render, monkeypatch: pytest.MonkeyPatch) -> None:
    said: tuple[Message, ...] = tuple(
        message
        for n in range(500)
        for message in (user(f"question {n}"), model(called(f"c{n}")), result(f"c{n}"), model("so"))
    )
    cache = RequestCache()
    render(msgspec.structs.replace(asking(*said, user("one")), cache=cache))
    seen: list[object] = []
    monkeypatch.setattr(Text, "__eq__", lambda *_: pytest.fail("a message was compared in depth"))
    for module in (openai_request, anthropic_request):
        result_parts = module.result_parts
        monkeypatch.setattr(
            module, "result_parts", lambda one, original=result_parts: (seen.append(one), original(one))[1]
        )

    render(msgspec.structs.replace(asking(*said, user("one"), model("two"), user("three")), cache=cache))

    assert 0 < len(seen) < 10
    assert cache.size > 500 * len("question")


@each_vendor
def test_a_request_neither_compares_nor_copies_the_settled_messages(
    render: Render, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = [message for n in range(2_000) for message in (user(f"question {n} " * 20), model("so"))]
    cache = RequestCache()
    bodies = []
    read: list[object] = []
    iterate = MessageSnapshot.__iter__
    monkeypatch.setattr(MessageSnapshot, "__iter__", lambda one: (read.append(one), iterate(one))[1])

    for word in ("one", "two"):
        said.append(user(word))
        request = msgspec.structs.replace(asking(), messages=MessageSnapshot(said), cache=cache)
        bodies.append(render(request))
        said.append(model("so"))

    first, second = (body.chunks for body in bodies)
    shared = {id(chunk) for chunk in first} & {id(chunk) for chunk in second}
    new = [chunk for chunk in second if id(chunk) not in shared]
    assert read == [], "all messages were read"
    assert len(bodies[1].body) > 500_000
    assert sum(map(len, new)) < 2 * CHUNK_BYTES


@each_vendor
@pytest.mark.parametrize("count", [10, 2_000])
async def test_many_new_messages_are_rendered_in_a_thread(render: Render, count: int) -> None:
    request = asking(*(message for n in range(count) for message in (user(f"question {n}"), model("so"))), user("one"))
    request = msgspec.structs.replace(request, cache=RequestCache())
    threads: list[bool] = []

    def watched(one: ModelRequest) -> RenderedBody:
        threads.append(threading.current_thread() is not threading.main_thread())
        return render(one)

    first = await render_in_thread_if_long(watched, request)
    second = await render_in_thread_if_long(watched, request)

    assert threads == [count > 500, False], "the second time only the newest ones are rendered"
    assert first.body == second.body


def test_the_cache_of_one_server_is_not_used_for_another() -> None:
    said = [message for _ in range(5) for message in (user("a"), model("b"))]
    request = msgspec.structs.replace(asking(*said, user("c")), cache=RequestCache())

    for _ in range(2):
        openai = openai_request.render(request, server="other.example").body
        anthropic = anthropic_request.render(request).body
        plain = msgspec.structs.replace(request, cache=None, tools=(TERMINAL,))
        assert openai == openai_request.render(plain, server="other.example").body
        assert anthropic == anthropic_request.render(plain).body
