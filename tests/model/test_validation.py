"""Errors of input validation name the field in plain English."""

from typing import Annotated, Literal

import msgspec
import pytest

from holdfast.model.validation import explain


class Place(msgspec.Struct):
    street: str


class Person(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    places: list[Place] = []
    age: Annotated[int, msgspec.Meta(ge=0)] | None = None
    kind: Literal["a", "b"] | None = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 'the field "name" is missing'),
        ({"name": "a", "places": [{}]}, 'the field "places[0].street" is missing'),
        ({"name": 5}, "name: expected a string, got an integer"),
        ({"name": "a", "age": -1}, "age: expected an integer of at least 0"),
        ({"name": "a", "kind": "x"}, "kind: 'x' is not one of the accepted values"),
        ({"name": ""}, "name: expected a string with a length of at least 1"),
        ([], "expected an object, got an array"),
    ],
)
def test_a_validation_error_names_the_field_in_plain_english(given: object, expected: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Person)

    assert explain(caught.value) == expected
