"""Causal language models of `transformers`, ours and foreign ones, asked many questions per prefill.

Shape suffixes: B rows, T tokens, A answer tokens, C candidates, V vocabulary.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from ...checkpoints.grids import read_config
from ...errors import UsageError
from ...grid import WindowGrid
from ...records import Reply, Trial
from ...text.synthetic import RetrievalVocabulary
from ...text.tokens import Tokenizer
from ..prefixes import Context, Ids, contexts
from .cache import branch, expanded, reserve, same_rows
from .forward import forward
from .load import folder_vocabulary, load_model, tokens_that_fit
from .proof import PREFIXES, Proof, check_at_size, prove

PREFILL_CHUNK = 4096
LOGGER = logging.getLogger(__name__)


class TransformersBackend:
    """Answers trials with a causal language model, all questions about one context from one prefill.

    The trials of one cluster and layout share their longest common prefix. It is read once, in chunks that
    begin at multiples of `prefill_chunk` whatever the prompt is; its cache is repeated once per question, and
    the rest of the prompts is read in one forward, which computes logits at the last position only. Forwards
    hold prompts of equal length and never a pad token. How trials are cut into forwards depends on nothing
    but the trials and these settings, so that replies are reproducible.

    Caches hold at most two times `max_tokens` tokens at once, or two single prompts where these are longer;
    one, where the cache can be cropped and is asked one question at a time.

    Args:
        model: any causal language model of `transformers` with a cache that can be reordered.
        vocabulary: the ids from which synthetic prompts are built, or the checkpoint's folder to find them
            in when they are first asked for.
        name: what a report calls it.
        grids: the window grids of its KV cache; by default those that its config tells of, where a family knows it.
        max_tokens: the most tokens of context that one forward may hold, over all its rows; it bounds
            the memory. By default what fills 1 GiB of raw KV cache, and at most 65,536. A single prompt
            may be longer.
        prefill_chunk: the most tokens of each row that one forward reads.
        share_prefix: False reads every prompt whole, as a reference for tests and benchmarks.
        prove: False answers without a proof that this way of reading is sound, to measure an engine with its faults.
        tokenizer: a folder with a tokenizer.json, to turn continuations into text.

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
        prefill_chunk: int = PREFILL_CHUNK,
        share_prefix: bool = True,
        prove: bool = True,
        tokenizer: Path | None = None,
    ) -> None:
        for setting, value in (("max_tokens", max_tokens), ("prefill_chunk", prefill_chunk)):
            if value is not None and value < 1:
                raise UsageError(f"{setting} is {value}; give at least 1")
        self.model = model.eval()
        self.name = name
        self.max_tokens = tokens_that_fit(model) if max_tokens is None else max_tokens
        self.prefill_chunk = prefill_chunk
        self.share_prefix = share_prefix
        self.prove = prove
        self._proved_at_size = not share_prefix
        self.tokens = 0
        self.folder: Path | None = None
        self._vocabulary = vocabulary
        self._grids = _grids_of(model.config) if grids is None else list(grids)
        self._stops = _stops_of(model)
        self._tokenizer_folder = tokenizer

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        name: str | None = None,
        vocabulary: RetrievalVocabulary | None = None,
        device: str = "cpu",
        dtype: str = "auto",
        device_map: str | None = None,
        attention: str | None = None,
        threads: int | None = None,
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
            device_map: how layers are spread over this machine's GPUs: auto, balanced, ….
            attention: the attention implementation of `transformers`: sdpa, eager, flash_attention_2, ….
            threads: CPU threads that torch uses in this process from now on.
            trust_remote_code: run Python code that the folder brings along.
            **settings: further arguments of the class.

        Raises:
            UsageError: if the folder holds no checkpoint that can be loaded whole, as asked.
        """
        if threads is not None:
            torch.set_num_threads(threads)
        folder = Path(path)
        model = load_model(
            folder,
            device=device,
            dtype=dtype,
            device_map=device_map,
            attention=attention,
            trust_remote_code=trust_remote_code,
        )
        if (folder / "tokenizer.json").is_file():
            settings.setdefault("tokenizer", folder)
        ids = folder if vocabulary is None else vocabulary
        backend = cls(model, ids, name=name or folder.name, **settings)
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
        late = getattr(getattr(self.model.config, "plan", None), "visibility", None) == "next"
        return {
            "backend": "transformers",
            "model": self.name,
            "path": None if self.folder is None else str(self.folder),
            "class": type(self.model).__name__,
            "digest": self._digest,
            "grids": None if grids is None else [asdict(grid) for grid in grids],
            "dtype": str(self.model.dtype).removeprefix("torch."),
            "device": self.model.device.type,
            "attention": self.model.config._attn_implementation,
            "threads": torch.get_num_threads(),
            "max_tokens": self.max_tokens,
            "prefill_chunk": self.prefill_chunk,
            "share_prefix": self.share_prefix,
            # Only where it matters, so that runs of sound models, and of those of version 0.1, go on as they began.
            **({"visibility": "next"} if late else {}),
            **({"read_alone": self.proof.fault} if self.prove and self.proof.fault else {}),
        }

    def answer(self, trials: Sequence[Trial]) -> list[Reply]:
        """One reply per trial, in their order.

        Raises:
            UsageError: if the model gives an answer no finite log-probability, or memory runs out.
        """
        try:
            if self.prove and self.proof.fault:
                return self._fresh(trials)
            replies = self._shared(trials)
            self._check_at_size(trials, replies)
            return replies
        except torch.OutOfMemoryError:
            raise UsageError(
                f"{self.name} runs out of memory with max_tokens {self.max_tokens} and prefill_chunk "
                f"{self.prefill_chunk}; give smaller ones, in a new run folder"
            ) from None

    @cached_property
    def proof(self) -> Proof:
        """Whether many questions from one prefill are answered as fresh forwards answer them, shown on a probe.

        Where not, every prompt is read alone and without a cache from here on, with a warning.

        Raises:
            UsageError: if the model cannot be read at all.
        """
        tokens = self.tokens
        found = prove(self.model, self.name, self._shared, self._fresh)
        self.tokens = tokens
        if found.fault:
            LOGGER.warning(
                "%s: %s; each prompt is read alone and without a cache instead", self.name, found.fault
            )
        return found

    def _check_at_size(self, trials: Sequence[Trial], replies: Sequence[Reply]) -> None:
        """Once, where prompts are longer than the probe's: one of them is read again, alone."""
        if not trials or not self.prove or self._proved_at_size:
            return
        longest = max(range(len(trials)), key=lambda n: len(trials[n].prompt_ids))
        if len(trials[longest].prompt_ids) <= max(PREFIXES):
            return
        tokens = self.tokens
        check_at_size(self.model, self.name, trials[longest], replies[longest], self._fresh)
        self.tokens, self._proved_at_size = tokens, True

    def _shared(self, trials: Sequence[Trial]) -> list[Reply]:
        """Replies from one prefill per context."""
        replies: dict[int, Reply] = {}
        with torch.inference_mode():
            for wave in self._waves(contexts(trials, share=self.share_prefix)):
                replies.update(self._ask_wave(trials, wave))
        return [replies[index] for index in range(len(trials))]

    @torch.inference_mode()
    def _fresh(self, trials: Sequence[Trial]) -> list[Reply]:
        """Replies from forwards over whole prompts, one at a time and without a cache."""
        return [self._alone(trial) for trial in trials]

    def _alone(self, trial: Trial) -> Reply:
        def logprobs(ids: Sequence[int], keep: int) -> Tensor:
            self.tokens += len(ids)
            out = forward(self.model, self._tensor([ids]), None, start=0, keep=keep, use_cache=False)
            return _logprobs(out.logits[0, -keep:])

        answer = self._tensor(trial.answer_ids)
        forced_AV = logprobs(trial.prompt_ids + trial.answer_ids[:-1], max(len(answer), 1))
        logprob = float(forced_AV.gather(1, answer[:, None].to(forced_AV.device)).sum())
        first_V = forced_AV[0]
        stops = self._stops if trial.generate is not None else frozenset()
        ids = [int(first_V.argmax())]
        while len(ids) < trial.new_tokens and ids[-1] not in stops:
            ids.append(int(logprobs((*trial.prompt_ids, *ids), 1)[-1].argmax()))
        self._refuse_infinite(logprob)
        candidates = first_V[self._tensor(trial.candidate_ids).to(first_V.device)].tolist()
        return self._make_reply(
            trial, _until(ids, stops), logprob, candidates, first_V.topk(2).values.tolist()
        )

    def _refuse_infinite(self, logprob: float) -> None:
        if not math.isfinite(logprob):
            raise UsageError(
                f"{self.name} gives an answer the log-probability {logprob}; check its weights, or use float32"
            )

    def _waves(self, found: Iterator[Context]) -> Iterator[list[Context]]:
        """Contexts of equal shape that fit one forward together with all their questions."""
        waves: dict[tuple[int, ...], list[Context]] = {}
        for context in found:
            shape = context.shape
            wave = waves.setdefault(shape, [])
            tokens = len(context.trials) * (shape[0] + shape[2])
            if wave and (len(wave) + 1) * tokens > self.max_tokens:
                yield wave
                wave = waves[shape] = []
            wave.append(context)
        yield from waves.values()

    def _ask_wave(self, trials: Sequence[Trial], wave: list[Context]) -> Iterator[tuple[int, Reply]]:
        """Read the prefixes together, then ask every question of every context."""
        asked = trials[wave[0].trials[0]]
        tokens = len(asked.prompt_ids) + max(asked.new_tokens, len(asked.answer_ids))
        cache = self._read(np.stack([context.prefix_T for context in wave]), None, 0, room=tokens)
        suffix_BT = np.concatenate([context.suffix_BT for context in wave])
        index_B = np.concatenate([context.trials for context in wave])
        context_B = self._tensor(np.repeat(np.arange(len(wave)), [len(context.trials) for context in wave]))
        rows = max(1, self.max_tokens // len(asked.prompt_ids))
        for start in range(0, len(index_B), rows):
            part = slice(start, start + rows)
            last = start + rows >= len(index_B)
            some = [trials[index] for index in index_B[part]]
            replies = self._asked(some, suffix_BT[part], cache, context_B[part], len(wave), last)
            yield from zip(index_B[part].tolist(), replies, strict=True)

    def _asked(
        self, trials: list[Trial], suffix_BT: Ids, cache: Any, context_B: Tensor, contexts: int, last: bool
    ) -> list[Reply]:
        """Replies to some questions of a wave; only the last ones may use up its cache."""
        if cache is None or (last and same_rows(context_B, contexts)):
            return self._reply(trials, suffix_BT, cache)
        if last:
            cache.reorder_cache(context_B)
            return self._reply(trials, suffix_BT, cache)
        if same_rows(context_B, contexts):
            with branch(cache) as own:
                return self._reply(trials, suffix_BT, own)
        return self._reply(trials, suffix_BT, expanded(cache, context_B))

    def _read(self, ids_BT: Ids, cache: Any, start: int, *, room: int = 0) -> Any:
        """The cache after more tokens, the first of which has the position `start`; at last `room` tokens long."""
        end = start + ids_BT.shape[1]
        while start < end:
            # Chunks end at the same positions in every prompt, so that no layout is cut otherwise.
            piece = min(end, (start // self.prefill_chunk + 1) * self.prefill_chunk) - start
            ids = self._tensor(ids_BT[:, :piece])
            self.tokens += ids.numel()
            cache = forward(self.model, ids, cache, start=start, keep=1).cache
            start, ids_BT = start + piece, ids_BT[:, piece:]
            if start == piece < end:
                reserve(cache, room)
        return cache

    def _reply(self, trials: list[Trial], suffix_BT: Ids, cache: Any) -> list[Reply]:
        """Read the rest of the prompts and continue greedily for as long as each trial asks."""
        end = len(trials[0].prompt_ids)
        final = (end - 1) // self.prefill_chunk * self.prefill_chunk  # where the last chunk begins
        first = end - suffix_BT.shape[1]
        if final > first:
            cache = self._read(suffix_BT[:, : final - first], cache, first)
            suffix_BT = suffix_BT[:, final - first :]
        self.tokens += suffix_BT.size
        answer_BA = self._tensor([trial.answer_ids for trial in trials])
        forced, length = answer_BA.shape[1] > 1, trials[0].new_tokens
        use_cache = forced or length > 1 or cache is not None
        ids_BT = self._tensor(suffix_BT)
        out = forward(self.model, ids_BT, cache, start=max(final, first), keep=1, use_cache=use_cache)
        logprob_BV = _logprobs(out.logits[:, -1])
        top_B2 = logprob_BV.topk(2).values
        greedy_BA = logprob_BV.argmax(-1, keepdim=True)
        logprob_B = logprob_BV.gather(1, answer_BA[:, :1].to(logprob_BV.device)).sum(1)
        if forced:
            with branch(out.cache) as own:
                logprob_B = logprob_B + self._forced(answer_BA, own, end)
        ids = self._continue(greedy_BA, trials[0], out.cache)
        for logprob in logprob_B.tolist():
            self._refuse_infinite(logprob)
        candidates = self._candidates(trials, logprob_BV)
        return list(map(self._make_reply, trials, ids, logprob_B.tolist(), candidates, top_B2.tolist()))

    def _forced(self, answer_BA: Tensor, cache: Any, start: int) -> Tensor:
        """Log-probability of the answer's later tokens, each given the right ones before it, [B]."""
        later_BA = answer_BA[:, 1:]
        out = forward(self.model, answer_BA[:, :-1], cache, start=start, keep=later_BA.shape[1])
        logprob_BAV = _logprobs(out.logits)
        return logprob_BAV.gather(2, later_BA[..., None].to(logprob_BAV.device)).sum(dim=(1, 2))

    def _continue(self, greedy_BA: Tensor, trial: Trial, cache: Any) -> list[list[int]]:
        """The greedy continuations from their first token on, as many tokens as the trials ask for.

        Where a trial says how long to continue, its continuation ends before the model's stop token; where
        the answer's length does, it is always that long.
        """
        stops = self._stops if trial.generate is not None else frozenset()
        stopped_B = torch.tensor([token in stops for token in greedy_BA[:, 0].tolist()])
        while greedy_BA.shape[1] < trial.new_tokens and not bool(stopped_B.all()):
            ids_B1 = greedy_BA[:, -1:].to(self.model.device)
            start = len(trial.prompt_ids) + greedy_BA.shape[1] - 1
            out = forward(self.model, ids_B1, cache, start=start, keep=1)
            cache = out.cache
            greedy_BA = torch.cat([greedy_BA, out.logits[:, -1].argmax(-1, keepdim=True)], dim=1)
            stopped_B |= torch.tensor([token in stops for token in greedy_BA[:, -1].tolist()])
        return [_until(ids[: trial.new_tokens], stops) for ids in greedy_BA.tolist()]

    def _candidates(self, trials: list[Trial], logprob_BV: Tensor) -> list[list[float]]:
        """Log-probability of each candidate; trials may have different numbers of them."""
        sizes = [len(trial.candidate_ids) for trial in trials]
        if len(set(sizes)) > 1:
            return [
                row[self._tensor(trial.candidate_ids).to(row.device)].tolist()
                for trial, row in zip(trials, logprob_BV, strict=True)
            ]
        ids_BC = self._tensor([trial.candidate_ids for trial in trials])
        return logprob_BV.gather(1, ids_BC.to(logprob_BV.device)).tolist()

    def _make_reply(
        self, trial: Trial, ids: list[int], logprob: float, candidates: list[float], top: list[float]
    ) -> Reply:
        text = self._tokenizer.decode(ids) if trial.generate is not None and self._tokenizer else None
        return Reply(
            tuple(ids),
            len(trial.prompt_ids),
            logprob if len(trial.answer_ids) else None,
            tuple(candidates) if trial.candidate_ids else None,
            text,
            greedy_logprob=top[0],
            margin=top[0] - top[1],
        )

    def _tensor(self, ids: Any) -> Tensor:
        return torch.as_tensor(ids, dtype=torch.long, device=self.model.device)

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return None if self._tokenizer_folder is None else Tokenizer.load(self._tokenizer_folder)

    @cached_property
    def _digest(self) -> str:
        """SHA-256 over the configuration and every weight."""
        config = {
            key: value
            for key, value in self.model.config.to_dict().items()
            if not key.startswith("_") and key != "transformers_version"
        }
        plan = config.get("compression")
        if isinstance(plan, dict) and plan.get("visibility") == "closing":  # version 0.1 knew no other
            config["compression"] = {key: value for key, value in plan.items() if key != "visibility"}
        digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()


def _logprobs(logits: Tensor) -> Tensor:
    return torch.log_softmax(logits, dim=-1, dtype=torch.float32)


def _grids_of(config: Any) -> list[WindowGrid] | None:
    """The distinct grids that the model's config tells of; none for a dense model, None where there is no saying."""
    own_code = not type(config).__module__.startswith("transformers.")
    try:
        return read_config(config.to_dict(), own_code=own_code).known_grids
    except UsageError:  # a config that its own class accepts is no reason to refuse the model
        return None


def _stops_of(model: Any) -> frozenset[int]:
    """The tokens with which the model ends its turn."""
    stops = getattr(model.generation_config, "eos_token_id", None)
    return frozenset() if stops is None else frozenset([stops] if isinstance(stops, int) else stops)


def _until(ids: list[int], stops: frozenset[int]) -> list[int]:
    """The ids before the first stop."""
    return ids[: next((place for place, token in enumerate(ids) if token in stops), len(ids))]
