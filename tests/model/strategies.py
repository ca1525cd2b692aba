"""Arbitrary events, built from the types of their fields, with any text a tool could print."""

import types
import typing
from typing import Literal, Union, get_args, get_origin

import msgspec
from hypothesis import strategies as st

from holdfast.model.event import KINDS, Event

TEXT = st.text(st.characters(exclude_categories=()), max_size=30)
"""Lone surrogates and NUL included."""


def values(hint: object) -> st.SearchStrategy:
    """Values of a type as the facts use them."""
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values, args))
    if origin is Literal:
        return st.sampled_from(args)
    if origin is tuple:
        return st.lists(values(args[0]), max_size=3).map(tuple)
    if origin is dict:
        return st.dictionaries(values(args[0]), values(args[1]), max_size=3)
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return facts(hint)
    return {
        str: TEXT,
        int: st.integers(-(2**62), 2**62),
        bool: st.booleans(),
        float: st.floats(allow_nan=False, allow_infinity=False),
        type(None): st.none(),
    }[hint]


def facts(cls: type) -> st.SearchStrategy:
    return st.builds(cls, **{name: values(hint) for name, hint in typing.get_type_hints(cls).items() if name[0] != "_"})


def events(*kinds: str) -> st.SearchStrategy[Event]:
    """Events of the given kinds; without any, of all kinds."""
    return st.one_of(*(facts(KINDS[kind]) for kind in kinds or KINDS))
