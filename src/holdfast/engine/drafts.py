"""Words of a reply that another worker streams, as its drafts show them to those who watch from elsewhere."""

from holdfast.engine.bus import Live
from holdfast.store.log import Draft


class Drafts:
    """Remembers how much of the newest draft has been passed on, so that each word is passed on once."""

    def __init__(self) -> None:
        self._turn_id = ""
        self._told = ""

    def hear(self, live: Live) -> None:
        """Words that were passed on as they were said here: should another worker go on, its watchers know them."""
        if live.kind == "restarted" or live.turn_id != self._turn_id:
            self._turn_id, self._told = live.turn_id, ""
        if live.kind == "text":
            self._told = self._told[: live.at] + live.text

    def settle(self) -> None:
        """The reply is committed, whole or in part; another begins from nothing."""
        self._told = ""

    def news(self, draft: Draft | None, *, behind: int = 0) -> list[Live]:
        """What is new in it. A draft that does not go on from the last one is a reply that began anew.

        `behind` is the number of the last event that is there.
        """
        if draft is None:
            self._told = ""
            return []
        if draft.turn_id != self._turn_id:
            self._turn_id, self._told = draft.turn_id, ""
        news: list[Live] = []
        if not draft.body.startswith(self._told):
            news.append(Live(draft.turn_id, "restarted", "another attempt was made", behind=behind))
            self._told = ""
        if more := draft.body[len(self._told) :]:
            news.append(Live(draft.turn_id, "text", more, kept=True, at=len(self._told), behind=behind))
        self._told = draft.body
        return news
