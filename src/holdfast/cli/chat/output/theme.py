"""The theme of the chat: colours that can be read on a dark or on a light background. Both use the terminal's own colours."""

from collections.abc import Mapping
from typing import Literal

Background = Literal["dark", "light"]
CODE_THEMES: dict[Background, str] = {"dark": "ansi_dark", "light": "ansi_light"}
LIGHT_COLOURS = frozenset({"7", "9", "10", "11", "12", "13", "14", "15"})
"""Numbers of background colours in COLORFGBG that are light."""


def detect_background(environment: Mapping[str, str]) -> Background:
    """The background according to COLORFGBG, as in `0;15`, which some terminals set; without it, dark."""
    _, _, background = environment.get("COLORFGBG", "").rpartition(";")
    return "light" if background in LIGHT_COLOURS else "dark"


def code_theme(setting: Literal["auto", "dark", "light"], environment: Mapping[str, str]) -> str:
    """The theme for the highlighting of code."""
    return CODE_THEMES[detect_background(environment) if setting == "auto" else setting]
