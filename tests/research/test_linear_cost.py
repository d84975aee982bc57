"""The counts and the report of `python -m research.linear_cost`, and its measurements at small sizes."""

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from research.linear_cost import jobs, merge
from research.linear_cost_bounds import (
    QWEN3_06B,
    Backbone,
    cache_bytes,
    causal,
    csa_flops,
    exponent,
    prefill_bound,
    prefill_flops,
    reads,
    training_bound,
)
from research.linear_cost_measure import CSA, cache, config, equal, grid
from research.linear_cost_plot import draw
from research.linear_cost_report import TITLES, document, summary, tables

from phasescope.compressors.base import first_visible
from phasescope.grid import WindowGrid

MIB = 2**20


@pytest.mark.parametrize(
    "given", [WindowGrid(8, 8), WindowGrid(8, 4), WindowGrid(8, 4, 4), WindowGrid(12, 5, 3)]
)
@pytest.mark.parametrize("tail", [0, 9])
def test_what_a_query_reads_is_counted_as_the_attention_reads_it(given, tail):
    """By the two rules: entries that have closed, tokens that no visible entry covers or that the tail holds."""
    tokens = 61
    covered = first_visible([given], tokens, torch.device("cpu"))[0].tolist()
    entries = [sum(given.closes(j) <= q for j in range(tokens)) for q in range(tokens)]
    raw = [sum(covered[t] > q or t > q - tail for t in range(q + 1)) for q in range(tokens)]
    found = reads(given, tokens, tail, topk=4)
    assert found.entries == pytest.approx(sum(min(n, 4) for n in entries) / tokens)
    assert found.raw == pytest.approx(sum(raw) / tokens)
    assert reads(given, tokens).entries == pytest.approx(sum(entries) / tokens)


def test_flops_of_full_attention_by_hand():
    """One layer, 3 tokens, numbers that can be added up on paper."""
    shape = Backbone(layers=1, hidden=2, heads=2, kv_heads=1, head_dim=2, mlp=3, vocabulary=5)
    projections, mlp, attention = 2 * 2 * (4 + 2 + 2 + 4), 3 * 2 * 2 * 3, 4 * 4 * (1 + 2 + 3)
    assert prefill_flops(shape, 3) == 3 * (projections + mlp) + attention + 2 * 2 * 5
    assert causal(3).raw == 2


def test_the_bounds_approach_one_entry_in_eight():
    """A window of 8 leaves an eighth of the attention, and all of the rest."""
    assert 1 / 8 < prefill_bound(Backbone.of(config()), 2**17, grid()) < 0.14
    assert 1 / 8 < prefill_bound(QWEN3_06B, 2**17, grid()) < prefill_bound(QWEN3_06B, 2**12, grid()) < 1
    assert training_bound(Backbone.of(config()), 2**17, grid()) > 6


def test_csa_reads_less_than_all_pairs_and_linearly_many():
    """Twice the tokens cost four times as much with all pairs; what is read grows with the indexer alone."""
    dense, sparse = ([csa_flops(CSA, tokens, way) for tokens in (2**14, 2**15)] for way in (True, False))
    assert 3.8 < dense[1] / dense[0] < 4
    assert sparse[0] < dense[0] / 5


def test_cache_bytes_before_and_behind_the_first_window():
    """Raw tokens only, then one entry for eight."""
    shape = Backbone(layers=3, hidden=2, heads=2, kv_heads=1, head_dim=2, mlp=3, vocabulary=5)
    token = 3 * 2 * 2 * 4
    counts = [cache_bytes(shape, tokens, WindowGrid(8, 4)) / token for tokens in (3, 8, 9, 12)]
    assert counts == [3, 1, 2, 2]
    assert cache_bytes(shape, 12) == 12 * token


def test_the_exponent_is_the_slope_in_logarithms():
    """Of the sizes that were measured; of fewer than two there is none."""
    assert exponent({t: 3.0 * t**1.5 for t in (4, 8, 16)}, [4, 8, 16, 32]) == pytest.approx(1.5)
    assert exponent({4: 1.0}, [4, 8]) is None


@pytest.mark.parametrize("variant", ["w8s8", "csa"])
def test_a_cache_holds_what_is_counted_and_no_more_than_five_percent(variant):
    """At a length that leaves a window unfinished."""
    facts = cache(variant, 4096 + 5)
    assert 1 <= facts["bytes"] / facts["least"] <= 1.05


def test_our_csa_layer_equals_that_of_transformers_in_blocks_with_a_choice():
    """Blocks of 512 queries, a top-k that leaves entries out, index heads of other width than the attention's."""
    facts = equal(2148)
    assert facts["chosen_from"] == 537 > CSA.topk
    assert max(facts["entries"], facts["output"]) < 1e-5
    assert facts["equal_choices"] > 0.999


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux")
@pytest.mark.parametrize("times", [1, 2])
def test_peak_memory_is_that_of_one_run(times):
    """What is freed before something else is made counts once.

    In a new process, as the benchmark measures: on a heap with holes the second block may fall beside the first.
    """
    program = f"""
import torch
from research.linear_cost_measure import peak_bytes
print(peak_bytes(lambda: [torch.ones(2**24) is None for _ in range({times})]))  # 64 MiB each
"""
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert float(said) == pytest.approx(64 * MIB, rel=0.05)


def results():
    """As a run leaves them, with times and bytes that are made up."""
    made = {}
    for job in jobs(2**15, 2**15, rounds=2):
        slow = {"full": 4.0, "transformers": 5.0}.get(job.variant, 1.0)
        facts = {"seconds": slow * job.tokens, "bytes": slow * job.tokens * MIB}
        if job.kind == "decode":
            facts = {"tokens_per_second": 1 / slow, "bytes_per_token": slow}
        if job.kind == "cache":
            facts = {"bytes": 103.0, "least": 100.0}
        if job.kind == "equal":
            facts = {"entries": 1e-7, "output": 2e-7, "equal_choices": 1.0, "chosen_from": 1024.0}
        merge(made.setdefault(job.key, {}), facts)
    return made


def test_the_summary_has_every_number_of_the_bars():
    """Ratios the right way round."""
    found = summary(results())
    expected = {
        "prefill_ratio_32k": 0.25,
        "memory_exponent": 1.0,
        "csa_speedup_16k": 5.0,
        "csa_memory_ratio_16k": 0.2,
        "cache_bytes_ratio": 1.03,
        "csa_cache_bytes_ratio": 1.03,
        "train_tokens_ratio_512": 4.0,
        "train_tokens_ratio_4k": 4.0,
        "csa_max_rel_error": 2e-7,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected)


def test_what_was_not_measured_is_null_and_said_so():
    """No number where there is none, and the rest of the page stands."""
    made = results()
    del made["csa", "transformers", 16384], made["equal", "csa", 4096]
    found = summary(made)
    assert found["csa_speedup_16k"] is found["csa_max_rel_error"] is None
    page = document(made, "python -m research.linear_cost", "a machine", "linear_cost.svg")
    assert "| `csa_speedup_16k` | not measured | at least 3.0 |" in page
    assert TITLES["csa"] in page
    assert TITLES["equal"] not in page


def test_rounds_keep_the_shortest_time_and_the_highest_speed():
    """And everything else that a later round does not measure."""
    best = {"seconds": 2.0, "bytes": 7.0, "tokens_per_second": 5.0}
    merge(best, {"seconds": 1.0, "tokens_per_second": 4.0})
    assert best == {"seconds": 1.0, "bytes": 7.0, "tokens_per_second": 5.0}


def test_every_table_has_a_row_per_size_of_as_many_cells_as_its_head():
    """Markdown that renders."""
    made = results()
    for kind in TITLES:
        head, _, *rows = next(reversed(list(tables(made, kind))))
        assert rows
        assert {row.count("|") for row in rows} == {head.count("|")}


def test_the_plot_is_a_file_of_its_own_with_four_panels_of_two_curves():
    """A valid SVG with a namespace; a dot per measurement."""
    root = ElementTree.fromstring(draw(results()))
    svg = "{http://www.w3.org/2000/svg}"
    assert root.tag == f"{svg}svg"
    dots = list(root.iter(f"{svg}circle"))
    assert len(dots) == 2 * 2 * (6 + 5) + 4 * 2  # and two in each legend
    names = [node.text for node in root.iter(f"{svg}text")]
    assert {"full attention", "W8/S8", "transformers", "ours", "Prefill, s"} <= set(names)
