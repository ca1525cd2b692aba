"""A client's request, and what comes of it: the turn that was admitted, or what has to be done first."""

from typing import Literal

import msgspec

from holdfast.engine.admission.admit import Admission
from holdfast.engine.admission.history_match import ClientHistory, ClientMessage
from holdfast.engine.admission.prepared_request import PreparedRequest
from holdfast.model.event import RequestOptions
from holdfast.model.mode import DEFAULT_MODE, Mode
from holdfast.store.repos.input_queue import InputMode
from holdfast.store.repos.recent_requests import RecentRequest

Auxiliary = Literal["no", "likely", "yes"]
"""`likely`: it is one if it has another system text than the session that it names."""


class ContinueFrom(msgspec.Struct, frozen=True):
    """A turn to continue from."""

    session_id: str
    turn_id: str


class ClientRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request of a client. The ids are made beforehand; `new_id` is used if a session is created."""

    turn_id: str
    new_id: str
    messages: tuple[ClientMessage, ...]
    caller: str
    """The caller, for requests that are matched to a session by their history."""
    ref: str | None = None
    """A session id or an alias."""
    channel: str | None = None
    """The caller's own name for a session."""
    system: str | None = None
    model: str | None = None
    """None for the session's own."""
    default_model: str
    permission_mode: Mode = DEFAULT_MODE
    """The permission mode of a new session."""
    terms: RequestOptions = RequestOptions()
    auxiliary: Auxiliary = "no"
    """Whether the client asks for its own use, such as for a title, and not as part of the conversation."""
    mode: InputMode | None = "queue"
    key: str = ""
    request: str = ""
    """A digest of the body."""
    retried: bool = False
    """Whether the client says that it has sent this request before."""
    workdir: str | None = None
    after: ContinueFrom | None = None
    history: ClientHistory | None = None
    """The messages, hashed, if the caller has done that."""
    prepared: PreparedRequest | None = None
    """What a read has determined; without it, the write determines it."""

    def hashed(self) -> PreparedRequest:
        """The messages, hashed. The duration grows with their number."""
        return PreparedRequest.of(self.messages) if self.history is None else PreparedRequest(self.history)

    @property
    def owner(self) -> str:
        """The caller and the session that the request names: idempotency keys are bound to that."""
        named = self.after.session_id if self.after is not None else self.ref or self.channel or ""
        return f"{self.caller} {named}"


class AdmittedRequest(msgspec.Struct, frozen=True):
    """The result of an admitted request."""

    admission: Admission
    model: str = ""
    new: bool = False
    """Whether the request created the session."""
    forked_from: str | None = None
    first: int = 1
    """The first event of the turn, if it was admitted before."""


class PossibleRetry(Exception):
    """An equal request was admitted a short time ago. The caller, inside the engine, decides whether this one repeats it."""

    def __init__(self, recent: RecentRequest) -> None:
        super().__init__(recent.turn_id)
        self.recent = recent


class LogNotVerified(Exception):
    """The log of this session must be verified first. The caller, inside the engine, does that and tries again.

    Verifying reads the whole log, which the first turn in this worker has to do anyway. It is done before input is admitted,
    so that nothing is added to a damaged log; the result is cached.
    """

    def __init__(self, session_id: str) -> None:
        super().__init__(session_id)
        self.session_id = session_id
