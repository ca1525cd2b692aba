"""Which facts the model is told: a bounded selection that depends on nothing but the facts and the session."""

from pathlib import Path

import pytest

from holdfast.instructions.memory import MAX_TOTAL, load_memory, select_facts
from holdfast.model.event import Delegation, InstructionsLoaded, Source
from holdfast.model.instructions import InstructionsRequest, hash_text
from holdfast.model.memory.fact import MAX_FACT, MAX_FACTS, Fact, MemoryScope, describe_fact
from holdfast.model.memory.owner import LOCAL_OWNER
from holdfast.model.session import Session, SessionSummary
from holdfast.settings import AgentSettings, Settings
from holdfast.wiring.memory import project_of
from holdfast.wiring.tools import memory_settings


def fact(number: int, text: str, scope: MemoryScope = "user") -> Fact:
    return Fact(
        number=number,
        first=number,
        owner="" if scope == "global" else LOCAL_OWNER,
        scope=scope,
        project="/srv/p" if scope == "project" else "",
        text=text,
        author="model",
        session_id="hf-0",
        turn_id="turn-0",
        call_id=f"call-{number}",
        seq=number,
        sources=(),
        at=number,
    )


def request(topic: str = "", recorded: InstructionsLoaded | None = None) -> InstructionsRequest:
    known = {} if recorded is None else {"memory": recorded}
    return InstructionsRequest(
        session_id="hf-1",
        turn_id="turn-1",
        recorded=known,  # type: ignore[arg-type]
        has_own_system=False,
        topic=topic,
    )


def test_everything_is_told_if_it_fits_grouped_by_scope_oldest_first() -> None:
    facts = [fact(1, "one"), fact(2, "two", "global"), fact(3, "three", "project"), fact(4, "four")]

    part = load_memory(facts, request(), limit=MAX_TOTAL)

    shown = [line for line in part.text.splitlines() if line.startswith(("##", "- "))]
    assert [line.split(" (")[0] for line in shown] == [
        *(
            "## About the user",
            "- fact-1",
            "- fact-4",
            "## About this project",
            "- fact-3",
            "## For every user",
            "- fact-2",
        )
    ]
    assert [source.path for source in part.sources] == ["fact-1", "fact-4", "fact-3", "fact-2"]
    for source, text in zip(part.sources, ("one", "four", "three", "two"), strict=True):
        assert source.sha256 == hash_text(text)
        assert part.text[source.start : source.start + source.shown].endswith(f'"{text}"')


def test_nothing_is_told_without_facts() -> None:
    assert load_memory([], request(), limit=MAX_TOTAL).text == ""


def test_a_selection_keeps_the_limit_and_prefers_the_topic_and_the_newest() -> None:
    facts = [fact(1, "The user drinks 乌龙茶."), *(fact(n, f"Unrelated number {n}.") for n in range(2, 101))]
    limit = 10 * len(describe_fact(facts[-1]))

    chosen = select_facts(facts, "哪种乌龙茶好?", limit)

    assert sum(len(describe_fact(one)) + 1 for one in chosen) <= limit
    assert chosen[0].number == 1, "the relevant one is there although it is the oldest"
    assert [one.number for one in chosen[1:]] == list(range(101 - len(chosen) + 1, 101)), "the others are the newest"
    assert "more facts can be found with recall_memory" in load_memory(facts, request("茶"), limit=limit).text


def test_the_largest_memory_stays_within_the_limit() -> None:
    facts = [fact(n, "x" * MAX_FACT) for n in range(1, 3 * MAX_FACTS + 1)]

    text = load_memory(facts, request("x"), limit=MAX_TOTAL).text

    assert len(text) < MAX_TOTAL + 1_000
    assert load_memory(facts, request("x"), limit=10).text == ""


def test_the_selection_is_the_same_each_time() -> None:
    facts = [fact(n, f"Number {n} about tea.") for n in range(1, 200)]
    first = load_memory(facts, request("tea"), limit=1_000)

    assert load_memory(list(facts), request("tea"), limit=1_000).text == first.text


@pytest.mark.parametrize("topic", ["", '"', '""', "\0", "?!", "\udc80", "x" * 100_000, "\u200b"])
def test_any_topic_is_accepted(topic: str) -> None:
    assert len(select_facts([fact(n, "x y z") for n in range(1, 50)], topic, 300)) > 1


def test_many_changes_are_announced_in_one_line() -> None:
    first = load_memory([fact(n, str(n)) for n in range(1, 20)], request(), limit=MAX_TOTAL)
    recorded = InstructionsLoaded(turn_id="turn-0", part="memory", text=first.text, sources=first.sources)

    part = load_memory([fact(n, str(n)) for n in range(10, 40)], request(recorded=recorded), limit=MAX_TOTAL)

    assert part.notices == ("20 added and 9 no longer used; /memory shows all",)


def session(source: Source, side_of: str | None = None) -> Session:
    summary = SessionSummary(source=source, side_of=side_of, parent_id="hf-0" if source == "delegate" else None)
    return Session("hf-1", 1, "", None, 0, summary)


@pytest.mark.parametrize(
    ("source", "root", "side_of", "has_memory"),
    [
        ("chat", "", None, True),
        ("run", "", None, True),
        ("import", "", None, True),
        ("gateway", "", None, True),
        ("api", "", None, False),
        ("library", "", None, False),
        ("cron", "", None, False),
        ("batch", "", None, False),
        ("chat", "", "hf-0", False),
        ("delegate", "chat", None, True),
        ("delegate", "api", None, False),
    ],
)
def test_the_source_decides_who_has_a_memory(
    tmp_path: Path, source: Source, root: str, side_of: str | None, has_memory: bool
) -> None:
    settings = Settings(home=tmp_path, store="sqlite:///x", model="scripted:echo")
    link = Delegation(parent_id="hf-0" if root else "", root_source=root)

    found = memory_settings(session(source, side_of), link, settings, lambda: tmp_path, "local")

    assert (found is not None) == has_memory
    off = Settings(home=tmp_path, store="sqlite:///x", model="scripted:echo", agent=AgentSettings(memory=()))
    assert memory_settings(session(source, side_of), link, off, lambda: tmp_path, "local") is None


def test_a_project_is_the_root_of_the_repository(tmp_path: Path) -> None:
    home, project = tmp_path / "home", tmp_path / "project"
    for folder in (home / "work" / "hf-1", project / "src" / "deep", project / ".git", tmp_path / "plain" / "in"):
        folder.mkdir(parents=True)
    (tmp_path / "link").symlink_to(project)

    assert project_of(project / "src" / "deep", home) == str(project)
    assert project_of(tmp_path / "link" / "src", home) == str(project)
    assert project_of(tmp_path / "plain" / "in", home) == str(tmp_path / "plain" / "in")
    assert project_of(home / "work" / "hf-1", home) == ""
    assert project_of(tmp_path / "gone", home) == str(tmp_path / "gone")
