"""Everything that decides a training run, as one record."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from ..models import CompressedQwen3Config, Compression
from ..records import Record
from .data import RetrievalTask


class Text(Record):
    """Text in the training mixture; next-token prediction on windows of a corpus.

    Attributes:
        corpus: digest of the corpus, so that a run is never resumed on other text.
        vocabulary: ids of the text lie below this number.
        rows: windows per step, over all processes.
        tokens: tokens of a window.
        weight: of the text's mean loss in the sum; recall has weight 1.
    """

    corpus: str
    vocabulary: int = Field(ge=1)
    rows: int = Field(default=8, ge=1)
    tokens: int = Field(default=256, ge=2)
    weight: float = Field(default=1.0, gt=0)


class Training(Record):
    """Everything that decides a training run; the same settings give the same weights on one machine.

    Attributes:
        compression: how the model folds its KV cache; None trains the full-attention baseline.
        task: the sequences of records; None trains on text alone.
        text: text beside the records; None trains on records alone.
        layers, width, heads, kv_heads, head_dim, feed_forward: shape of the Qwen3 model.
        tie_embeddings: the embedding is the output matrix as well.
        rope_theta: base of the rotary embedding's wavelengths.
        steps: optimizer steps.
        rows: sequences of records per step, over all processes, while the contexts are short.
        queries: the most recalled values per step; where rows × pairs exceeds it there are fewer rows, so that
            long contexts cost no more than short ones.
        first_pairs, max_pairs: the curriculum starts at the first and doubles up to the last.
        promote: running loss, in nats, below which the number of pairs doubles.
        optimizer: `muon` for the weight matrices of the layers and AdamW for the rest, or `adamw` for all.
        lr_matrices: step size for the weight matrices of the layers.
        embedding_std: standard deviation of the token embeddings at the start.
        lr_gates: AdamW's step size for the compressors' gates and slot biases.
        lr_rest: AdamW's step size for all other parameters: embeddings, head and norms.
        weight_decay: decoupled, of the weight matrices of the layers.
        clip: the gradient's norm is cut to this.
        warmup: steps of linear warm-up.
        decay: the last fraction of steps, in which the step sizes fall to zero.
        schedule: how they fall: linearly, or as half a cosine.
        accumulate: each step's sequences are read in so many parts, to save memory.
        precision: `bf16` computes in bfloat16 where that is safe and keeps weights in float32.
        balance: weight of the penalty on uneven gates (`training.gates.imbalance`).
        random_shift: read every part of every step on a grid moved by a shift of its own, 0 to S − 1.
        seed: seeds the weights and every batch.
    """

    compression: Compression | None = None
    task: RetrievalTask | None = RetrievalTask()
    text: Text | None = None
    layers: int = Field(default=2, ge=1)
    width: int = Field(default=64, ge=2)
    heads: int = Field(default=4, ge=1)
    kv_heads: int = Field(default=2, ge=1)
    head_dim: int = Field(default=32, ge=2)
    feed_forward: int = Field(default=128, ge=1)
    tie_embeddings: bool = False
    rope_theta: float = Field(default=10000.0, gt=1)
    steps: int = Field(default=4000, ge=1)
    rows: int = Field(default=48, ge=1)
    queries: int = Field(default=768, ge=1)
    first_pairs: int = Field(default=4, ge=1)
    max_pairs: int = Field(default=16, ge=1)
    promote: float = Field(default=2.0, gt=0)
    optimizer: Literal["muon", "adamw"] = "muon"
    lr_matrices: float = Field(default=0.01, gt=0)
    lr_gates: float = Field(default=0.004, gt=0)
    lr_rest: float = Field(default=0.004, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    clip: float = Field(default=1.0, gt=0)
    embedding_std: float = Field(default=1.0, gt=0)
    warmup: int = Field(default=20, ge=0)
    decay: float = Field(default=0.2, ge=0, le=1)
    schedule: Literal["linear", "cosine"] = "linear"
    accumulate: int = Field(default=1, ge=1)
    precision: Literal["fp32", "bf16"] = "fp32"
    balance: float = Field(default=0.0, ge=0)
    random_shift: bool = False
    seed: int = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary embedding turns pairs of channels")
        if self.task is None and self.text is None:
            raise ValueError("there is nothing to train on; give a task, or text")
        if (self.balance or self.random_shift) and self.compression is None:
            raise ValueError("balance and random_shift act on the grid of a compression, and there is none")
        return self

    def rows_at(self, pairs: int) -> int:
        """Sequences of records per step at a stage of the curriculum."""
        return max(1, min(self.rows, self.queries // pairs))

    def stages(self) -> list[int]:
        """The numbers of pairs that the curriculum goes through."""
        pairs = [min(self.first_pairs, self.max_pairs)]
        while pairs[-1] < self.max_pairs:
            pairs.append(min(2 * pairs[-1], self.max_pairs))
        return pairs

    @property
    def vocabulary_size(self) -> int:
        """One more than the largest id of text and records."""
        records = () if self.task is None else self.task.vocabulary.every
        return max(0 if self.text is None else self.text.vocabulary, max(records, default=-1) + 1)

    def architecture(self) -> CompressedQwen3Config:
        """The configuration of the model that these settings train."""
        return CompressedQwen3Config(
            vocab_size=self.vocabulary_size,
            hidden_size=self.width,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            tie_word_embeddings=self.tie_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            compression=None if self.compression is None else self.compression.model_dump(mode="json"),
        )


class Progress(Record):
    """Where a run stands; saved with every checkpoint.

    Attributes:
        step: optimizer steps done.
        pairs: records of a context at the present stage of the curriculum.
        since: steps at this stage.
        tokens: tokens read.
        seconds: spent in steps.
        loss, accuracy: running means over the recalled values of fresh sequences.
        text_loss: running mean over fresh text, in nats per token.
        imbalance: running mean of what `balance` weighs.
    """

    step: int = 0
    pairs: int
    since: int = 0
    tokens: int = 0
    seconds: float = 0.0
    loss: float | None = None
    accuracy: float | None = None
    text_loss: float | None = None
    imbalance: float | None = None
