"""Head ablation at the last position: the same trials with and without each unit, from one read of each context.

An edit at the last position changes nothing that other tokens put into the cache, so that all units of all layers
share the prefix, and for a unit of layer ℓ only the last token's layers from ℓ on are computed again.

Shape suffixes: R rows (questions), A query heads, D channels, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ..records import Reply, Trial
from .contexts import Contexts, See
from .hooks import AttentionHook, Edit, Tape, beginning_at, editing, recording, watching
from .reading import entries_alone, entries_replaced, is_ours
from .units import BASE, Branch, Mode, Part, Unit, Where

TOLERANCE = 1e-3
"""Nats by which the identity edit may move a log-probability: rows of another batch are summed in another order."""


@dataclass
class ActivationCache:
    """What each head put out on prompts that are not among the trials.

    Attributes:
        sums: by (layer, branch), the sum over outputs [A, D] and their number.
        samples: by (layer, branch), the outputs themselves, kept only for resampling.
    """

    sums: dict[tuple[int, Branch], tuple[Tensor, int]] = field(default_factory=dict)
    samples: dict[tuple[int, Branch], list[Tensor]] = field(default_factory=dict)

    def add(self, layer: int, branch: Branch, heads_RAD: Tensor, *, keep: bool = False) -> None:
        """Add outputs, one a row; `keep` them where they are resampled."""
        total, count = self.sums.get(
            (layer, branch), (torch.zeros_like(heads_RAD[0], dtype=torch.float64), 0)
        )
        self.sums[layer, branch] = total + heads_RAD.double().sum(0), count + len(heads_RAD)
        if keep:
            self.samples.setdefault((layer, branch), []).append(heads_RAD)

    def mean_AD(self, layer: int, branch: Branch) -> Tensor:
        """Mean output of the layer's heads."""
        total, count = self.sums[layer, branch]
        return total / count

    @property
    def outputs(self) -> int:
        """How many were added, for each layer and branch."""
        return max((count for _, count in self.sums.values()), default=0)


class Ablation:
    """Answers trials with and without each unit.

    Args:
        model: a causal language model of `transformers`, ours or foreign.
        hooks: its attention layers.
        units: what is taken away, one at a time.
        mode: what stands in its place: its mean over the reference prompts, zero, or its output at one of them.
        where: at the last position, which all units share a read for, or at every position, for which each unit reads
            the contexts anew. A head that hands a value its key works at the value's position, and only this shows it.
        max_tokens: the most tokens of context over the rows of one forward.
        name: what error messages call the model.

    Source: arXiv 2609.36322, mean ablation at the last position.
    Differs: the answer's first token is scored, as the edit is made before it; answers of several tokens are judged
        by it alone.
    """

    def __init__(
        self,
        model: Any,
        hooks: Sequence[AttentionHook],
        units: Sequence[Unit],
        *,
        mode: Mode = "mean",
        where: Where = "last",
        max_tokens: int = 2**16,
        name: str = "the model",
    ) -> None:
        self.model = model.eval()
        self.hooks = {hook.layer: hook for hook in hooks}
        self.units = list(units)
        self.mode: Mode = mode
        self.where: Where = where
        if where == "everywhere":
            _refuse_everywhere(hooks, units, mode)
        self.contexts = Contexts(self.model, hooks, max_tokens)
        self.name = name
        self.activations = ActivationCache()
        self.verified: dict[str, float] = {}

    @property
    def conditions(self) -> list[str]:
        """Names of what `ask` answers as, the untouched model first."""
        return [BASE, *(unit.name for unit in self.units)]

    def learn(self, trials: Sequence[Trial], see: See | None = None) -> None:
        """Read reference prompts: what heads put out on them, and, once, whether the hooks hold.

        Args:
            trials: of contexts that are not asked about later.
            see: given the gates over each read of contexts, and the facts that they hold.
        """
        with torch.inference_mode():
            for _, last_R1, cache in self.contexts.rows(trials, see):
                tape, logprob_RV = self._base(last_R1, cache)
                if not self.verified:
                    self.verified = self._verify(last_R1, cache, tape, logprob_RV)
                for layer, branch in self._needed():
                    if self.where == "last":
                        heads_RAD = self._branch(layer, branch, tape, last_R1, cache)
                        self.activations.add(layer, branch, heads_RAD, keep=self.mode == "resample")
            if self.where == "everywhere":
                self._learn_everywhere(trials)

    def ask(self, trials: Sequence[Trial]) -> dict[str, list[Reply]]:
        """Replies of every condition, in the order of the trials.

        Raises:
            UsageError: if the model gives an answer no finite log-probability.
        """
        replies: dict[str, dict[int, Reply]] = {condition: {} for condition in self.conditions}
        with torch.inference_mode():
            for rows, last_R1, cache in self.contexts.rows(trials, None):
                asked = [trials[row] for row in rows]
                tape, logprob_RV = self._base(last_R1, cache)
                replies[BASE].update(zip(rows, self._replies(asked, logprob_RV), strict=True))
                if self.where == "everywhere":
                    continue
                for unit, edited_RV in self._edited(asked, last_R1, cache, tape):
                    replies[unit.name].update(zip(rows, self._replies(asked, edited_RV), strict=True))
            if self.where == "everywhere":
                for unit in self.units:
                    replies[unit.name].update(self._asked_everywhere(trials, unit))
        return {
            condition: [found[index] for index in range(len(trials))] for condition, found in replies.items()
        }

    # Every position --------------------------------------------------------------------------------------------

    def _learn_everywhere(self, trials: Sequence[Trial]) -> None:
        """Mean output of heads, or of what they read from entries, over all positions of the shared prefixes."""
        for layer, branch in self._needed():
            hook = self.hooks[layer]
            entries = entries_alone(hook.attention) if branch == "entries" else nullcontext()

            def add(heads_RTAD: Tensor, layer: int = layer, branch: Branch = branch) -> None:
                self.activations.add(layer, branch, heads_RTAD.flatten(0, 1))

            with watching(hook, add), entries:
                self.contexts.read(trials)

    def _asked_everywhere(self, trials: Sequence[Trial], unit: Unit) -> Iterator[tuple[int, Reply]]:
        """Replies without a unit at any position, from contexts that are read without it."""
        with ExitStack() as edits:
            for part in unit.parts:
                mean_AD = self.activations.mean_AD(part.layer, part.branch)[list(part.queries)]
                new_AD = mean_AD if self.mode == "mean" else torch.zeros_like(mean_AD)
                if part.branch == "entries":
                    attention = self.hooks[part.layer].attention
                    edits.enter_context(entries_replaced(attention, part.queries, new_AD))
                else:
                    edit = (slice(None), part.queries, new_AD[None])
                    edits.enter_context(editing(self.hooks, {part.layer: [edit]}, "everywhere"))
            for rows, last_R1, cache in self.contexts.rows(trials, None):
                logprob_RV = self.contexts.last(last_R1, cache)
                yield from zip(rows, self._replies([trials[row] for row in rows], logprob_RV), strict=True)

    # The last token --------------------------------------------------------------------------------------------

    def _base(self, last_R1: Tensor, cache: Any) -> tuple[Tape, Tensor]:
        """The untouched forward: what heads put out, and the log-probabilities of the next token."""
        with recording(list(self.hooks.values())) as tape:
            return tape, self.contexts.last(last_R1, self.contexts.repeated(cache, len(last_R1), 1))

    def _branch(self, layer: int, branch: Branch, tape: Tape, last_R1: Tensor, cache: Any) -> Tensor:
        """What a layer's heads read through one branch, [R, A, D]."""
        whole_RAD = tape.heads[layer]
        if branch == "all":
            return whole_RAD
        hook, own = self.hooks[layer], self.contexts.repeated(cache, len(last_R1), 1)
        with (
            entries_alone(hook.attention),
            recording([hook], stop=True) as part,
            beginning_at(self.hooks, layer, tape.stream[layer]),
        ):
            self.contexts.last(last_R1, own)
        entries_RAD = part.heads[layer]
        return entries_RAD if branch == "entries" else whole_RAD - entries_RAD

    def _edited(
        self, asked: Sequence[Trial], last_R1: Tensor, cache: Any, tape: Tape
    ) -> Iterator[tuple[Unit, Tensor]]:
        """Log-probabilities without each unit; the units of one lowest layer share forwards."""
        rows = len(last_R1)
        parts = {key: self._branch(*key, tape, last_R1, cache) for key in self._needed() if key[1] != "all"}
        at_once = max(1, self.contexts.max_tokens // max(1, rows * len(asked[0].prompt_ids)))
        for layer in sorted({unit.lowest for unit in self.units}):
            units = [unit for unit in self.units if unit.lowest == layer]
            for start in range(0, len(units), at_once):
                some = units[start : start + at_once]
                edits: dict[int, list[Edit]] = {}
                for place, unit in enumerate(some):
                    for part in unit.parts:
                        own = slice(place * rows, (place + 1) * rows)
                        value = self._replacement(part, asked, tape, parts)
                        edits.setdefault(part.layer, []).append((own, part.queries, value))
                logprob_RV = self._from(layer, len(some), edits, last_R1, cache, tape)
                yield from zip(some, logprob_RV.split(rows), strict=True)

    def _from(
        self, layer: int, times: int, edits: dict[int, list[Edit]], last_R1: Tensor, cache: Any, tape: Tape
    ) -> Tensor:
        """The last token from a layer on, with all rows so many times over, under edits."""
        rows = len(last_R1)
        stream = tape.stream[layer]
        stream = stream.repeat(times, *(1,) * (stream.ndim - 1))
        with beginning_at(self.hooks, layer, stream), editing(self.hooks, edits):
            return self.contexts.last(last_R1.repeat(times, 1), self.contexts.repeated(cache, rows, times))

    def _replacement(
        self, part: Part, asked: Sequence[Trial], tape: Tape, parts: dict[tuple[int, Branch], Tensor]
    ) -> Tensor:
        """What stands in a part's place, [R or 1, heads, D]."""
        queries = list(part.queries)
        whole_RAD = tape.heads[part.layer]
        if self.mode == "zero":
            new = torch.zeros_like(whole_RAD[:1, queries])
        elif self.mode == "mean":
            new = self.activations.mean_AD(part.layer, part.branch)[None, queries].to(whole_RAD.dtype)
        else:
            sample_KAD = torch.cat(self.activations.samples[part.layer, part.branch])
            # The trial's own digest chooses, so that a resumed run draws the same.
            drawn = [int(trial.digest, 16) % len(sample_KAD) for trial in asked]
            new = sample_KAD[drawn][:, queries]
        if part.branch == "all":
            return new
        return whole_RAD[:, queries] - parts[part.layer, part.branch][:, queries] + new

    def _needed(self) -> list[tuple[int, Branch]]:
        """Layers and branches that some unit takes away."""
        return list(dict.fromkeys((part.layer, part.branch) for unit in self.units for part in unit.parts))

    def _verify(self, last_R1: Tensor, cache: Any, tape: Tape, logprob_RV: Tensor) -> dict[str, float]:
        """Check the hooks: the identity edit changes nothing, and taking a layer's heads away does.

        Returns:
            the largest change by identity edits, and the smallest over layers of the largest change by zeros.

        Raises:
            UsageError: if either is not so.
        """
        same, moved = 0.0, float("inf")
        for layer in sorted({part.layer for unit in self.units for part in unit.parts}):
            own_RAD = tape.heads[layer]
            queries = tuple(range(own_RAD.shape[1]))
            for value in (own_RAD, torch.zeros_like(own_RAD)):
                edits: dict[int, list[Edit]] = {layer: [(slice(None), queries, value)]}
                change = self._from(layer, 1, edits, last_R1, cache, tape) - logprob_RV
                largest = float(change.nan_to_num().abs().max())
                if value is own_RAD:
                    same = max(same, largest)
                else:
                    moved = min(moved, largest)
        if same > TOLERANCE or not moved > 0:
            raise UsageError(
                f"{self.name}: putting heads' own outputs in their place moves log-probabilities by {same:.2g} (at "
                f"most {TOLERANCE} allowed), putting zeros moves them by {moved:.2g} (above 0 expected); this "
                "model cannot be taken apart at its output projection"
            )
        return {"identity_edit": same, "zero_edit": moved}

    def _replies(self, asked: Sequence[Trial], logprob_RV: Tensor) -> list[Reply]:
        """What each row says of its trial's first answer token."""
        answer_R1 = self.contexts.tensor([trial.answer_ids[:1] for trial in asked])
        right_R = logprob_RV.gather(1, answer_R1)[:, 0]
        if not bool(right_R.isfinite().all()):
            raise UsageError(
                f"{self.name} gives an answer no finite log-probability; check its weights, or use float32"
            )
        candidates = self._candidates(asked, logprob_RV)
        facts = zip(asked, logprob_RV.argmax(-1).tolist(), right_R.tolist(), candidates, strict=True)
        return [
            Reply((token,), len(trial.prompt_ids), logprob, chosen) for trial, token, logprob, chosen in facts
        ]

    def _candidates(self, asked: Sequence[Trial], logprob_RV: Tensor) -> list[tuple[float, ...] | None]:
        """Log-probability of each candidate; trials may have none, or different numbers of them."""
        if len({len(trial.candidate_ids) for trial in asked}) == 1 and asked[0].candidate_ids:
            index_RC = self.contexts.tensor([trial.candidate_ids for trial in asked])
            return [tuple(row) for row in logprob_RV.gather(1, index_RC).tolist()]
        return [
            tuple(row[self.contexts.tensor(trial.candidate_ids)].tolist()) if trial.candidate_ids else None
            for trial, row in zip(asked, logprob_RV, strict=True)
        ]


def _refuse_everywhere(hooks: Sequence[AttentionHook], units: Sequence[Unit], mode: Mode) -> None:
    """Raise `UsageError` for units that cannot be replaced at every position."""
    branches = {part.branch for unit in units for part in unit.parts}
    if mode == "resample" or "local" in branches:
        raise UsageError(
            "at every position heads or their entries are replaced by their mean or by zero; take --mode mean or "
            "zero and --branch all or entries, or leave --where at 'last'"
        )
    compressed = [hook for hook in hooks if hook.shape.branches]
    if "entries" in branches and not all(is_ours(hook.attention) for hook in compressed):
        raise UsageError(
            "entries are replaced at every position in phasescope's own models only; leave --where at 'last'"
        )
    bound = any(getattr(getattr(hook.attention, "plan", None), "binding", False) for hook in hooks)
    if mode == "mean" and bound and "entries" in branches:
        raise UsageError(
            "entries that are key and value at once are rotated by each position, so that they have no mean over "
            "positions; take --mode zero"
        )
