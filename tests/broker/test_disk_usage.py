"""Only a user above the disk quota is stopped."""

import errno
import os
import secrets
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from holdfast.broker import disk_usage
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


def test_a_user_above_the_disk_quota_is_stopped_until_usage_drops(new_broker: NewBroker) -> None:
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
        assert "the quota is 20 MB" in refused["message"]
        for page in (
            httpx.post(f"{broker.url}/ui/login", data={"key": broker.keys["ada"]}, headers={"accept": "text/html"}),
            httpx.get(f"{broker.url}/", cookies=inside, headers={"accept": "text/html"}),
        ):
            assert page.status_code == 507
            assert page.headers["content-type"].startswith("text/html")
            assert "the quota is 20 MB" in page.text
            assert '<body class="standalone"' in page.text, "the page has no menu"
            assert "script-src" in page.headers["content-security-policy"]
        assert text(ask(bo, "and me?")) == "You said: and me?"
        wait_until(lambda: states(broker) == {"ada": "full", "bo": "running"}, "the status tells")
        status = {one["name"]: one for one in broker.status()["users"]}
        assert status["ada"]["disk"] > 25 * MEGABYTE > 20 * MEGABYTE > status["bo"]["disk"] > 0
        assert "the quota is" in status["ada"]["complaint"]

        filler.unlink()
        wait_until(lambda: ada.get("/v1/sessions").status_code == 200, "ada is served again")
        name = first.headers["x-session-id"]
        said = ada.get(f"/v1/sessions/{name}/messages").text
        assert "hello" in said


def test_processes_that_a_user_leaves_running_are_ended_without_a_uid_too(new_broker: NewBroker) -> None:
    broker = new_broker("ada", "bo", user_disk_mb=20)
    if "no cgroup limit on" in broker.process.stderr:
        pytest.skip("no control groups here")  # test_cgroups.py fails if they should exist
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


def test_a_stream_ended_by_the_disk_quota_says_so_and_its_turn_continues(new_broker: NewBroker) -> None:
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


async def test_the_count_equals_the_usage_on_disk(tmp_path: Path) -> None:
    assert await disk_usage.measure_usage([tmp_path / "nothing"]) == 0

    home = tmp_path / "home"
    (home / "deep" / "er").mkdir(parents=True)
    fill(home / "deep" / "er" / "one\nline\ttotal", 3)
    (home / "again").hardlink_to(home / "deep" / "er" / "one\nline\ttotal")
    (home / "away").symlink_to(fill(tmp_path / "of another", 5))
    with (home / "holes").open("wb") as file:
        file.truncate(100 * MEGABYTE)
    taken = await disk_usage.measure_usage([home])

    assert 3 * MEGABYTE <= taken < 4 * MEGABYTE
    assert await disk_usage.measure_usage([home, fill(tmp_path / "log", 2)]) >= taken + 2 * MEGABYTE


async def test_a_directory_too_deep_for_a_path_is_counted(tmp_path: Path) -> None:
    code = "import os\nfor _ in range(600):\n    os.mkdir('folder' * 6)\n    os.chdir('folder' * 6)\n" + (
        f"open('big', 'wb').write(os.urandom({2 * MEGABYTE}))"
    )
    subprocess.run((sys.executable, "-c", code), cwd=tmp_path, check=True)
    try:
        assert await disk_usage.measure_usage([tmp_path]) >= 2 * MEGABYTE
    finally:
        subprocess.run(("rm", "-rf", str(tmp_path / ("folder" * 6))), check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to somebody")
async def test_files_of_a_user_in_shared_directories_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    monkeypatch.setattr(disk_usage, "SHARED_FOLDERS", (tmp_path / "nowhere", shared))
    fill(shared / "of root", 4)
    os.chown(fill(shared / "of the user", 2), UID, UID)

    assert await disk_usage.measure_usage(disk_usage.find_shared_files({UID})[UID]) == 2 * MEGABYTE
    assert disk_usage.find_shared_files(set()) == {}
    assert await disk_usage.measure_usage([]) == 0


async def test_files_in_shared_directories_may_have_any_name_and_be_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_usage, "SHARED_FOLDERS", (tmp_path,))
    (tmp_path / "longer than any name").symlink_to("a" * 300)
    (tmp_path / "circle").symlink_to("circle")
    fill(tmp_path / "film\n1\ttotal", 2)
    fill(tmp_path / os.fsdecode(b"no text \xff"), 3)

    assert (
        5 * MEGABYTE
        <= await disk_usage.measure_usage(disk_usage.find_shared_files({os.geteuid()})[os.geteuid()])
        < 6 * MEGABYTE
    )


async def test_counting_works_in_any_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")

    assert await disk_usage.measure_usage([fill(tmp_path / "film", 2)]) == 2 * MEGABYTE


async def test_a_failed_count_is_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for command, why in (
        (("no-such-program",), "cannot start du"),
        (("sh", "-c", "echo oh dear >&2"), "oh dear"),
        (("sleep", "600"), "took more than 1 s"),
    ):
        monkeypatch.setattr(disk_usage, "COMMAND", command)
        monkeypatch.setattr(disk_usage, "SECONDS", 1.0)
        with pytest.raises(Unavailable, match=why):
            await disk_usage.measure_usage([tmp_path])


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO])
def test_a_shared_directory_that_cannot_be_read_does_not_count_as_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def fail(path: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(disk_usage, "SHARED_FOLDERS", (tmp_path,))
    monkeypatch.setattr(os, "scandir", fail)
    with pytest.raises(OSError, match=os.strerror(number)):
        disk_usage.find_shared_files({UID})
