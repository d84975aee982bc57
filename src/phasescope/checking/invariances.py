"""The ways in which the same tokens can be fed, each of which must give the same answer.

An invariance is one function that yields cases and one that reads a case; the table at the end names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Literal

from .cases import SWEPT, PromptCase, PromptPlan
from .engine import Continuation, Ids, NotOfferedError, gap
from .reader import CachedReader

DRAFT = 7  # most tokens of a rejected draft
TAIL = 24  # most tokens of another prompt behind a shared beginning: about a block
PATTERN = 11  # tokens after which a prompt for prompt lookup repeats itself
DRAFTED = 2  # times as many tokens are continued where drafts are to be made
DECODED = 9  # tokens of a greedy continuation that are read again; two windows of a stride of 4
MOST_STEPS = 300
MOST_STEPPED = 6000  # tokens read one by one to see which lengths go wrong in one piece
LEAD = 8  # fewest tokens that token-by-token reading begins with


Read = Callable[[CachedReader, PromptCase], Continuation]


def read_again(reader: CachedReader, case: PromptCase) -> Continuation:
    """The same call a second time."""
    return reader.engine.whole(case.prompt, reader.new)


def behind(reader: CachedReader, case: PromptCase) -> Ids:
    """What stands behind a prompt where it is read inside a longer one."""
    return case.other or reader.tail(5)


def read_inside(reader: CachedReader, case: PromptCase) -> Continuation:
    """What follows the prompt where more tokens stand behind it.

    Three lengths of what stands behind are tried, and the middle reading by its distance from the reference
    counts: one of the longer prompts may itself have a length at which the engine goes wrong.
    """
    at, after = len(case.prompt) - 1, behind(reader, case)
    start = 0 if case.other else at  # the cases of a sweep share one prompt, and are read at all its tokens
    found = [reader.inside(case.prompt + after + reader.tail(more), start)[at - start] for more in (0, 3, 7)]
    reference = reader.whole(case.prompt, 1)
    return sorted(found, key=lambda reading: gap(reference, reading))[1]


def stepped(reader: CachedReader, case: PromptCase) -> Continuation:
    """Token by token from the first token on."""
    if len(case.prompt) < 2:
        raise NotOfferedError("one token has no steps")
    return reader.stepped(case.prompt)


def one_by_one(reader: CachedReader, case: PromptCase) -> Continuation:
    """The same as a third reading: two tokens one by one are two parts."""
    if len(case.prompt) < 3:
        raise NotOfferedError("two tokens have no third reading")
    return reader.stepped(case.prompt)


def longer(reader: CachedReader, case: PromptCase) -> Continuation:
    """Where more tokens stand behind the prompt."""
    return read_inside(reader, PromptCase(case.prompt))


def halves(reader: CachedReader, case: PromptCase) -> Continuation:
    """Two pieces of several tokens each."""
    if len(case.prompt) < 4:
        raise NotOfferedError("too few tokens for two halves")
    return reader.engine.in_parts(case.prompt, (len(case.prompt) // 2,), reader.new)


def retold(reader: CachedReader, case: PromptCase) -> Continuation:
    """The rows of a greedy continuation inside one longer prompt."""
    said = tuple(token for token in reader.whole(case.prompt, DECODED).tokens if isinstance(token, int))
    rows = reader.inside(case.prompt + said, len(case.prompt))[: len(said) - 1]
    return Continuation(tuple(row.rows[0] for row in rows), tuple(row.tokens[0] for row in rows))


def read_parts(reader: CachedReader, case: PromptCase) -> Continuation:
    """Two pieces."""
    return reader.engine.in_parts(case.prompt, (case.cut,), reader.new)


def read_chunks(reader: CachedReader, case: PromptCase) -> Continuation:
    """Pieces of one size."""
    return reader.engine.in_parts(case.prompt, range(case.cut, len(case.prompt), case.cut), reader.new)


def read_steps(reader: CachedReader, case: PromptCase) -> Continuation:
    """One piece, then token by token."""
    return reader.engine.token_by_token(case.prompt, case.cut, reader.new)


def read_decoded(reader: CachedReader, case: PromptCase) -> Continuation:
    """The greedy continuation behind its first token."""
    said = reader.whole(case.prompt, DECODED)
    return Continuation(said.rows[1:], said.tokens[1:])


def reread(reader: CachedReader, case: PromptCase) -> Continuation:
    """Each token of the greedy continuation from a prefill of all before it."""
    said = reader.whole(case.prompt, DECODED).tokens
    ids = tuple(token for token in said if isinstance(token, int))
    if len(ids) < len(said):
        raise NotOfferedError("needs the ids of generated tokens (vLLM: return_tokens_as_token_ids)")
    again = [reader.whole(case.prompt + ids[:count], 1) for count in range(1, len(ids))]
    return Continuation(tuple(one.rows[0] for one in again), tuple(one.tokens[0] for one in again))


def read_batch(reader: CachedReader, case: PromptCase) -> Continuation:
    """Beside another prompt, which is longer by the left pads."""
    return reader.engine.in_batch([case.prompt, case.other], reader.new)[0]


def read_by(way: Literal["warm", "restored", "cropped", "reordered"]) -> Read:
    """By one of the engine's ways of reading in which something else happens at the cut."""

    def read(reader: CachedReader, case: PromptCase) -> Continuation:
        continuation: Continuation = getattr(reader.engine, way)(
            case.prompt, case.cut, case.other, reader.new
        )
        return continuation

    return read


def read_speculative(reader: CachedReader, case: PromptCase) -> Continuation:
    """Continued with drafts."""
    return reader.engine.speculative(case.prompt, DRAFTED * reader.new)


def repeat_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """A few lengths, the longest among them."""
    lengths = plan.lengths()
    for length in sorted({lengths[len(lengths) * part // 6] for part in range(6)} | {plan.longest}):
        yield PromptCase(plan.tokens(length))


def sweep_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """Consecutive lengths of one prompt, from the shortest on, and boundaries beyond them."""
    swept = range(2, min(plan.sweep + 2, plan.longest + 1) if plan.sweep else 2)
    prompt = plan.tokens(len(swept) + 2)
    for length in swept:
        yield PromptCase(prompt[:length], other=prompt[length:])
    for length in plan.lengths():
        if length not in swept:
            yield PromptCase(plan.tokens(length))


def stepped_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """Lengths around boundaries, for as many tokens as may be read one by one."""
    return _within(MOST_STEPPED // 4, plan.tokens(plan.longest), plan.lengths())


def stepped_sweep(plan: PromptPlan, like: PromptCase) -> Iterator[PromptCase]:
    """Consecutive lengths, for three times as many."""
    prompt = plan.tokens(plan.longest)
    return _within(3 * MOST_STEPPED // 4, prompt, range(2, min(plan.sweep + 2, plan.longest + 1)))


def _within(most: int, prompt: Ids, lengths: Sequence[int]) -> Iterator[PromptCase]:
    """Beginnings of a prompt, of no more tokens in all."""
    ends = [length for length, sum_ in zip(lengths, accumulate(lengths), strict=True) if sum_ <= most]
    return (PromptCase(prompt[:end]) for end in ends)


def chunk_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """Chunk sizes around every stride."""
    sizes = sorted({stride + near for stride in plan.joint for near in (-1, 0, 1)} | {16, 64})
    for size in sizes:
        for length in sorted({plan.longest, int(plan.rng.integers(2, plan.longest + 1))}):
            if 1 < size < length and length // size <= 64:
                yield PromptCase(plan.tokens(length), size)


def step_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """Across boundaries of every grid, and one long way from near the start."""
    lengths = plan.lengths()
    for length in plan.rng.choice(lengths, size=plan.cases // 3).tolist():
        if length > 2:
            start = max(1, length - int(plan.rng.integers(2, 2 * LEAD)))
            yield PromptCase(plan.tokens(length), start)
    yield PromptCase(plan.tokens(min(plan.longest, 2 * max(plan.joint, default=LEAD) + 3, MOST_STEPS)), LEAD)


def batch_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """No pad, one pad, and pads around every stride."""
    pads = sorted({0, 1, *(stride + near for stride in plan.joint for near in (-1, 0, 1))})
    lengths = plan.lengths()
    for index in range(max(plan.cases, len(pads))):
        pad = pads[index % len(pads)]
        length = lengths[int(plan.rng.integers(len(lengths)))]
        length = max(2, min(length, plan.longest - pad))
        if length + pad <= plan.longest:
            yield PromptCase(plan.tokens(length), other=plan.tokens(length + pad), pads=pad)


def lookup_cases(plan: PromptPlan) -> Iterator[PromptCase]:
    """Prompts that repeat themselves, so that drafts are found in them."""
    for length in plan.rng.choice(plan.lengths(), size=max(3, plan.cases // 4)).tolist():
        pattern = plan.tokens(PATTERN)
        length = max(length, 2 * PATTERN)
        yield PromptCase((pattern * (length // PATTERN + 1))[:length])


def length_sweep(plan: PromptPlan, like: PromptCase) -> Iterator[PromptCase]:
    """Consecutive lengths in one batch with the same number of pads."""
    for length in range(2, min(len(like.prompt), SWEPT)):
        other = like.other[: length + (like.pads or 0)]
        yield PromptCase(like.prompt[:length], other=other, pads=like.pads)
    for pads in range(min(SWEPT, plan.longest - len(like.prompt))):
        yield PromptCase(like.prompt, other=plan.tokens(len(like.prompt) + pads), pads=pads)


def no_more(plan: PromptPlan, like: PromptCase) -> Iterator[PromptCase]:
    """The cases are all there is."""
    return iter(())


@dataclass(frozen=True)
class Invariance:
    """One way of reading that must not matter.

    Attributes:
        says: what is claimed, as a sentence's subject: `prefill in parts`.
        cases: where it is tried.
        read: the reading that must equal the prompt read in one piece.
        reference: what it must equal instead of the prompt read in one piece.
        base: the simpler invariance that this one's way of reading makes use of.
        base_read: the same case read by that simpler way, where it is not the prompt in one piece; a failure that it
            shares is its own.
        loose: its way makes more use of the base than `base_read` shows, so that nothing is said of it while the
            base fails.
        refine: further cases like one that failed, to see by what failures fold.
        new: how many tokens are continued, given the number for all others.
        thirds: other readings of the case's prompt, of which the first that agrees with one side says which is wrong.
    """

    says: str
    cases: Callable[[PromptPlan], Iterator[PromptCase]]
    read: Read
    base: str | None = None
    base_read: Read | None = None
    refine: Callable[[PromptPlan, PromptCase], Iterator[PromptCase]] = PromptPlan.cut_sweep
    new: Callable[[int], int] = int
    reference: Read | None = None
    loose: bool = False
    thirds: tuple[Read, ...] = (one_by_one, longer)


other_tails = partial(PromptPlan.cut_cases, other=TAIL)
INVARIANCES: dict[str, Invariance] = {
    "repeat": Invariance("the same call twice", repeat_cases, read_again, refine=no_more),
    "prefill": Invariance(
        "a prompt of just this length against the same tokens inside a longer one",
        sweep_cases,
        read_inside,
        refine=no_more,
        new=lambda new: 1,
        thirds=(one_by_one, halves),
    ),
    "parts": Invariance("prefill in two parts", PromptPlan.cut_cases, read_parts, "prefill"),
    "chunks": Invariance(
        "prefill in chunks of one size", chunk_cases, read_chunks, "parts", refine=no_more, loose=True
    ),
    "steps": Invariance(
        "token-by-token decoding", step_cases, read_steps, "prefill", refine=no_more, thirds=(halves, longer)
    ),
    "decode": Invariance(
        "a greedy continuation against a prefill of what it said",
        repeat_cases,
        read_decoded,
        "prefill",
        reference=reread,
        refine=no_more,
        loose=True,
        thirds=(retold,),
    ),
    "prefix": Invariance("a warm prefix cache", other_tails, read_by("warm"), "parts", read_parts),
    "restore": Invariance(
        "saving and restoring the cache", other_tails, read_by("restored"), "parts", read_parts
    ),
    "crop": Invariance(
        "cropping a rejected draft and regrowing",
        partial(PromptPlan.cut_cases, other=DRAFT),
        read_by("cropped"),
        "parts",
        read_parts,
        loose=True,
    ),
    "reorder": Invariance(
        "reordering beams",
        partial(PromptPlan.cut_cases, other=1, rest=2),
        read_by("reordered"),
        "parts",
        read_parts,
        loose=True,
    ),
    "batch": Invariance(
        "a batch beside longer prompts (left-padded where the engine pads)",
        batch_cases,
        read_batch,
        "prefill",
        refine=length_sweep,
    ),
    "speculation": Invariance(
        "speculative decoding",
        lookup_cases,
        read_speculative,
        "parts",
        refine=no_more,
        new=lambda new: DRAFTED * new,
        loose=True,
    ),
}
"""Every invariance, simpler ones before those that build on them."""

ONE_BY_ONE = Invariance(
    "a prompt of just this length against the same tokens one by one",
    stepped_cases,
    stepped,
    refine=stepped_sweep,
    thirds=(halves, longer),
)
"""What `prefill` is compared with where no longer prompt can be, or the longer one is what is wrong."""
