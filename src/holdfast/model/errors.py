"""All named errors. Any other exception is a bug and propagates.

HoldfastError
├── NotFound          what was asked for does not exist
├── Invalid           the caller sent something we cannot accept
│   ├── Ambiguous     a reference that matches several sessions
│   └── Unsupported   a store we must not open: a network file system, a newer release, not ours
├── Conflict          the caller's view is stale
│   ├── KeyReused     an idempotency key that was used for another request
│   ├── Busy          a live worker holds the session or the store
│   ├── InQuarantine  a turn was quarantined because it repeatedly killed its worker
│   ├── LeaseLost     another worker holds the session now; nothing was written
│   └── DeclaredDead  other workers took over this worker's sessions; it can no longer write and stops
├── NotSaved          the store could not make the data durable; nothing of it was saved
│   ├── DiskFull
│   ├── ReadOnly
│   └── IoFailed
├── Corrupt           stored bytes differ from what was written
├── BudgetExceeded    a limit of spending is reached
│   └── PriceUnknown  nobody knows what a call would cost, and there is a budget
├── Unavailable       a store or a channel cannot be reached; a later attempt may succeed
├── LoginFailed       an MCP server wants a login, or the login did not succeed
└── ProviderFailed    the model did not answer
    ├── RateLimited       too many requests
    ├── ContextTooLong    the request is longer than the model's window
    ├── Refused           the provider will not answer this request, now or later
    ├── AuthFailed        the key is missing or not accepted
    ├── Unreachable       no connection, no answer in time, or the provider's own error
    └── BadReply          a reply that was cut off or cannot be parsed
"""

from typing import ClassVar


class HoldfastError(Exception):
    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False


class NotFound(HoldfastError):
    code = "not_found"


class Invalid(HoldfastError):
    code = "invalid"


class Ambiguous(Invalid):
    code = "ambiguous_ref"


class Unsupported(Invalid):
    code = "unsupported_store"


class Conflict(HoldfastError):
    code = "conflict"


class KeyReused(Conflict):
    code = "key_reused"


class Busy(Conflict):
    code = "session_busy"
    retryable = True

    def __init__(self, message: str, session_id: str | None = None) -> None:
        super().__init__(message)
        self.session_id = session_id


class InQuarantine(Conflict):
    code = "quarantined"


class LeaseLost(Conflict):
    code = "lease_lost"


class DeclaredDead(Conflict):
    code = "declared_dead"
    retryable = True


class NotSaved(HoldfastError):
    code = "not_saved"


class DiskFull(NotSaved):
    code = "disk_full"
    retryable = True


class ReadOnly(NotSaved):
    code = "read_only"


class IoFailed(NotSaved):
    code = "io_failed"


class Corrupt(HoldfastError):
    code = "corrupt"


class BudgetExceeded(HoldfastError):
    code = "budget_exceeded"

    def __init__(self, facts: str, advice: str = "", *, raised: int | None = None) -> None:
        super().__init__(f"{facts}. {advice}" if advice else facts)
        self.facts = facts
        """Which limit is used up."""
        self.raised = raised
        """By how much the limit had been raised before; None if it is not that of a session, which a person may raise."""


class PriceUnknown(BudgetExceeded):
    code = "price_unknown"


class Unavailable(HoldfastError):
    code = "unavailable"
    retryable = True


class LoginFailed(HoldfastError):
    code = "login_failed"


class ProviderFailed(HoldfastError):
    """`retry_after`: in how many seconds to try again, if the provider said so."""

    code = "provider_failed"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class RateLimited(ProviderFailed):
    code = "rate_limited"
    retryable = True


class ContextTooLong(ProviderFailed):
    code = "context_too_long"


class Refused(ProviderFailed):
    """`blames_input`: the provider objects to the content of the messages, not to settings, tools or the account."""

    code = "refused"

    def __init__(self, message: str, *, blames_input: bool = False) -> None:
        super().__init__(message)
        self.blames_input = blames_input


class AuthFailed(ProviderFailed):
    code = "auth_failed"


class Unreachable(ProviderFailed):
    code = "unreachable"
    retryable = True


class BadReply(ProviderFailed):
    code = "bad_reply"
    retryable = True
