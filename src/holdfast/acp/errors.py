"""Our errors as those of the protocol."""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from acp.exceptions import RequestError

from holdfast.model.errors import HoldfastError, Invalid, NotFound

P = ParamSpec("P")
T = TypeVar("T")
INVALID_PARAMS, INTERNAL_ERROR, RESOURCE_NOT_FOUND = -32602, -32603, -32002


def to_request_error(error: HoldfastError) -> RequestError:
    """The error with its message; its code is in the data."""
    code = INTERNAL_ERROR
    if isinstance(error, NotFound):
        code = RESOURCE_NOT_FOUND
    elif isinstance(error, Invalid):
        code = INVALID_PARAMS
    return RequestError(code, str(error), {"code": error.code})


def translated(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Let a method raise the protocol's errors instead of ours."""

    @functools.wraps(method)
    async def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except HoldfastError as e:
            raise to_request_error(e) from e

    return wrapper
