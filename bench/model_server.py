"""A model server for the benchmarks: Chat Completions, whose reply is always the same word, `WORDS` times.

It answers at once, or with `--per-second N` at the pace of a model. It prints its address first. `GET /received` returns the
size of the largest request body since the last such request, and `GET /streams` the number of replies in progress.
"""

import argparse
import asyncio
import json
import sys
from typing import cast

import uvloop

WORDS = 12
WHOLE_BODY = 65_536
"""A longer body is only counted: its request is streamed, because ours and those of the peers always are."""


def _chunk(document: object) -> bytes:
    data = document if isinstance(document, bytes) else f"data: {json.dumps(document)}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(data), data)


def _delta(delta: dict[str, str], finish: str | None) -> dict[str, object]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
WORD = _chunk(_delta({"role": "assistant", "content": "word "}, None))


def _end(words: int) -> bytes:
    usage = {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words}
    last = {**_delta({}, None), "choices": [], "usage": usage}
    return _chunk(_delta({}, "stop")) + _chunk(last) + _chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


def _document(document: object) -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)


def _whole(words: int) -> bytes:
    message = {"role": "assistant", "content": "word " * words}
    usage = {"prompt_tokens": 10, "completion_tokens": words, "total_tokens": 10 + words}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    completion = {"id": "x", "object": "chat.completion", "created": 1, "model": "m"}
    return _document({**completion, "choices": [choice], "usage": usage})


class ModelConnection(asyncio.Protocol):
    """One connection: requests without pipelining, bodies with a content length."""

    largest = 0
    streams = 0

    def __init__(self, words: int, per_second: float) -> None:
        self._words = words
        self._interval = 1 / per_second if per_second else 0.0
        self._end, self._whole = _end(words), _whole(words)
        self._buffer = bytearray()
        self._missing = -1
        self._length = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._missing > 0:
            self._missing -= len(data)
            if self._length <= WHOLE_BODY:
                self._buffer += data
        else:
            self._buffer += data
            if not self._read_head():
                return
        if self._missing <= 0:
            self._answer()

    def _read_head(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        self._is_post = head.startswith(b"post")
        self._path = head.split(b" ", 2)[1]
        self._length = int(head.split(b"content-length:")[1].split(b"\r\n")[0]) if b"content-length:" in head else 0
        del self._buffer[: end + 4]
        self._missing = self._length - len(self._buffer)
        return True

    def _answer(self) -> None:
        body, self._missing = bytes(self._buffer), -1
        self._buffer.clear()
        ModelConnection.largest = max(ModelConnection.largest, self._length)
        if not self._is_post:
            self._answer_question()
        elif self._length <= WHOLE_BODY and b'"stream":true' not in body.replace(b" ", b""):
            self._transport.write(self._whole)
        else:
            self._transport.write(HEAD)
            ModelConnection.streams += 1
            self._send_word(self._words, asyncio.get_running_loop().time())

    def _answer_question(self) -> None:
        if self._path == b"/streams":
            self._transport.write(_document(ModelConnection.streams))
        elif self._path == b"/received":
            self._transport.write(_document(ModelConnection.largest))
            ModelConnection.largest = 0
        else:
            models = [{"id": "m", "object": "model", "created": 1, "owned_by": "bench"}]
            self._transport.write(_document({"object": "list", "data": models}))

    def _send_word(self, left: int, due: float) -> None:
        if not left or self._transport.is_closing():
            ModelConnection.streams -= 1
            self._transport.write(self._end)
            return
        self._transport.write(WORD)
        loop = asyncio.get_running_loop()
        if self._interval:
            loop.call_at(due + self._interval, self._send_word, left - 1, due + self._interval)
        else:
            loop.call_soon(self._send_word, left - 1, due)  # each word in a packet of its own, as from a network


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--per-second", type=float, default=0.0)
    options = parser.parse_args()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: ModelConnection(options.words, options.per_second), "127.0.0.1", 0, backlog=2048
    )
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(main()))
