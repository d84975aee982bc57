"""A user's prompts, read as they are or refused in one line."""

import json

import pytest

from phasescope import PhasescopeError, UsageError
from phasescope.text.prompts import read_prompts


def test_a_text_file_is_one_prompt_without_the_editors_line_break(tmp_path):
    """One final line break goes, a second stays."""
    path = tmp_path / "a.txt"
    path.write_text("stored in FP\n")
    (prompt,) = read_prompts([path], expected="8", rivals=["32"])
    assert (prompt.name, prompt.prompt, prompt.expected, prompt.rival) == (
        "a.txt",
        "stored in FP",
        "8",
        ("32",),
    )
    path.write_text("a\n\n")
    assert read_prompts([path])[0].prompt == "a\n"


def test_lines_of_json_say_what_differs(tmp_path):
    """A line's own answer wins over the argument; a single rival may stand without brackets."""
    path = tmp_path / "p.jsonl"
    lines = [{"prompt": "a"}, {"name": "b", "prompt": "b", "expected": "no", "rival": "yes"}]
    path.write_text("\n\n".join(map(json.dumps, lines)) + "\n")
    first, second = read_prompts([path], expected="yes")
    assert (first.name, first.expected, first.rival) == ("p.jsonl:1", "yes", ())
    assert (second.name, second.expected, second.rival) == ("b", "no", ("yes",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "no prompt"),
        ("{", "line 1 is not JSON"),
        ("[1]", "no object"),
        ('{"prompt": 3}', "prompt is 3: Input should be a valid string"),
        ('{"prompt": "a", "prompt_ids": [1]}', "give either"),
        ("{}", "give either"),
        ('{"prompt": "a", "answer": "b"}', "answer is 'b': Extra inputs"),
        ('{"prompt_ids": [1]}', "need expected_ids"),
        ('{"prompt_ids": [-1], "expected_ids": [1]}', "whole numbers"),
        ('{"prompt_ids": [1], "expected_ids": [1], "at": 5}', "indices"),
        ('{"name": "x", "prompt": "a"}\n{"name": "x", "prompt": "b"}', "a second prompt is named 'x'"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_a_broken_file_is_one_line(tmp_path, content, said):
    """The file, the line and what is wrong."""
    path = tmp_path / "p.jsonl"
    path.write_text(content)
    with pytest.raises(PhasescopeError, match=said) as error:
        read_prompts([path])
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_files_that_are_missing_or_no_text_are_refused(tmp_path):
    """A folder, a missing file, and bytes that are no UTF-8."""
    (tmp_path / "bytes.txt").write_bytes(b"\xff\xfe\x00")
    for name in ("missing.txt", "bytes.txt", "."):
        with pytest.raises(UsageError, match="give a text file"):
            read_prompts([tmp_path / name])
