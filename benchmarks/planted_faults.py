"""Whether `phasescope check` finds and names planted engine faults, and accuses no clean engine.

Every fault is planted in models of several architectures with random weights from 20 seeds. It counts as found
when the row of its feature is at fault and says by what residues it fails, and no other row is at fault. Clean
engines, the ties of a tiny indexer among them, must not be accused of anything.

    python -m benchmarks.planted_faults [--seeds 20] [--faults tail,overlap,hits,shift,length,none]
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM, Qwen3Config, Qwen3ForCausalLM

from phasescope.checking import INVARIANCES, Outcome, Verdict, check
from phasescope.checking.local import LocalEngine
from phasescope.models import CompressedQwen3Config, CompressedQwen3ForCausalLM
from phasescope.testing.planted_faults import FAULTS, WrongAtLength

SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.5,
}


def dense() -> Any:
    """A plain Qwen3."""
    return Qwen3ForCausalLM(Qwen3Config(**SHAPE, num_key_value_heads=2, intermediate_size=64))


def ours(compressor: str, width: int, stride: int) -> Any:
    """One of our own models."""
    grid = {"compressor": compressor, "width": width, "stride": stride}
    return CompressedQwen3ForCausalLM(
        CompressedQwen3Config(**SHAPE, num_key_value_heads=2, intermediate_size=64, compression=grid)
    )


def deepseek_v4(index_heads: int = 1, topk: int = 3) -> Any:
    """DeepSeek-V4's two compressors; one index head makes many scores equal."""
    config = DeepseekV4Config(
        **{**SHAPE, "initializer_range": 0.2},
        moe_intermediate_size=32,
        num_key_value_heads=1,
        q_lora_rank=16,
        o_lora_rank=8,
        o_groups=2,
        n_routed_experts=2,
        num_experts_per_tok=1,
        hc_mult=2,
        sliding_window=8,
        index_n_heads=index_heads,
        index_head_dim=16,
        index_topk=topk,
        layer_types=["compressed_sparse_attention", "heavily_compressed_attention"],
        compress_rates={"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
        mlp_layer_types=["moe"] * 2,
    )
    return DeepseekV4ForCausalLM(config)


@dataclass(frozen=True)
class Kind:
    """An architecture, the strides of its grids, and what is asked: `transformers` has faults of its own."""

    build: Callable[[], Any]
    strides: tuple[int, ...]
    without: frozenset[str] = frozenset()
    small: bool = False


KINDS = {
    "dense": Kind(dense, (4,)),
    "scalar W8/S4": Kind(lambda: ours("scalar_gate", 8, 4), (4,)),
    "vector W8/S8": Kind(lambda: ours("vector_gate", 8, 8), (8,)),
    # Left pads are pooled, and a crop leaves rejected tokens in the compressor: true faults, tested elsewhere.
    "DeepSeek-V4, ties": Kind(deepseek_v4, (4, 8), frozenset({"crop", "batch"}), small=True),
}
WHERE: dict[str, tuple[str, ...]] = {
    "tail": ("dense", "scalar W8/S4", "vector W8/S8", "DeepSeek-V4, ties"),
    "overlap": ("scalar W8/S4", "scalar W8/S4", "scalar W8/S4", "DeepSeek-V4, ties"),
    "hits": ("dense", "scalar W8/S4", "vector W8/S8"),
    "shift": ("dense", "scalar W8/S4", "vector W8/S8"),
    "length": ("dense", "scalar W8/S4", "vector W8/S8"),
    "none": ("dense", "scalar W8/S4", "vector W8/S8", "DeepSeek-V4, ties"),
}
"""On which architectures each fault is planted, seed by seed in turn; `none` on every one of them."""


LENGTHS = {"length": (265, 256), "none": (265, 256)}
"""Longest prompt and lengths swept where a single length of 128 is to be found, or none."""


def named(fault: str, row: Outcome, seed: int) -> bool:
    """Whether a row at fault says by what the planted fault fails."""
    pattern = row.pattern
    folded = pattern and (pattern.coordinate, pattern.stride, pattern.residues)
    if fault == "tail":
        return row.feature == "parts" and folded == ("cut", 4, (1, 2, 3))
    if fault == "overlap":  # it needs a window that was closed before the cut and one that closes behind it
        return row.feature == "parts" and row.smallest is not None and (row.smallest.cut or 0) >= 4
    if fault == "hits":
        return row.feature == "prefix" and folded == ("cut", 16, tuple(range(1, 16)))
    if fault == "shift":
        return row.feature == "restore" and row.failed == row.cases
    return row.feature == "prefill" and folded == ("length", 128, (residue(seed),))


def residue(seed: int) -> int:
    """The length modulo 128 at which an engine goes wrong."""
    return (37 + 53 * seed) % 128


def judge(fault: str, kind: Kind, seed: int) -> Verdict:
    """Plant a fault, or none, and check."""
    torch.manual_seed(seed)
    engine = FAULTS.get(fault, LocalEngine)(kind.build(), name=fault)
    if isinstance(engine, WrongAtLength):
        engine.residue = residue(seed)
    longest, sweep = (40, 16) if kind.small else LENGTHS.get(fault, (96, 32))
    return check(
        engine,
        strides=kind.strides,
        seed=seed,
        features=[name for name in INVARIANCES if name not in kind.without],
        cases=6 if kind.small else 10,
        sweep=sweep,
        longest=longest,
    )


def main() -> None:
    """Print what each check said, and last one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--faults", default=",".join(WHERE))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    found, accused, planted, started = 0, 0, 0, time.perf_counter()
    for fault in arguments.faults.split(","):
        for seed in range(arguments.seeds):
            names = WHERE[fault] if fault == "none" else (WHERE[fault][seed % len(WHERE[fault])],)
            for name in names:
                verdict = judge(fault, KINDS[name], seed)
                right = [row for row in verdict.faults if fault != "none" and named(fault, row, seed)]
                wrong = {row.feature for row in verdict.faults} - {row.feature for row in right}
                planted += fault != "none"
                found += bool(right)
                accused += bool(wrong)
                print(
                    f"{time.perf_counter() - started:6.0f} s  {fault:8} seed {seed:2}  {name:18} "
                    f"{'found' if right else '-':6} {'also accused: ' + ', '.join(sorted(wrong)) if wrong else ''}"
                    f"{'' if right or fault == 'none' else verdict.sentence}",
                    flush=True,
                )
    facts = {"faults": planted, "found": found, "false_accusations": accused, "seeds": arguments.seeds}
    print(json.dumps(facts))


if __name__ == "__main__":
    main()
