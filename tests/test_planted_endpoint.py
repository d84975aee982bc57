"""The benchmark's bar, sampled: a planted drop is found behind an endpoint, and a flat one is not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks import planted_endpoint as benchmark


def test_the_endpoint_gives_what_the_planted_model_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Observation by observation, over HTTP; so the other seeds need no traffic."""
    monkeypatch.setattr(benchmark, "PROTOCOL", replace(benchmark.PROTOCOL, contexts=1))
    directly = benchmark.directly(benchmark.DROP, 3)
    assert len(directly) == 120
    assert benchmark.same(benchmark.over_http(benchmark.DROP, 3), directly)
    assert not benchmark.same(benchmark.directly(benchmark.DROP, 4), directly)


@pytest.mark.slow
def test_the_drop_is_found_and_a_flat_endpoint_is_not() -> None:
    """Within the budget of 1,500 probes, by accuracy alone and by log-probability."""
    assert benchmark.PROTOCOL.plan().trials <= 1500
    for seed in range(2):
        dropped = benchmark.periods(benchmark.directly(benchmark.DROP, seed), seed)
        flat = benchmark.periods(benchmark.directly(benchmark.FLAT, seed), seed)
        assert {outcome: period.value for outcome, period in dropped.items()} == {"accuracy": 4, "logprob": 4}
        assert all((period.p_value or 1) < benchmark.LEVEL for period in dropped.values())
        assert all((period.p_value or 0) >= benchmark.LEVEL for period in flat.values())
