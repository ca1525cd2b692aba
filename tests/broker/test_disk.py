"""A user whose files take too much of the disk is stopped, and nobody else is."""

import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from holdfast.broker import disk
from holdfast.model.errors import Unavailable
from tests.api.serving import ask, text
from tests.broker.brokers import Brokers, groups
from tests.broker.conftest import NewBroker
from tests.crash.programs import wait_until

MEGABYTE = 2**20
UID = 54322


def fill(path: Path, megabytes: int) -> Path:
    path.write_bytes(secrets.token_bytes(MEGABYTE) * megabytes)
    return path


def states(broker: Brokers) -> dict[str, str]:
    return {one["name"]: one["state"] for one in broker.status()["users"]}


def test_who_takes_too_much_of_the_disk_is_stopped_until_there_is_less(new_broker: NewBroker) -> None:
    broker = new_broker("ada", "bo", user_disk_mb=20)
    with broker.http("ada") as ada, broker.http("bo") as bo:
        first = ask(ada, "hello")
        assert text(first) == "You said: hello"
        assert text(ask(bo, "hello")) == "You said: hello"

        inside = httpx.post(f"{broker.url}/ui/login", data={"key": broker.keys["ada"]}).cookies
        filler = fill(broker.places.user("ada") / "work" / "film", 25)
        wait_until(lambda: ada.get("/v1/sessions").status_code == 507, "ada is refused")
        broker.wait_asleep("ada")

        refused = ada.get("/v1/sessions").json()["error"]
        assert refused["code"] == "disk_full"
        assert "and 20 MB are allowed" in refused["message"]
        for page in (
            httpx.post(f"{broker.url}/ui/login", data={"key": broker.keys["ada"]}, headers={"accept": "text/html"}),
            httpx.get(f"{broker.url}/", cookies=inside, headers={"accept": "text/html"}),
        ):
            assert page.status_code == 507
            assert page.headers["content-type"].startswith("text/html")
            assert "and 20 MB are allowed" in page.text
            assert '<body class="alone"' in page.text, "there is no menu beside it, nor room for one"
            assert "script-src" in page.headers["content-security-policy"]
        assert text(ask(bo, "and me?")) == "You said: and me?"
        wait_until(lambda: states(broker) == {"ada": "full", "bo": "running"}, "the status tells")
        status = {one["name"]: one for one in broker.status()["users"]}
        assert status["ada"]["disk"] > 25 * MEGABYTE > 20 * MEGABYTE > status["bo"]["disk"] > 0
        assert "are allowed" in status["ada"]["complaint"]

        filler.unlink()
        wait_until(lambda: ada.get("/v1/sessions").status_code == 200, "ada is served again")
        name = first.headers["x-session-id"]
        said = ada.get(f"/v1/sessions/{name}/messages").text
        assert "hello" in said


def test_what_a_user_leaves_running_is_ended_without_a_uid_too(new_broker: NewBroker) -> None:
    broker = new_broker("ada", "bo", user_disk_mb=20)
    if "for want of a control group" in broker.process.complaints:
        pytest.skip("no control groups here")  # test_groups.py sees to it that there is a reason
    left = {}
    for name in ("ada", "bo"):
        with broker.http(name) as http:
            assert text(ask(http, "hello")) == "You said: hello"
        left[name] = subprocess.Popen(("sleep", "600"))
        for group in groups(broker.pid(name)):
            (group / "cgroup.procs").write_text(str(left[name].pid))
    try:
        fill(broker.places.user("ada") / "work" / "film", 25)

        assert left["ada"].wait(60) == -signal.SIGKILL
        assert left["bo"].poll() is None
        broker.run("remove", "bo")
        assert left["bo"].wait(60) == -signal.SIGKILL
    finally:
        for one in left.values():
            one.kill()
            one.wait()


def test_a_stream_that_is_cut_off_by_too_many_files_says_so_and_its_turn_goes_on(new_broker: NewBroker) -> None:
    broker = new_broker("ada", user_disk_mb=20, stop_seconds=1)
    words = {"model": broker.model("dawdling"), "messages": [{"role": "user", "content": "Tell me."}], "stream": True}
    with broker.http("ada") as ada:
        with ada.stream("POST", "/v1/chat/completions", json=words) as answer:
            heard = answer.iter_text()
            told = next(heard)
            filler = fill(broker.places.user("ada") / "work" / "film", 25)
            told += "".join(heard)

        assert '"code":"disk_full"' in told
        assert told.endswith("data: [DONE]\n\n")
        broker.wait_asleep("ada")
        filler.unlink()
        wait_until(lambda: states(broker) == {"ada": "running"}, "the turn goes on by itself")
        (session,) = ada.get("/v1/sessions").json()["sessions"]
        said = ada.get(f"/v1/sessions/{session['id']}/messages").json()["messages"]
        assert [one["content"] for one in said if one["role"] == "user"] == ["Tell me."]


async def test_what_is_counted_is_what_the_disk_holds(tmp_path: Path) -> None:
    assert await disk.taken([tmp_path / "nothing"]) == 0

    home = tmp_path / "home"
    (home / "deep" / "er").mkdir(parents=True)
    fill(home / "deep" / "er" / "one\nline\ttotal", 3)
    (home / "again").hardlink_to(home / "deep" / "er" / "one\nline\ttotal")
    (home / "away").symlink_to(fill(tmp_path / "of another", 5))
    with (home / "holes").open("wb") as file:
        file.truncate(100 * MEGABYTE)
    taken = await disk.taken([home])

    assert 3 * MEGABYTE <= taken < 4 * MEGABYTE
    assert await disk.taken([home, fill(tmp_path / "log", 2)]) >= taken + 2 * MEGABYTE


async def test_a_folder_that_is_too_deep_for_a_path_is_counted(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(600):\n    os.mkdir('folder' * 6)\n    os.chdir('folder' * 6)\n" + (
        f"open('big', 'wb').write(os.urandom({2 * MEGABYTE}))"
    )
    subprocess.run((sys.executable, "-c", code), cwd=tmp_path, check=True)
    try:
        assert await disk.taken([tmp_path]) >= 2 * MEGABYTE
    finally:
        subprocess.run(("rm", "-rf", str(tmp_path / ("folder" * 6))), check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody")
async def test_what_a_user_leaves_where_everybody_writes_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr(disk, "SHARED", (tmp_path / "nowhere", shared))
    fill(shared / "of root", 4)
    os.chown(fill(shared / "of the user", 2), UID, UID)

    assert await disk.taken(disk.left({UID})[UID]) == 2 * MEGABYTE
    assert disk.left(set()) == {}
    assert await disk.taken([]) == 0


async def test_what_a_user_leaves_can_have_any_name_and_lead_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk, "SHARED", (tmp_path,))
    (tmp_path / "longer than any name").symlink_to("a" * 300)
    (tmp_path / "circle").symlink_to("circle")
    fill(tmp_path / "film\n1\ttotal", 2)
    fill(tmp_path / os.fsdecode(b"no text \xff"), 3)

    assert 5 * MEGABYTE <= await disk.taken(disk.left({os.geteuid()})[os.geteuid()]) < 6 * MEGABYTE


async def test_a_broker_in_another_language_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")

    assert await disk.taken([fill(tmp_path / "film", 2)]) == 2 * MEGABYTE


async def test_a_count_that_fails_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for command, why in (
        (("no-such-program",), "cannot be started"),
        (("sh", "-c", "echo oh dear >&2"), "oh dear"),
        (("sleep", "600"), "takes more than 1 s"),
    ):
        monkeypatch.setattr(disk, "COMMAND", command)
        monkeypatch.setattr(disk, "SECONDS", 1.0)
        with pytest.raises(Unavailable, match=why):
            await disk.taken([tmp_path])
