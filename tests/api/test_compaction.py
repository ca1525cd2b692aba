"""Promise 16: compaction never changes the session id, and every form of reply reports it."""

import httpx
import pytest

from tests.api.serving import Server, ask, events, session


@pytest.mark.timeout(120)
def test_a_session_keeps_its_id_through_compactions_and_reports_each(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    home = tmp_path_factory.mktemp("api") / "home"
    with Server(home, context_window=4000) as server, server.http() as http:
        first = ask(http, "Remember the marker: blue.")
        name = {"x-session-id": session(first)}
        told = [converse(http, name, number) for number in range(60)]

    epochs = [about["epoch"] for about in told]
    assert {about["session_id"] for about in told} == {session(first)}
    assert epochs == sorted(epochs) and epochs[-1] >= 3
    for before, about in zip([{"epoch": 0}, *told], told, strict=False):
        assert about["compacted"] == (about["epoch"] > before["epoch"])


def converse(http: httpx.Client, name: dict[str, str], number: int) -> dict[str, object]:
    """Run a turn, every other one streamed; return what its headers say about the session."""
    response = ask(http, f"{number}: {'words ' * 120}", headers=name, stream=bool(number % 2))
    assert response.status_code == 200, response.text
    assert response.headers["x-session-id"] == name["x-session-id"]
    if number % 2:
        about = events(response.text)[-2]["holdfast"]
    else:
        about = response.json()["holdfast"]
        assert response.headers["x-session-epoch"] == str(about["epoch"])
    return about
