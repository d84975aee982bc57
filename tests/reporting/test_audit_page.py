"""The page of an audit: self-contained, escaped, and with the numbers of audit.json."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from phasescope.auditing import Locator, Settings, audit
from phasescope.auditing.coverage import Coverage
from phasescope.auditing.run import StrideAudit
from phasescope.reporting.audit_page import exposure_bars, render, summary, write_audit


@pytest.fixture
def scored(tmp_path):
    """A log of 400 answers at every second token, one phase of four weak, with a name that is markup."""
    rng = np.random.default_rng(0)
    path = tmp_path / "a<script>alert(1)</script>.jsonl".replace("/", "_")
    with path.open("w") as file:
        for n in range(400):
            file.write(f'{{"position": {2 * n}, "score": {int(rng.random() < 0.9 - 0.5 * (n % 2))}}}\n')
    return Settings(str(path), None, {}, Locator(), draws=100)


def test_the_page_needs_nothing_beside_it_and_escapes_what_it_is_given(scored):
    """No script, no address, no markup from a name."""
    page = render(audit(scored))
    assert "<script" not in page
    assert "a&lt;script&gt;" in page
    assert not re.search(r"""(src|href)=["'](?!#|data:)""", page)
    assert "default-src 'none'" in page


def test_the_page_shows_what_was_found(scored):
    """Verdict, table, drawings of uneven strides, scores."""
    found = audit(scored)
    page = render(found)
    assert found.results.period == 4
    for words in (
        "visits 1 of 2 phases",
        "Samples by phase, stride 8",
        "Period found: 4",
        "How to reproduce",
    ):
        assert words in page
    # Phases 1, 3, 5 … have no score, so no accuracy is drawn for them.
    assert 'id="exposure-4-title"' in page
    assert 'id="accuracy-4-title"' not in page


def test_a_phase_that_is_not_visited_is_a_ring_and_not_a_thin_bar(scored):
    """Stride 4: two bars, two rings."""
    found = audit(scored)
    stride = next(s for s in found.strides if s.stride == 4)
    figure = exposure_bars("key", stride)
    assert figure.svg.count("<rect") == 2
    assert figure.svg.count("<circle") == 2
    assert [row[1] for row in figure.rows] == ["200", "0", "200", "0"]
    assert [row[2] for row in figure.rows] == ["20", "100", "20", "100"]


@pytest.mark.parametrize(
    ("samples", "words"), [(4, ["0", "1"]), (20, ["0", "1", "2", "3", "4", "5"]), (24, ["0", "2", "4", "6"])]
)
def test_the_axis_counts_whole_samples(tmp_path, samples, words):
    """One sample per phase is not on an axis of 0, 0 and 1, and half of five is not 2."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"position": {n}}}\n' for n in range(samples)))
    (stride,) = audit(Settings(str(path), None, {}, Locator(), strides=(4,))).strides
    texts = ElementTree.fromstring(exposure_bars("key", stride).svg).iter("text")
    assert [one.text for one in texts if one.get("text-anchor") == "end"] == words


def test_accuracy_is_drawn_where_every_phase_has_scores(tmp_path):
    """With Wilson's intervals."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"position": {n}, "score": {int(n % 4 != 1)}}}\n' for n in range(200)))
    found = audit(Settings(str(path), None, {}, Locator(), strides=(4, 3), draws=50))
    page = render(found)
    assert 'id="accuracy-4-title"' in page
    assert "Wilson" in page


def test_the_terminal_says_the_verdict_first_and_what_was_left_out(tmp_path):
    """Then a line per stride."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"position": 4}\n{"position": null}\n{"position": 8}\n')
    said = write_audit(
        audit(Settings(str(path), None, {}, Locator(), strides=(4,))), tmp_path / "out"
    ).splitlines()
    assert said[0].startswith(f"{path}: visits 1 of 4 phases")
    assert "2 of 3 samples have a token position; left out:" in said[1]
    assert f"first: {path}, line 2" in said[1]
    assert said[-1] == f"report: {tmp_path / 'out' / 'audit.html'}"


def test_the_same_audit_draws_the_same_page(scored):
    """Byte for byte."""
    assert render(audit(scored)) == render(audit(scored))
    assert summary(audit(scored)) == summary(audit(scored))


def test_scores_that_are_not_tested_are_spoken_of(tmp_path):
    """Too few of them, and all of them alike: on the page and in the terminal, without a p."""
    path = tmp_path / "a.jsonl"
    for samples, said in (
        (19, "Only 19 placed samples have a score; scores are tested for phases from 20 on."),
        (60, "its scores do not vary, so that no period can be tested"),
    ):
        path.write_text("".join(f'{{"position": {n}, "score": 0}}\n' for n in range(samples)))
        found = audit(Settings(str(path), None, {}, Locator(), strides=(4,), draws=20))
        assert said in render(found)
        assert said in summary(found)
        assert "no period (p" not in render(found)
    path.write_text('{"position": 1}\n')
    assert "have a score" not in render(audit(Settings(str(path), None, {}, Locator(), strides=(4,))))


@pytest.mark.parametrize(
    ("counts", "detectable", "cells"),
    [
        ([60, 0, 0, 0], (None, 0.123, None, 0.5), ["0 to 60", "12 to 50, 2 none"]),
        ([5, 5], (None, None), ["5", "none"]),
        ([2000, 2000], (0.121, 0.119), ["2,000", "12"]),
    ],
)
def test_the_table_has_a_line_per_stride(tmp_path, counts, detectable, cells):
    """Ranges, single values, and losses that no test would see."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"position": 1}\n')
    coverage = Coverage(len(counts), np.array(counts), 0.0, "by hand")
    stride = StrideAudit(coverage, np.array([1.0] * len(counts)), 1, detectable)
    found = replace(audit(Settings(str(path), None, {}, Locator())), strides=(stride,))
    line = summary(found).splitlines()[-1]
    assert [cell for cell in re.split(" {2,}", line.strip()) if cell in cells] == cells
    assert "< 0.001" in line
