"""Documents come out as they lie in files, and what is no text is one clear line."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from phasescope import PhasescopeError, UsageError
from phasescope.text.documents import dataset_documents, read_documents, text_files


def test_lines_rows_and_files_are_documents_in_the_order_of_names(tmp_path):
    """A folder is searched to the bottom; nulls are no documents, hidden files are not looked at."""
    (tmp_path / "b").mkdir()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "c.txt").write_text("hidden")
    (tmp_path / "b" / "2.jsonl").write_text('{"text": "two"}\n\n{"text": null}\n{"text": "three", "id": 7}\n')
    pq.write_table(pa.table({"text": ["four", None, "five"], "id": [1, 2, 3]}), tmp_path / "c.parquet")
    (tmp_path / "a.txt").write_text("one\nline more")
    assert list(read_documents([tmp_path])) == ["one\nline more", "two", "three", "four", "five"]
    assert list(read_documents([tmp_path / "c.parquet", tmp_path / "a.txt"])) == [
        "four",
        "five",
        "one\nline more",
    ]
    assert list(read_documents([tmp_path], ["txt"])) == ["one\nline more"]
    assert [file.name for file in text_files([tmp_path], [".jsonl", "parquet"])] == ["2.jsonl", "c.parquet"]


def test_text_files_are_cut_where_a_line_ends(tmp_path):
    """Nothing is lost, and no piece is a line longer than it has to be."""
    lines = [f"line {number}\n" for number in range(100)]
    (tmp_path / "a.txt").write_text("".join(lines))
    pieces = list(read_documents([tmp_path], cut=50))
    assert "".join(pieces) == "".join(lines)
    assert all(piece.endswith("\n") and 50 <= len(piece) < 50 + 9 for piece in pieces[:-1])


def test_another_column_can_hold_the_text(tmp_path):
    """In lines and in rows."""
    (tmp_path / "a.jsonl").write_text('{"body": "one"}\n')
    pq.write_table(pa.table({"body": ["two"]}), tmp_path / "b.parquet")
    assert list(read_documents([tmp_path], column="body")) == ["one", "two"]


def test_bytes_read_add_up_and_files_that_are_no_text_are_named(tmp_path):
    """For a progress bar; a file of a folder is passed over, one that is named is refused."""
    (tmp_path / "a.txt").write_text("äöü\n" * 9, encoding="utf-8")
    (tmp_path / "b.jsonl").write_text('{"text": "one"}\n' * 5)
    (tmp_path / "c.txt").write_bytes("café".encode("latin-1"))
    sizes, passed = [], []
    assert len(list(read_documents([tmp_path], cut=4, read=sizes.append, skipped=passed.append))) == 14
    assert sum(sizes) == sum((tmp_path / name).stat().st_size for name in ("a.txt", "b.jsonl"))
    assert passed == [tmp_path / "c.txt"]
    with pytest.raises(UsageError, match=r"c\.txt is not valid UTF-8"):
        list(read_documents([tmp_path / "c.txt"]))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"text": "one"', "line 2 is not JSON"),
        ('["one"]', 'line 2: each line is an object with a field "text"'),
        ('{"txt": "one"}', "line 2 has no text in 'text'; it has txt; give --column"),
        ('{"text": 7}', "line 2 holds '7' in 'text', which is not text"),
        ('{"text": "\\ud800"}', "line 2 is not JSON"),
    ],
)
def test_a_line_that_is_no_document_is_named_by_its_number(tmp_path, line, said):
    """What is wrong, and where."""
    (tmp_path / "a.jsonl").write_text(f'{{"text": "fine"}}\n{line}\n')
    with pytest.raises(PhasescopeError, match=r"a\.jsonl, ") as error:
        list(read_documents([tmp_path]))
    assert said in str(error.value)


def test_parquet_without_text_or_sense_is_refused(tmp_path):
    """One line each."""
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(UsageError, match="has no text in 'text'; it has id"):
        list(read_documents([tmp_path]))
    (tmp_path / "a.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(UsageError, match="cannot be read as parquet"):
        list(read_documents([tmp_path]))


def test_nothing_to_read_is_refused(tmp_path):
    """A path that does not exist, a folder without files, or without any of the wanted endings."""
    with pytest.raises(UsageError, match="there is no such file or folder"):
        list(read_documents([tmp_path / "no"]))
    with pytest.raises(UsageError, match="there are no files in"):
        list(read_documents([tmp_path]))
    (tmp_path / "a.txt").write_text("one")
    with pytest.raises(UsageError, match="there are no files with the endings py"):
        list(read_documents([tmp_path], ["py"]))


@pytest.fixture
def offline(monkeypatch, tmp_path):
    """The datasets library, told not to look anywhere but here; its first import warns of this and that."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))


@pytest.mark.usefixtures("offline")
@pytest.mark.filterwarnings("ignore")
def test_a_data_set_is_streamed_from_a_folder(tmp_path):
    """By the library that users have their data sets in; what it cannot read is one line."""
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "a.jsonl").write_text("".join(json.dumps({"text": f"row {n}"}) + "\n" for n in range(5)))
    assert list(dataset_documents(str(folder))) == [f"row {n}" for n in range(5)]
    with pytest.raises(UsageError, match="has no text in 'body'; it has text; give --column"):
        list(dataset_documents(str(folder), column="body"))
    with pytest.raises(UsageError, match="cannot be read: Bad split"):
        list(dataset_documents(str(folder), split="validation"))
    (folder / "a.jsonl").write_text('{"text": \n')
    with pytest.raises(UsageError, match=r"data set .* cannot be read"):
        list(dataset_documents(str(folder)))
