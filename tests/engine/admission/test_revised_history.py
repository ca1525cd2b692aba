"""A client that revises its own history continues its session: the rules of `engine.admission.revised_history`."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.admission.client_request import AdmittedRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.submission import NewMessage
from holdfast.model.event import ClientTool, Compacted, Event, RequestOptions, UserSaid
from holdfast.model.message import text_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import session_list
from holdfast.store.repos.session_list import SessionFilters
from tests.engine.admission.test_client_request import ASKS, WEATHER, assistant, call_of, reply, send, tool, user
from tests.engine.counting_model import Reader
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

APP = RequestOptions(client="app")
OTHER = RequestOptions(client="other")
NAMED = {"channel": "key:mine"}
UNNAMED: dict[str, str] = {}


class Client:
    """A client that keeps its own history, and sends what a test makes of it."""

    def __init__(self, stage: Stage, **more: Any) -> None:
        self.stage = stage
        self.history: list[ClientMessage] = []
        self.sent: list[AdmittedRequest] = []
        self._more = {"model": "echo", "terms": APP, **more}

    async def ask(self, *messages: ClientMessage, **more: Any) -> str:
        """Send these messages; return the reply."""
        received, events = await send(self.stage, *messages, **{**self._more, **more})
        self.sent.append(received)
        return reply(events)

    async def say(self, words: str, **more: Any) -> str:
        """Add a message to the history and send all of it."""
        self.history.append(user(words))
        said = await self.ask(*self.history, **more)
        self.history.append(assistant(said))
        return said

    @property
    def sessions(self) -> list[str]:
        return list(dict.fromkeys(one.admission.session.id for one in self.sent))

    @property
    def context(self) -> list[str]:
        """The texts that the model got with the last request."""
        return [text_of(message.parts) for message in self.stage.requests[-1].messages]

    async def log(self) -> list[Event]:
        return await self.stage.log(self.sessions[-1])


async def listed(stage: Stage) -> int:
    return len((await stage.database.read(session_list.list_page, SessionFilters(), limit=100)).sessions)


@pytest.fixture
async def stage(tmp_path: Path, stages: list[Stage]) -> Stage:
    stages.append(made := await set_up(tmp_path, model="echo"))
    return made


# undo


@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
@pytest.mark.parametrize("words", ["two", "zwei"], ids=["regenerate", "edit"])
async def test_the_latest_exchange_is_replaced_in_the_same_session(
    stage: Stage, named: dict[str, str], words: str
) -> None:
    client = Client(stage, **named)
    await client.say("one")
    await client.say("two")

    client.history[2:] = []
    await client.say(words)
    await client.say("three")

    assert len(client.sessions) == 1 and all(one.forked_from is None for one in client.sent)
    assert client.context == ["one", "You said: one", words, f"You said: {words}", "three"]
    assert [text_of(event.parts) for event in await client.log() if isinstance(event, UserSaid)] == [
        "one",
        "two",
        words,
        "three",
    ], "the log keeps what was replaced"


async def test_the_first_reply_of_a_named_session_is_regenerated_any_number_of_times(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    for _ in range(10):
        await client.ask(user("one"))
    await client.ask(user("two"))

    assert len(client.sessions) == 1
    assert client.context == ["one", "You said: one", "two"]


async def test_the_first_words_again_later_are_input(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    for words in ("yes", "no", "yes"):
        await client.ask(user(words))

    assert client.context == ["yes", "You said: yes", "no", "You said: no", "yes"]


async def test_an_exchange_with_calls_of_client_tools_is_replaced_as_a_whole(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(
        stage := await set_up(
            tmp_path, ScriptStep(say="Hi."), ASKS, ScriptStep(say="It rains."), ScriptStep(say="Sun.")
        )
    )
    options = RequestOptions(tools=WEATHER.tools, client="app")
    first, said = await send(stage, user("hello"), terms=options, **NAMED)
    begun = [user("hello"), assistant(reply(said))]
    _, said = await send(stage, *begun, user("weather?"), terms=options, **NAMED)
    call = call_of(said)
    answered = [*begun, user("weather?"), assistant("Let me ask.", call), tool(call.id, "Rain.")]
    await send(stage, *answered, terms=options, **NAMED)

    again, said = await send(stage, *begun, user("the weather, please"), terms=options, **NAMED)

    assert again.admission.session.id == first.admission.session.id
    assert [text_of(message.parts) for message in stage.requests[-1].messages] == [
        "hello",
        "Hi.",
        "the weather, please",
    ]
    assert_well_formed(await stage.log(first.admission.session.id))


@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
async def test_an_exchange_of_another_client_is_not_taken_back(stage: Stage, named: dict[str, str]) -> None:
    client, other = Client(stage, **named), Client(stage, terms=OTHER, **named)
    await client.say("one")
    other.history = list(client.history)
    await other.say("theirs")

    await client.say("mine")

    assert other.sessions[0] == client.sessions[0] != client.sessions[1]
    assert client.sent[-1].forked_from == client.sessions[0]


async def test_words_typed_elsewhere_are_not_taken_back(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    await client.say("one")
    turn = await stage.engine.submit(NewMessage(client.sessions[0], "from the dashboard"), stream="live")
    assert [item async for item in turn.follow()]

    await client.say("two")

    assert client.sent[-1].forked_from == client.sessions[0]


async def test_an_older_exchange_is_replaced_in_a_fork(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    for words in ("one", "two", "three"):
        await client.say(words)

    client.history[2:] = []
    await client.say("zwei")

    assert client.sent[-1].forked_from == client.sessions[0]


async def test_conversations_with_the_same_examples_do_not_replace_each_other(stage: Stage) -> None:
    examples = [user("2 + 2?"), assistant("4")]
    clients = [Client(stage), Client(stage), Client(stage)]
    for n, client in enumerate(clients):
        client.history = list(examples)
        await client.say(f"{n} + 1?")
    for client in clients:
        await client.say("sure?")

    assert len({client.sessions[0] for client in clients}) == 3
    assert all(len(client.sessions) == 1 for client in clients)


# rewritten messages


@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
async def test_a_client_that_decorates_its_newest_message_has_one_session(stage: Stage, named: dict[str, str]) -> None:
    client = Client(stage, **named)
    for n in range(10):
        words = f"question {n}"
        said = await client.ask(*client.history, user(f"{words}\n\nReminder: answer briefly."))
        client.history += [user(words), assistant(said)]

    assert len(client.sessions) == 1
    sent = [text_of(message.parts) for message in client.history[:-2]]
    assert client.context == [*sent, "question 9\n\nReminder: answer briefly."], "the model gets what the client sends"
    assert await listed(stage) == 1


@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
async def test_a_client_that_moves_its_files_to_the_end_has_one_session(stage: Stage, named: dict[str, str]) -> None:
    """As aider does: examples, what was said, the current files with a reply that it makes up, and the newest message."""
    client, examples = Client(stage, **named), [user("Change x."), assistant("Done: x.")]
    for n in range(10):
        files = [user(f"These are the files:\nversion {n}"), assistant("Ok, I will change those files.")]
        said = await client.ask(*examples, *client.history, *files, user(f"task {n}\n\nUse the format."))
        client.history += [user(f"task {n}"), assistant(said)]

    assert len(client.sessions) == 1
    assert client.context[-3:] == [
        "These are the files:\nversion 9",
        "Ok, I will change those files.",
        "task 9\n\nUse the format.",
    ]
    assert sum("version" in words for words in client.context) == 1
    assert len(client.context) == 2 + 18 + 3


async def test_a_client_that_kept_half_of_a_reply_continues_its_session(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    await client.say("a long question")

    client.history[-1] = assistant("You said: a long")
    await client.say("go on")

    assert len(client.sessions) == 1
    assert client.context == ["a long question", "You said: a long", "go on"]


@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
async def test_a_client_that_keeps_the_arguments_of_a_call_as_its_reply_has_one_session(
    tmp_path: Path, stages: list[Stage], named: dict[str, str]
) -> None:
    """As clients for structured outputs do: the call only gives the reply its form."""
    calls = [ScriptedCall(name="answer", arguments={"text": str(n), "n": n}) for n in range(4)]
    stages.append(stage := await set_up(tmp_path, *(ScriptStep(call=(one,)) for one in calls)))
    options = RequestOptions(tools=(ClientTool(name="answer", description="Answers."),), client="app")
    client = Client(stage, model="play", terms=options, **named)
    for n in range(4):
        client.history.append(user(f"question {n}"))
        await client.ask(*client.history)
        client.history.append(assistant(f'{{"n":{n},"text":"{n}"}}'))

    assert len(client.sessions) == 1 and all(one.forked_from is None for one in client.sent)
    assert client.context == [text_of(message.parts) for message in client.history[:-1]]
    assert_well_formed(await client.log())


async def test_a_client_that_replaces_its_history_by_a_summary_continues_its_named_session(stage: Stage) -> None:
    client = Client(stage, **NAMED)
    for n in range(4):
        await client.say(f"question {n}")
    await client.say("Summarize all this.")

    client.history = [user("What did we do?"), client.history[-1]]
    await client.say("go on")

    assert len(client.sessions) == 1
    assert client.context == ["What did we do?", "You said: Summarize all this.", "go on"]


async def test_a_rewrite_of_compacted_messages_undoes_the_compaction(tmp_path: Path, stages: list[Stage]) -> None:
    reader = Reader(16_000)
    stages.append(stage := await set_up(tmp_path, ask=reader.ask, compacting=reader.compacting()))
    client = Client(stage, **NAMED)
    for n in range(12):
        await client.say(f"question {n} " + "about the garden and the rain " * 5)
    assert isinstance(await stage.engine.compact(client.sessions[0]), Compacted)

    client.history[6] = user("question 3, revised")
    await client.say("go on")

    assert len(client.sessions) == 1
    sent = [text_of(message.parts) for message in client.history[:-1]]
    assert [message.text for message in reader.shown[-1].messages] == sent


# a sliding window


@pytest.mark.parametrize("size", [3, 4, 5])
@pytest.mark.parametrize("named", [NAMED, UNNAMED], ids=["named", "unnamed"])
async def test_a_client_that_sends_the_end_of_its_history_has_one_session(
    stage: Stage, named: dict[str, str], size: int
) -> None:
    client = Client(stage, **named)
    for n in range(10):
        client.history.append(user(f"question {n}"))
        said = await client.ask(*client.history[-size - 1 :])
        client.history.append(assistant(said))

    if named or size >= 4:
        assert len(client.sessions) == 1
        assert client.context == [text_of(message.parts) for message in client.history[:-1]], (
            "the session remembers all"
        )


async def test_the_end_of_two_sessions_is_that_of_neither(stage: Stage) -> None:
    clients = [Client(stage), Client(stage)]
    for n, client in enumerate(clients):
        await client.say(f"I am {n}")
        for words in ("yes", "no", "yes"):
            await client.say(words)

    late = Client(stage)
    await late.ask(*clients[0].history[-4:], user("who am I?"))

    assert late.sessions[0] not in (*clients[0].sessions, *clients[1].sessions)
    assert late.context == ["no", "You said: no", "yes", "You said: yes", "who am I?"]


async def test_the_end_of_a_session_of_another_client_or_caller_is_not_continued(stage: Stage) -> None:
    client = Client(stage)
    for n in range(4):
        await client.say(f"secret {n}")

    for more in ({"terms": OTHER}, {"caller": "api:someone"}, {"terms": RequestOptions()}):
        stranger = Client(stage, **more)
        await stranger.ask(*client.history[-4:], user("what was before?"))
        assert stranger.sessions != client.sessions
        assert "secret 0" not in stranger.context


# repeated conversations


async def test_a_conversation_that_is_repeated_has_one_session_each_time(stage: Stage) -> None:
    clients = [Client(stage) for _ in range(4)]
    for client in clients:
        for n in range(5):
            await client.say(f"question {n}")

    assert [len(client.sessions) for client in clients] == [1, 1, 1, 1]
    assert await listed(stage) == 4
