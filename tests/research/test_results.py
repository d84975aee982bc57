"""docs/results.md: made from the kept summaries, and honest about what it finds in them."""

import json
from pathlib import Path

import pytest
from research.results import page

ROOT = Path(__file__).parents[2]
KEPT = Path("results/small")


def finding(name, value, **fields):
    return {"name": name, "value": value, "low": fields.pop("low", None), "high": None, **fields}


def summary(row, seed, stride, *, sd=0.2, low=0.1, period=None, p=0.5, held_out=3.5, gates=None):
    findings = [
        finding("mean_accuracy", 0.5),
        finding("worst_residue", 0.1),
        finding("phase_sd", sd, low=low),
        finding("split_half_gap", 0.4),
        finding("period", period, p_value=p),
        finding("period", None, p_value=p, outcome="logprob"),
        *(finding("phase_rate", 0.5, residue=phase) for phase in range(stride or 24)),
    ]
    plan = None if stride is None else {"width": stride, "stride": stride, "binding": False}
    looks = [
        {"step": s, "phase_sd": 0.1, "gates": gates[i] if gates else []} for i, s in enumerate((10, 20, 30))
    ]
    return {
        "row": row,
        "seed": seed,
        "settings": {"compression": plan, "head_dim": 32, "kv_heads": 1, "layers": 2},
        "held_out": held_out,
        "curve": looks,
        "prefix": findings,
        "in_sequence": findings,
    }


@pytest.fixture
def kept(tmp_path):
    def keep(*summaries):
        for facts in summaries:
            (tmp_path / f"{facts['row']}-{facts['seed']}.json").write_text(json.dumps(facts))
        return tmp_path

    return keep


def test_the_page_in_the_repository_is_what_its_summaries_give(monkeypatch):
    """The same kept runs, the same bytes."""
    monkeypatch.chdir(ROOT)
    text, facts = page(KEPT)
    assert text == Path("docs/results.md").read_text()
    assert facts["rows"] == len(list(KEPT.glob("*.json")))


def test_a_period_that_is_not_the_stride_and_a_control_with_one_are_counted(kept):
    """Named with row, seed and padding; a flat condition's period is no miss."""
    folder = kept(
        summary("full", 0, None, sd=0.0, low=0.0, p=1e-4),
        summary("w8s8", 0, 8, period=4.0),
        summary("w8s8", 1, 8, period=8.0),
        summary("w4s4", 0, 4, low=0.0, period=2.0),
    )
    text, facts = page(folder)
    assert facts == {"rows": 4, "periods_wrong": 2, "controls_below_01": 4}
    assert "w8s8 seed 0, prefix: 4" in text
    assert "Flat by that interval: w4s4 seed 0, prefix" in text


def test_holm_is_over_all_controls(kept):
    """Two controls of p 0.004 and 0.9 in eight searches: none is below 0.01 any more."""
    folder = kept(
        summary("full", 0, None, p=0.004), summary("full", 1, None, p=0.9), summary("w8s8", 0, 8, period=8.0)
    )
    assert page(folder)[1]["controls_below_01"] == 0


def test_a_preference_settles_where_it_stops_changing(kept):
    """Slot weights that turn round after the first look settle at the second."""
    first, last = [[[0.7, 0.2, 0.1]]], [[[0.1, 0.2, 0.7]]]
    folder = kept(summary("w8s8", 0, 8, period=8.0, gates=[first, last, last]))
    line = next(line for line in page(folder)[0].splitlines() if line.endswith("| 20 |"))
    assert line.startswith("| w8s8 | 0 | 10.0 |")


def test_an_attempt_stands_beside_the_baseline_of_as_many_heads_and_the_same_seeds(kept):
    """Its phase SD is told as a share of the baseline's of seed 0 alone."""
    folder = kept(
        summary("full", 0, None),
        summary("w8s8", 0, 8, period=8.0, sd=0.2),
        summary("w8s8", 1, 8, period=8.0, sd=0.9),
        summary("try-layers", 0, 8, period=8.0, sd=0.05),
    )
    line = "| try-layers | 0 | 5.0 / 5.0 | 0.25 / 0.25 | 10.0 / 10.0 | 50.0 / 50.0 | 3.500 | 32,000 |"
    assert f"{line} met in 0 of 1 seed |" in page(folder)[0]
    assert (
        "| 5.0 / 5.0 · 20.0 / 20.0 | 50.0 / 50.0 · 50.0 / 50.0 | 3.500 · 3.500 | SD in sequence, SD prefix |"
        in page(folder)[0]
    )


@pytest.mark.parametrize(
    ("sd", "held_out", "said"),
    [
        (0.04, 3.504, "met in 3 of 3 seeds (0, 1, 2)"),
        (0.041, 3.5, "met in 0 of 3 seeds"),
        (0.01, 3.51, "met in 0 of 3 seeds"),
    ],
)
def test_the_goal_is_a_fifth_of_the_baseline_at_no_cost(kept, sd, held_out, said):
    """Three seeds, phase SD at most 0.2 of the baseline's, held-out loss at most 0.005 above it."""
    base = [summary("w8s8", seed, 8, period=8.0, sd=0.2) for seed in range(3)]
    tried = [summary("try-it", seed, 8, period=8.0, sd=sd, held_out=held_out) for seed in range(3)]
    folder = kept(summary("full", 0, None), *base, *tried)
    (line,) = [line for line in page(folder)[0].splitlines() if line.startswith("| try-it | 0, 1, 2")]
    assert line.endswith(f"| {said} |")


def test_a_failure_and_a_success_do_not_average_to_met(kept):
    """Seed by seed: the mean of both would meet the goal. Differences have an interval over seeds."""
    base = [summary("w8s8", seed, 8, period=8.0, sd=sd) for seed, sd in ((0, 0.4), (1, 0.1))]
    tried = [summary("try-it", seed, 8, period=8.0, sd=0.04) for seed in range(2)]
    text = page(kept(summary("full", 0, None), *base, *tried))[0]
    assert "| met in 1 of 2 seeds (0) |" in text
    assert "| try-it | difference, 95 % | -21.0 [" in text
