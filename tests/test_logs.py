"""The log of observations: read line by line, appended batch by batch, cut, checked and compressed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phasescope import BrokenRecordError, UsageError
from phasescope.logs import LONGEST_LINE, ObservationLog, compress, find_log, read_log
from phasescope.records import Dropped
from tests.descriptions import observation, without_digests


def written(path: Path, count: int) -> bytes:
    """The bytes of a log of `count` observations."""
    ObservationLog(path).append([observation(number) for number in range(count)])
    return path.read_bytes()


def test_observations_read_back_as_they_were_written(tmp_path: Path) -> None:
    """Floats too come back to the last bit."""
    written(tmp_path / "log", 7)
    assert list(read_log(tmp_path / "log")) == [observation(number) for number in range(7)]


def test_a_dropped_trial_reads_back_as_one_and_not_as_an_observation(tmp_path: Path) -> None:
    """Whatever its reason says, and among observations that speak of dropping."""
    lines = [
        observation(0).model_copy(update={"text": 'it was "dropped": really', "block": 'a"dropped":b'}),
        Dropped(condition="a", trial="0", cluster="c", block="b", layout=1, dropped='a "score":1 of \n none'),
        observation(2),
    ]
    ObservationLog(tmp_path / "log").append(lines)
    assert list(read_log(tmp_path / "log")) == lines
    assert len((tmp_path / "log").read_bytes().splitlines()) == 1 + 3


def test_a_broken_line_before_the_last_is_named(tmp_path: Path) -> None:
    """File, line, field and remedy in one line."""
    path = tmp_path / "log"
    path.write_bytes(written(path, 5).replace(b'"score":1.0', b'"score":7.0', 1))
    with pytest.raises(BrokenRecordError, match=r"log, line 3: score is 7\.0: .*restore the line") as caught:
        list(read_log(path))
    assert "\n" not in str(caught.value)


def test_a_missing_log_says_what_to_give(tmp_path: Path) -> None:
    """No traceback for a mistyped folder."""
    with pytest.raises(UsageError, match="give a run folder"):
        list(read_log(tmp_path / "nothing"))


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6), share=st.floats(0, 1))
def test_a_log_cut_at_any_byte_resumes_to_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], share: float
) -> None:
    """A kill may leave any prefix of the file; only whole batches stay, and the rest is written again."""
    path = tmp_path_factory.mktemp("log") / "log"
    log, ends = ObservationLog(path), np.cumsum([0, *sizes]).tolist()
    batches = [[observation(n) for n in range(*pair)] for pair in itertools.pairwise(ends)]
    for batch in batches:
        log.append(batch)
    whole = path.read_bytes()
    path.write_bytes(whole[: round(share * len(whole))])
    kept = ends.index(len(log.resume(sizes)))
    assert whole.startswith(path.read_bytes())
    for batch in batches[kept:]:
        log.append(batch)
    assert path.read_bytes() == whole


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda whole: whole.replace(b'"score":1.0', b'"score":0.0', 1),
            "batch c0000 of 5 trials has other lines",
        ),
        (
            lambda whole: whole.replace(b'"text":"b"', b'"text":"c"', 1),
            "batch c0000 of 5 trials has other lines",
        ),
        (lambda whole: whole + whole.splitlines(keepends=True)[-1], "has more lines than were measured"),
        (lambda whole: b"".join(whole.splitlines(keepends=True)[:-1]) + whole, "line 1: .*has fewer lines"),
    ],
)
def test_a_batch_that_was_changed_is_found(tmp_path: Path, change: Any, message: str) -> None:
    """By who reads the log, and by who goes on with it; nothing is cut."""
    path = tmp_path / "log"
    lines = [observation(n).model_copy(update={"text": "b"}) for n in range(5)]
    ObservationLog(path).append(lines)
    path.write_bytes(change(path.read_bytes()))
    before = path.read_bytes()
    for read in (lambda: list(read_log(path)), lambda: ObservationLog(path).resume([5, 5])):
        with pytest.raises(BrokenRecordError, match=message):
            read()
    assert path.read_bytes() == before


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_a_batch_that_was_taken_out_is_missed(tmp_path: Path, gone: int) -> None:
    """Each names the one before it; a missing last one looks like a run that was not finished, which is said."""
    path = tmp_path / "log"
    log = ObservationLog(path)
    for first in (0, 3, 6):
        log.append([observation(n) for n in range(first, first + 3)])
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: 4 * gone] + lines[4 * gone + 4 :]))
    if gone == 2:
        assert len(list(read_log(path))) == 6
        return
    for read in (lambda: list(read_log(path)), lambda: ObservationLog(path).resume([3, 3, 3])):
        with pytest.raises(
            BrokenRecordError, match=f"line {4 * gone + 1}: .*does not follow the batch before"
        ):
            read()


def test_batches_without_the_one_before_are_read(tmp_path: Path) -> None:
    """Logs that were written before batches named it; what is appended does."""
    path = tmp_path / "log"
    ObservationLog(path).append([observation(n) for n in range(3)])
    path.write_bytes(path.read_bytes().replace(b',"after":"none"', b""))
    ObservationLog(path).append([observation(n) for n in range(3, 6)])
    assert len(list(read_log(path))) == 6
    assert path.read_bytes().count(b'"after"') == 1


def test_a_log_of_version_0_1_is_read_and_goes_on(tmp_path: Path) -> None:
    """It has no digests; what is appended has."""
    path = tmp_path / "log"
    written(path, 4)
    path.write_bytes(without_digests(path))
    log = ObservationLog(path)
    assert len(log.resume([2, 2, 2])) == 4
    log.append([observation(4), observation(5)])
    assert list(read_log(path)) == [observation(number) for number in range(6)]
    path.write_bytes(path.read_bytes().replace(b"-0.5", b"-0.4"))
    with pytest.raises(BrokenRecordError, match=r"line 5: batch c0000 of 2 trials has other lines"):
        list(read_log(path))


def test_a_line_ends_at_a_newline_alone(tmp_path: Path) -> None:
    """Not at the line separators of Unicode, which a model may well say."""
    line = observation(1).model_copy(update={"text": "a\u2028b\x85c\x1ed"})
    ObservationLog(tmp_path / "log").append([line])
    assert list(read_log(tmp_path / "log")) == [line]


def test_a_line_without_end_is_not_read_whole(tmp_path: Path) -> None:
    """Memory has a bound."""
    with (tmp_path / "log").open("wb") as file:
        file.truncate(LONGEST_LINE + 1)
    with pytest.raises(BrokenRecordError, match=r"line 1: longer than 16,777,216 bytes"):
        list(read_log(tmp_path / "log"))


def test_a_finished_log_may_be_compressed(tmp_path: Path) -> None:
    """It is found, read and resumed as it is, and is much smaller."""
    path = tmp_path / "observations.jsonl"
    size = len(written(path, 500))
    out = compress(path)
    assert not path.exists()
    assert find_log(tmp_path) == out == compress(out)
    assert out.stat().st_size < size / 5
    assert list(read_log(out)) == ObservationLog(out).resume([500]) == [observation(n) for n in range(500)]
    with pytest.raises(BrokenRecordError, match=r"has 500 of 600 observations; only a finished log stays"):
        ObservationLog(out).resume([500, 100])


@pytest.mark.parametrize("damage", [lambda whole: whole[:-9], lambda whole: b"no zstd" * 9])
def test_a_damaged_compressed_log_is_one_line(tmp_path: Path, damage: Any) -> None:
    """Truncated, or something else."""
    written(tmp_path / "observations.jsonl", 50)
    out = compress(tmp_path / "observations.jsonl")
    out.write_bytes(damage(out.read_bytes()))
    with pytest.raises(BrokenRecordError, match=r"zst is damaged: "):
        list(read_log(out))


def test_more_observations_than_planned_are_refused(tmp_path: Path) -> None:
    """The folder belongs to a larger run."""
    written(tmp_path / "log", 5)
    with pytest.raises(BrokenRecordError, match="has 5 observations, the plan 4"):
        ObservationLog(tmp_path / "log").resume([2, 2])


def test_a_log_that_is_not_there_yet_resumes_to_nothing(tmp_path: Path) -> None:
    """A first run is the resumption of an empty one."""
    assert ObservationLog(tmp_path / "log").resume([3]) == []
