"""Causal language models of `transformers`, ours and foreign ones, asked many questions per prefill.

Shape suffixes: B rows, T tokens, A answer tokens, C candidates, V vocabulary.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoModelForCausalLM

import phasescope.models  # registers our classes with the auto classes

from ..errors import UsageError
from ..grid import WindowGrid
from ..records import Reply, Trial, read_json
from ..synthetic import RetrievalVocabulary
from ..tokens import Tokenizer

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Context:
    """Trials that share a prefix and differ in suffixes of one length; their answers are equally long."""

    trials: list[int]
    prefix_T: Ids
    suffix_BT: Ids
    answer_tokens: int


class TransformersBackend:
    """Answers trials with a causal language model, all questions about one context from one prefill.

    The trials of one cluster and layout share their longest common prefix. It is read once, its cache is
    repeated once per question, and the rest of the prompts is read in one forward, which computes logits
    at the last position only. Forwards hold prompts of equal length and never a pad token. How trials are
    cut into forwards depends on nothing but the trials and `max_tokens`, so that replies are reproducible.

    Args:
        model: any causal language model of `transformers` with a cache that can be reordered.
        vocabulary: the ids from which synthetic prompts are built, or the checkpoint's folder to find them
            in when they are first asked for.
        name: what a report calls it.
        grids: the window grids of its KV cache; by default those of our own models, unknown for others.
        max_tokens: the most tokens of context that one forward may hold, over all its rows; it bounds
            the memory. By default what fills 1 GiB of raw KV cache, and at most 65,536. A single prompt
            may be longer.
        share_prefix: False reads every prompt whole, as a reference for tests and benchmarks.

    Attributes:
        tokens: prompt tokens read so far.
        folder: where it was loaded from; None for a model that was given.
    """

    def __init__(
        self,
        model: Any,
        vocabulary: RetrievalVocabulary | Path,
        *,
        name: str,
        grids: Sequence[WindowGrid] | None = None,
        max_tokens: int | None = None,
        share_prefix: bool = True,
    ) -> None:
        if max_tokens is not None and max_tokens < 1:
            raise UsageError(f"max_tokens is {max_tokens}; give at least 1")
        self.model = model.eval()
        self.name = name
        self.max_tokens = _tokens_that_fit(model) if max_tokens is None else max_tokens
        self.share_prefix = share_prefix
        self.tokens = 0
        self.folder: Path | None = None
        self._vocabulary = vocabulary
        self._grids = _grids_of(model.config) if grids is None else list(grids)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        vocabulary: RetrievalVocabulary | None = None,
        device: str = "cpu",
        dtype: str = "auto",
        trust_remote_code: bool = False,
        **settings: Any,
    ) -> Self:
        """Load a checkpoint folder: safetensors only, from this machine only, no code of its own.

        Args:
            path: a folder that `save_pretrained` wrote.
            name: what a report calls it; by default the folder's name.
            vocabulary: by default read from the folder's card, else built from its tokenizer.
            device: where torch puts the model.
            dtype: a torch dtype by name; `auto` keeps the checkpoint's own.
            trust_remote_code: run Python code that the folder brings along.
            **settings: further arguments of the class.

        Raises:
            UsageError: if the folder holds no checkpoint that can be loaded whole.
        """
        try:
            torch.empty(0, device=device)
        except (RuntimeError, AssertionError) as error:
            raise UsageError(f"cannot use device {device!r}: {_first_line(error)}") from None
        folder = Path(path)
        if not any(folder.glob("*.safetensors")):
            raise UsageError(f"{path} holds no *.safetensors; give a folder that save_pretrained wrote")
        try:
            loaded: Any = AutoModelForCausalLM.from_pretrained(
                folder,
                dtype=dtype,
                local_files_only=True,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
        except (OSError, ValueError, KeyError) as error:
            raise UsageError(f"cannot load {path}: {_first_line(error)}") from error
        model, info = loaded
        if info["missing_keys"]:
            missing = ", ".join(sorted(info["missing_keys"])[:3])
            raise UsageError(
                f"the weights in {path} lack {missing}; save the whole model with save_pretrained"
            )
        ids = folder if vocabulary is None else vocabulary
        backend = cls(model.to(device), ids, name=name or folder.name, **settings)
        backend.folder = folder.resolve()
        return backend

    def vocabulary(self) -> RetrievalVocabulary:
        """The ids from which a synthetic protocol builds prompts."""
        if isinstance(self._vocabulary, Path):
            self._vocabulary = folder_vocabulary(self._vocabulary)
        return self._vocabulary

    def describe(self) -> dict[str, Any]:
        """What answers, down to a hash of its weights, and what the last digits depend on."""
        grids = self._grids
        return {
            "backend": "transformers",
            "model": self.name,
            "path": None if self.folder is None else str(self.folder),
            "class": type(self.model).__name__,
            "digest": self._digest,
            "grids": None if grids is None else [asdict(grid) for grid in grids],
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.model.device.type,
            "threads": torch.get_num_threads(),
            "max_tokens": self.max_tokens,
            "share_prefix": self.share_prefix,
        }

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """One reply per trial, in their order.

        Raises:
            UsageError: if the model gives an answer no finite log-probability.
        """
        replies: dict[int, Reply] = {}
        with torch.inference_mode():
            for contexts in self._waves(_contexts(trials, share=self.share_prefix)):
                replies.update(self._ask_wave(trials, contexts))
        return [replies[index] for index in range(len(trials))]

    def _waves(self, contexts: Iterator[_Context]) -> Iterator[list[_Context]]:
        """Contexts of equal shape that fit one forward together with all their questions."""
        waves: dict[tuple[int, ...], list[_Context]] = {}
        for context in contexts:
            shape = (len(context.prefix_T), *context.suffix_BT.shape, context.answer_tokens)
            wave = waves.setdefault(shape, [])
            tokens = len(context.trials) * (shape[0] + shape[2])
            if wave and (len(wave) + 1) * tokens > self.max_tokens:
                yield wave
                wave = waves[shape] = []
            wave.append(context)
        yield from waves.values()

    def _ask_wave(self, trials: Sequence[Trial], contexts: list[_Context]) -> Iterator[tuple[int, Reply]]:
        """Read the prefixes together, then ask every question of every context."""
        cache = self._read(np.stack([context.prefix_T for context in contexts]))
        suffix_BT = np.concatenate([context.suffix_BT for context in contexts])
        index_B = np.concatenate([context.trials for context in contexts])
        context_B = np.repeat(np.arange(len(contexts)), [len(context.trials) for context in contexts])
        rows = max(1, self.max_tokens // len(trials[index_B[0]].prompt_ids))
        for start in range(0, len(index_B), rows):
            part = slice(start, start + rows)
            # The last part may use the cache up; the others take a copy, because expanding changes it.
            own = cache if start + rows >= len(index_B) else copy.deepcopy(cache)
            if own is not None:
                own.reorder_cache(self._tensor(context_B[part]))
            asked = [trials[index] for index in index_B[part]]
            yield from zip(index_B[part].tolist(), self._reply(asked, suffix_BT[part], own), strict=True)

    def _read(self, prefix_BT: Ids) -> Any:
        """The cache after the prefixes; None where there is no prefix."""
        if not prefix_BT.size:
            return None
        self.tokens += prefix_BT.size
        return self._forward(self._tensor(prefix_BT), None, keep=1, use_cache=True).cache

    def _reply(self, trials: list[Trial], suffix_BT: Ids, cache: Any) -> Iterator[Reply]:
        """Read the rest of the prompts and continue greedily for as long as the answers are."""
        self.tokens += suffix_BT.size
        answer_BA = self._tensor([trial.answer_ids for trial in trials])
        longer = answer_BA.shape[1] > 1
        use_cache = longer or cache is not None
        out = self._forward(self._tensor(suffix_BT), cache, keep=1, use_cache=use_cache)
        logprob_BV = _logprobs(out.logits[:, -1])
        greedy_BA = logprob_BV.argmax(-1, keepdim=True)
        logprob_B = logprob_BV.gather(1, answer_BA[:, :1])[:, 0]
        if longer:
            logprob_B = logprob_B + self._forced(answer_BA, copy.deepcopy(out.cache))
            greedy_BA = self._continue(greedy_BA, answer_BA.shape[1], out.cache)
        if not bool(logprob_B.isfinite().all()):
            bad = logprob_B[~logprob_B.isfinite()][0].item()
            raise UsageError(
                f"{self.name} gives an answer the log-probability {bad}; check its weights, or use float32"
            )
        yield from map(
            _make_reply, trials, greedy_BA.tolist(), logprob_B.tolist(), self._candidates(trials, logprob_BV)
        )

    def _forced(self, answer_BA: Tensor, cache: Any) -> Tensor:
        """Log-probability of the answer's later tokens, each given the right ones before it, [B]."""
        later_BA = answer_BA[:, 1:]
        out = self._forward(answer_BA[:, :-1], cache, keep=later_BA.shape[1], use_cache=True)
        return _logprobs(out.logits).gather(2, later_BA[..., None]).sum(dim=(1, 2))

    def _continue(self, greedy_BA: Tensor, length: int, cache: Any) -> Tensor:
        """The greedy continuation, from its first token to `length` tokens, [B, A]."""
        while greedy_BA.shape[1] < length:
            out = self._forward(greedy_BA[:, -1:], cache, keep=1, use_cache=True)
            greedy_BA = torch.cat([greedy_BA, out.logits[:, -1].argmax(-1, keepdim=True)], dim=1)
        return greedy_BA

    def _forward(self, ids_BT: Tensor, cache: Any, *, keep: int, use_cache: bool) -> Any:
        # `cache` is what transformers 5.24 calls `past_key_values`; nothing else here depends on the name.
        return self.model(input_ids=ids_BT, cache=cache, use_cache=use_cache, logits_to_keep=keep)

    def _candidates(self, trials: list[Trial], logprob_BV: Tensor) -> list[list[float]]:
        """Log-probability of each candidate; trials may have different numbers of them."""
        sizes = [len(trial.candidate_ids) for trial in trials]
        if len(set(sizes)) > 1:
            return [
                row[self._tensor(trial.candidate_ids)].tolist()
                for trial, row in zip(trials, logprob_BV, strict=True)
            ]
        return logprob_BV.gather(1, self._tensor([trial.candidate_ids for trial in trials])).tolist()

    def _tensor(self, ids: Any) -> Tensor:
        return torch.as_tensor(ids, dtype=torch.long, device=self.model.device)

    @cached_property
    def _digest(self) -> str:
        """SHA-256 over the configuration and every weight."""
        config = {
            key: value
            for key, value in self.model.config.to_dict().items()
            if not key.startswith("_") and key != "transformers_version"
        }
        digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()


def folder_vocabulary(folder: Path) -> RetrievalVocabulary:
    """The vocabulary that a checkpoint's card states, else one of common words from its tokenizer.json.

    Raises:
        UsageError: if the folder has neither, or the tokenizer has too few whole words.
    """
    if (folder / "card.json").exists():
        try:
            return RetrievalVocabulary.model_validate(read_json(folder / "card.json")["vocabulary"])
        except (KeyError, TypeError, ValidationError) as error:
            raise UsageError(
                f"{folder}/card.json has no vocabulary of fillers, keys and values: {_first_line(error)}"
            ) from error
    if not (folder / "tokenizer.json").exists():
        raise UsageError(
            f"{folder} has neither card.json nor a tokenizer.json; pass a vocabulary or add its tokenizer"
        )
    return Tokenizer.load(folder).vocabulary()


def _contexts(trials: Sequence[Trial], *, share: bool) -> Iterator[_Context]:
    """Group trials of one cluster and layout, of equal lengths, by their longest common prefix."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    for index, trial in enumerate(trials):
        key = (trial.cluster, trial.layout, len(trial.prompt_ids), len(trial.answer_ids))
        groups.setdefault(key, []).append(index)
    for indices in groups.values():
        ids_BT = np.array([trials[index].prompt_ids for index in indices], dtype=np.int64)
        same_T = (ids_BT == ids_BT[0]).all(axis=0)
        same_T[-1] = False  # the last token gives the logits, so it is always read in the second forward
        shared = int(same_T.argmin()) if share else 0
        answer_tokens = len(trials[indices[0]].answer_ids)
        yield _Context(indices, ids_BT[0, :shared], ids_BT[:, shared:], answer_tokens)


def _make_reply(trial: Trial, ids: list[int], logprob: float, candidates: list[float]) -> Reply:
    return Reply(
        tuple(ids), len(trial.prompt_ids), logprob, tuple(candidates) if trial.candidate_ids else None
    )


def _logprobs(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=-1, dtype=torch.float32)


def _grids_of(config: Any) -> list[WindowGrid] | None:
    """The distinct grids of one of our models, none for its full-attention twin; unknown for others."""
    if config.model_type != phasescope.models.CompressedQwen3Config.model_type:
        return None
    if config.plan is None:
        return []
    by_layer = config.plan.grids(config.num_hidden_layers, config.num_key_value_heads)
    return list(dict.fromkeys(grid for grids in by_layer for grid in grids))


def _tokens_that_fit(model: Any) -> int:
    """How many tokens a raw KV cache of 1 GiB holds, at most 65,536: beyond that a forward gets no faster."""
    config = model.config
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    channels = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    token_bytes = 2 * config.num_hidden_layers * heads * channels * model.dtype.itemsize
    return int(min(2**16, max(1, 2**30 // token_bytes)))


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
