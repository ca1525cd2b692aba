"""An MCP server written by hand, on its standard input and output: `mcp_raw.py FOLDER modern|core`.

It speaks the protocol of 2026-07-28 or that of 2025-11-25, and does what a library would not do: it asks, runs tasks that
end when the file `job-done` exists, and floods. It records what it was sent as lines of files in the folder.
"""

import json
import sys
import time
from pathlib import Path

FOLDER, ERA = Path(sys.argv[1]), sys.argv[2]
FORM = {
    "type": "object",
    "properties": {"name": {"type": "string", "minLength": 2}, "age": {"type": "integer", "default": 30}},
    "required": ["name"],
}
QUESTION = {"mode": "form", "message": "Who are you?", "requestedSchema": FORM}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Say hello"}}], "maxTokens": 10}
NAMES = ["ask", "job", "asking_job", "wait", "sample", "roots", "chatty", "huge", "junk", "short"]


def mark(name, text):
    with (FOLDER / name).open("a") as file:
        file.write(f"{text}\n")


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def reply(request, result):
    more = {"resultType": "complete"} if ERA == "modern" else {}
    send({"id": request["id"], "result": more | result})


def text(request, said, **more):
    reply(request, {"content": [{"type": "text", "text": str(said)}], **more})


def refuse(request, message="unknown method", code=-32601):
    send({"id": request["id"], "error": {"code": code, "message": message}})


def asked_of_the_client(method, params):
    """Send a request to the client and wait for its answer, as servers before 2026 do."""
    send({"id": "to-client", "method": method, "params": params})
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("id") == "to-client" and "method" not in message:
            return message.get("result", message.get("error"))
    raise SystemExit


def tools():
    return [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]


def input_required(request, method, params):
    """Ask as servers of 2026 do; the answer if the request has one."""
    answers = request["params"].get("inputResponses")
    if answers is not None:
        mark("states", request["params"].get("requestState"))
        return answers["q"]
    reply(
        request,
        {
            "resultType": "input_required",
            "inputRequests": {"q": {"method": method, "params": params}},
            "requestState": "opaque",
        },
    )
    return None


def question(request, method, params):
    return input_required(request, method, params) if ERA == "modern" else asked_of_the_client(method, params)


def task(**more):
    times = {"createdAt": "2026-01-01T00:00:00Z", "lastUpdatedAt": "2026-01-01T00:00:00Z"}
    return {"taskId": "task-7", "status": "working", "ttlMs": None, "pollIntervalMs": 20} | times | more


def report_job(request):
    mark("polls", request["params"]["taskId"])
    is_asking = (FOLDER / "asking_job").exists()
    if is_asking and not (FOLDER / "updates").exists():
        asked = {"q": {"method": "elicitation/create", "params": QUESTION}}
        reply(request, task(status="input_required", inputRequests=asked))
    elif is_asking or (FOLDER / "job-done").exists():
        reply(request, task(status="completed", result={"content": [{"type": "text", "text": "dug"}]}))
    else:
        reply(request, task(statusMessage="digging"))


def call(request):
    name = request["params"]["name"]
    mark("calls", name)
    match name:
        case "ask":
            answer = question(request, "elicitation/create", QUESTION)
            if answer is not None:
                mark("answers", json.dumps(answer))
                text(request, f"answered {answer.get('action', answer)} {json.dumps(answer.get('content'))}")
        case "job":
            reply(request, task(resultType="task"))
        case "asking_job":
            mark("asking_job", "begun")
            reply(request, task(resultType="task"))
        case "wait":
            while not (FOLDER / "job-done").exists():
                time.sleep(0.02)
            text(request, "waited")
        case "sample":
            answer = question(request, "sampling/createMessage", SAMPLING)
            if answer is not None:
                text(request, answer.get("content", answer))
        case "roots":
            answer = question(request, "roots/list", {})
            if answer is not None:
                text(request, answer["roots"][0]["uri"])
        case "chatty":
            for number in range(20_000):
                token = request["params"].get("_meta", {}).get("progressToken")
                if token is not None:
                    params = {"progressToken": token, "progress": number, "message": "x" * 200}
                    send({"method": "notifications/progress", "params": params})
                send({"method": "notifications/message", "params": {"level": "error", "data": "y" * 200}})
            text(request, "done")
        case "huge":
            text(request, "z" * 40_000_000)
        case "short":  # without a type, which is then "complete"
            send({"id": request["id"], "result": {"content": [{"type": "text", "text": "short"}]}})
        case "junk":
            sys.stdout.write("no json\n" * 20_000)
            text(request, "after the junk")


def initialize(request):
    reply(
        request,
        {
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "raw", "version": "1"},
        },
    )


def discover(request):
    extensions = {"io.modelcontextprotocol/tasks": {}}
    reply(
        request,
        {
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "extensions": extensions},
            "ttlMs": 0,
            "cacheScope": "private",
        },
    )


def handle(request):
    match request.get("method"):
        case "server/discover" if ERA == "modern":
            discover(request)
        case "initialize" if ERA == "core":
            initialize(request)
        case "ping":
            reply(request, {})
        case "tools/list":
            reply(request, {"tools": tools(), **({"ttlMs": 0, "cacheScope": "private"} if ERA == "modern" else {})})
        case "tools/call":
            call(request)
        case "tasks/get":
            report_job(request)
        case "tasks/update":
            mark("updates", json.dumps(request["params"]["inputResponses"]))
            reply(request, {})
        case "tasks/cancel":
            mark("cancelled", request["params"]["taskId"])
            reply(request, {})
        case _ if "id" in request:
            refuse(request)


mark("starts", "x")
for line in sys.stdin:
    handle(json.loads(line))
