"""`holdfast ps`: the list, the output and the end of background processes."""

import asyncio
import os
import re

import pytest

from holdfast.clock import SystemClock
from holdfast.model.process import Process
from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.store.repos import processes
from holdfast.store.sqlite.driver import open_sqlite
from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed
from tests.crash.programs import wait_until

pytestmark = pytest.mark.process


class Yard:
    """Starts processes like an agent that is gone afterwards."""

    def __init__(self, home, seed: Seed) -> None:
        self.home, self.seed = home, seed
        self.session_id = seed.session()

    def start(self, command: str) -> str:
        return self._do(lambda registry: registry.start(command, self.home, self.session_id)).id

    def clean(self) -> None:
        async def stop(registry: ProcessRegistry) -> None:
            for process in await registry.list():
                await registry.stop(process, "the test is over", grace_seconds=0)

        self._do(stop)

    def get(self, process_id: str) -> Process:
        return self.seed.write(lambda tx: processes.get(tx, process_id))

    def _do(self, work):
        async def go():
            database = await open_sqlite(self.home / "holdfast.db")
            limits = ProcessLimits(ttl_seconds=7200, output_bytes=1 << 20)
            environment = {"PATH": os.environ["PATH"]}
            try:
                return await work(
                    ProcessRegistry(database, SystemClock(), current_identity(), self.home, environment, limits)
                )
            finally:
                await database.close()

        return asyncio.run(go())


@pytest.fixture
def yard(home, seed):
    made = Yard(home, seed)
    yield made
    made.clean()


def done(yard: Yard, process_id: str) -> None:
    wait_until((yard.home / "processes" / process_id / "done").exists, "it has ended")


def test_promise_14_the_list_is_a_table_and_a_document(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("sleep 300")

    table = holdfast("ps").out
    [shown] = holdfast("ps", "--json").json["processes"]

    assert re.search(rf"{one}  working, blocks reset  \d+ s ago  {yard.session_id}  sleep 300", table)
    assert set(shown) == {
        *("id", "session_id", "command", "workdir", "host", "pid", "state", "evidence", "blocks_reset", "expired"),
        *("started_at", "last_work_at", "last_work", "ttl_seconds", "members", "listens", "cpu_seconds"),
        *("output_bytes", "ended_at", "exit_code", "end_reason"),
    }
    assert (shown["id"], shown["state"], shown["blocks_reset"], shown["members"]) == (one, "working", True, 1)


def test_ended_processes_are_shown_on_request(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("exit 4")
    done(yard, one)

    assert holdfast("ps", "--json").json == {"processes": []}
    [shown] = holdfast("ps", "--all", "--json").json["processes"]
    assert (shown["state"], shown["exit_code"], shown["end_reason"]) == ("gone", 4, "exit code 4")


def test_the_end_of_the_output_is_shown(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("seq 1 500; printf '\\033[31mred'")
    done(yard, one)

    ran = holdfast("ps", "log", one, "--lines", "3")
    shown = holdfast("ps", "log", one[:14], "-n", "1", "--json").json

    assert ran.out == "499\n500\n\\x1b[31mred"
    assert f"process {one} ended: exit code 0" in ran.err
    assert (shown["output"], shown["bytes"], shown["bytes_dropped"]) == ("\x1b[31mred", 1900, 0)
    assert shown["process"]["id"] == one


def test_output_is_followed_to_the_end(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("for i in 1 2 3 4 5; do echo $i; sleep 0.1; done; exit 9")

    ran = holdfast("ps", "log", one, "--follow")

    assert ran.out == "1\n2\n3\n4\n5\n"
    assert "exit code 9" in ran.err


def test_a_process_is_killed_with_its_children(holdfast: Holdfast, yard: Yard) -> None:
    one, two = yard.start("sleep 300 & sleep 301"), yard.start("sleep 302")

    ran = holdfast("ps", "kill", one, two)
    [again] = holdfast("ps", "kill", two, "--json").json["processes"]

    assert ran.out == "".join(f"{each}: stopped by the user (ended by signal 15)\n" for each in (one, two))
    assert again["end_reason"] == "stopped by the user (ended by signal 15)"
    assert holdfast("ps", "--json").json == {"processes": []}


@pytest.mark.parametrize("words", [["log", "proc-nothing"], ["kill", "proc-nothing"]])
def test_what_is_not_there_is_not_found(holdfast: Holdfast, yard: Yard, words: list[str]) -> None:
    assert holdfast("ps", *words).code == 3


def test_an_unknown_process_stops_nothing(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("sleep 300")

    assert holdfast("ps", "kill", one, "proc-nothing").code == 3
    assert yard.get(one).ended_at is None


def test_follow_cannot_be_combined_with_json(holdfast: Holdfast, yard: Yard) -> None:
    assert holdfast("ps", "log", yard.start("true"), "--follow", "--json").code == 2


def test_promise_12_why_shows_the_processes_and_what_they_block(holdfast: Holdfast, yard: Yard) -> None:
    one = yard.start("sleep 300")

    shown = holdfast("why", yard.session_id, "--json").json
    told = holdfast("why", yard.session_id).out

    assert [(each["id"], each["blocks_reset"]) for each in shown["processes"]] == [(one, True)]
    assert f"process {one} (sleep 300): working, blocks reset (it was started" in told


def test_promise_12_why_says_when_a_reset_is_due(holdfast: Holdfast, seed: Seed, home) -> None:
    plain, watched = seed.session(), seed.session(channel="telegram:1", source="gateway")
    (home / "config.toml").write_text('[reset.channels.telegram]\nmode = "idle"\nidle_minutes = 30\n')

    assert holdfast("why", plain, "--json").json["reset"] == ""
    assert re.fullmatch(
        r"due at 20\d\d-\S+Z \(idle\), unless there is a message before",
        holdfast("why", watched, "--json").json["reset"],
    )


def test_a_sweep_inspects_the_processes_and_resets_due_sessions(
    holdfast: Holdfast, yard: Yard, seed: Seed, home
) -> None:
    from holdfast.model.event import SessionOpened, TurnEnded, TurnStarted, UserSaid
    from holdfast.model.message import Text
    from holdfast.model.times import MINUTE
    from holdfast.store.repos import aliases, log, sessions

    (home / "config.toml").write_text('[reset]\nmode = "idle"\nidle_minutes = 30\n')
    ended = yard.start("exit 3")
    done(yard, ended)
    long_ago = seed.clock.now() - 31 * MINUTE

    def work(tx) -> None:
        sessions.create(tx, "hf-old", SessionOpened(source="gateway", channel="telegram:1"), at=long_ago)
        said = [
            TurnStarted(turn_id="t-1"),
            UserSaid(turn_id="t-1", parts=(Text("hello"),)),
            TurnEnded(turn_id="t-1", outcome="done"),
        ]
        log.append_unheld(tx, "hf-old", said, at=long_ago)
        aliases.set_channel_session(tx, "telegram:1", "hf-old", at=long_ago)

    seed.write(work)

    actions = holdfast("janitor", "--once", "--json").json["done"]

    assert ("reset", "hf-old") in [(action["what"], action["session_id"]) for action in actions]
    assert holdfast("sessions", "show", "hf-old", "--json").json["end_reason"] == "session_reset"
    assert yard.get(ended).exit_code == 3


def test_pruning_deletes_the_files_and_process_directories_of_a_session(
    holdfast: Holdfast, yard: Yard, seed: Seed
) -> None:
    ended, kept = yard.start("echo hello"), seed.session()
    done(yard, ended)
    assert holdfast("ps", "--json").json == {"processes": []}  # its end is seen
    for session_id in (yard.session_id, kept):
        (yard.home / "files" / session_id).mkdir(parents=True)
        (yard.home / "files" / session_id / "note.txt").write_text("private")
    seed.trash(yard.session_id, days_ago=40)

    holdfast("sessions", "prune")
    assert (yard.home / "processes" / ended).exists()
    [removed] = holdfast("sessions", "prune", "--yes", "--json").json["sessions"]

    assert removed["id"] == yard.session_id
    assert not (yard.home / "processes" / ended).exists()
    assert [path.name for path in (yard.home / "files").iterdir()] == [kept]


def test_a_session_with_a_running_process_is_not_pruned(holdfast: Holdfast, yard: Yard, seed: Seed) -> None:
    one = yard.start("sleep 300")
    seed.trash(yard.session_id, days_ago=40)

    assert holdfast("sessions", "prune", "--yes", "--json").json["sessions"] == []
    assert yard.get(one).ended_at is None
    assert (yard.home / "processes" / one).exists()


def test_the_doctor_names_expired_processes(holdfast: Holdfast, yard: Yard, seed: Seed) -> None:
    one, other = yard.start("sleep 300"), yard.start("sleep 301")
    late = yard.get(one)
    seed.write(lambda tx: processes.expire(tx, late, "it is old", at=SystemClock().now()))

    [warning] = [text for text in holdfast("doctor", "--json").json["warnings"] if "time to live" in text]

    assert f"process {one} of session {yard.session_id}" in warning
    assert f"holdfast ps kill {one}" in warning
    assert other not in warning
    assert one in holdfast("doctor").out
