"""The client under test of the MCP conformance suite: `conformance_client.py URL`, with Holdfast's own code throughout.

It does what a user does: connect, log in if the server wants that, connect again, call the tools; and log in once more
for a scope that a tool wants.
"""

import asyncio
import json
import os
import re
import sys
import tempfile
from pathlib import Path

import httpx2

from holdfast.clock import SystemClock
from holdfast.model.errors import LoginFailed
from holdfast.model.form_fields import fill
from holdfast.model.message import text_of
from holdfast.model.tool import CallAnswer, Completion, ToolContext
from holdfast.settings import McpOAuthSettings, Secret
from holdfast.tools.mcp.login import log_in
from holdfast.tools.mcp.server import McpServer
from holdfast.tools.mcp.servers import McpServers

SCENARIO = os.environ.get("MCP_CONFORMANCE_SCENARIO", "")
GIVEN = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
VALUES = {"number": 5, "integer": 5, "boolean": True, "string": "text", "array": [], "object": {}}
WANTS_SCOPE = re.compile(r"a login with the scope (.+?); run:")


class Browser:
    """Visits the login page, which redirects at once."""

    def __init__(self):
        self.visits = set()

    def __call__(self, url):
        self.visits.add(asyncio.ensure_future(self._visit(url)))

    async def _visit(self, url):
        async with httpx2.AsyncClient(follow_redirects=True) as web:
            await web.get(url)


async def issuer_of(url):
    """The operator of a client that logs in as itself knows its authorization server."""
    async with httpx2.AsyncClient() as web:
        parts = httpx2.URL(url)
        for path in (f"/.well-known/oauth-protected-resource{parts.path}", "/.well-known/oauth-protected-resource"):
            found = await web.get(parts.copy_with(path=path))
            if found.is_success:
                return found.json()["authorization_servers"][0]
    raise SystemExit("the server names no authorization server")


async def settings_for(url, folder):
    def secret(name):
        return Secret(GIVEN[name]) if name in GIVEN else None

    if SCENARIO == "auth/basic-cimd":
        return McpOAuthSettings(client_metadata_url="https://conformance-test.local/client-metadata.json")
    if SCENARIO.startswith("auth/client-credentials"):
        return McpOAuthSettings(
            grant="client_credentials",
            client_id=GIVEN["client_id"],
            client_secret=secret("client_secret"),
            private_key=secret("private_key_pem"),
            signing_algorithm=GIVEN.get("signing_algorithm", "RS256"),
            issuer=await issuer_of(url),
        )
    if "idp_id_token" in GIVEN:
        file = folder / "id-token"
        file.write_text(GIVEN["idp_id_token"])
        return McpOAuthSettings(
            grant="identity_assertion",
            client_id=GIVEN["client_id"],
            client_secret=secret("client_secret"),
            issuer=await issuer_of(url),
            id_token_file=str(file),
            idp_token_endpoint=GIVEN["idp_token_endpoint"],
            idp_client_id=GIVEN["idp_client_id"],
        )
    return McpOAuthSettings(client_id=GIVEN.get("client_id"), client_secret=secret("client_secret"))


class Person:
    """Accepts every form as it is."""

    async def ask(self, question):
        return CallAnswer(action="accept", content=json.dumps(fill(question.form, {})))

    async def checkpoint(self, state):
        print(f"checkpoint: {state}")

    async def complete(self, request):
        return Completion(text="text", model="none")

    def report(self, text):
        print(f"progress: {text}")

    def is_stopped(self):
        return False


def calls_for(tools):
    """What to call: what the scenario says, or every tool once."""
    if SCENARIO == "json-schema-ref-no-deref":  # its tool cannot be called
        return []
    named = {tool.spec.name.removeprefix("mcp__conformance__"): tool for tool in tools}
    if "toolCalls" in GIVEN:
        return [(named[call["name"]], call["arguments"]) for call in GIVEN["toolCalls"]]
    if "json_schema_echo" in named:
        return [(named["json_schema_echo"], {"schema": named["json_schema_2020_12_tool"].spec.parameters})]
    return [(tool, arguments_for(name, tool)) for name, tool in named.items()]


def arguments_for(name, tool):
    if name == "get_prompt":
        return {"name": "test_prompt", "arguments": "{}"}
    properties = tool.spec.parameters.get("properties", {})
    return {name: VALUES[schema.get("type", "string")] for name, schema in properties.items()}


async def call_all(servers, folder):
    """Call the tools; the texts of those that failed."""
    failures = []
    for number, (tool, arguments) in enumerate(calls_for(servers.tools())):
        ids = {"session_id": "hf-1", "turn_id": "t-1", "call_id": f"c-{number}"}
        context = ToolContext(**ids, workdir=folder, files=folder / "files", host=Person())
        output = await tool.run(arguments, context)
        print(f"{tool.spec.name}: {output.ok} {text_of(output.parts)}")
        failures += [] if output.ok else [text_of(output.parts)]
    return failures


async def attempt(server, folder):
    """Connect and call every tool; what went wrong."""
    async with McpServers([server], logs=folder / "logs", logins=folder / "mcp") as servers:
        return servers.problems or await call_all(servers, folder)


async def main(url):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        server = McpServer(name="conformance", url=url, oauth=await settings_for(url, folder))
        browser = Browser()
        for _ in range(3):
            problems = await attempt(server, folder)
            print(problems, file=sys.stderr)
            if not any("holdfast mcp-login" in problem for problem in problems):
                break
            scope = next((found[1] for problem in problems if (found := WANTS_SCOPE.search(problem))), None)
            try:
                await log_in(server, folder / "mcp", SystemClock(), browser, scope=scope, seconds=20)
            except LoginFailed as e:
                problems = [str(e)]
                print(e, file=sys.stderr)
                if scope is None:
                    break
        raise SystemExit(1 if problems else 0)


asyncio.run(main(sys.argv[1]))
