"""Stands between acplint 0.1.0 and the agent: `acplint_dialect.py HOME`.

acplint uses names that the protocol does not have: the version as a text, update types in camel case with their content
nested, `content` for `prompt`, and its own fields of menus and permission requests. This program translates these names,
and only these, in both directions. What acplint then checks is the agent's own behaviour.
"""

import asyncio
import json
import re
import sys
from typing import Any

NESTED = {"tool_call": "toolCall", "tool_call_update": "toolCallUpdate", "plan": "plan"}
LIMIT = 50 * 2**20
Json = dict[str, Any]


def camel(name: str) -> str:
    return re.sub(r"_([a-z])", lambda found: found[1].upper(), name)


def to_agent(message: Json, versions: set[int]) -> Json:
    params = message.get("params") or {}
    match message.get("method"):
        case "initialize":
            versions.add(message["id"])
            params["protocolVersion"] = int(params["protocolVersion"])
        case "session/prompt":
            params["prompt"] = params.pop("content")
        case "session/set_config_option":
            params |= {"configId": params.pop("optionId"), "type": "boolean"}
        case None if "outcome" in (message.get("result") or {}):
            chosen = message["result"]["outcome"]
            message["result"]["outcome"] = {"outcome": "selected", "optionId": chosen["optionId"]}
    return message


def to_lint(message: Json, versions: set[int]) -> Json:
    if message.get("method") == "session/update":
        update = message["params"]["update"]
        kind = update["sessionUpdate"]
        update["sessionUpdate"] = camel(kind)
        if kind in NESTED:
            fields = {name: value for name, value in update.items() if name != "sessionUpdate"}
            message["params"]["update"] = {"sessionUpdate": camel(kind), NESTED[kind]: fields}
    if message.get("method") == "session/request_permission":
        params = message["params"]
        params["description"] = params["toolCall"]["title"]
        params["options"] = [{"id": one["optionId"], "label": one["name"]} for one in params["options"]]
    result = message.get("result")
    if isinstance(result, dict):
        if message["id"] in versions and "protocolVersion" in result:
            result["protocolVersion"] = str(result["protocolVersion"])
        for option in result.get("configOptions") or []:
            option["label"] = option["name"]
    return message


async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter, translate: Any, versions: set[int]) -> None:
    while line := await source.readline():
        target.write(json.dumps(translate(json.loads(line), versions)).encode() + b"\n")
        await target.drain()
    target.close()


async def main() -> None:
    agent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "holdfast", "--home", sys.argv[1], "acp"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=LIMIT,
    )
    assert agent.stdin is not None and agent.stdout is not None
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader(limit=LIMIT)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout)
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    versions: set[int] = set()
    async with asyncio.TaskGroup() as group:
        group.create_task(pump(reader, agent.stdin, to_agent, versions))
        group.create_task(pump(agent.stdout, writer, to_lint, versions))
    await agent.wait()


if __name__ == "__main__":
    asyncio.run(main())
