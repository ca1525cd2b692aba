"""What the agent needs of its process besides the engine."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from holdfast.acp.editor_tools import EditorTools
from holdfast.settings import Settings

if TYPE_CHECKING:
    from holdfast.store.search.index import SearchIndex


class EditorServices:
    def __init__(
        self,
        settings: Settings,
        tools: EditorTools,
        open_index: Callable[[], Awaitable["SearchIndex"]],
        window: Callable[[str], int],
    ) -> None:
        self.settings = settings
        self.tools = tools
        self.open_index = open_index
        self.window = window
        """The size of a model's context."""
