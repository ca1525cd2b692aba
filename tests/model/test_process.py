"""The classification of a process by its signs of activity."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.process import (
    WORK_SECONDS,
    Process,
    Sample,
    Track,
    advance,
    begun,
    classify,
    duration,
    exit_words,
    sign_of_work,
)
from holdfast.model.process_identity import Identity

OURS = Identity(host="here", boot="boot pid:[1]", pid=1, process_started="1")
SECOND = 1_000_000


def sample(seconds: float, **signs: object) -> Sample:
    at = int(seconds * SECOND)
    return Sample(at=at, mono=at, **signs)  # type: ignore[arg-type]


def process(track: Track, **fields: object) -> Process:
    known = Process(
        id="proc-1",
        session_id="hf-1",
        command="make",
        workdir="/",
        folder="/x",
        host=OURS.host,
        boot=OURS.boot,
        pid=7,
        process_started="70",
        started_at=0,
        started_mono=0,
        ttl_seconds=7200,
        track=track,
        stop_reason=None,
        expired_at=None,
        ended_at=None,
        exit_code=None,
        end_reason=None,
    )
    return msgspec.structs.replace(known, **fields)


def after(*samples: Sample) -> Track:
    track = begun(sample(0))
    for one in samples:
        track = advance(track, one)
    return track


@pytest.mark.parametrize(
    ("signs", "expected"),
    [
        ({"output": 1}, "1 bytes of output"),
        ({"cpu": 1.2}, "1.2 s of CPU time"),
        ({"io": 16_384}, "16,384 bytes read or written"),
        ({"crowd": "another"}, "programs of it started or ended"),
        ({"cpu": 1.1}, None),
        ({"io": 16_383}, None),
        ({"listens": ("127.0.0.1:1",), "members": 5}, None),
        ({}, None),
    ],
)
def test_signs_of_activity_within_a_minute(signs: dict[str, object], expected: str | None) -> None:
    sign = sign_of_work(sample(0, crowd="one"), sample(60, **({"crowd": "one"} | signs)))

    assert (sign and sign[0]) == expected


@pytest.mark.parametrize(
    ("signs", "age"),
    [
        ({"output": 65, "output_age": 80_000.0}, None),
        ({"output": 65, "output_age": 200.0}, 200.0),
        ({"crowd": "another", "youngest": 80_000.0}, None),
        ({"crowd": "another", "youngest": 10.0}, 0.0),
        ({"io": 10**9}, None),
        ({"cpu": 1000.0}, None),
        ({"cpu": 10_000.0}, 0.0),
    ],
)
def test_after_a_day_without_a_sample_only_recent_activity_counts(signs: dict[str, object], age: float | None) -> None:
    """A server with one line of output a day ago is not active, even if there was no sample since."""
    sign = sign_of_work(sample(0, crowd="one"), sample(86_400, **({"crowd": "one"} | signs)))

    assert (sign and sign[1]) == age


def test_one_tick_between_two_close_samples_is_no_activity() -> None:
    assert sign_of_work(sample(0), sample(0.2, cpu=0.01)) is None


def test_frequent_sampling_detects_slow_work() -> None:
    track = after(*(sample(second, cpu=0.05 * second) for second in range(1, 300)))

    assert track.worked_mono >= 290 * SECOND


def test_a_server_that_polls_is_not_active_however_often_it_is_sampled() -> None:
    polling = [sample(second, cpu=0.0001 * second, listens=("0.0.0.0:80",)) for second in range(1, 1000, 7)]

    seen = classify(process(after(*polling)), OURS, 1000 * SECOND)

    assert (seen.kind, seen.blocks) == ("serving", False)
    assert seen.evidence == "listens on 0.0.0.0:80; no sign of work for 17 min"


@pytest.mark.parametrize(
    ("at", "kind", "blocks"),
    [(0, "working", True), (WORK_SECONDS, "working", True), (WORK_SECONDS + 1, "idle", False), (7201, "idle", False)],
)
def test_activity_counts_for_some_minutes(at: float, kind: str, blocks: bool) -> None:
    seen = classify(process(after()), OURS, int(at * SECOND))

    assert (seen.kind, seen.blocks, seen.expired) == (kind, blocks, at > 7200)


@pytest.mark.parametrize("expired_at", [None, 5])
def test_activity_after_the_time_to_live_blocks_nothing(expired_at: int | None) -> None:
    track = after(sample(7300, output=100))

    seen = classify(process(track, expired_at=expired_at), OURS, 7300 * SECOND)

    assert (seen.kind, seen.expired, seen.blocks) == ("working", True, False)
    assert seen.evidence == "100 bytes of output just now; past its time to live of 2 h"


def test_an_ended_process_is_gone_with_its_reason() -> None:
    seen = classify(process(after(), ended_at=9, end_reason="exit code 0"), OURS, 10)

    assert (seen.kind, seen.evidence, seen.blocks) == ("gone", "exit code 0", False)


def test_a_process_of_another_machine_is_classified_as_last_seen() -> None:
    track = after(sample(60, output=5))

    seen = classify(process(track, host="there"), OURS, 999_999 * SECOND)

    assert (seen.kind, seen.blocks) == ("working", True)
    assert seen.evidence == "5 bytes of output just now, as it was last seen on there"


@given(
    st.lists(
        st.builds(
            Sample,
            at=st.integers(0, 10**13),
            mono=st.integers(0, 10**10),
            cpu=st.floats(0, 1e6),
            output=st.integers(0, 10**12),
            io=st.integers(0, 10**12),
            crowd=st.sampled_from("abc"),
        )
    )
)
def test_the_newest_sample_and_a_sign_of_activity_are_always_kept(samples: list[Sample]) -> None:
    track = begun(Sample(at=0, mono=0))
    for one in samples:
        before, track = track, advance(track, one)
        assert track.newest == one
        assert track.base in (before.base, one)
        assert (track.worked_mono, track.worked_at) in (
            (before.worked_mono, before.worked_at),
            (one.mono, one.at),
        )


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(-1, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7199, "120 min"), (7200, "2 h"), (172_800, "2 d")],
)
def test_durations_are_readable(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def test_exit_codes_are_described() -> None:
    assert [exit_words(code) for code in (0, 3, -15, None)] == [
        "exit code 0",
        "exit code 3",
        "ended by signal 15",
        "exit code not known",
    ]
