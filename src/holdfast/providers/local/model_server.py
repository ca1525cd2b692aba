"""The program that runs one embedded model for a worker: `python model_server.py OPTIONS`. It imports nothing of ours.

The library holds Python's lock while it loads a model, for up to seconds. In a process of its own, that blocks only this
program. Each request is a socket that arrives over the inherited control socket: it carries one line of JSON, the
request, and lines of JSON back: chunks, then the end or a failure. A closed socket stops the reply. Requests wait in the
control socket until a thread is free.

The program never outlives the worker: the kernel kills it when the worker dies, even while it loads, and it ends
when the control socket is closed. It ignores the signals of terminals and service managers, because the worker
receives them too, and decides.
"""

import ctypes
import importlib
import json
import os
import secrets
import signal
import socket
import sys
import threading
from typing import Any

PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
BATCH_TOKENS = 64
"""Prompt tokens between two checks of the socket; 256 is a tenth faster and reacts four times slower."""
CACHE_MIB = 256
"""Cache for earlier prompts; arbitrary, the library's default is 8 GB."""

Json = dict[str, Any]


class LoadFailed(Exception):
    """Why the model cannot be used; told to everybody who asks it."""


def main(options: Json) -> None:
    end_with_parent(options["parent"])
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    try:
        server, failure = load(options), ""
    except LoadFailed as e:
        server, failure = None, str(e)
    control = socket.socket(fileno=options["control"])
    threads = [threading.Thread(target=serve, args=(control, server, failure)) for _ in range(options["slots"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def end_with_parent(parent: int) -> None:
    """Let the kernel kill this process when its parent dies, and hide its memory as the parent's is hidden."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        library.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        library.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    if os.getppid() != parent:  # it died before
        os._exit(1)


def load(options: Json) -> Any:
    engine = import_library()
    params = engine.CommonParams()
    params.model.path = options["path"]
    params.model_alias = {options["model"]}
    # The library always listens on a loopback port; a random key keeps other programs out.
    params.api_keys = [secrets.token_urlsafe(32)]
    params.ui = False
    params.endpoint_slots = False
    # The context is divided among the slots.
    params.n_ctx = options["context"] * options["slots"]
    params.n_parallel = options["slots"]
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    params.cache_ram_mib = CACHE_MIB
    params.warmup = False
    params.fit_params = False
    params.verbosity = -1
    if options["threads"] is not None:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = options["threads"]
    try:
        return engine.Server(params)
    except RuntimeError as e:
        raise LoadFailed(
            f"{options['path']} could not be loaded: "
            "check that it is a complete GGUF file and that enough memory is free"
        ) from e


def import_library() -> Any:
    """The library. OpenMP reads its settings once, when it is loaded.

    By default it waits in a busy loop, which on a machine with few free cores makes generation ten times slower.
    """
    for name, value in {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}.items():
        os.environ.setdefault(name, value)
    try:
        return importlib.import_module("xllamacpp")
    except ImportError as e:
        raise LoadFailed("embedded models need the package xllamacpp: pip install 'holdfast[local]'") from e


def serve(control: socket.socket, server: Any, failure: str) -> None:
    """Answer one request after the other until the control socket is closed."""
    while True:
        arrived, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        if not arrived:
            return
        if not descriptors:  # too many files are open: the kernel has closed the socket, and the worker sees its end
            continue
        with socket.socket(fileno=descriptors[0]) as client:
            if server is None:
                send(client, {"failure": "failed", "text": failure})
            else:
                answer(client, server)


def answer(client: socket.socket, server: Any) -> None:
    """Answer one request. Whatever fails is told to the worker; the thread goes on with the next request."""
    try:
        with client.makefile("rb") as lines:
            request = lines.readline()
        if is_closed(client):
            return
        # The library swallows exceptions of the callback. It returns whether to stop.
        server.handle_chat_completions(json.loads(request), lambda chunk: not send(client, {"chunk": chunk}))
    except ValueError as e:
        send(client, {"failure": "refused", "text": str(e)})
    except Exception as e:  # noqa: BLE001 - told to the worker
        send(client, {"failure": "broken", "text": str(e) if isinstance(e, RuntimeError) else repr(e)})
    else:
        send(client, {"end": True})


def is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True


def send(client: socket.socket, message: Json) -> bool:
    """Send a message; False if nobody reads it any more."""
    try:
        client.sendall(json.dumps(message).encode() + b"\n")
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    os._exit(0)  # deleting the library's server can block
