"""Two processes, whole models or shards: the curve and the weights of one process, saved and resumed by any."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from phasescope.models import Compression
from phasescope.text.corpus import Corpus, build
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Text, Training
from tests.training.several import run

pytestmark = pytest.mark.slow
STEPS = 4
GRID = {"compressor": "scalar_gate", "width": 4, "stride": 4}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "ddp": ("ddp", {}),
    "ddp, parts, balance": ("ddp", {"accumulate": 2, "balance": 2.0}),
    "ddp, adamw": ("ddp", {"optimizer": "adamw", "weight_decay": 0.1, "accumulate": 2}),
    "fsdp": ("fsdp", {}),
    "fsdp, parts, balance": ("fsdp", {"accumulate": 2, "balance": 2.0}),
    "fsdp, adamw": ("fsdp", {"optimizer": "adamw", "weight_decay": 0.1, "accumulate": 2}),
    "fsdp, full attention": ("fsdp", {"compression": None}),
    "fsdp, three rows of a matrix": (
        "fsdp",
        {"kv_heads": 1, "compression": Compression(**GRID), "layers": 3},
    ),
    "ddp, raw at first": ("ddp", {"raw_steps": 2, "shared_start": True}),
    "fsdp, raw at first": ("fsdp", {"raw_steps": 2, "shared_start": True}),
    "ddp, robust": ("ddp", {"robust": 2.0, "random_shift": True, "accumulate": 2}),
    "fsdp, robust": ("fsdp", {"robust": 2.0}),
    "ddp, bf16": ("ddp", {"precision": "bf16"}),
    "fsdp, bf16": ("fsdp", {"precision": "bf16"}),
    "ddp, unused gates": (
        "ddp",
        {"compression": Compression(**{**GRID, "width": 12, "stride": 12}), "text": None, "first_pairs": 2},
    ),
}
MANY: dict[str, Any] = {"steps": 40, "balance": 1.0}
UNSTEADY = 2e-2  # of bfloat16, whose products over half the rows are rounded apart


def settings_of(corpus: Corpus, **changed: Any) -> Training:
    words = corpus.facts.vocabulary
    given = {
        "compression": Compression(**GRID),
        "task": RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(4, 8, 8, words), fillers=8),
        "text": Text(corpus=corpus.facts.digest, vocabulary=words, rows=8, tokens=32),
        **{"hidden_size": 32, "heads": 2, "kv_heads": 2, "head_dim": 16, "feed_forward": 48, "rows": 8},
        **{"steps": STEPS, "max_pairs": 4, "warmup": 1, "clip": 0.5},
    }
    return Training(**{**given, **changed})


def start(cases: list[dict[str, Any]], file: Path, *options: str) -> "subprocess.Popen[str]":
    """Run cases on two gloo ranks."""
    file.write_text(json.dumps(cases))
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", *options]
    script = str(Path(__file__).with_name("several.py"))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    return subprocess.Popen([*run, script, str(file)], env=environment, stderr=subprocess.PIPE, text=True)


def finish(process: "subprocess.Popen[str]") -> None:
    """Wait for processes that must succeed."""
    _, said = process.communicate(timeout=900)
    assert process.returncode == 0, said[-9000:]


def rank(folder: Path, index: int = 0) -> dict[str, Any]:
    """What a process of a run told of itself."""
    told: dict[str, Any] = json.loads(folder.with_name(f"{folder.name}.rank{index}").read_text())
    return told


def losses(folder: Path) -> list[list[float]]:
    """The curve of every running mean."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    names = ("loss", "accuracy", "text_loss", "imbalance")
    return [[line[name] for name in names if line[name] is not None] for line in lines]


def apart(one: Path, two: Path) -> float:
    """The largest difference of two runs' weights."""
    a, b = (load_file(folder / "model.safetensors") for folder in (one, two))
    return max(float((a[name] - b[name]).abs().max()) for name in a)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every case on one process and on two; `after-…` goes on with what another number of processes began."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefgh"), 4)) for _ in range(50)]
    corpus = build((" ".join(rng.choice(words, 30)) for _ in range(60)), 280, folder / "corpus", held_out=0.3)

    def case(out: str, parallel: str, changed: dict[str, Any], **more: Any) -> dict[str, Any]:
        settings = settings_of(corpus, **changed).model_dump(mode="json")
        given = {"settings": settings, "out": str(folder / out), "corpus": str(corpus.folder)}
        return {
            **given,
            "parallel": parallel,
            "watch_every": 0 if changed.get("text", 1) is None else 2,
            **more,
        }

    one = [case(f"one/{name}", "ddp", changed) for name, (_, changed) in CASES.items()]
    two = [case(f"two/{name}", parallel, changed) for name, (parallel, changed) in CASES.items()]
    parts = {"accumulate": 2, "balance": 2.0}
    for begun in [*one, case("after-one", "ddp", parts, stop=2)]:
        run(begun)
    stopped = [case(name, "fsdp", parts, stop=2) for name in ("after-two", "cut")]
    many = case("many", "fsdp", {**MANY, "text": None})
    resumed = [case(name, "fsdp", parts) for name in ("after-one", "cut")]
    finish(start([*two, *stopped, *resumed, many], folder / "cases"))
    run(case("after-two", "ddp", parts))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_reach_the_curve_and_weights_of_one(name: str, runs: Path) -> None:
    """Losses of every step and weights at the end are equal to rounding."""
    one, two = runs / "one" / name, runs / "two" / name
    tolerance = UNSTEADY if "bf16" in name else 2e-5
    np.testing.assert_allclose(losses(two), losses(one), rtol=tolerance, atol=tolerance)
    assert len(losses(two)) == STEPS
    assert apart(one, two) < (0.2 if "bf16" in name else 1e-4)
    held = [rank(two, index)["share"] for index in range(2)]
    assert max(held) < 0.6 if "fsdp" in name else held == [1, 1]
    if (one / "curve.jsonl").exists():
        looks = [
            [json.loads(x) for x in (out / "curve.jsonl").read_text().splitlines()] for out in (one, two)
        ]
        for a, b in zip(*looks, strict=True):
            assert b == pytest.approx(a, rel=tolerance)


def test_shards_in_bfloat16_are_whole_models_in_bfloat16(runs: Path) -> None:
    """Matrices gathered in bfloat16 are what autocast makes of whole ones: the same bits at the first step."""
    whole, split = (losses(runs / "two" / f"{kind}, bf16") for kind in ("ddp", "fsdp"))
    assert split[0] == whole[0]
    np.testing.assert_allclose(split, whole, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["after-one", "after-two"])
def test_shards_go_on_with_a_run_of_one_process_and_the_reverse(name: str, runs: Path) -> None:
    """Stopped at step 3 by one and finished by the other: the uninterrupted weights, to rounding."""
    assert apart(runs / name, runs / "one" / "fsdp, parts, balance") < 1e-4
    state, other = (
        load_file(runs / out / "state" / "state.safetensors") for out in (name, "one/ddp, parts, balance")
    )
    assert {key: x.shape for key, x in state.items()} == {key: x.shape for key, x in other.items()}


def test_shards_resume_to_the_same_bits(runs: Path) -> None:
    """The same number of processes ends with the bytes of a run that nothing cut."""
    cut, whole = (runs / name / "model.safetensors" for name in ("cut", "two/fsdp, parts, balance"))
    assert cut.read_bytes() == whole.read_bytes()


def test_a_killed_process_ends_the_others_and_the_run_goes_on_to_the_same_bits(runs: Path) -> None:
    """SIGKILL of one of two in mid-run: `torchrun` ends the other, starts both again, and no weight shows it."""
    [*_, many] = json.loads((runs / "cases").read_text())
    out = runs / "killed"
    process = start([{**many, "out": str(out), "slow": 0.05}], runs / "killed-cases", "--max-restarts=1")
    log = out / "log.jsonl"
    while process.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < 5):
        time.sleep(0.02)
    killed = rank(out, 1)["pid"]
    os.kill(killed, signal.SIGKILL)
    finish(process)
    assert rank(out, 1)["pid"] != killed
    assert (out / "model.safetensors").read_bytes() == (runs / "many" / "model.safetensors").read_bytes()
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(1, MANY["steps"] + 1))


def test_what_shards_save_is_a_plain_checkpoint(runs: Path) -> None:
    """`from_pretrained` loads it, with the compression."""
    model = AutoModelForCausalLM.from_pretrained(runs / "two" / "fsdp")
    assert model.config.plan == Compression(**GRID)
    assert model.config.architectures == ["CompressedQwen3ForCausalLM"]
    assert torch.isfinite(model(input_ids=torch.arange(9)[None]).logits).all()


def test_a_process_leaves_its_groups_before_it_exits(tmp_path: Path) -> None:
    """What a handler that was registered before sees at the end: no group is left to crash the exit."""
    script = (
        "import atexit, torch.distributed as dist\n"
        "from phasescope.training.parallel import Processes\n"
        "atexit.register(lambda: print('left', not dist.is_initialized()))\n"
        f"dist.init_process_group('gloo', init_method='file://{tmp_path}/store', rank=0, world_size=1)\n"
        "Processes.here(), Processes.here()\n"
        "print('in', dist.is_initialized())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["in", "True", "left", "True"]
