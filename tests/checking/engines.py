"""Toy engines that are sound and look otherwise, and ones whose fault does not sit where it shows."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from phasescope.checking.engine import Continuation, Ids

from .toy import VOCABULARY, Toy


def logprobs(logits: Any) -> Any:
    return logits - np.log(np.exp(logits).sum())


class RareNoise(Toy):
    """One call in twenty is off by a little, at random."""

    def __init__(self, seed: int = 0, rate: float = 0.05, size: float = 0.05) -> None:
        super().__init__()
        self.rng, self.rate, self.size = np.random.default_rng(seed), rate, size

    def noisy(self, prompt: Ids, new: int, rng: np.random.Generator) -> Continuation:
        return super(Toy, self).noisy(prompt, new, rng)

    def row(self, ids: Ids, extra: int = 0) -> Any:
        row = super().row(ids, extra)
        if self.rng.random() < self.rate:
            row = logprobs(row + self.size * self.rng.normal(size=VOCABULARY))
        return row


class Kernels(Toy):
    """Quantised kernels: one row is computed otherwise than many, each with errors of its own.

    Args:
        size: standard deviation of a log-probability's error.
        batches: whether it takes batches.
    """

    def __init__(
        self, seed: int = 0, size: float = 0.06, *, batches: bool = True, eps: float = 2.0**-7
    ) -> None:
        super().__init__()
        self.seed, self.size, self.batches, self.eps = seed, size, batches, eps

    def noisy(self, prompt: Ids, new: int, rng: np.random.Generator) -> Continuation:
        return super(Toy, self).noisy(prompt, new, rng)

    def kernel(self, ids: Ids, rows: int) -> Any:
        """Log-probabilities by the kernel for so many rows."""
        kind = 1 if rows == 1 else 2 if rows < 4 else 3
        error = np.random.default_rng([self.seed, kind, *ids]).normal(size=VOCABULARY)
        return logprobs(self.row(ids) + self.size * error)

    def read(self, ids: Ids, last: int, new: int, batch: int = 1) -> Continuation:
        rows, tokens = [self.kernel(ids, last * batch)], []
        while True:
            tokens.append(int(rows[-1].argmax()))
            if len(rows) == new:
                return Continuation(tuple(rows), tuple(tokens))
            rows.append(self.kernel(ids + tuple(tokens), batch))

    def whole(self, prompt: Ids, new: int) -> Continuation:
        return self.read(prompt, len(prompt), new)

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        rows = [self.kernel(prompt[:end], len(prompt)) for end in range(start + 1, len(prompt) + 1)]
        return [Continuation((row,), (int(row.argmax()),)) for row in rows]

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        return self.read(prompt, len(prompt) - max(cuts), new)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        if not self.batches:
            return super(Toy, self).in_batch(prompts, new)
        return [self.read(prompt, max(map(len, prompts)), new, len(prompts)) for prompt in prompts]

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        return self.read(prompt, len(prompt) - cut, new)


class WrongInOnePiece(Toy):
    """A forward of many tokens on an empty cache is right only where their number is a multiple of 32."""

    def once(self, ids: Ids) -> Ids:
        return ids if len(ids) % 32 == 0 or len(ids) == 1 else ids[1:]

    def whole(self, prompt: Ids, new: int) -> Continuation:
        return self.go_on(prompt, new, self.once(prompt))

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        lost = len(prompt) - len(self.once(prompt))
        rows = [self.row(prompt[min(lost, end - 1) : end]) for end in range(start + 1, len(prompt) + 1)]
        return [Continuation((row,), (int(row.argmax()),)) for row in rows]


class WithoutInside(WrongInOnePiece):
    """The same, and it tells nothing of a prompt's own tokens."""

    def inside(self, prompt: Ids, start: int) -> list[Continuation]:
        return super(Toy, self).inside(prompt, start)  # type: ignore[return-value]


class FirstPromptAlone(Toy):
    """The first prompt of all is read without its first half."""

    used = False

    def whole(self, prompt: Ids, new: int) -> Continuation:
        first, self.used = not self.used, True
        return self.go_on(prompt, new, prompt[len(prompt) // 2 :] if first else prompt)


class FirstOfEach(Toy):
    """A prompt that was read before is answered as if its last token stood there twice."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[Ids] = set()

    def whole(self, prompt: Ids, new: int) -> Continuation:
        again = prompt in self.known
        self.known.add(prompt)
        return self.go_on(prompt, new, (*prompt, prompt[-1]) if again else prompt)


class Restores(Toy):
    """A cache that is saved and restored, soundly."""

    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        return self.go_on(prompt, new)


class EveryThirdRestore(Restores):
    """Every third restore loses the last token."""

    restores = 0

    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        self.restores += 1
        return self.go_on(prompt, new, prompt if self.restores % 3 else prompt[: cut - 1] + prompt[cut:])


class LossyCache(Restores):
    """What is read back from the cache is quantised; within one forward nothing is.

    Args:
        leaks: restoring loses a token beside that.
    """

    def __init__(self, *, leaks: bool = False) -> None:
        super().__init__()
        self.leaks = leaks

    def kept(self, ids: Ids, new: int, cuts: Sequence[int], said: Ids | None = None) -> Continuation:
        """Read in pieces, and on; each piece's entries are rounded once it is in the cache."""
        ids = ids if said is None else said
        rows, tokens = [], []
        for _ in range(new):
            every, ends = ids + tuple(tokens), {*cuts, *range(len(ids), len(ids) + len(tokens))}
            rows.append(self.rounded(every, max([end for end in ends if end < len(every)], default=0)))
            tokens.append(int(rows[-1].argmax()))
        return Continuation(tuple(rows), tuple(tokens))

    def rounded(self, ids: Ids, cached: int) -> Any:
        age = np.arange(len(ids))[::-1, None]
        each = 0.97**age * np.cos(0.3 * age + np.arange(24)) * self.embedding[list(ids)]
        each[:cached] = np.round(each[:cached] * 4) / 4
        return logprobs(each.sum(0) @ self.readout)

    def whole(self, prompt: Ids, new: int) -> Continuation:
        return self.kept(prompt, new, ())

    def in_parts(self, prompt: Ids, cuts: Sequence[int], new: int) -> Continuation:
        return self.kept(prompt, new, cuts)

    def in_batch(self, prompts: Sequence[Ids], new: int) -> list[Continuation]:
        return [self.kept(prompt, new, ()) for prompt in prompts]

    def warm(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        return self.kept(prompt, new, (cut,))

    def restored(self, prompt: Ids, cut: int, other: Ids, new: int) -> Continuation:
        said = prompt[: cut - 1] + prompt[cut:] if self.leaks and cut > 1 else None
        return self.kept(prompt, new, (cut - (said is not None),), said)
