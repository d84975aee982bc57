"""What each process of a test under `torchrun` runs: the trainings of a list of cases, one after the other."""

import faulthandler
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from phasescope.text.corpus import Corpus
from phasescope.training import Training, train, trainer
from phasescope.training.mixture import held_out_loss


class StopError(Exception):
    """A run ends here, as if it had been killed."""


def run(case: dict[str, Any]) -> None:
    """Train one case, up to step `stop` where it has one."""
    settings = Training.model_validate(case["settings"])
    corpus = None if settings.text is None else Corpus.open(Path(case["corpus"]))
    step = trainer._Run.step

    def stopping(self, progress, optimizers):
        if progress.step == case.get("stop"):
            raise StopError
        held = [
            param.to_local() if isinstance(param, DTensor) else param for param in self.model.parameters()
        ]
        share = sum(x.numel() for x in held) / sum(param.numel() for param in self.model.parameters())
        told = {"pid": os.getpid(), "share": share}
        Path(f"{case['out']}.rank{os.environ.get('RANK', 0)}").write_text(json.dumps(told))
        time.sleep(case.get("slow", 0))
        return step(self, progress, optimizers)

    def watch(model, progress):
        return {"held_out": held_out_loss(model, corpus, 16, 8), "loss": progress.text_loss}

    trainer._Run.step = stopping
    try:
        train(
            settings,
            Path(case["out"]),
            corpus=corpus,
            every=case.get("every", 1),
            watch=watch,
            watch_every=case.get("watch_every", 0),
            parallel=case.get("parallel", "ddp"),
        )
    except StopError:
        pass
    finally:
        trainer._Run.step = step


if __name__ == "__main__":
    faulthandler.enable()
    torch.set_num_threads(1)
    for case in json.loads(Path(sys.argv[1]).read_text()):
        run(case)
