"""A byte-level tokenizer with a chat template, small enough to be made in a test."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors, trainers

from phasescope.text.tokens import Tokenizer

TEXT = [
    "the text below is the same as it was before and there is no need to look at this line",
    "which is here to fill a bit of space and says no more than that so please go on with what comes after it",
    "filler note values of a block are stored in FP8, the scale of a block is kept in FP32. answer yes or no",
    "= = = = = = # filler filler filler filler # - - - - - -",
] * 4
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
STRIPPING = CHATML.replace("message['content']", "message['content'] | trim")


def save(folder: Path, *, template: str | None = CHATML, start: bool = False, size: int = 420) -> Path:
    """Write tokenizer.json and tokenizer_config.json; with `start` every text begins with a BOS."""
    fast = FastTokenizer(models.BPE())
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    special = ["<|im_start|>", "<|im_end|>", "<s>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    fast.train_from_iterator(TEXT, trainer)
    if start:
        fast.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 2)])
    folder.mkdir(parents=True, exist_ok=True)
    fast.save(str(folder / "tokenizer.json"))
    config = {"chat_template": template, "eos_token": "<|im_end|>", "bos_token": "<s>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def load(folder: Path, **settings: object) -> Tokenizer:
    """Write a tokenizer and read it."""
    return Tokenizer.load(save(folder, **settings))  # type: ignore[arg-type]  # the settings of `save`
