"""The user file: keys are not stored, names are validated, and no change is lost."""

import threading
from pathlib import Path

import pytest

from holdfast.broker.users import Users, check_name
from holdfast.model.errors import Conflict, Corrupt, Invalid, NotFound, Unavailable


@pytest.fixture
def users(tmp_path: Path) -> Users:
    return Users(tmp_path / "users.json")


def add(users: Users, name: str, first_uid: int | None = None) -> str:
    return users.add(name, first_uid=first_uid, at=1, make_home=lambda user: None)[1]


def test_a_key_authenticates_its_user_and_no_other(users: Users) -> None:
    keys = {name: add(users, name) for name in ("ada", "bo")}

    for name, key in keys.items():
        found = users.find_by_key(key)
        assert found is not None
        assert found.name == name


@pytest.mark.parametrize(
    "wrong", ["", "hfu-", "hfu-ada", "hfu-ada.", "hfu-ada.x", "hfu-nobody.x", "ada", "Bearer", "hfu-ada.é\udce9", "\0"]
)
def test_anything_else_authenticates_nobody(users: Users, wrong: str) -> None:
    add(users, "ada")

    assert users.find_by_key(wrong) is None


def test_the_key_of_one_user_under_the_name_of_another_is_refused(users: Users) -> None:
    add(users, "ada")
    secret = add(users, "bo").partition(".")[2]

    assert users.find_by_key(f"hfu-ada.{secret}") is None


def test_the_file_contains_no_key_and_is_private(users: Users, tmp_path: Path) -> None:
    secret = add(users, "ada").partition(".")[2]

    assert secret not in (tmp_path / "users.json").read_text()
    assert (tmp_path / "users.json").stat().st_mode & 0o077 == 0


def test_a_new_key_replaces_the_old(users: Users) -> None:
    old, before = add(users, "ada"), users.get("ada")

    new = users.new_key("ada")

    assert users.find_by_key(old) is None
    assert users.find_by_key(new) == users.get("ada")
    assert users.get("ada").worker_key != before.worker_key


def test_a_change_by_another_process_takes_effect_at_once(users: Users, tmp_path: Path) -> None:
    key = add(users, "ada")
    other = Users(tmp_path / "users.json")
    assert other.find_by_key(key) is not None

    users.remove("ada")

    assert other.find_by_key(key) is None


def test_a_name_is_unique_and_a_uid_is_never_reused(users: Users) -> None:
    add(users, "ada", 5000)
    add(users, "bo", 5000)
    users.remove("bo")
    add(users, "cy", 5000)

    assert [user.uid for user in users.all().values()] == [5000, 5002]
    with pytest.raises(Conflict):
        add(users, "ada", 5000)


def test_a_user_whose_home_cannot_be_created_is_not_added(users: Users) -> None:
    def fail(user: object) -> None:
        raise Invalid("no room")

    with pytest.raises(Invalid):
        users.add("ada", first_uid=None, at=1, make_home=fail)

    assert users.all() == {}


def test_concurrent_changes_all_take_effect(tmp_path: Path) -> None:
    def work(name: str) -> None:
        add(Users(tmp_path / "users.json"), name)

    threads = [threading.Thread(target=work, args=(f"user{n}",)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(Users(tmp_path / "users.json").all()) == 20


@pytest.mark.parametrize(
    "name", ["", "Ada", "a b", "../x", ".hidden", "-x", "x" * 33, "a/b", "ä", "a\n", "a.b", "root\0"]
)
def test_a_name_that_could_be_a_path_is_refused(name: str) -> None:
    with pytest.raises(Invalid):
        check_name(name)


def test_an_unknown_user_is_not_found(users: Users) -> None:
    for action in (users.get, users.remove, users.new_key):
        with pytest.raises(NotFound, match="nobody"):
            action("nobody")


def test_before_the_first_user_there_is_nobody_to_give_a_new_key(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="user 'bo' not found"):
        Users(tmp_path / "broker" / "users.json").new_key("bo")


def test_a_damaged_file_authenticates_nobody(users: Users, tmp_path: Path) -> None:
    key = add(users, "ada")
    (tmp_path / "users.json").write_text("{")

    with pytest.raises(Corrupt):
        users.find_by_key(key)


def test_an_unreadable_file_is_used_again_when_it_is_readable(users: Users, tmp_path: Path) -> None:
    add(users, "ada")
    kept = (tmp_path / "users.json").rename(tmp_path / "kept")
    (tmp_path / "users.json").mkdir()
    with pytest.raises(Unavailable, match="cannot read"):
        users.all()

    (tmp_path / "users.json").rmdir()
    kept.rename(tmp_path / "users.json")
    assert list(users.all()) == ["ada"]


def test_a_missing_file_does_not_mean_that_there_are_no_users(users: Users, tmp_path: Path) -> None:
    assert users.all() == {}
    add(users, "ada")
    assert list(users.all()) == ["ada"]
    kept = (tmp_path / "users.json").rename(tmp_path / "kept")
    with pytest.raises(Unavailable, match="has disappeared"):
        users.all()

    kept.rename(tmp_path / "users.json")
    assert list(users.all()) == ["ada"]
