"""How the results of a load become rows of the table."""

from bench import api_load, history
from bench.figures import Figure
from bench.peers import hermes, session_layers


def by_what(figures: list[Figure]) -> dict[str, Figure]:
    found = {figure.what: figure for figure in figures}
    assert len(found) == len(figures), "a row that shares its name cannot be compared"
    return found


def test_the_time_of_the_model_is_subtracted():
    direct = api_load.Result(cpu=0.0001, p50=0.001, p99=0.002, rate=6_000)
    ours = api_load.Result(cpu=0.002, p50=0.004, p99=0.007, rate=300)

    rows = by_what(api_load.describe(1, {"direct": direct, "Holdfast": ours}))

    assert rows["1 session: server CPU per turn"].met is True
    assert rows["1 session: time added to the model's, p50; p99"].value == "3.00 ms; 5.00 ms"
    assert rows["1 session: turns/s"].others == {"direct": "6,000.0"}


def test_a_peer_gets_a_column_and_ratios():
    direct = api_load.Result(cpu=0.0001, p50=0.0, p99=0.0, rate=6_000)
    ours = api_load.Result(cpu=0.002, p50=0.004, p99=0.007, rate=400)
    peer = api_load.Result(cpu=0.2, p50=0.4, p99=0.7, rate=2)

    rows = by_what(api_load.describe(8, {"direct": direct, "Holdfast": ours, "peer": peer}))

    assert rows["8 sessions: server CPU per turn"].others == {"peer": "200 ms"}
    assert rows["8 sessions: CPU, better than peer by"].judged == 100
    assert rows["8 sessions: turns/s, better than peer by"].met is True


def test_growth_leaves_out_what_sending_costs_and_a_machine_that_slows_down():
    fast, slow = history.Result(0.002, 0.0, 0.003, 9_000), history.Result(0.006, 0.0, 0.009, 9_000)
    results = {
        50: [fast, slow, fast],
        10_000: [history.Result(3 * one.cpu / 2, one.cpu / 2, 0.006, 900_000) for one in (fast, slow, fast)],
    }
    peer = {50: [history.Result(0.2, 0.0, 0.3, 9_000)]}

    rows = by_what(history.describe(results, peer))

    assert rows["behind 10,000 messages: the same without sending the request"].judged == 1
    assert rows["behind 10,000 messages: the same without sending the request"].met is True
    assert rows["behind 10,000 messages: server CPU per turn"].value == "3.00 ms", "the lowest of the rounds"
    assert rows["behind 50 messages: server CPU per turn"].others == {hermes.TITLE: "200 ms"}


def test_session_layers_are_compared_within_a_round():
    def layer(rate: float) -> dict[str, float]:
        cpu = {f"behind-{length}": 0.001 for length in session_layers.LENGTHS}
        return {"one": rate, "many": 10 * rate, "cpu": 0.001, "load": 0.1, **cpu}

    rounds = [{"Holdfast": layer(2_000), "openai-agents": layer(1_000)} for _ in range(3)]

    rows = by_what(session_layers.describe(rounds, {"Holdfast": "Holdfast", "openai-agents": "openai-agents 0.24"}))

    assert rows["durable appends, one session, beside openai-agents"].judged == 2
    assert rows["durable appends of 1 KB, one session"].others == {"openai-agents 0.24": "1,000/s"}
    assert rows["CPU of one append"].judged == 1
