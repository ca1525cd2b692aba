"""A snapshot is the messages that the list had when it was made."""

from holdfast.model.message import Message, MessageSnapshot, Text, starts_with, take_first


def messages(count: int) -> list[Message]:
    return [Message(n, "user", (Text(str(n)),), 0) for n in range(1, count + 1)]


def test_it_does_not_change_when_the_list_grows() -> None:
    source = messages(3)
    snapshot = MessageSnapshot(source)

    source.extend(messages(2))

    assert len(snapshot) == 3
    assert list(snapshot) == messages(3)
    assert snapshot == tuple(messages(3))
    assert snapshot != tuple(source)


def test_it_is_indexed_and_sliced_as_a_tuple() -> None:
    source = messages(7)
    snapshot, same = MessageSnapshot(source, 5), tuple(messages(5))

    for index in (0, 4, -1, -5):
        assert snapshot[index] == same[index]
    for part in (slice(None), slice(2, 9), slice(-2, None), slice(None, None, -1), slice(4, 1), slice(0, 5, 2)):
        assert snapshot[part] == same[part]
    assert list(reversed(snapshot)) == list(reversed(same))


def test_two_snapshots_of_one_list_are_compared_by_their_lengths() -> None:
    source = messages(5)
    longer, shorter = MessageSnapshot(source), take_first(MessageSnapshot(source), 3)

    assert starts_with(longer, shorter)
    assert not starts_with(shorter, longer)
    assert starts_with(longer, messages(2))
    assert not starts_with(longer, messages(6)[1:])
