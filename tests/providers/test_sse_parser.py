import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.providers import sse_parser
from holdfast.providers.sse_parser import EventTooLarge, ServerEvent, SseParser

LINES = st.lists(
    st.one_of(
        st.just(b""),
        st.binary(max_size=8).map(lambda text: b": " + text.translate(None, b"\r\n")),
        st.binary(max_size=20).map(lambda text: b"data: " + text.translate(None, b"\r\n")),
        st.sampled_from(
            [b"data", b"data:", b"data:x", b"data:  two", b"event: ping", b"event:", b"id: 7", b"retry: 9"]
        ),
    ),
    max_size=12,
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


def parse(*chunks: bytes) -> list[ServerEvent]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.finish()


def read_plainly(lines: list[bytes]) -> list[ServerEvent]:
    """The events of these lines, according to the specification."""
    events, data, name = [], [], b""
    for line in [*lines, b""]:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if not line:
            events += [ServerEvent(name, b"\n".join(data))] if b"".join(data) or len(data) > 1 else []
            data, name = [], b""
        elif field == b"data":
            data.append(value)
        elif field == b"event":
            name = value
    return events


@given(lines=LINES, end=ENDS, cuts=st.lists(st.integers(0, 400), max_size=8), mark=st.booleans())
def test_the_events_are_the_same_however_the_bytes_are_split(
    lines: list[bytes], end: bytes, cuts: list[int], mark: bool
) -> None:
    stream = (sse_parser.BYTE_ORDER_MARK if mark else b"") + b"".join(line + end for line in lines)
    places = sorted({0, len(stream), *(cut for cut in cuts if cut < len(stream))})
    chunks = [stream[start:stop] for start, stop in itertools.pairwise(places)]

    assert parse(*chunks) == read_plainly(lines)
    assert parse(*(stream[n : n + 1] for n in range(len(stream)))) == read_plainly(lines)


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_an_event_of_several_lines_may_be_split_at_every_byte(end: bytes) -> None:
    stream = end.join((b"event: delta", b"data: 1", b"data: 2", b"", b""))

    assert parse(*(stream[n : n + 1] for n in range(len(stream)))) == [ServerEvent(b"delta", b"1\n2")]


@pytest.mark.parametrize("end", [b"", b"\n", b"\n\n"])
def test_the_last_event_needs_no_line_break(end: bytes) -> None:
    assert parse(b"data: 1\n\ndata: 2" + end) == [ServerEvent(b"", b"1"), ServerEvent(b"", b"2")]


def test_an_event_in_many_chunks_is_joined_once() -> None:
    piece = b"x" * 65_536

    assert parse(b"data: ", *[piece] * 160, b"\n\n") == [ServerEvent(b"", piece * 160)]


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse_parser, "MAX_EVENT_BYTES", 1000)
    parser = SseParser()
    for _ in range(100):
        parser.feed(b"data: short\n\n" * 20)

    with pytest.raises(EventTooLarge):
        for _ in range(100):
            parser.feed(b"data: " + b"x" * 100)
