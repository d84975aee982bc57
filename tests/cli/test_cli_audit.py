"""`phasescope audit` as a user meets it, in a base install."""

import json

import pytest

from tests.cli.in_process import phasescope


def test_an_audit_prints_its_verdict_first_and_writes_page_and_data(tmp_path, base_install):
    """One phase of four, a fix, and the fixed file audited."""
    path = tmp_path / "positions.jsonl"
    path.write_text("".join(f'{{"position": {8 * n}, "score": {n % 2}}}\n' for n in range(40)))
    said = base_install(
        "audit", path.name, "--stride", "4", "--fix", "fixed.jsonl", "--out", "found", cwd=tmp_path
    )
    assert said.splitlines()[0].startswith(
        "positions.jsonl: visits 1 of 4 phases at stride 4: a model blind at 3"
    )
    assert "fix: fixed.jsonl: 30 of 40 samples padded by 60 tokens in all" in said
    assert json.loads((tmp_path / "found" / "audit.json").read_text())["fix"]["counts"] == {"4": [10] * 4}
    assert (tmp_path / "found" / "audit.html").stat().st_size > 10_000
    again = base_install("audit", "fixed.jsonl", "--stride", "4", cwd=tmp_path)
    assert "visits 4 of 4 phases at stride 4" in again.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["no.jsonl"], "no file no.jsonl"),
        (["."], "is a folder"),
        (["a.jsonl", "--position", "pos"], "no column 'pos'; there are 'position'"),
        (["a.jsonl", "--format", "cvs"], "unknown format 'cvs'; known: csv"),
        (["a.jsonl", "--bar", "90"], "bar is 90.0; give at most 1"),
        (["a.jsonl", "--stride", "0"], "strides.0 is 0; give at least 2"),
        (["a.jsonl", "--fix", "b.jsonl"], "--fix needs to know what to balance"),
        (["a.jsonl", "--fix", "a.jsonl", "--stride", "4"], "would overwrite the benchmark"),
        (["a.jsonl", "--tokenizer", "nowhere"], "no tokenizer at nowhere"),
        (["a.jsonl", "--chat"], "--chat needs a tokenizer"),
        (["a.jsonl", "--model", "nowhere"], "nowhere"),
        (["a.jsonl", "--occurrence", "second"], "second"),
        (["bad.jsonl"], "bad.jsonl, line 2: not JSON"),
        (["text.jsonl"], "give the model's tokenizer with --tokenizer"),
        (["no.py:build"], "no file no.py"),
        (["a.jsonl", "--out", "a.jsonl"], "a.jsonl"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, arguments, said):
    """What was given, what is allowed, what to do."""
    (tmp_path / "a.jsonl").write_text('{"position": 1}\n')
    (tmp_path / "bad.jsonl").write_text('{"position": 1}\n{"position"\n')
    (tmp_path / "text.jsonl").write_text('{"prompt": "x y", "needle": "y"}\n')
    assert said in phasescope("audit", *arguments, code=2, cwd=tmp_path)
