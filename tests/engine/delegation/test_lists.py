"""Where parents and children are shown: lists, trees, JSON, explanations and chat."""

import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec

from holdfast.cli.chat.interrupted_turn import describe
from holdfast.dashboard.list_query import SessionListQuery
from holdfast.dashboard.sessions import MAX_CHILDREN, choose_children, read_shown_page
from holdfast.engine import explain
from holdfast.interop import session_tree
from holdfast.interop.documents.sessions import SessionListResponse
from holdfast.interop.session_tree import TreeNode
from holdfast.model.delegation import state_line
from holdfast.model.entry import Entry
from holdfast.model.event import ChildStarted, Event, ModelSaid, ToolStarted, TurnStarted, Usage
from holdfast.model.message import ToolCall
from holdfast.model.price import NANO
from holdfast.model.provider import Delta, ModelReply, ModelRequest
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import delegations, session_list, sessions
from holdfast.store.repos.session_list import SessionFilters
from holdfast.store.spending import usage
from tests.engine.delegation.family import answer, family


def _listed(tx: Transaction, filters: SessionFilters) -> SessionListResponse:
    page = session_list.list_page(tx, filters, limit=50)
    return SessionListResponse.from_page(page, delegations.map_child_ids(tx, page.sessions))


async def test_lists_show_children_when_asked_and_trees_below_their_parents(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        other, parent = await one.parent(), await one.parent()
        await one.delegate(parent, {"task": json.dumps([{"task": "do it"}])})
        [child] = await one.stage.database.read(delegations.list_child_ids, parent)
        [below] = await one.stage.database.read(delegations.list_child_ids, child)
        read = one.stage.database.read

        plain = {item.id: item for item in (await read(_listed, SessionFilters())).sessions}
        every = {item.id: item for item in (await read(_listed, SessionFilters(children=1))).sessions}
        children = {item.id for item in (await read(_listed, SessionFilters(source="delegate"))).sessions}
        tree = await read(lambda tx: session_tree.list_descendants(tx, [sessions.get(tx, parent)]))

        assert (set(plain), set(every), children) == ({other, parent}, {other, parent, child, below}, {child, below})
        assert (plain[parent].children, plain[other].children, every[child].children) == ([child], [], [below])
        assert (every[below].parent_id, every[below].delegated_by, plain[parent].delegated_by) == (child, child, None)
        assert [(node.session.id, node.depth) for node in tree] == [(parent, 0), (child, 1), (below, 2)]


async def test_the_dashboard_lists_the_children_that_run_and_the_newest_of_the_others(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        await one.delegate(parent, *({"task": f"do {n}"} for n in range(MAX_CHILDREN + 2)))
        tree = await one.stage.database.read(
            lambda tx: session_tree.list_descendants(tx, [sessions.get(tx, parent)])[1:]
        )
        assert tree[1].record is not None
        at_work = TreeNode(tree[1].session, 1, msgspec.structs.replace(tree[1].record, ended_at=None))

        few, all_over = choose_children(tree[:2]), choose_children(tree)
        with_one = choose_children([tree[0], at_work, *tree[2:]])

        assert (few.nodes, few.more) == (tree[:2], 0)
        assert (all_over.nodes, all_over.more) == (tree[2:], 2)
        assert (with_one.nodes, with_one.more) == ([at_work, *tree[3:]], 2)


async def test_the_dashboard_shows_what_each_session_of_a_tree_cost(tmp_path: Path) -> None:
    async def priced(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        async for item in answer(request):
            yield msgspec.structs.replace(item, usage=Usage(cost=1.0)) if isinstance(item, ModelReply) else item

    async with family(tmp_path, ask=priced) as one:
        parent = await one.parent()
        await one.delegate(parent, {"task": "do it"})
        await usage.catch_up(one.stage.database)
        shown = await one.stage.database.read(read_shown_page, SessionListQuery())
        [child] = [node.session.id for node in shown.children[parent].nodes]

    assert shown.costs == {parent: 2 * NANO, child: NANO}


async def test_parents_and_children_are_explained(tmp_path: Path) -> None:
    async with family(tmp_path) as one:
        parent = await one.parent()
        await one.delegate(parent, {"task": "do it"})
        [child] = await one.stage.database.read(delegations.list_child_ids, parent)

        def why(tx: Transaction) -> Sequence[list[str]]:
            known, ours = one.stage.engine.explain, current_identity()
            return [explain.why(tx, sessions.get(tx, found), known, ours).delegation for found in (parent, child)]

        of_parent, of_child = await one.stage.database.read(why)
        assert of_parent == [f"sub-agent {child}: done: do it"]
        assert of_child[0].startswith(f"sub-agent of {parent} (call ")

        [record] = await one.children(parent)
        of_client = msgspec.structs.replace(record, delivery="note")  # in the background, for a client of the API
        assert state_line(of_client) == "done, not waited for"


def test_the_offer_to_resume_says_that_the_same_sub_agents_are_waited_for() -> None:
    call = ToolCall("c", "delegate", '{"task": "x"}')
    events: list[Event] = [
        TurnStarted(turn_id="t"),
        ModelSaid(turn_id="t", parts=(call,)),
        ToolStarted(turn_id="t", call_id="c", name="delegate"),
        ChildStarted(turn_id="t", call_id="c", child_id="hf-1"),
    ]

    assert describe([Entry(n, 0, event) for n, event in enumerate(events, 1)]).will == "waits for the same sub-agents"
