"""A whole audit: numbers, verdict, fix, and the same bytes again."""

import json

import numpy as np
import pytest

from phasescope.auditing import Locator, Settings, audit, write
from phasescope.auditing.run import as_json
from phasescope.auditing.settings import AuditSettings
from phasescope.errors import UsageError


def settings(source, **more):
    return Settings(**({"source": str(source), "format": None, "columns": {}, "locator": Locator()} | more))


def benchmark(path, samples=60, scored=False):
    """Prompts in which the needle stands behind whole filler lines, in RULER's columns."""
    rng = np.random.default_rng(0)
    with path.open("w") as file:
        for index in range(samples):
            lines = ["The grass is green and the sky is blue."] * 12
            lines.insert(int(rng.integers(12)), f"the code is {index:04d}.")
            record = {"index": index, "input": "\n".join(lines), "outputs": [f"{index:04d}"], "length": 300}
            if scored:
                record["score"] = 1
            file.write(json.dumps(record) + "\n")
    return path


def test_positions_are_audited_without_a_tokenizer(tmp_path):
    """Every fourth token only: one phase of four, and the verdict says what would pass."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"position": {8 + 4 * n}}}\n' for n in range(40)))
    found = audit(settings(path, strides=(4,)))
    assert found.verdict == "visits 1 of 4 phases at stride 4: a model blind at 3 phases would pass"
    (stride,) = as_json(found)["strides"]
    assert (stride["visited"], stride["counts"], stride["blind_phases"]) == (1, [40, 0, 0, 0], 3)
    assert stride["largest_hidden_loss"] == 1.0
    assert found.results is None


def test_a_fixed_file_is_balanced_when_it_is_audited_again(tmp_path, byte_level):
    """Every stride jointly, to within one sample; no other token of any prompt changes."""
    source, out = benchmark(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"
    locator = Locator(byte_level)
    found = audit(settings(source, locator=locator, strides=(4, 6), fix=out))
    assert all(np.ptp(stride.coverage.count_S) > 1 for stride in found.strides)
    assert found.fixed.failed == 0
    again = audit(settings(out, locator=locator, strides=(4, 6)))
    assert again.format == "ruler"
    for stride in again.strides:
        assert np.ptp(stride.coverage.count_S) <= 1
    assert again.placed.position_N.tolist() == found.fixed.position_N.tolist()
    records = [[json.loads(line) for line in path.read_text().splitlines()] for path in (source, out)]
    for before, after, pad in zip(*records, found.fixed.pad_N.tolist(), strict=True):
        assert after["input"].endswith(before["input"])
        assert after["length"] == before["length"] + pad
        assert {**after, "input": 0, "length": 0} == {**before, "input": 0, "length": 0}
        assert byte_level.encode(after["input"])[pad:] == byte_level.encode(before["input"])


def test_a_fix_counts_in_the_chat_template_and_behind_the_first_token(tmp_path, byte_level):
    """With either, the audit of the fixed file is even as the model reads it."""
    source = benchmark(tmp_path / "a.jsonl", samples=40)
    for locator in (Locator(byte_level, chat=True), Locator(byte_level, bos=True)):
        audit(settings(source, locator=locator, strides=(8,), fix=tmp_path / "b.jsonl"))
        (stride,) = audit(settings(tmp_path / "b.jsonl", locator=locator, strides=(8,))).strides
        assert np.ptp(stride.coverage.count_S) <= 1


def test_scores_of_padded_samples_are_emptied(tmp_path, byte_level):
    """They belong to the prompts before."""
    source, out = benchmark(tmp_path / "a.jsonl", scored=True), tmp_path / "b.jsonl"
    found = audit(settings(source, locator=Locator(byte_level), strides=(4,), fix=out))
    scores = [json.loads(line)["score"] for line in out.read_text().splitlines()]
    assert [score is None for score in scores] == (found.fixed.pad_N > 0).tolist()


def test_a_file_of_positions_is_fixed_in_its_positions(tmp_path):
    """There is no text to pad; pads.csv says how many tokens each sample needs."""
    path, out = tmp_path / "a.csv", tmp_path / "b.csv"
    path.write_text("name,position\n" + "".join(f"s{n},{4 * n}\n" for n in range(20)))
    found = audit(settings(path, strides=(4,), fix=out))
    write(found, tmp_path / "audit")
    again = audit(settings(out, strides=(4,)))
    assert again.strides[0].coverage.count_S.tolist() == [5, 5, 5, 5]
    rows = (tmp_path / "audit" / "pads.csv").read_text().splitlines()
    assert rows[0] == "sample,pad_tokens,position_before,position_after"
    assert sum(int(row.split(",")[1]) for row in rows[1:]) == found.fixed.tokens


def test_samples_that_cannot_be_placed_are_counted(tmp_path, byte_level):
    """By reason, with an example; the fix leaves them alone."""
    path, out = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    records = [
        ("the sky is blue", "blue"),
        ("the sky", "green"),
        ("the sky the sky", "sky"),
        ("the sky is", None),
    ]
    path.write_text("".join(json.dumps({"prompt": p, "needle": n}) + "\n" for p, n in records))
    found = audit(settings(path, locator=Locator(byte_level), strides=(3,), fix=out))
    content = as_json(found)
    assert (content["samples"], content["placed"]) == (4, 1)
    assert set(content["left_out"].values()) == {1}
    assert content["left_out_examples"]["needle not found in the prompt"] == [f"{path}, line 2"]
    assert found.fixed.untouched == 3
    assert out.read_text().splitlines()[1:] == path.read_text().splitlines()[1:]


def test_scores_are_analysed_where_there_are_enough(tmp_path):
    """A planted period of 4 is found in a log, and the verdict tells."""
    rng = np.random.default_rng(0)
    path = tmp_path / "a.jsonl"
    with path.open("w") as file:
        for _ in range(800):
            position = int(rng.integers(4000))
            file.write(
                f'{{"position": {position}, "score": {int(rng.random() < 0.9 - 0.4 * (position % 4 == 2))}}}\n'
            )
    found = audit(settings(path, draws=200))
    assert found.results.period == 4
    assert found.accuracy == pytest.approx(0.8, abs=0.05)
    assert "its scores repeat every 4 tokens (p = 0.005)" in found.verdict


def test_the_same_audit_has_the_same_bytes(tmp_path):
    """Same file, same seed."""
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f'{{"position": {n * n}, "score": {n % 2}}}\n' for n in range(50)))
    for name in ("one", "two"):
        write(audit(settings(path, draws=50)), tmp_path / name)
    assert (tmp_path / "one" / "audit.json").read_bytes() == (tmp_path / "two" / "audit.json").read_bytes()


def test_a_generator_that_draws_anew_is_caught(tmp_path, byte_level):
    """A fix reads twice; the second reading must be the first."""
    path = tmp_path / "bench.py"
    path.write_text(
        "import random\n"
        "def build():\n"
        "    for _ in range(8):\n"
        "        yield {'prompt': f'the sky {random.random()} the code', 'needle': 'the code'}\n"
    )
    with pytest.raises(UsageError, match="gave other samples when it was read again"):
        audit(settings(f"{path}:build", locator=Locator(byte_level), strides=(2,), fix=tmp_path / "b.jsonl"))
    assert not (tmp_path / "b.jsonl").exists()


def test_a_generator_is_fixed_as_json_lines(tmp_path, byte_level):
    """There is no file to write anew."""
    path, out = tmp_path / "bench.py", tmp_path / "b.jsonl"
    record = "{'prompt': 'the sky the code', 'needle': 'the code'}"
    path.write_text(f"def build():\n    for _ in range(8):\n        yield {record}\n")
    audit(settings(f"{path}:build", locator=Locator(byte_level), strides=(4,), fix=out))
    (stride,) = audit(settings(out, locator=Locator(byte_level), strides=(4,))).strides
    assert stride.coverage.count_S.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"bar": 90.0}, "bar is 90.0; give at most 1"),
        ({"accuracy": 0.0}, "accuracy is 0.0; give more than 0"),
        ({"strides": (1,)}, "strides.0 is 1; give at least 2"),
    ],
)
def test_settings_out_of_range_are_refused(more, said):
    """One line each."""
    with pytest.raises(UsageError, match=said):
        AuditSettings.checked(**more)


def test_a_fix_needs_strides():
    """Of a model, or by name."""
    with pytest.raises(UsageError, match="--fix needs to know what to balance"):
        settings("a.jsonl", fix="b.jsonl")


def test_what_cannot_be_fixed_is_refused(tmp_path, byte_level):
    """Logs, the file itself, too long a common period, prompts without a tokenizer."""
    log = tmp_path / "samples_x.jsonl"
    log.write_text(json.dumps({"doc": {"position": 3}, "target": "x", "arguments": [], "acc": 1}) + "\n")
    with pytest.raises(UsageError, match="is a log of answers"):
        audit(settings(log, strides=(4,), fix=tmp_path / "b.jsonl"))
    source = benchmark(tmp_path / "a.jsonl", samples=4)
    locator = Locator(byte_level)
    with pytest.raises(UsageError, match="would overwrite"):
        audit(settings(source, locator=locator, strides=(4,), fix=source))
    with pytest.raises(UsageError, match="repeat together every"):
        audit(settings(source, locator=locator, strides=(7, 11, 13, 16), fix=tmp_path / "b.jsonl"))
    with pytest.raises(UsageError, match="give the model's tokenizer with --tokenizer"):
        audit(settings(source, strides=(4,)))


def test_a_file_in_which_nothing_can_be_placed_is_refused(tmp_path, byte_level):
    """No columns, no needle anywhere, everything twice."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"question": "x"}\n')
    with pytest.raises(
        UsageError, match="no column for the position; there are question; name it with --position"
    ):
        audit(settings(path))
    path.write_text('{"prompt": "x"}\n')
    with pytest.raises(UsageError, match="no column for the needle"):
        audit(settings(path, locator=Locator(byte_level)))
    path.write_text('{"prompt": "the sky the sky", "needle": "sky"}\n')
    with pytest.raises(UsageError, match="--occurrence first or last"):
        audit(settings(path, locator=Locator(byte_level)))
    path.write_text('{"position": null}\n')
    with pytest.raises(UsageError, match="no sample has a token position"):
        audit(settings(path))
    path.write_text('{"position": 3}\n')
    with pytest.raises(UsageError, match="--chat needs a prompt and a needle"):
        audit(settings(path, locator=Locator(byte_level, chat=True)))
