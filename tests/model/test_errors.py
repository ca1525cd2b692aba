import re
from itertools import pairwise

from holdfast.model import errors
from holdfast.model.errors import HoldfastError, RateLimited

LINE = re.compile(r"^(?P<bars>[│├└─ ]*)(?P<name>[A-Z]\w+)(?P<meaning>.*)$")


def every(base: type[HoldfastError]) -> list[type[HoldfastError]]:
    return [base, *(error for child in base.__subclasses__() for error in every(child))]


def drawn() -> dict[str, str | None]:
    """The tree in the docstring, as each error's parent."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    _, _, tree = (errors.__doc__ or "").partition("\n\n")
    for line in tree.strip().splitlines():
        found = LINE.match(line)
        assert found, f"{line!r} is no branch of the tree"
        depth = len(found["bars"]) // 4
        path[depth:] = [found["name"]]
        parents[found["name"]] = path[depth - 1] if depth else None
    return parents


def test_the_documented_tree_equals_the_class_tree() -> None:
    real = {error.__name__: error.__mro__[1].__name__ for error in every(HoldfastError)[1:]}

    assert drawn() == {"HoldfastError": None, **real}


def test_the_documented_tree_is_in_the_order_of_the_classes() -> None:
    order = [error.__name__ for error in every(HoldfastError)]

    assert list(drawn()) == order
    assert all(earlier != later for earlier, later in pairwise(order))


def test_every_error_has_its_own_code() -> None:
    codes = [error.code for error in every(HoldfastError)]

    assert len(codes) == len(set(codes))
    assert all(re.fullmatch(r"[a-z]+(_[a-z]+)*", code) for code in codes)
    for error in every(HoldfastError)[1:]:
        assert "code" in vars(error), f"{error.__name__} has the code of its parent"


def test_errors_keep_their_message() -> None:
    for error in every(HoldfastError):
        assert str(error("what happened")) == "what happened"


def test_a_rate_limit_may_include_a_retry_time() -> None:
    assert RateLimited("slow down").retry_after is None
    assert RateLimited("slow down", 2.5).retry_after == 2.5


def test_our_errors_are_not_builtin_errors() -> None:
    for error in every(HoldfastError):
        assert not issubclass(error, OSError | ValueError | LookupError)
