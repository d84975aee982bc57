"""Everything that decides a training run, as one record."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from ..catalog import COMPRESSORS
from ..errors import UsageError
from ..models import Compression
from ..records import Name, Record
from ..settings import Settings, setting
from .data import RetrievalTask

if TYPE_CHECKING:
    from ..compressors import AbstractCompressor
    from ..models import CompressedQwen3Config

SHAPE = {
    "layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_dim": "head_dim",
    "feed_forward": "intermediate_size",
}
"""What `Training` calls the sizes of a model, and what its configuration calls them."""


MOST_STEPS = 10**9
MOST_PAIRS = 2**20


class Text(Settings):
    """Text in the training mixture; next-token prediction on windows of a corpus.

    Attributes:
        corpus: digest of the corpus, so that a run is never resumed on other text.
        vocabulary: ids of the text lie below this number.
    """

    corpus: str
    vocabulary: int = Field(ge=1)
    rows: int = setting(
        8,
        "Windows of text per step, over all processes.",
        panel="Text",
        option="text-rows",
        ge=1,
        le=MOST_PAIRS,
    )
    tokens: int = setting(
        256, "Tokens of a window of text.", panel="Text", option="text-tokens", ge=2, le=2**31
    )
    weight: float = setting(
        1.0,
        "Weight of the text's mean loss in the sum; that of recall is 1.",
        panel="Text",
        option="text-weight",
        gt=0,
    )


class Start(Record):
    """A plain Qwen3 checkpoint whose weights a run starts from.

    Attributes:
        weights: digest of the weights, so that a run is never resumed from others.
        config: what its config.json says of the model.
    """

    weights: str
    config: dict[str, Any]

    def shape(self) -> dict[str, int]:
        """The shape of the model, in the words of `Training`.

        Raises:
            UsageError: if the config is none of a Qwen3.
        """
        from ..models import CompressedQwen3Config  # needs torch

        try:
            config = CompressedQwen3Config(**self.config)
        except UsageError:
            raise
        except Exception as error:  # transformers has no one class for what is wrong with a config
            problem = " ".join(str(error).split())[:300]
            raise UsageError(f"the config.json to start from is no Qwen3's: {problem}") from None
        return {name: getattr(config, theirs) for name, theirs in SHAPE.items()}


class Training(Settings):
    """Everything that decides a training run; the same settings give the same weights on one machine.

    Attributes:
        compression: how the model compresses its KV cache; None trains the full-attention baseline.
        task: the sequences of records; None trains on text alone.
        text: text beside the records; None trains on records alone.
        start: weights to start from; None starts from random ones.
    """

    compression: Compression | None = None
    task: RetrievalTask | None = RetrievalTask()
    text: Text | None = None
    start: Start | None = None
    layers: int = setting(2, "Layers.", panel="Model", ge=1, le=10_000)
    hidden_size: int = setting(64, "Model width.", panel="Model", ge=2, le=1_000_000)
    heads: int = setting(4, "Query heads per layer.", panel="Model", ge=1, le=1_000_000)
    kv_heads: int = setting(2, "KV heads per layer.", panel="Model", ge=1, le=1_000_000)
    head_dim: int = setting(32, "Channels per head.", panel="Model", ge=2, le=1_000_000)
    feed_forward: int = setting(128, "Width of the feed-forward part.", panel="Model", ge=1, le=1_000_000)
    tie_embeddings: bool = setting(False, "The embedding is the output matrix as well.", panel="Model")
    rope_theta: float = setting(
        10000.0, "Base of the rotary embedding's wavelengths.", panel="Model", gt=1, le=1e30
    )
    steps: int = setting(4000, "Optimizer steps.", panel="Optimizer", short="-n", ge=1, le=MOST_STEPS)
    rows: int = setting(
        48,
        "Sequences of records per step, over all processes, while the contexts are short.",
        panel="Records",
        ge=1,
        le=MOST_PAIRS,
    )
    queries: int = setting(
        768,
        "The most recalled values per step: beyond it there are fewer rows, so that long contexts cost no more.",
        panel="Records",
        ge=1,
        le=2**31,
    )
    first_pairs: int = setting(
        4, "Records per context at which the curriculum begins.", panel="Records", ge=1, le=MOST_PAIRS
    )
    max_pairs: int = setting(
        16, "Records per context up to which the curriculum doubles.", panel="Records", ge=1, le=MOST_PAIRS
    )
    promote: float = setting(
        2.0, "Running loss, in nats, below which the number of records doubles.", panel="Records", gt=0
    )
    optimizer: Literal["muon", "adamw"] = setting(
        "muon", "For the layers' weight matrices; AdamW moves the rest.", panel="Optimizer"
    )
    lr_matrices: float = setting(0.01, "Step size of the layers' weight matrices.", panel="Optimizer", gt=0)
    lr_gates: float = setting(
        0.004, "Step size of the compressors' gates and slot biases.", panel="Optimizer", gt=0
    )
    lr_rest: float = setting(0.004, "Step size of embeddings, head and norms.", panel="Optimizer", gt=0)
    weight_decay: float = setting(
        0.0, "Decoupled decay of the layers' weight matrices.", panel="Optimizer", ge=0
    )
    clip: float = setting(1.0, "The gradient's norm is cut to this.", panel="Optimizer", gt=0)
    embedding_std: float = setting(1.0, "Standard deviation of random token embeddings.", panel="Model", gt=0)
    matrix_init: Literal["normal", "fan_in"] = setting(
        "normal",
        "How the layers' matrices and gates start: normal draws them with a standard deviation of 0.02, as Qwen3 does; "
        "fan_in evenly within ±1/√inputs, as torch.nn.Linear does.",
        panel="Model",
    )
    warmup: int = setting(20, "Steps of linear warm-up.", panel="Schedule", ge=0, le=MOST_STEPS)
    decay: float = setting(
        0.2, "The last share of the steps, in which step sizes fall to 0.", panel="Schedule", ge=0, le=1
    )
    schedule: Literal["linear", "cosine"] = setting(
        "linear", "How they fall: linearly, or as half a cosine.", panel="Schedule"
    )
    accumulate: int = setting(
        1, "Read each step in so many parts, to save memory.", panel="Optimizer", ge=1, le=MOST_PAIRS
    )
    precision: Literal["fp32", "bf16"] = setting(
        "fp32", "bf16 computes in bfloat16 where that is safe; weights stay float32.", panel="Optimizer"
    )
    balance: float = setting(0.0, "Weight of the penalty on uneven gates.", panel="Gates", ge=0)
    robust: float = setting(
        0.0, "Weigh records by the running loss of their phase to this power.", panel="Gates", ge=0
    )
    robust_after: int = setting(
        0,
        "Steps before --robust begins, so that heads first come to prefer different slots.",
        panel="Gates",
        ge=0,
        le=MOST_STEPS,
    )
    random_shift: bool = setting(
        False,
        "Read every part of every step on a grid moved by a shift of its own, 0 to S - 1.",
        panel="Gates",
    )
    raw_steps: int = setting(
        0,
        "Compress nothing in so many first steps, in which layers learn what to look for.",
        panel="Schedule",
        ge=0,
        le=MOST_STEPS,
    )
    shared_start: bool = setting(
        False, "Start from the weights that full attention has with the same seed.", panel="Model"
    )
    seed: int = setting(0, "Seed of the weights and of every batch.", short="-s", ge=0, lt=2**63)

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.heads % self.kv_heads:
            raise ValueError(f"{self.heads} query heads cannot share {self.kv_heads} KV heads evenly")
        if self.head_dim % 2:
            raise ValueError(f"head_dim {self.head_dim} is odd; rotary embedding turns pairs of channels")
        if self.task is None and self.text is None:
            raise ValueError("there is nothing to train on; give a task, or text")
        if self.task is not None and self.max_pairs > (most := self.task.asked.pairs):
            raise ValueError(
                f"max_pairs is {self.max_pairs}, and the records' vocabulary allows {most} pairs"
            )
        if self.robust and (self.task is None or self.compression is None):
            raise ValueError("robust weighs records by their phase; it needs records and a compression")
        if self.robust_after and not self.robust:
            raise ValueError("robust_after puts off robust, which is 0; give both")
        if self.robust_after >= self.steps:
            raise ValueError(
                f"robust_after is {self.robust_after} of {self.steps} steps, and nothing would ever be weighed"
            )
        if self.compression is not None and self.raw_steps >= self.steps:
            raise ValueError(
                f"raw_steps is {self.raw_steps} of {self.steps} steps, and nothing would ever be compressed"
            )
        self._check_windows()
        self._check_gates()
        self._check_start()
        return self

    def _check_windows(self) -> None:
        """Refuse windows that no sequence can fill."""
        records = 0 if self.task is None else self.task.most_tokens(self.max_pairs)
        longest = max(records, 0 if self.text is None else self.text.tokens)
        if self.compression is not None and max(self.compression.width, self.compression.stride) > longest:
            raise ValueError(
                f"windows of {self.compression.width} tokens every {self.compression.stride} are too wide or "
                f"too far apart for sequences of at most {longest}"
            )

    def _check_gates(self) -> None:
        """Refuse to even out or to move what has no gate or no grid that can be."""
        if not (self.balance or self.random_shift):
            return
        if self.compression is None:
            raise ValueError("balance and random_shift act on the grid of a compression, and there is none")
        from ..compressors import AbstractWindowPool  # needs torch

        name = self.compression.compressor
        kind: type[AbstractCompressor] = COMPRESSORS.load(name)
        if not issubclass(kind, AbstractWindowPool) or "period" in kind.breaks:
            raise ValueError(f"balance and random_shift act on pools over fixed windows, and {name} is none")
        if self.balance and not kind.gate_channels(self.head_dim):
            raise ValueError(f"balance evens out gates, and {name} has none")
        if self.random_shift and self.compression.width < self.compression.stride:
            raise ValueError("random_shift needs windows without gaps: give a width of at least the stride")

    def _check_start(self) -> None:
        """Refuse a shape or tokens that the checkpoint doesn't have, and what would throw weights away."""
        if self.start is None:
            return
        for name, value in self.start.shape().items():
            if getattr(self, name) != value:
                raise ValueError(
                    f"{name} is {getattr(self, name)}, and the checkpoint to start from has {value}"
                )
        size, own = self._ids(), self.vocabulary_size
        if size > own:
            raise ValueError(
                f"text and records use ids up to {size - 1}; the checkpoint to start from has {own}"
            )
        if self.compression is not None and self.compression.binding:
            raise ValueError(
                "binding makes one tensor of key and value, and the checkpoint to start from has learned two; "
                "choose a compressor without it"
            )

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
        """How many ids the model knows: the checkpoint's, or one more than the largest of text and records."""
        if self.start is not None:
            from ..models import CompressedQwen3Config  # needs torch

            return CompressedQwen3Config(**self.start.config).vocab_size
        return self._ids()

    def _ids(self) -> int:
        records = () if self.task is None else self.task.vocabulary.every
        return max(0 if self.text is None else self.text.vocabulary, max(records, default=-1) + 1)

    def architecture(self) -> CompressedQwen3Config:
        """The configuration of the model that these settings train."""
        from ..models import CompressedQwen3Config  # needs torch

        compression = None if self.compression is None else self.compression.model_dump(mode="json")
        if self.start is not None:
            return CompressedQwen3Config(**self.start.config, compression=compression)
        return CompressedQwen3Config(
            vocab_size=self.vocabulary_size,
            hidden_size=self.hidden_size,
            intermediate_size=self.feed_forward,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            num_key_value_heads=self.kv_heads,
            head_dim=self.head_dim,
            tie_word_embeddings=self.tie_embeddings,
            rope_parameters={"rope_type": "default", "rope_theta": self.rope_theta},
            compression=compression,
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
        phase_losses: running mean loss of the records at each phase, which `robust` weighs by.
    """

    step: int = Field(default=0, ge=0, le=MOST_STEPS)
    pairs: int = Field(ge=1, le=MOST_PAIRS)
    since: int = Field(default=0, ge=0, le=MOST_STEPS)
    tokens: int = Field(default=0, ge=0, lt=2**63)
    seconds: float = Field(default=0.0, ge=0)
    loss: float | None = None
    accuracy: float | None = Field(default=None, ge=0)  # a mean of parts may round above 1
    text_loss: float | None = None
    imbalance: float | None = None
    phase_losses: tuple[float, ...] = ()


class State(Progress):
    """What state.json holds.

    Attributes:
        digest: SHA-256 of the tensors beside it and of the progress.
    """

    digest: Name
