"""A session as one HTML file: complete, without scripts and external resources."""

import base64
import re
from pathlib import Path

import pytest

from holdfast.engine.delegation.create import BRIEF
from holdfast.interop.pages import document
from holdfast.interop.pages.rendering import ItemLinks
from holdfast.interop.pages.transcript import PageTranscript
from holdfast.model.event import (
    Compacted,
    Ended,
    Forked,
    InstructionsLoaded,
    ModelCalled,
    ModelSaid,
    Rewound,
    ToolEnded,
    ToolStarted,
)
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall
from tests.interop.export.test_markdown_file import AT, SESSION, entries, said

PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
REPLY = """Look at **this**:

```python
def greet(): return 1
```

|a|b|
|-|-|
|1|2|
"""


def test_a_page_shows_every_message() -> None:
    call = ToolCall("c", "terminal", '{"command": "ls"}')
    page = document.render_file(
        SESSION,
        entries(
            said(Text("hello")),
            ModelSaid(turn_id="t", parts=(Reasoning(text="hmm"), Text("looking"), call), partial=True),
            ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a file"),)),
            Compacted(epoch=1, upto_seq=2, summary="s", how="model"),
            Forked(parent_id="hf-0", at_seq=1, at_hash="h"),
            Ended(reason="user"),
        ),
    )

    for words in (
        "hello",
        "hmm",
        "looking",
        "interrupted",
        "terminal",
        "ls",
        "a file",
        "epoch 1",
        "hf-0",
        "Ended",
    ):
        assert words in page


@pytest.mark.parametrize(
    "evil",
    [
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "</div></body><iframe src=//evil.example>",
        "${title} $$ {{7*7}}",
    ],
)
def test_messages_cannot_add_markup_to_a_page(evil: str) -> None:
    page = document.render_file(
        SESSION,
        entries(
            said(Text(evil), Image(url=evil), File(url=evil, name=evil)),
            ModelSaid(turn_id="t", parts=(Text(evil), Reasoning(text=evil), ToolCall(evil, evil, evil))),
        ),
    )

    tags = set(re.findall(r"<\s*/?\s*([a-z0-9!]+)", page))
    assert not tags & {"script", "iframe", "object", "embed", "form", "base", "img", "svg"}
    assert "onerror=alert(1)>" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (PIXEL, f'src="{PIXEL}"'),
        ("https://example.org/cat.png", '<a href="https://example.org/cat.png" rel="noreferrer noopener"'),
        ("javascript:alert(1)", "▧ javascript:alert(1)"),
        ("data:image/svg+xml;base64,PHN2Zz4=", "▧ data:image/svg+xml;base64,PHN2Zz4="),
        ("data:text/html,<script>", "▧ data:text/html,&lt;script&gt;"),
        ("data:image/png;base64,PHN2Zz4=", "image not available"),
        ("file:../../../etc/passwd", "image not available"),
    ],
)
def test_only_harmless_images_are_shown_inline(url: str, shown: str) -> None:
    page = document.render_file(SESSION, entries(said(Image(url=url))))

    assert shown in page


def test_images_of_tools_are_embedded(tmp_path: Path) -> None:
    folder = tmp_path / "files" / SESSION.id
    folder.mkdir(parents=True)
    (folder / "drawn.png").write_bytes(base64.b64decode(PIXEL.partition(",")[2]))
    call = ToolCall("c", "make_image", '{"prompt": "a dot"}')
    page = document.render_file(
        SESSION,
        entries(
            ModelSaid(turn_id="t", parts=(call,)),
            ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Image("file:drawn.png", saved_as="drawn.png"),)),
        ),
        tmp_path,
    )

    assert PIXEL in page


def test_a_reply_is_formatted_as_on_its_page_and_nothing_is_left_out() -> None:
    long = "word " * 50_000
    page = document.render_file(
        SESSION,
        entries(
            said(Text(long)),
            ModelSaid(turn_id="t", parts=(Text(REPLY), ToolCall("c", "write_file", '{"content": "' + long + '"}'))),
            ToolStarted(turn_id="t", call_id="c", name="write_file"),
            ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text(long),)),
        ),
    )

    assert "<strong>this</strong>" in page and "<td>1</td>" in page and '<span class="k">def</span>' in page
    assert page.count(long.rstrip()) == 3
    assert "--paper:" in page, "the stylesheet is part of the file"
    assert not re.search(r"url\(|@import|<link|<script|/ui/", page)


def test_a_shared_page_shows_the_conversation_and_nothing_about_the_server() -> None:
    transcript = PageTranscript()
    transcript.add_all(
        entries(
            said(Text("kept")),
            Forked(parent_id="hf-another", at_seq=1, at_hash="h"),
            Ended(reason="user", detail="secret reason"),
            said(Text("a slip")),
            Rewound(to_seq=3, why="undo"),
        )
    )
    shared = document.SharedPage("Title", AT, AT, list(transcript.items.values()), ItemLinks())
    page = document.render_shared(shared)

    assert "kept" in page
    for hidden in ("hf-", "secret reason", "a slip", "<form", "<a "):
        assert hidden not in page


def test_the_task_of_a_sub_agent_is_not_shown_as_a_message_of_the_user() -> None:
    page = document.render_file(SESSION, entries(said(Text(f"Count the files.\n\n{BRIEF}")), said(Text("Thanks"))))

    assert re.findall(r'<h2 class="author"><bdi>(.*?)</bdi>', page) == ["Delegated task", "You"]


def test_loaded_parts_of_the_system_text_and_calls_beside_the_conversation_are_named() -> None:
    loaded = [InstructionsLoaded(turn_id="t", part=part, text="x") for part in ("system", "environment")]
    called = ModelCalled(purpose="goal", model="openai:gpt")
    page = document.render_file(SESSION, entries(*loaded, called))

    assert "Model called (goal)" in page
    assert all(f"Loaded for the model: {part}" in page for part in ("system", "environment"))
