"""Every format: recognised, read, refused with the line, and written anew."""

import json
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasescope.auditing.readers import FORMATS, Pad, reader_for
from phasescope.errors import BrokenRecordError, UnknownNameError, UsageError

RULER = {
    "index": 0,
    "input": "filler\nthe value for k is: 4711.\nWhat is k?",
    "outputs": ["4711"],
    "length": 140,
    "length_w_model_temp": 150,
    "answer_prefix": " It is",
    "token_position_answer": 9,
}
LM_EVAL = {
    "doc_id": 0,
    "doc": {"input": "text 4711 question", "outputs": ["4711"], "max_length": 4096},
    "target": "4711",
    "arguments": {"gen_args_0": {"arg_0": "text 4711 question", "arg_1": {"until": []}}},
    "resps": [["4711"]],
    "filtered_resps": ["4711"],
    "filter": "none",
    "metrics": ["4096", "8192"],
    "4096": 1.0,
    "8192": -1,
}
NEEDLE = {
    "schema_version": 2,
    "recipe": {
        "needle_placements": [{"text": "a", "insertion_token_index": 77, "actual_depth_percent": 5.0}]
    },
    "score": {"value": 0.5},
    "status": "ok",
}


def lines(path, *records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return str(path)


def samples(source, format=None, **names):
    name, reader = reader_for(source, format)
    columns = reader.columns.naming(**names)
    found, listed = None, []
    for row in reader.rows(source, columns):
        found = found or columns.resolved(row.record, row.where)
        listed += reader.samples(row, found)
    return name, listed


def inspect_log():
    parts = [{"type": "text", "text": "x 4711"}]

    def sample(number, epoch, letter):
        return {
            "id": number,
            "epoch": epoch,
            "input": [{"role": "system", "content": "be short"}, {"role": "user", "content": parts}],
            "target": "4711",
            "metadata": {},
            "scores": {"match": {"value": letter}, "other": {"value": {"a": 0.25, "b": 1}}},
        }

    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "niah"},
        "samples": [sample(1, 1, "C"), sample(1, 2, "I"), sample(10, 1, "I"), sample(2, 1, "P")],
    }


def test_plain_json_lines_have_the_usual_columns(tmp_path):
    """Prompt, needle, position and score by their usual names; blank lines are passed over."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"prompt": "p", "needle": "n", "position": 3, "score": true}\n\n{"prompt": "q"}\n')
    name, listed = samples(str(path))
    assert name == "jsonl"
    assert [tuple(s[1:]) for s in listed] == [("p", "n", 3, 1.0), ("q", None, None, None)]
    assert listed[1].where.endswith("a.jsonl, line 3")


def test_columns_by_name_lead_inside(tmp_path):
    """Dots and numbers name what lies in dictionaries and lists."""
    source = lines(tmp_path / "a.jsonl", {"doc": {"parts": ["x", "text"]}, "where": {"token": 4}, "a.b": 0.5})
    _, (sample,) = samples(source, prompt="doc.parts.1", position="where.token", score="a.b")
    assert sample[1:] == ("text", None, 4, 0.5)


def test_a_column_that_is_named_must_be_there(tmp_path):
    """With the columns that there are."""
    source = lines(tmp_path / "a.jsonl", {"question": "x", "pos": 4})
    with pytest.raises(UsageError, match=r"no column 'positon'; there are 'question', 'pos'"):
        samples(source, position="positon")


def test_csv_and_tsv_are_read_by_their_header(tmp_path):
    """Numbers come as text; quotes and long cells are fine."""
    (tmp_path / "a.csv").write_text(
        'prompt,needle,position,score\n"a, ""b""\nc",b,7,1\n' + "x" * 200_000 + ",x,8.0,\n"
    )
    name, listed = samples(str(tmp_path / "a.csv"))
    assert name == "csv"
    assert listed[0][1:] == ('a, "b"\nc', "b", 7, 1.0)
    assert listed[1].position == 8
    assert listed[1].score is None
    (tmp_path / "a.tsv").write_text("position\tscore\n5\t0.25\n")
    assert samples(str(tmp_path / "a.tsv"))[1][0][3:] == (5, 0.25)


def test_parquet_is_read_in_batches(tmp_path):
    """Null positions stay null."""
    pq.write_table(pa.table({"position": [1, None, 3], "other": ["a", "b", "c"]}), tmp_path / "a.parquet")
    name, listed = samples(str(tmp_path / "a.parquet"))
    assert name == "parquet"
    assert [s.position for s in listed] == [1, None, 3]


def test_ruler_files_are_recognised_and_predictions_scored(tmp_path):
    """Needle: the answer; prompt: input and the answer's prefix; score: share of outputs in the prediction."""
    source = lines(
        tmp_path / "validation.jsonl", RULER, {**RULER, "outputs": ["4711", "x"], "pred": "it is 4711."}
    )
    name, listed = samples(source)
    assert name == "ruler"
    assert listed[0][1:] == (RULER["input"] + " It is", "4711", 9, None)
    assert listed[1].score == 0.5


def test_lm_eval_logs_are_read_once_per_question(tmp_path):
    """Of several filters the first; the metric that applies; chat arguments as conversations."""
    chat = [{"role": "user", "content": "text 4711"}]
    other = {**LM_EVAL, "arguments": {"gen_args_0": {"arg_0": [json.dumps(chat)]}}, "4096": -1, "8192": 0.0}
    source = lines(tmp_path / "samples_niah.jsonl", LM_EVAL, {**LM_EVAL, "filter": "strict"}, other)
    name, listed = samples(source)
    assert name == "lm-eval"
    assert len(listed) == 2
    assert listed[0][1:] == ("text 4711 question", "4711", None, 1.0)
    assert listed[1].prompt == ({"role": "user", "content": "text 4711"},)
    assert listed[1].score == 0.0
    old = {"doc": {}, "target": "b", "arguments": [["a b c", {}]], "resps": [], "acc": 1.0}
    assert samples(lines(tmp_path / "old.jsonl", old))[1][0][1:] == ("a b c", "b", None, 1.0)


@pytest.mark.parametrize("ending", ["json", "eval"])
def test_inspect_logs_are_one_sample_per_question(tmp_path, ending):
    """Epochs share a prompt and are averaged; letters are scores; a named scorer counts instead of the first."""
    path, log = tmp_path / f"log.{ending}", inspect_log()
    if ending == "json":
        path.write_text(json.dumps(log, indent=2))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", "{}")
            archive.writestr("_journal/start.json", "{}")
            for s in log["samples"]:
                archive.writestr(f"samples/{s['id']}_epoch_{s['epoch']}.json", json.dumps(s))
    name, listed = samples(str(path))
    assert name == "inspect"
    assert sorted(s.score for s in listed) == [0.0, 0.5, 0.5]
    assert listed[0].prompt[1] == {"role": "user", "content": "x 4711"}
    assert {s.needle for s in listed} == {"4711"}
    assert {s.score for s in samples(str(path), score="other.b")[1]} == {1.0}


def test_needlehaystack_rows_are_one_sample_per_needle(tmp_path):
    """A score over several needles belongs to none of them; an error has none."""
    both = {**NEEDLE, "recipe": {"needle_placements": NEEDLE["recipe"]["needle_placements"] * 2}}
    source = lines(tmp_path / "r.jsonl", NEEDLE, both, {**NEEDLE, "status": "error", "score": None})
    name, listed = samples(source)
    assert name == "needlehaystack"
    assert [(s.position, s.score) for s in listed] == [(77, 0.5), (77, None), (77, None), (77, None)]


def test_a_generator_is_run_only_by_name_and_given_what_it_asks_for(tmp_path):
    """`file.py:function`; the same seed draws the same."""
    path = tmp_path / "bench.py"
    path.write_text(
        "def build(rng):\n    for _ in range(3):\n        yield {'position': rng.integers(100)}\n"
    )
    name, once = samples(f"{path}:build")
    assert name == "python"
    assert once == samples(f"{path}:build")[1]
    assert samples(f"{path}:build", "python")[1] == once


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("def build():\n    yield 3\n", "sample 1: 3; yield a dictionary"),
        ("def build():\n    return 3\n", "it must yield one dictionary"),
        ("def build():\n    raise KeyError('x')\n    yield\n", "raised KeyError"),
        ("def other():\n    yield {}\n", "no function 'build'"),
        ("import nothing_of_this_name\n", "cannot be imported: ModuleNotFoundError"),
        ("def build(tokenizer):\n    yield {}\n", "asks for a tokenizer"),
    ],
)
def test_a_generators_faults_are_one_line(tmp_path, code, said):
    """Whatever the user's code does wrong."""
    (tmp_path / "bench.py").write_text(code)
    with pytest.raises(UsageError, match=said):
        samples(f"{tmp_path / 'bench.py'}:build")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"position": 1}\n{"position": \n', "line 2: not JSON"),
        ('{"position": 1}\n[1]\n', "line 2: list instead of an object"),
        (
            '{"position": 1}\n{"position": -2}\n',
            "line 2: position is -2; a token position is a whole number from 0",
        ),
        ('{"position": 1}\n{"position": 1.5}\n', "line 2: position is 1.5"),
        ('{"position": true}\n', "line 1: position is True"),
        ('{"position": [1, 2]}\n', r"line 1: position is \[1, 2\]"),
        ('{"position": "x"}\n', "line 1: position is 'x'"),
        ('{"position": 1, "score": 37}\n', "line 1: score is 37; a score is 0 to 1"),
        pytest.param(f'{{"position": 1, "score": {"9" * 400}}}\n', "line 1: score is 999", id="400 digits"),
        ('{"position": 1, "score": "good"}\n', "line 1: score is 'good'"),
    ],
)
def test_a_fault_in_a_line_is_named_with_its_line(tmp_path, content, said):
    """Number, column, value, and what is allowed."""
    path = tmp_path / "a.jsonl"
    path.write_text(content)
    with pytest.raises((UsageError, BrokenRecordError), match=said):
        samples(str(path))


def test_faults_of_tables_are_named_with_their_line(tmp_path):
    """Rows of another width, broken quotes, other encodings, header twice, no parquet at all."""
    path = tmp_path / "a.csv"
    for content, said in (
        (b"position,score\n1\n", "line 2: 1 cells, the header has 2"),
        (b'position\n1\n"2\n', "unexpected end of data"),
        (b"position\n1\n\xff\xfe\n", "not UTF-8"),
        (b"position,position\n1,2\n", "line 1: a column name stands there twice"),
    ):
        path.write_bytes(content)
        with pytest.raises((UsageError, BrokenRecordError), match=said):
            samples(str(path))
    (tmp_path / "a.parquet").write_text("nothing")
    with pytest.raises(BrokenRecordError, match="no parquet file"):
        samples(str(tmp_path / "a.parquet"))
    (tmp_path / "a.eval").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(BrokenRecordError):
        samples(str(tmp_path / "a.eval"))


def test_sources_that_are_not_there_are_refused(tmp_path):
    """Missing, empty, a folder, of no known format, an unknown name."""
    (tmp_path / "empty.jsonl").touch()
    for source, said in (
        (tmp_path / "no.jsonl", "no file"),
        (tmp_path / "empty.jsonl", "is empty"),
        (tmp_path, "is a folder"),
        (f"{tmp_path / 'no.py'}:build", "no file"),
    ):
        with pytest.raises(UsageError, match=said):
            samples(str(source))
    with pytest.raises(UnknownNameError, match="known: csv, inspect"):
        reader_for("x", "cvs")


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_file_is_written_anew_with_its_pads_and_nothing_else(tmp_path, ending):
    """Prompt and position of the padded sample change, its score is emptied, all else stays."""
    records = [
        {"id": str(n), "prompt": f"täxt {n}", "position": n, "score": 1.0, "more": "x,\n y"} for n in range(3)
    ]
    source, out = tmp_path / f"a.{ending}", tmp_path / f"b.{ending}"
    if ending == "jsonl":
        source.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in records))
    elif ending == "csv":
        rows = [",".join(f'"{value}"' for value in r.values()) for r in records]
        source.write_text("\r\n".join([",".join(records[0]), *rows, ""]), newline="")
    else:
        pq.write_table(pa.Table.from_pylist(records), source, compression="zstd")
    _, reader = reader_for(str(source))
    columns = reader.columns.resolved(records[0], "")
    reader.write(str(source), out, columns, lambda n: Pad(2, "pad\n") if n == 1 else None)
    before, after = samples(str(source))[1], samples(str(out))[1]
    assert after[0][1:] == before[0][1:]
    assert after[2][1:] == before[2][1:]
    assert after[1][1:] == ("pad\ntäxt 1", None, 3, None)
    if ending == "jsonl":
        assert out.read_bytes().splitlines()[::2] == source.read_bytes().splitlines()[::2]
        assert "täxt" in out.read_text()
    elif ending == "csv":
        assert out.read_bytes().count(b"\r\n") == 4
    else:
        assert pq.read_schema(out).equals(pq.read_schema(source))
    assert not list(tmp_path.glob(".*part"))


def test_a_ruler_file_grows_in_its_lengths_too(tmp_path):
    """`length` counts the prompt's tokens, pads included."""
    source, out = lines(tmp_path / "a.jsonl", RULER), tmp_path / "b.jsonl"
    _, reader = reader_for(source)
    reader.write(source, out, reader.columns.resolved(RULER, ""), lambda n: Pad(5, "pad pad\n"))
    written = json.loads(out.read_text())
    assert written["input"] == "pad pad\n" + RULER["input"]
    assert (written["length"], written["length_w_model_temp"], written["token_position_answer"]) == (
        145,
        155,
        14,
    )
    assert list(written) == list(RULER)


def test_logs_are_not_written_anew():
    """Their answers belong to the prompts as they were asked."""
    logs = {name for name, kind in FORMATS.items() if not kind.fixable}
    assert logs == {"lm-eval", "inspect", "needlehaystack"}
