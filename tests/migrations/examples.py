"""One event of every kind, built from the types of its fields."""

import types
import typing
from typing import Literal, Union, get_args, get_origin

import msgspec

from holdfast.model.event import Event


def example(cls: type[Event]) -> Event:
    """An event with something in every field."""
    return cls(**{name: value(hint) for name, hint in typing.get_type_hints(cls).items()})


def value(hint: object) -> object:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return value(args[0])
    if origin is Literal:
        return args[0]
    if origin is tuple:
        return (value(args[0]),)
    if origin is dict:
        return {value(args[0]): value(args[1])}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return hint(**{name: value(of) for name, of in typing.get_type_hints(hint).items()})
    return {str: "text", int: 1, float: 0.5, bool: True}[hint]
