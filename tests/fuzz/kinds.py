"""Every kind of file that phasescope reads: a whole one, and the commands that read it."""

from __future__ import annotations

import json
import shutil
import zipfile
from dataclasses import dataclass
from pathlib import Path

from phasescope.checkpoints import zoo
from tests.auditing.test_readers import LM_EVAL, NEEDLE, RULER, inspect_log
from tests.builders import text_tokenizer
from tests.cli.in_process import phasescope
from tests.fuzz.damage import Form

TINY = (
    "--layers 1 --hidden-size 16 --heads 2 --kv-heads 1 --head-dim 8 --feed-forward 16 --steps 2 --max-pairs 4 "
    "--rows 2 --text-rows 2 --text-tokens 16 --no-measure --compressor scalar_gate --width 4 --stride 4"
)
SMALL = "--pairs 12 --contexts 1 --residues 8 --questions 1 --threads 1"
REPORT = "report run --draws 20"
EXPLAIN = "explain run --blocks 2 --no-rolls --draws 20 --threads 1"
MITIGATE = "mitigate run --contexts 4 --anyway --threads 1"
CHECK = "check --run run model --cases 4 --sweep 4 --longest 24 --threads 1 --feature crop"
INSPECT = "inspect model"
GROW = (
    "train --out t --from plain --steps 1 --rows 2 --max-pairs 4 --no-measure --compressor uniform --width 4"
)
MEASURE = f"measure model --out new {SMALL}"
PACK = "pack records.jsonl --profile run/profile.json --tokenizer tokenizer --out packed.jsonl"
WARN = "warn prompt.txt --profile run/profile.json --tokenizer tokenizer --mark filler"
SWEEP = "--model text-model --lengths 0:8 --place mark --draws 20 --threads 1 --family line --out swept"
TRAIN = f"train --out trained --corpus corpus {TINY}"


@dataclass(frozen=True)
class Kind:
    """A kind of file.

    Attributes:
        file: where a whole one stands.
        form: how it is written.
        commands: what reads it.
    """

    file: str
    form: Form
    commands: tuple[str, ...]


KINDS = {
    "run": Kind("run/run.json", "json", (REPORT, REPORT, EXPLAIN, MITIGATE, CHECK)),
    "observations": Kind("run/observations.jsonl", "lines", (REPORT, REPORT, EXPLAIN)),
    "timings": Kind("run/timings.jsonl", "lines", (REPORT, EXPLAIN, MITIGATE)),
    "profile": Kind("run/profile.json", "json", (PACK, WARN, MITIGATE)),
    "explanation": Kind("run/explain/w8s8-1kv/explain.json", "json", (EXPLAIN, REPORT)),
    "mitigation": Kind("run/mitigate/mitigation.json", "json", (MITIGATE, REPORT)),
    "card": Kind("model/card.json", "json", (MEASURE, INSPECT)),
    "config": Kind("model/config.json", "json", (INSPECT, MEASURE)),
    "plain config": Kind("plain/config.json", "json", (GROW, "inspect plain")),
    "weights": Kind("model/model.safetensors", "safetensors", (INSPECT, MEASURE)),
    "tokenizer": Kind(
        "tokenizer/tokenizer.json", "json", (PACK, WARN, "audit ruler.jsonl --tokenizer tokenizer")
    ),
    "tokenizer settings": Kind("tokenizer/tokenizer_config.json", "json", (PACK, f"{WARN} --chat")),
    "corpus": Kind("corpus/corpus.json", "json", (f"train --out new --corpus corpus {TINY}",)),
    "training settings": Kind("trained/training.json", "json", (TRAIN,)),
    "training state": Kind("trained/state/state.json", "json", (TRAIN,)),
    "audit, plain": Kind(
        "plain.jsonl", "lines", ("audit plain.jsonl --stride 4 --fix fixed.jsonl --out page",)
    ),
    "audit, ruler": Kind("ruler.jsonl", "lines", ("audit ruler.jsonl --stride 4 --tokenizer tokenizer",)),
    "audit, lm-eval": Kind(
        "lm_eval.jsonl", "lines", ("audit lm_eval.jsonl --stride 4 --tokenizer tokenizer",)
    ),
    "audit, needlehaystack": Kind("needle.jsonl", "lines", ("audit needle.jsonl --stride 4",)),
    "audit, inspect": Kind("inspect.json", "json", ("audit inspect.json --stride 4 --tokenizer tokenizer",)),
    "audit, csv": Kind("plain.csv", "text", ("audit plain.csv --stride 4",)),
    "audit, archive": Kind("inspect.eval", "text", ("audit inspect.eval --stride 4 --tokenizer tokenizer",)),
    "prompt": Kind("prompt.txt", "text", (f"sweep prompt.txt --expected 8 --rival 32 {SWEEP}", WARN)),
    "prompts": Kind("prompts.jsonl", "lines", (f"sweep prompts.jsonl {SWEEP}",)),
    "records": Kind("records.jsonl", "lines", (PACK,)),
    "text": Kind("text.jsonl", "lines", ("corpus made --text text.jsonl --vocabulary 270 --held-out 0.2",)),
}


def write_whole(folder: Path) -> None:
    """Write a whole file of every kind."""
    _benchmarks(folder)
    shutil.copytree(zoo.folder("w8s8-1kv"), folder / "model")
    shutil.copytree(zoo.folder("full-1kv"), folder / "plain")
    text_tokenizer.save(folder / "tokenizer")
    _text_model(folder / "text-model")
    (folder / "prompt.txt").write_text("filler note\n<pad>values of a block are stored in FP\n")
    record = {
        "name": "a",
        "prompt": "<pad>values of a block are stored in FP",
        "expected": "8",
        "rival": "32",
    }
    _lines(folder / "prompts.jsonl", record, {**record, "name": "b", "expected": "32", "rival": "8"})
    _lines(
        folder / "records.jsonl",
        *({"text": f"the scale of block b{n} is kept in FP32.\n", "key": f"b{n}"} for n in range(6)),
    )
    _lines(folder / "text.jsonl", *({"text": f"line {n} of {n * n} lines"} for n in range(40)))
    for command in (
        f"measure w8s8-1kv --out run {SMALL.replace('--contexts 1', '--contexts 2')}",
        REPORT,
        EXPLAIN,
        MITIGATE,
        "corpus corpus --text text.jsonl --vocabulary 270 --held-out 0.2",
        TRAIN,
    ):
        phasescope(*command.split(), cwd=folder)
        if command == REPORT:
            _make_sensitive(folder / "run" / "profile.json")


def _make_sensitive(path: Path) -> None:
    """Say of a run's profile that its phases differ, as larger runs do."""
    content = json.loads(path.read_text())
    content["profiles"][0] |= {"sensitive": True, "accuracy": [0.9] * 6 + [0.2, 0.3]}
    path.write_text(json.dumps(content))


def _text_model(folder: Path) -> None:
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    shape = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 1}
    config = Qwen3Config(vocab_size=512, num_key_value_heads=1, head_dim=16, eos_token_id=1, **shape)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    text_tokenizer.save(folder)


def _benchmarks(folder: Path) -> None:
    _lines(folder / "plain.jsonl", *({"position": 8 * n, "score": n % 2} for n in range(12)))
    _lines(folder / "ruler.jsonl", RULER, {**RULER, "index": 1})
    _lines(folder / "lm_eval.jsonl", LM_EVAL, {**LM_EVAL, "doc_id": 1})
    _lines(folder / "needle.jsonl", NEEDLE, NEEDLE)
    (folder / "inspect.json").write_text(json.dumps(inspect_log()))
    (folder / "plain.csv").write_text("position,score\n" + "".join(f"{8 * n},{n % 2}\n" for n in range(12)))
    log = inspect_log()
    with zipfile.ZipFile(folder / "inspect.eval", "w") as archive:
        archive.writestr(
            "header.json", json.dumps({name: log[name] for name in ("version", "status", "eval")})
        )
        for sample in log["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))


def _lines(path: Path, *records: object) -> None:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
