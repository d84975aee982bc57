"""Trials, observations and their append-only log."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from phasescope import BrokenRecordError, Observation, Trial, UsageError
from phasescope.files import ObservationLog, dump_json, read_json, read_log, write_atomic
from phasescope.records import Dropped


def observation(number: int) -> Observation:
    """One of a row of different observations."""
    return Observation(
        condition="a",
        trial=f"{number:016x}",
        cluster="c0000",
        block=f"c0000/k{number:03d}",
        layout=number % 24,
        source_position=number,
        query_position=40,
        prompt_tokens=41,
        answer=3,
        score=number % 2,
        logprob=-0.1 * number,
    )


def written(path: Path, count: int) -> bytes:
    """The bytes of a log of `count` observations."""
    ObservationLog(path).append(map(observation, range(count)))
    return path.read_bytes()


TRIAL = Trial((1, 2, 3), (4,), (4, 5), 1, "b", "c", 0)


@pytest.mark.parametrize(
    "other",
    [
        Trial((1, 2), (3, 4), (4, 5), 1, "b", "c", 0),
        Trial((1, 2, 3), (4, 4), (5,), 1, "b", "c", 0),
        Trial((1, 2, 3), (4,), (5, 4), 1, "b", "c", 0),
        Trial((1, 3, 2), (4,), (4, 5), 1, "b", "c", 0),
    ],
)
def test_a_digest_changes_with_what_is_asked_and_with_what_counts_as_right(other: Trial) -> None:
    """Also where only the border between prompt, answer and candidates moves."""
    assert other.digest != TRIAL.digest


def test_a_digest_names_the_question_and_not_its_place_in_the_run() -> None:
    """The same question in another block has the same digest, in every process and version."""
    assert TRIAL.digest == Trial((1, 2, 3), (4,), (4, 5), 2, "x", "y", 3).digest == "bb6d9ee84a317652"


@pytest.mark.parametrize(
    "change",
    [{"score": 1.5}, {"layout": -1}, {"prompt_tokens": 0}, {"logprob": float("nan")}, {"phase": 3}, {"v": 2}],
)
def test_an_observation_refuses_what_is_no_fact_of_its_schema(change: dict[str, float]) -> None:
    """Out-of-range numbers, unknown fields and other versions don't pass."""
    with pytest.raises(ValidationError):
        Observation.model_validate(observation(1).model_dump() | change)


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
    assert len((tmp_path / "log").read_bytes().splitlines()) == 3


@pytest.mark.parametrize("change", [{"score": 1.0}, {"dropped": None}, {"layout": -1}])
def test_a_dropped_trial_holds_no_score(change: dict[str, object]) -> None:
    """It is counted, and nothing else."""
    lost = Dropped(condition="a", trial="0", cluster="c", block="b", layout=1, dropped="lost")
    with pytest.raises(ValidationError):
        Dropped.model_validate(lost.model_dump() | change)


def test_a_broken_line_before_the_last_is_named(tmp_path: Path) -> None:
    """File, line, field and remedy in one line."""
    path = tmp_path / "log"
    lines = written(path, 5).splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], lines[2].replace(b'"score":0.0', b'"score":7.0'), *lines[3:]]))
    with pytest.raises(BrokenRecordError, match=r"log, line 3: score: .*restore the line") as caught:
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
    whole = written(path, sum(sizes))
    path.write_bytes(whole[: round(share * len(whole))])
    log = ObservationLog(path)
    kept = log.resume(sizes)
    assert len(kept) in [sum(sizes[:end]) for end in range(len(sizes) + 1)]
    assert len(path.read_bytes().splitlines()) == len(kept)
    log.append(map(observation, range(len(kept), sum(sizes))))
    assert path.read_bytes() == whole


def test_more_observations_than_planned_are_refused(tmp_path: Path) -> None:
    """The folder belongs to a larger run."""
    written(tmp_path / "log", 5)
    with pytest.raises(BrokenRecordError, match="has 5 observations, the plan 4"):
        ObservationLog(tmp_path / "log").resume([2, 2])


def test_a_log_that_is_not_there_yet_resumes_to_nothing(tmp_path: Path) -> None:
    """A first run is the resumption of an empty one."""
    assert ObservationLog(tmp_path / "log").resume([3]) == []


def test_an_atomic_write_replaces_the_whole_file_and_leaves_no_part(tmp_path: Path) -> None:
    """Readers see the old or the new content, and nothing else lies beside it."""
    path = tmp_path / "deep" / "file.json"
    write_atomic(path, "old, and longer")
    write_atomic(path, b"new")
    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]


def test_json_is_written_in_one_form_and_read_back(tmp_path: Path) -> None:
    """Key order doesn't matter, and numbers that are none are refused."""
    assert dump_json({"b": 1, "a": "ü"}) == dump_json({"a": "ü", "b": 1})
    write_atomic(tmp_path / "x", dump_json({"a": [1.5, None]}))
    assert read_json(tmp_path / "x") == {"a": [1.5, None]}
    with pytest.raises(ValueError, match="not JSON compliant"):
        dump_json(float("nan"))


def test_a_broken_or_missing_json_file_is_one_line(tmp_path: Path) -> None:
    """The message names the file."""
    (tmp_path / "x").write_text("{")
    with pytest.raises(BrokenRecordError, match="x is not JSON"):
        read_json(tmp_path / "x")
    with pytest.raises(UsageError, match=r"cannot read .*y"):
        read_json(tmp_path / "y")
