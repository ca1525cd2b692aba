"""HoldfastSessionStore for the Claude Agent SDK: its conformance suite, repeated entries, other processes."""

import asyncio
import itertools
import re
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk.testing import run_session_store_conformance

from holdfast.adapters.claude_agent_sdk import ADAPTER, HoldfastSessionStore
from holdfast.adapters.shared_store import close_stores, shared_store
from holdfast.model.errors import Invalid
from holdfast.model.session import Session
from holdfast.store.repos import sessions
from tests.adapters.agent_kills import KILLED, AgentForks
from tests.crash.programs import ROOT
from tests.sampling import limit

pytestmark = [pytest.mark.process, pytest.mark.clients, pytest.mark.timeout(120)]
MAIN: Any = {"project_key": "-work", "session_id": "s-1"}
SUB: Any = {**MAIN, "subpath": "subagents/agent-1"}


def entry(number: int, **more: Any) -> Any:
    message = {"role": "user", "content": f"say {number}"}
    return {"type": "user", "uuid": f"u-{number}", "message": message, "isSidechain": False, **more}


def stored(url: str, name: str) -> Session:
    found: Session = (
        shared_store(url).database.submit_read(lambda tx: sessions.resolve(tx, f"{ADAPTER}:{name}").session).result()
    )
    return found


async def test_the_conformance_suite_of_the_sdk_passes(url: str) -> None:
    number = itertools.count()
    await run_session_store_conformance(lambda: HoldfastSessionStore(url.replace(".db", f"-{next(number)}.db")))


async def test_an_entry_that_is_appended_again_is_there_once(url: str) -> None:
    store = HoldfastSessionStore(url)
    await store.append(MAIN, [entry(1), entry(2), entry(2), {"type": "title"}])
    close_stores()
    again = HoldfastSessionStore(url)
    await again.append(MAIN, [entry(2), entry(3), {"type": "title"}])

    assert await again.load(MAIN) == [entry(1), entry(2), {"type": "title"}, entry(3), {"type": "title"}]
    await again.delete(MAIN)
    await again.append(MAIN, [entry(1)])
    assert await again.load(MAIN) == [entry(1)]


async def test_names_with_slashes_and_other_signs_do_not_mix(url: str) -> None:
    store = HoldfastSessionStore(url)
    for project, name in (("a/b", "c"), ("a", "b/c"), ("ä%", "x:y")):
        await store.append({"project_key": project, "session_id": name}, [entry(1, here=[project, name])])

    assert [one["session_id"] for one in await store.list_sessions("a")] == ["b/c"]
    assert [one["session_id"] for one in await store.list_sessions("a/b")] == ["c"]
    assert await store.load({"project_key": "ä%", "session_id": "x:y"}) == [entry(1, here=["ä%", "x:y"])]
    with pytest.raises(Invalid, match="subpath"):
        await store.append({**MAIN, "subpath": ""}, [entry(1)])


async def test_a_subagent_belongs_to_its_session_and_is_no_session_of_lists(url: str) -> None:
    store = HoldfastSessionStore(url)
    await store.append(MAIN, [entry(1)])
    await store.append(SUB, [entry(2)])

    main = stored(url, "-work/s-1")
    assert main.summary.preview == "say 1"
    assert stored(url, "-work/s-1/subagents/agent-1").summary.side_of == main.id


async def test_summaries_continue_and_are_made_again_by_another_process(url: str) -> None:
    store = HoldfastSessionStore(url)
    await store.append(MAIN, [entry(1, timestamp="2026-01-01T00:00:00Z"), {"type": "t", "customTitle": "one"}])
    [first] = await store.list_session_summaries("-work")
    await store.append(MAIN, [{"type": "t", "customTitle": "two"}])
    [second] = await store.list_session_summaries("-work")
    close_stores()

    assert (first["data"]["custom_title"], second["data"]["custom_title"]) == ("one", "two")
    assert await HoldfastSessionStore(url).list_session_summaries("-work") == [second]


@pytest.mark.crash
@pytest.mark.slow
@pytest.mark.timeout(limit(2))
def test_promise_1_every_entry_of_killed_processes_is_there_once_and_in_order(each_url: str) -> None:
    with AgentForks("claude_mirror") as one, AgentForks("claude_mirror") as two:
        for _ in range(KILLED):
            started = {"one": one, "two": two}
            for name, agents in started.items():
                agents.start(each_url, name)
            acknowledged = {name: max(agents.kill()) for name, agents in started.items()}
            entries = asyncio.run(HoldfastSessionStore(each_url).load(MAIN))
            assert entries is not None
            for name in started:
                mine = [found["uuid"] for found in entries if str(found["uuid"]).startswith(name)]
                assert mine == [f"{name}-{number}" for number in range(len(mine))]
                assert acknowledged[name] < len(mine)
            close_stores()


async def test_the_example_of_the_documentation_runs_as_pasted(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = (ROOT / "docs" / "adapters.md").read_text("utf-8").partition("## Claude Agent SDK")[2]
    setup, listing = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[:2]
    scope: dict[str, Any] = {"__name__": "example"}
    exec(compile(setup, "setup", "exec"), scope)
    key = {"project_key": scope["project_key_for_directory"](str(Path.cwd())), "session_id": "abc"}
    await scope["options"].session_store.append(key, [entry(1)])
    await asyncio.to_thread(exec, compile(listing, "listing", "exec"), scope)

    assert "abc" in capsys.readouterr().out
