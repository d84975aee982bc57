"""A run folder: what it holds, that it resumes to the same bytes, and what it refuses."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from phasescope import Reply, Trial, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.logs import ObservationLog, read_log
from phasescope.protocols import InSequencePadding, PrefixPadding, QueryPadding
from phasescope.records import NoReply
from phasescope.running.runner import Condition, observed, run
from phasescope.runs import read_run
from tests.descriptions import without_digests

SMALL = {"pairs": 3, "contexts": 4}


def planted(**settings: Any) -> Planted:
    """A backend with a visible curve."""
    return Planted(**{"grid": WindowGrid(4, 4), "curve": (0.9, 0.6, 0.3, 0.75), **settings})


def conditions() -> list[Condition]:
    """Two models under one protocol, and one of them under another."""
    flat = planted(curve=(0.6,) * 4, name="flat")
    return [
        Condition("model", planted(layout_sd=0.5), PrefixPadding(**SMALL)),
        Condition("control", flat, PrefixPadding(**SMALL)),
        Condition("gaps", planted(), InSequencePadding(**SMALL)),
    ]


class InterruptionError(Exception):
    """A stand-in for whatever ends a process."""


class Mortal(Planted):
    """A planted backend that fails after some batches."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.left = 10**6

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """Answer, or die."""
        if not self.left:
            raise InterruptionError
        self.left -= 1
        return super().answer(trials)


def test_a_run_folder_holds_description_observations_and_timings(tmp_path: Path) -> None:
    """Every trial of every condition once, conditions outermost, contexts in order."""
    run(conditions(), tmp_path, seed=3)
    seen = list(read_log(tmp_path / "observations.jsonl"))
    assert [(o.condition, o.cluster) for o in seen[:: 3 * 24]] == [
        (condition, f"c{context:04d}") for condition in ("model", "control", "gaps") for context in range(4)
    ]
    assert len(seen) == 3 * 4 * 24 * 3
    assert len({(o.condition, o.block, o.layout) for o in seen}) == len(seen)
    timings = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    assert [(t["condition"], t["cluster"], t["trials"]) for t in timings[:5]] == [
        *(("model", f"c{context:04d}", 72) for context in range(4)),
        ("control", "c0000", 72),
    ]
    assert all(t["seconds"] > 0 and t["tokens"] > 0 for t in timings)


def test_the_description_names_seed_versions_protocols_and_backends(tmp_path: Path) -> None:
    """It is enough to run the same again, and it holds no path of this machine."""
    run(conditions(), tmp_path, seed=3)
    text = (tmp_path / "run.json").read_text()
    described = json.loads(text)
    assert (described["schema"], described["seed"]) == (2, 3)
    assert described["versions"].keys() == {"phasescope", "python", "numpy", "torch", "transformers"}
    assert described["versions"]["numpy"] == np.__version__
    assert [condition["name"] for condition in described["conditions"]] == ["model", "control", "gaps"]
    assert described["conditions"][2]["protocol"] == json.loads(
        json.dumps(InSequencePadding(**SMALL).describe())
    )
    assert described["conditions"][0]["backend"]["planted"]["layout_sd"] == 0.5
    assert str(tmp_path) not in text
    assert str(Path.cwd()) not in text


def test_conditions_with_equal_protocols_see_the_same_trials(tmp_path: Path) -> None:
    """So that model and control are compared question by question; another protocol draws its own."""
    run(conditions(), tmp_path, seed=3)
    seen = read_run(tmp_path).observations
    trials = {condition: [(o.trial, o.block, o.layout) for o in rows] for condition, rows in seen.items()}
    assert trials["model"] == trials["control"]
    assert not set(trials["model"]) & set(trials["gaps"])
    assert [o.score for o in seen["model"]] != [o.score for o in seen["control"]]


def test_another_seed_asks_other_questions(tmp_path: Path) -> None:
    """The seed reaches every draw of the protocols."""
    for seed in (1, 2):
        run(conditions(), tmp_path / str(seed), seed=seed)
    one, two = ({o.trial for o in read_log(tmp_path / str(seed) / "observations.jsonl")} for seed in (1, 2))
    assert not one & two


def test_progress_counts_trials_up_to_the_plan(tmp_path: Path) -> None:
    """A first report of nothing, one per batch, and the last with everything done; also on resume."""
    for _ in range(2):
        reports: list[tuple[int, int]] = []
        run(conditions(), tmp_path, seed=3, report=lambda done, total, log=reports: log.append((done, total)))
        assert reports == [(72 * batch, 864) for batch in range(13)]


def test_a_finished_run_is_not_asked_again(tmp_path: Path) -> None:
    """Running it once more changes no byte and asks no question."""
    run(conditions(), tmp_path, seed=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    again = conditions()
    run(again, tmp_path, seed=3)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert all(condition.backend.tokens == 0 for condition in again)


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_a_run_that_failed_goes_on_where_it_stopped(tmp_path: Path, batches: int) -> None:
    """Finished batches are neither asked again nor rewritten, and the bytes are those of one run."""
    protocol = PrefixPadding(**SMALL)
    curve = {"grid": WindowGrid(4, 4), "curve": (0.9, 0.6, 0.3, 0.75)}
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    run([Condition("a", Mortal(**curve), protocol)], whole, seed=0)
    dying = Mortal(**curve)
    dying.left = batches
    with pytest.raises(InterruptionError):
        run([Condition("a", dying, protocol)], cut, seed=0)
    revived = Mortal(**curve)
    revived.left = 4 - batches
    run([Condition("a", revived, protocol)], cut, seed=0)
    for name in ("run.json", "observations.jsonl"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes()
    assert revived.left == 0


@pytest.mark.parametrize(
    ("change", "key"),
    [
        ({"seed": 4}, "seed = 3, this run 4"),
        (
            {"conditions": [Condition("model", planted(), PrefixPadding(**SMALL))]},
            r"conditions = [\w ,/]+, this run model;",
        ),
        ({"pairs": 4}, r"conditions\[0\]\.protocol\.settings\.pairs = 3, this run 4"),
        (
            {"curve": (0.9, 0.6, 0.3, 0.7)},
            r"conditions\[0\]\.backend\.planted\.curve\[3\] = 0.75, this run 0.7",
        ),
        ({"name": "other"}, r"conditions\[0\]\.backend\.model = 'planted', this run 'other'"),
    ],
)
def test_a_folder_of_another_run_is_refused_with_the_difference(
    tmp_path: Path, change: dict[str, Any], key: str
) -> None:
    """The message names the key and both values, and nothing on disk changes."""
    two = [
        Condition("model", planted(), PrefixPadding(**SMALL)),
        Condition("control", planted(), PrefixPadding(**SMALL)),
    ]
    run(two, tmp_path, seed=3)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    backend = planted(**{key: value for key, value in change.items() if key in ("curve", "name")})
    protocol = PrefixPadding(**{**SMALL, **{k: v for k, v in change.items() if k == "pairs"}})
    other = change.get("conditions", [Condition("model", backend, protocol), two[1]])
    with pytest.raises(UsageError, match=key) as caught:
        run(other, tmp_path, seed=change.get("seed", 3))
    assert "\n" not in str(caught.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_folder_in_which_nothing_was_observed_yet_takes_another_run(tmp_path: Path) -> None:
    """A command that failed before its first answer can be given again with what it lacked."""
    with pytest.raises(UsageError, match="500 pairs"):
        run([Condition("model", planted(), PrefixPadding(pairs=500, contexts=1))], tmp_path, seed=3)
    run(conditions(), tmp_path, seed=3)
    assert [
        condition["name"] for condition in json.loads((tmp_path / "run.json").read_text())["conditions"]
    ] == [
        "model",
        "control",
        "gaps",
    ]


def test_observations_of_other_trials_are_refused_with_both_digests(tmp_path: Path) -> None:
    """A log that was exchanged or edited is never continued."""
    run(conditions(), tmp_path, seed=3)
    path = tmp_path / "observations.jsonl"
    lines = list(read_log(path))
    path.unlink()
    ObservationLog(path).append([lines[1], lines[0], *lines[2:]])
    with pytest.raises(UsageError, match=f"trial .*{lines[1].trial}.*, the plan has .*{lines[0].trial}"):
        run(conditions(), tmp_path, seed=3)


def test_observations_without_a_description_are_refused(tmp_path: Path) -> None:
    """Nobody knows what they are."""
    (tmp_path / "observations.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"observations without a run\.json"):
        run(conditions(), tmp_path, seed=3)


@pytest.mark.parametrize("names", [[], ["a", "a"]])
def test_conditions_need_names_of_their_own(tmp_path: Path, names: list[str]) -> None:
    """The log tells them apart by nothing else."""
    with pytest.raises(UsageError, match="each a name of its own"):
        run([Condition(name, planted(), QueryPadding(**SMALL)) for name in names], tmp_path, seed=0)


def test_a_run_reads_back_by_condition_also_when_unfinished(tmp_path: Path) -> None:
    """What is there so far, in the order of the description."""
    run(conditions(), tmp_path, seed=3)
    path = tmp_path / "observations.jsonl"
    whole = read_run(tmp_path)
    assert {condition: len(rows) for condition, rows in whole.observations.items()} == {
        "model": 288,
        "control": 288,
        "gaps": 288,
    }
    path.write_bytes(path.read_bytes()[:-1000])
    part = read_run(tmp_path)
    assert part.description == whole.description
    assert part.observations["model"] == whole.observations["model"]
    assert 280 < len(part.observations["gaps"]) < 288


def test_a_folder_that_is_no_run_says_so(tmp_path: Path) -> None:
    """One line for a mistyped folder, and for a log with a foreign condition."""
    with pytest.raises(UsageError, match=r"holds no run\.json"):
        read_run(tmp_path)
    run(conditions(), tmp_path, seed=3)
    path = tmp_path / "observations.jsonl"
    path.write_bytes(without_digests(path).replace(b'"condition":"gaps"', b'"condition":"holes"'))
    with pytest.raises(UsageError, match="names condition 'holes'"):
        read_run(tmp_path)


class Lossy(Mortal):
    """A planted backend that loses every trial of some layouts."""

    def answer(self, trials: Sequence[Trial]) -> list[Reply | NoReply]:  # type: ignore[override]
        """Answer what is not lost."""
        pairs = zip(trials, super().answer(trials), strict=True)
        return [NoReply("lost") if trial.layout in self.gone else reply for trial, reply in pairs]

    gone: tuple[int, ...] = (3, 7)


def test_lost_trials_stand_in_the_log_in_their_place_and_are_resumed_like_others(tmp_path: Path) -> None:
    """They are read back apart from the observations, and not asked again."""
    curve = {"grid": WindowGrid(4, 4), "curve": (0.9, 0.6, 0.3, 0.75)}
    condition = [Condition("a", Lossy(**curve), PrefixPadding(**SMALL))]
    run(condition, tmp_path / "whole", seed=0)
    dying = Lossy(**curve)
    dying.left = 2
    with pytest.raises(InterruptionError):
        run([Condition("a", dying, PrefixPadding(**SMALL))], tmp_path / "cut", seed=0)
    run(condition, tmp_path / "cut", seed=0)
    whole, cut = (tmp_path / name / "observations.jsonl" for name in ("whole", "cut"))
    assert cut.read_bytes() == whole.read_bytes()
    back = read_run(tmp_path / "cut")
    assert {(line.layout, line.dropped) for line in back.dropped["a"]} == {(3, "lost"), (7, "lost")}
    assert len(back.dropped["a"]) == 24
    assert len(back.observations["a"]) == 288 - 24
    asked = {trial.digest for batch in batches_of(PrefixPadding(**SMALL)) for trial in batch}
    assert {line.trial for line in read_log(cut)} == asked


def batches_of(protocol: PrefixPadding) -> Any:
    """What a run with seed 0 asks."""
    return protocol.batches(planted().vocabulary(), np.random.default_rng([0, *protocol.name.encode()]))


def test_a_condition_of_which_nothing_can_be_observed_stops_early_and_keeps_nothing(tmp_path: Path) -> None:
    """So that the same command asks again once the cause is gone; a condition that has something goes on."""
    lost = Lossy(grid=WindowGrid(4, 4), curve=(0.9, 0.6, 0.3, 0.75))
    lost.gone = tuple(range(24))
    lost.left = 1
    with pytest.raises(UsageError, match=r"none of the 72 trials of b could be observed: lost \(72\).*again"):
        run(
            [Condition("a", planted(), PrefixPadding(**SMALL)), Condition("b", lost, PrefixPadding(**SMALL))],
            tmp_path,
            seed=0,
        )
    assert {line.condition for line in read_log(tmp_path / "observations.jsonl")} == {"a"}


def test_a_condition_too_small_to_stop_early_ends_in_the_same_line(tmp_path: Path) -> None:
    """Its trials are in the log, so it is to be measured into another folder; also when asked once more."""
    lost = Lossy(grid=WindowGrid(4, 4), curve=(0.9, 0.6, 0.3, 0.75))
    lost.gone = (0, 1)
    for _ in range(2):
        with pytest.raises(UsageError, match=r"none of the 6 trials of a could be observed.*another folder"):
            run([Condition("a", lost, PrefixPadding(pairs=3, contexts=1, residues=2))], tmp_path, seed=0)


PLANTED = """
import sys, time
from pathlib import Path
from phasescope import WindowGrid
from phasescope.backends import Planted
from phasescope.protocols import PrefixPadding
from phasescope.running.runner import Condition, run

class Slow(Planted):
    def answer(self, trials):
        time.sleep(0.01)
        return super().answer(trials)

conditions = [Condition(name, Slow(grid=WindowGrid(4, 4), curve=(0.9, 0.6, 0.3, 0.75), layout_sd=0.5, name=name),
            PrefixPadding(pairs=5, contexts=15)) for name in ("a", "b")]
run(conditions, Path(sys.argv[1]), seed=7)
"""

TORCH = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.protocols import InSequencePadding
from phasescope.running.runner import Condition, run
from phasescope.text.synthetic import RetrievalVocabulary

torch.manual_seed(0)
config = CompressedQwen3Config(
    vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=1, head_dim=16, max_position_embeddings=512, initializer_range=0.3,
    compression={"compressor": "scalar_gate", "width": 8, "stride": 8})
ids = RetrievalVocabulary.contiguous(32, 32, 32)
backend = TransformersBackend(CompressedQwen3ForCausalLM(config), ids, name="tiny", max_tokens=2000)
run([Condition("tiny", backend, InSequencePadding(pairs=8, contexts=12))], Path(sys.argv[1]), seed=7)
"""


def start(code: str, out: Path) -> subprocess.Popen[bytes]:
    """The run in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", code, str(out)], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )


@pytest.mark.slow
@pytest.mark.parametrize(("code", "kills"), [(PLANTED, 10), (TORCH, 3)], ids=["planted", "torch"])
def test_a_run_killed_at_random_moments_ends_in_the_same_bytes(tmp_path: Path, code: str, kills: int) -> None:
    """SIGKILL at any moment, again and again; the finished folder equals an uninterrupted one."""
    assert start(code, tmp_path / "whole").wait() == 0
    expected = (tmp_path / "whole" / "observations.jsonl").read_bytes()
    log = tmp_path / "cut" / "observations.jsonl"
    rng = np.random.default_rng(11)
    sizes = []
    for _ in range(kills):
        process = start(code, tmp_path / "cut")
        # Wait until it has begun to write more than there was, then for a random moment.
        before = log.stat().st_size if log.exists() else 0
        while process.poll() is None and (log.stat().st_size if log.exists() else 0) <= before:
            time.sleep(0.001)
        time.sleep(float(rng.uniform(0, 0.03)))
        process.send_signal(signal.SIGKILL)
        process.wait()
        sizes.append(log.stat().st_size)
        assert expected.startswith(log.read_bytes())
    assert sizes[0] < len(expected)
    assert start(code, tmp_path / "cut").wait() == 0
    for name in ("run.json", "observations.jsonl"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_what_is_observed_without_a_folder_is_what_a_folder_holds(tmp_path: Path) -> None:
    """The same draws give the same observations."""
    protocol, backend = PrefixPadding(**SMALL), planted(layout_sd=0.5)
    run([Condition("model", backend, protocol)], tmp_path, seed=3)
    rng = np.random.default_rng([3, *protocol.name.encode()])
    assert list(observed("model", backend, protocol, rng)) == read_run(tmp_path).observations["model"]
