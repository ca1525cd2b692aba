import pytest

from holdfast.settings import Terminal
from holdfast.tools.backends.registry import choose_backend


@pytest.mark.parametrize(
    ("recorded", "source", "configured", "has_bubblewrap", "chosen"),
    [
        ("", "chat", None, True, "local"),
        ("", "cron", None, True, "local"),
        ("", "api", None, True, "bubblewrap"),
        ("", "gateway", None, True, "bubblewrap"),
        ("", "gateway", None, False, "local"),
        ("", "api", "local", True, "local"),
        ("", "chat", "container", True, "container"),
        ("ssh", "chat", "container", True, "ssh"),
        ("local", "gateway", None, True, "local"),
        ("of another version", "chat", "bubblewrap", True, "bubblewrap"),
    ],
)
def test_the_choice_for_the_session_wins_then_the_setting_then_the_source(
    recorded, source, configured, has_bubblewrap, chosen
):
    settings = Terminal(backend=configured)

    assert choose_backend(recorded, source, settings, has_bubblewrap=has_bubblewrap) == chosen
