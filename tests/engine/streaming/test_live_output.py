"""The output of running calls: a watcher that comes late gets the newest of each."""

from holdfast.engine.streaming.bus import Bus, LiveText


def output(text: str, call_id: str = "call-1") -> LiveText:
    return LiveText("turn-1", "output", text, call_id=call_id)


def test_a_late_watcher_gets_the_newest_output_of_each_running_call() -> None:
    bus = Bus()
    for shown in (output("a"), output("a b"), output("c", "call-2")):
        bus.show_output("s", shown)
    subscription = bus.subscribe("s", output=True)

    assert [subscription.take(), subscription.take(), subscription.take()] == [
        output("a b"),
        output("c", "call-2"),
        None,
    ]


def test_output_of_a_call_that_has_ended_or_that_nobody_asked_for_is_not_shown() -> None:
    bus = Bus()
    bus.show_output("s", output("a"))
    without = bus.subscribe("s")
    bus.end_output("s", "call-1")
    bus.end_output("s", "call-1")
    late = bus.subscribe("s", output=True)

    assert (without.take(), late.take()) == (None, None)
