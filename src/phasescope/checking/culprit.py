"""Which of two readings that differ is wrong, and whether the difference is a failure of its own.

Two readings cannot say which of them is wrong; a third one can. A reading token by token from the first token on shares
no prefill of many tokens with either, a longer prompt shares no length.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from .cases import PromptCase
from .comparator import Comparator
from .engine import NotOfferedError, gap
from .invariances import INVARIANCES, ONE_BY_ONE, Invariance, stepped
from .reader import CachedReader

AGAIN = 2  # times that a failure is read anew
CONFIRMED = 3  # fresh prompts on which it must show again
FLIP_MARGIN = 4  # times what rounding errors change at one prompt, where a choice may flip
NOISE_DRAWS = 4

THOROUGH = 64  # most tokens for which a third reading is asked while a case is made smaller
ACCUSING = (INVARIANCES["prefill"], ONE_BY_ONE)
"""The invariances that accuse the prompt in one piece."""

Meaning = Literal["flickers", "inherits", "ties", "other", "longer", "stands"]
Side = Literal["way", "whole", "open"]
"""Which reading is wrong: by the way that is judged, or the prompt in one piece; open where no third one says."""


@dataclass(frozen=True)
class Judgement:
    """What a failure means.

    Attributes:
        meaning: `flickers` where it does not show each time; `stands` where it is a failure of its own. For the
            invariances that accuse the prompt in one piece, where that is right: `longer` if a longer prompt is wrong,
            `other` if another way is.
        by: the invariance whose failure it is instead.
        side: which reading is wrong.
    """

    meaning: Meaning
    by: str = ""
    side: Side = "way"


class Judge:
    """Looks into failures of one engine.

    Args:
        comparator: what reads and compares.

    Attributes:
        blamed: prompts of which a third reading said that one piece is what is wrong.
        longer: whether one said so of a longer prompt than the one that was judged.
    """

    def __init__(self, comparator: Comparator) -> None:
        self.comparator = comparator
        self.blamed: list[PromptCase] = []
        self.longer = False

    def judged(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> Judgement:
        """Whether a failure shows again and again alike, whose it is, and whether flipped choices explain it."""
        compare = self.comparator
        pairs = [compare.both(invariance, case, compare.fresh()) for _ in range(AGAIN)]
        moved = any(compare.apart(a, b) for sides in (zip(*pairs, strict=True)) for a, b in pairwise(sides))
        if moved or not all(compare.apart(*pair) for pair in pairs):
            return Judgement("flickers")
        side = self._side(invariance, case, reader)
        kind: Meaning = "stands"
        if invariance in ACCUSING:
            kind = "stands" if side != "way" else "other" if invariance is ONE_BY_ONE else "longer"
            self.longer |= kind == "longer"
            if kind == "other":
                return Judgement(kind)
        else:
            by = self.inherited(invariance, case, reader, side)
            if by:
                return Judgement("inherits", by)
        try:
            noise = max(compare.noise(case.prompt, reader, NOISE_DRAWS))
        except NotOfferedError:
            noise = 0.0
        flipped = min(gap(*pair) for pair in pairs) <= FLIP_MARGIN * noise
        return Judgement("ties") if flipped else Judgement(kind, side=side)

    def fails(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> bool:
        """Whether a case fails by itself; of a long prompt, as far as two readings say it."""
        try:
            failed = self.comparator.apart(*self.comparator.both(invariance, case, reader))
        except NotOfferedError:  # too few tokens are left
            return False
        if not failed or len(case.prompt) > THOROUGH:
            return failed and not self.inherited(invariance, case, reader, "open", quick=True)
        side = self._side(invariance, case, reader)
        if invariance is ONE_BY_ONE:
            return side != "way"
        return not self.inherited(invariance, case, reader, side)

    def confirmed(self, invariance: Invariance, own: list[PromptCase], reader: CachedReader) -> bool:
        """Whether most fresh prompts of the same shape fail too."""
        plan, failed = self.comparator.plan, 0
        for index in range(CONFIRMED):
            fresh = own[index % len(own)].redrawn(plan.ids, plan.rng)
            failed += self.judged(invariance, fresh, reader).meaning in ("stands", "longer")
        return 2 * failed > CONFIRMED

    def inherited(
        self,
        invariance: Invariance,
        case: PromptCase,
        reader: CachedReader,
        side: Side,
        *,
        quick: bool = False,
    ) -> str:
        """The simpler invariance that fails here, so that this one adds no fault; empty where none does.

        Every way begins with a prefill: of the prompt, as the reference is, or of what stands before the cut.
        `quick` asks for no reading token by token.
        """
        if invariance in (*ACCUSING, INVARIANCES["repeat"]):
            return ""
        compare = self.comparator
        if side == "whole":
            self.blamed.append(case)
            return "prefill"
        reference, reading = compare.both(invariance, case, reader)
        if invariance.base_read is not None and invariance.base:
            with suppress(NotOfferedError):
                base = invariance.base_read(reader, case)
                if compare.apart(reference, base) and not compare.apart(base, reading):
                    return invariance.base
        ends = [case.prompt[: case.cut]] if case.cut else []
        ends += [case.prompt]  # even if a third reading agrees with it: that may read the prompt as it does
        trusted = not quick and self._steps_agree(case, reader)
        against = ONE_BY_ONE if trusted else INVARIANCES["prefill"]
        with suppress(NotOfferedError):  # the prompt in one piece is then taken for right
            if any(
                compare.apart(*compare.both(against, PromptCase(end), reader)) for end in ends if len(end) > 1
            ):
                return "prefill"
        return ""

    def _side(self, invariance: Invariance, case: PromptCase, reader: CachedReader) -> Side:
        """What a third reading agrees with."""
        compare = self.comparator
        reference, reading = compare.both(invariance, case, reader)
        for read in invariance.thirds:
            with suppress(NotOfferedError):
                third = read(reader, case)
                near = compare.apart(reading, third), compare.apart(reference, third)
                if near[0] != near[1]:
                    return "way" if near[0] else "whole"
        return "open"

    def _steps_agree(self, case: PromptCase, reader: CachedReader) -> bool:
        """Whether reading token by token from the first token gives what the prompt in one piece does."""
        try:
            whole = reader.whole(case.prompt, self.comparator.new)
            return not self.comparator.apart(whole, stepped(reader, case))
        except NotOfferedError:
            return False
