"""What a training step costs: full attention, W8/S8, and `transformers`' own Qwen3 on the same batch.

The batch is that of the small recipes at their last stage: 48 sequences of 16 records and 8 windows of 256 tokens of
text. Qwen3 is trained as its documentation does, with `labels`, and the same optimizers. Seconds are those of the
processor, of the quickest of all rounds, on one thread; products are counted by torch, and compared with the fastest
product of two matrices in the same rounds.

    python -m benchmarks.train_step [--vocabulary 1024] [--rounds 12]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Qwen3Config, Qwen3ForCausalLM

from phasescope.training import Text, Training
from phasescope.training.cost import any_text
from phasescope.training.mixture import Part, loss_of, parts_of
from phasescope.training.optim import optimizers_of
from phasescope.training.recipes import RECIPES
from phasescope.training.settings import Progress
from phasescope.training.trainer import new_model

SIDE = 1024
CPU = torch.device("cpu")
Loss = Callable[[Any, Part], torch.Tensor]


def ours(model: Any, part: Part) -> torch.Tensor:
    """Logits of scored tokens, a few rows at a time."""
    return loss_of(model, part, CPU)[0]


def plain(model: Any, part: Part) -> torch.Tensor:
    """The loss that the model computes by itself."""
    loss: torch.Tensor = model(input_ids=part.ids_BT, labels=part.labels_BT, use_cache=False).loss
    return loss


def qwen3(settings: Training) -> Any:
    """`transformers`' own model of the same sizes."""
    ours = settings.architecture().to_dict()
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
    more = ("num_key_value_heads", "head_dim", "tie_word_embeddings", "rope_parameters")
    return Qwen3ForCausalLM(Qwen3Config(**{name: ours[name] for name in (*names, *more)}))


class Trial:
    """One kind of model in training; its steps are timed in three parts."""

    def __init__(self, settings: Training, model: Any, loss: Loss) -> None:
        self.settings, self.loss = settings, loss
        self.optimizers = optimizers_of(model, settings)
        self.model = model.train()
        self.seconds: list[tuple[float, float, float]] = []
        self.step = 0

    def run(self) -> None:
        """One step: forward and backward of every part, then the optimizers."""
        forward = backward = 0.0
        progress = Progress(step=self.step, pairs=16)
        for part in parts_of(self.settings, progress, any_text(self.settings), 0, 1):
            begun = time.process_time()
            loss = self.loss(self.model, part)
            between = time.process_time()
            (part.weight * loss).backward()
            forward += between - begun
            backward += time.process_time() - between
        begun = time.process_time()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        self.seconds.append((forward, backward, time.process_time() - begun))
        self.step += 1

    def facts(self, flops: float, limit: float) -> dict[str, float]:
        """The quickest step, and what it reaches of the machine's fastest product."""
        best = min(self.seconds, key=sum)
        names = ("forward", "backward", "optimizer")
        split = {name: round(value, 4) for name, value in zip(names, best, strict=True)}
        reached = flops / sum(best)
        return {
            "seconds": round(sum(best), 4),
            **split,
            "gflop": round(flops / 1e9, 2),
            "gflop_per_second": round(reached / 1e9, 1),
            "share_of_limit": round(reached / limit, 3),
        }


def products_per_second() -> float:
    """FLOP/s of one large product of float32 matrices."""
    x = torch.randn(SIDE, SIDE)
    begun = time.process_time()
    x @ x
    return 2 * SIDE**3 / (time.process_time() - begun)


def counted(trial: Trial) -> float:
    """Products of the average step, over the steps that the rounds will time."""
    with FlopCounterMode(display=False) as counter:
        trial.run()
    trial.seconds.clear()
    return counter.get_total_flops()


def main() -> None:
    """Print a table, and one JSON object."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = RECIPES["small"](Text(corpus="random", vocabulary=given.vocabulary))
    trials = {
        "qwen3": Trial(rows["full"], qwen3(rows["full"]), plain),
        "full": Trial(rows["full"], new_model(rows["full"]), ours),
        "w8s8": Trial(rows["w8s8"], new_model(rows["w8s8"]), ours),
    }
    flops = {name: counted(trial) for name, trial in trials.items()}
    limits = [products_per_second() for _ in range(5)]
    for _ in range(given.rounds):
        limits.append(products_per_second())
        for trial in trials.values():
            trial.step = 1  # every round and every model reads the same batch
            trial.run()
    limit = max(limits)
    found = {name: trial.facts(flops[name], limit) for name, trial in trials.items()}
    for name, facts in found.items():
        print(f"{name:15}" + "".join(f"  {key} {value}" for key, value in facts.items()))
    best = found["w8s8"]["seconds"]
    print(
        json.dumps(
            {
                "steps": found,
                "gflop_per_second_limit": round(limit / 1e9, 1),
                "w8s8_over_qwen3": round(best / found["qwen3"]["seconds"], 3),
                "w8s8_over_full": round(best / found["full"]["seconds"], 3),
                "vocabulary": given.vocabulary,
            }
        )
    )


if __name__ == "__main__":
    main()
