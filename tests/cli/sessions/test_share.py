"""Links to sessions from the command line."""

from tests.cli.conftest import Holdfast
from tests.cli.seed import Seed


def test_sharing_warns_first_and_prints_the_link_once(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()

    refused = holdfast("sessions", "share", session_id)
    assert refused.code == 2 and "add --yes" in refused.err and "secrets" in refused.err
    assert holdfast("sessions", "share", session_id, "--list", "--json").json == {"shares": []}

    shared = holdfast("sessions", "share", session_id, "--days", "3", "--yes")
    assert shared.code == 0 and "/share/" in shared.out
    token = shared.out.strip().rpartition("/")[2]
    listed = holdfast("sessions", "share", session_id, "--list")
    assert "active" in listed.out and token not in listed.out
    assert f"unshare {session_id}" in shared.err


def test_links_are_revoked_one_by_one_or_all(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session()
    made = [holdfast("sessions", "share", session_id, "--yes", "--json").json for _ in range(3)]

    one = holdfast("sessions", "unshare", session_id, "--link", made[0]["share"]["id"], "--json")
    assert one.json == {"session_id": session_id, "revoked": 1}
    assert holdfast("sessions", "unshare", session_id, "--link", made[0]["share"]["id"]).code == 1
    rest = holdfast("sessions", "unshare", session_id)
    assert "Revoked 2 links" in rest.out
    listed = holdfast("sessions", "share", session_id, "--list", "--json").json["shares"]
    assert [(item["state"], item["revoked_by"]) for item in listed] == [("revoked", "the command line")] * 3
