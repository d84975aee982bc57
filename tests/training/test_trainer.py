"""Training learns, and resumes to the same bits after a kill."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from transformers import AutoModelForCausalLM

from phasescope import UsageError
from phasescope.models import Compression
from phasescope.text.synthetic import RetrievalVocabulary
from phasescope.training import RetrievalTask, Training, train

SMALL = {
    "compression": Compression(compressor="scalar_gate", width=4, stride=4),
    "task": RetrievalTask(vocabulary=RetrievalVocabulary.contiguous(4, 8, 8), fillers=8),
    "hidden_size": 32,
    "heads": 2,
    "kv_heads": 1,
    "head_dim": 16,
    "feed_forward": 32,
    "rows": 16,
    "max_pairs": 8,
}
SCRIPT = """
import sys, torch
from pathlib import Path
from phasescope.training import Training, train
torch.set_num_threads(1)
train(Training.model_validate_json(sys.argv[1]), Path(sys.argv[2]), every=5)
"""


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def start(settings, out):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, settings.model_dump_json(), str(out)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(process):
    """Wait for a process that must succeed."""
    _, said = process.communicate(timeout=240)
    assert process.returncode == 0, said.decode()


def test_a_small_model_learns_and_the_curriculum_moves_on(tmp_path):
    """In 150 steps the loss falls far below the ln 8 = 2.08 of not reading the context, and pairs double."""
    progress = train(Training(**SMALL, first_pairs=2, promote=1.6, steps=150, decay=0.5), tmp_path)
    assert progress.pairs == 4
    assert progress.loss < 1.9
    lines = [json.loads(line) for line in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [100, 150]
    modes = {path.stat().st_mode for path in tmp_path.rglob("*") if path.suffix in (".json", ".safetensors")}
    assert len(modes) == 1, "weights are for whoever may read the rest"
    model = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert model.config.plan == SMALL["compression"]


@pytest.mark.slow
def test_a_run_killed_twice_ends_with_the_same_bits(tmp_path):
    """SIGKILL in mid-run, twice, then the same command: weights equal an uninterrupted run's."""
    settings = Training(**SMALL, steps=300)
    finish(start(settings, tmp_path / "whole"))
    log = tmp_path / "cut" / "log.jsonl"
    for seen in (2, 20):
        process = start(settings, tmp_path / "cut")
        while process.poll() is None and (not log.exists() or len(log.read_text().splitlines()) < seen):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert not (tmp_path / "cut" / "model.safetensors").exists(), "the run was over before it was killed"
    finish(start(settings, tmp_path / "cut"))
    assert weights(tmp_path / "cut") == weights(tmp_path / "whole")
    steps = [json.loads(line)["step"] for line in log.read_text().splitlines()]
    assert steps == list(range(5, 305, 5))


def test_a_folder_of_other_settings_and_what_cannot_be_parallel_are_refused(tmp_path):
    """Nothing is overwritten."""
    train(Training(**SMALL, steps=1), tmp_path)
    before = weights(tmp_path)
    with pytest.raises(UsageError, match="other settings"):
        train(Training(**SMALL, steps=2), tmp_path)
    with pytest.raises(UsageError, match="there is one: start with torchrun"):
        train(Training(**SMALL, steps=1), tmp_path, parallel="fsdp")
    with pytest.raises(UsageError, match="known: ddp, fsdp"):
        train(Training(**SMALL, steps=1), tmp_path, parallel="tensor")
    assert weights(tmp_path) == before


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"lr_matrices": -1.0}, {"kv_head": 2}])
def test_wrong_settings_are_one_clear_line(wrong):
    """The field and the value are named."""
    with pytest.raises(UsageError, match=next(iter(wrong))):
        Training.checked(**wrong)
