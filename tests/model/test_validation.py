"""Errors of input validation name the field in plain English."""

import msgspec
import pytest

from holdfast.model.validation import explain


class Place(msgspec.Struct):
    street: str


class Person(msgspec.Struct):
    name: str
    places: list[Place] = []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 'the field "name" is missing'),
        ({"name": "a", "places": [{}]}, 'the field "places[0].street" is missing'),
        ({"name": 5}, "name: Expected str, got int"),
        ([], "Expected object, got array"),
    ],
)
def test_a_validation_error_names_the_field_in_plain_english(given: object, expected: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.convert(given, Person)

    assert explain(caught.value) == expected
