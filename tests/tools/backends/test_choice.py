import pytest

from holdfast.model.event import SessionOpened
from holdfast.settings import Terminal
from holdfast.tools.backends.registry import choose_backend


@pytest.mark.parametrize(
    ("opened", "configured", "has_bubblewrap", "chosen"),
    [
        (SessionOpened(source="chat"), None, True, "local"),
        (SessionOpened(source="cron"), None, True, "local"),
        (SessionOpened(source="api"), None, True, "bubblewrap"),
        (SessionOpened(source="gateway"), None, True, "bubblewrap"),
        (SessionOpened(source="gateway"), None, False, "local"),
        (SessionOpened(source="gateway", channel="telegram:42"), None, True, "ssh"),
        (SessionOpened(source="gateway", channel="telegram:42", terminal="local"), None, True, "local"),
        (SessionOpened(source="api"), "local", True, "local"),
        (SessionOpened(source="chat"), "container", True, "container"),
        (SessionOpened(source="chat", terminal="ssh"), "container", True, "ssh"),
        (SessionOpened(source="chat", terminal="of another version"), "bubblewrap", True, "bubblewrap"),
    ],
)
def test_the_choice_for_the_session_wins_then_the_channel_then_the_setting_then_the_source(
    opened, configured, has_bubblewrap, chosen
):
    settings = Terminal(backend=configured, channels={"telegram:42": "ssh"})

    assert choose_backend(opened, settings, has_bubblewrap=has_bubblewrap) == chosen
