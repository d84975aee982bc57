"""The ways in which the same tokens can be fed, each of which must give the same answer.

An invariance is one function that yields cases and one that reads a case; the table at the end names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from .asker import CachedReader
from .cases import SWEPT, Case, Plan
from .subject import NotOfferedError, Reading, gap

DRAFT = 7  # most tokens of a rejected draft
BEAMS = 3
PATTERN = 11  # tokens after which a prompt for prompt lookup repeats itself
DRAFTED = 2  # times as many tokens are continued where drafts are to be made
DECODED = 9  # tokens of a greedy continuation that are read again; two windows of a stride of 4
MOST_STEPS = 300
LEAD = 8  # fewest tokens that token-by-token reading begins with


Read = Callable[[CachedReader, Case], Reading]


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
    """

    says: str
    cases: Callable[[Plan], Iterator[Case]]
    read: Read
    base: str | None = None
    base_read: Read | None = None
    refine: Callable[[Plan, Case], Iterator[Case]] = Plan.cut_sweep
    new: Callable[[int], int] = int
    reference: Read | None = None
    loose: bool = False


def read_again(ask: CachedReader, case: Case) -> Reading:
    """The same call a second time."""
    return ask.subject.whole(case.prompt, ask.new)


def read_inside(ask: CachedReader, case: Case) -> Reading:
    """What follows the prompt where more tokens stand behind it.

    Three lengths of what stands behind are tried, and the middle reading by its distance from the reference
    counts: one of the longer prompts may itself have a length at which the engine goes wrong.
    """
    at, behind = len(case.prompt) - 1, case.other or ask.tail(5)
    start = 0 if case.other else at  # the cases of a sweep share one prompt, and are read at all its tokens
    found = [ask.inside(case.prompt + behind + ask.tail(more), start)[at - start] for more in (0, 3, 7)]
    reference = ask.whole(case.prompt, 1)
    return sorted(found, key=lambda reading: gap(reference, reading))[1]


def read_parts(ask: CachedReader, case: Case) -> Reading:
    """Two pieces."""
    assert case.cut is not None
    return ask.subject.in_parts(case.prompt, (case.cut,), ask.new)


def read_chunks(ask: CachedReader, case: Case) -> Reading:
    """Pieces of one size."""
    assert case.cut is not None
    return ask.subject.in_parts(case.prompt, range(case.cut, len(case.prompt), case.cut), ask.new)


def read_steps(ask: CachedReader, case: Case) -> Reading:
    """One piece, then token by token."""
    assert case.cut is not None
    return ask.subject.token_by_token(case.prompt, case.cut, ask.new)


def read_decoded(ask: CachedReader, case: Case) -> Reading:
    """The greedy continuation behind its first token."""
    said = ask.whole(case.prompt, DECODED)
    return Reading(said.rows[1:], said.tokens[1:])


def reread(ask: CachedReader, case: Case) -> Reading:
    """Each token of the greedy continuation from a prefill of all before it."""
    said = ask.whole(case.prompt, DECODED).tokens
    ids = tuple(token for token in said if isinstance(token, int))
    if len(ids) < len(said):
        raise NotOfferedError("needs the ids of generated tokens (vLLM: return_tokens_as_token_ids)")
    again = [ask.whole(case.prompt + ids[:count], 1) for count in range(1, len(ids))]
    return Reading(tuple(one.rows[0] for one in again), tuple(one.tokens[0] for one in again))


def read_batch(ask: CachedReader, case: Case) -> Reading:
    """Beside another prompt, which is longer by the left pads."""
    return ask.subject.in_batch([case.prompt, case.other], ask.new)[0]


def read_warm(ask: CachedReader, case: Case) -> Reading:
    """After another prompt that begins alike."""
    assert case.cut is not None
    return ask.subject.warm(case.prompt, case.cut, case.other, ask.new)


def read_restored(ask: CachedReader, case: Case) -> Reading:
    """Saved at the cut, and restored."""
    assert case.cut is not None
    return ask.subject.restored(case.prompt, case.cut, case.other, ask.new)


def read_cropped(ask: CachedReader, case: Case) -> Reading:
    """A rejected draft at the cut."""
    assert case.cut is not None
    return ask.subject.cropped(case.prompt, case.cut, case.other, ask.new)


def read_reordered(ask: CachedReader, case: Case) -> Reading:
    """Three beams from the cut on."""
    assert case.cut is not None
    return ask.subject.reordered(case.prompt, case.cut, case.other, ask.new)


def read_speculative(ask: CachedReader, case: Case) -> Reading:
    """Continued with drafts."""
    return ask.subject.speculative(case.prompt, DRAFTED * ask.new)


def repeat_cases(plan: Plan) -> Iterator[Case]:
    """A few lengths, the longest among them."""
    lengths = plan.lengths()
    for length in sorted({lengths[len(lengths) * part // 6] for part in range(6)} | {plan.longest}):
        yield Case(plan.tokens(length))


def sweep_cases(plan: Plan) -> Iterator[Case]:
    """Consecutive lengths of one prompt, from the shortest on, and boundaries beyond them."""
    swept = range(2, min(plan.sweep + 2, plan.longest + 1) if plan.sweep else 2)
    prompt = plan.tokens(len(swept) + 2)
    for length in swept:
        yield Case(prompt[:length], other=prompt[length:])
    for length in plan.lengths():
        if length not in swept:
            yield Case(plan.tokens(length))


def split_cases(plan: Plan) -> Iterator[Case]:
    """Cuts at boundaries and anywhere."""
    return plan.cut_cases()


def chunk_cases(plan: Plan) -> Iterator[Case]:
    """Chunk sizes around every stride."""
    sizes = sorted({stride + near for stride in plan.joint for near in (-1, 0, 1)} | {16, 64})
    for size in sizes:
        for length in sorted({plan.longest, int(plan.rng.integers(2, plan.longest + 1))}):
            if 1 < size < length and length // size <= 64:
                yield Case(plan.tokens(length), size)


def step_cases(plan: Plan) -> Iterator[Case]:
    """Across boundaries of every grid, and one long way from near the start."""
    lengths = plan.lengths()
    for length in plan.rng.choice(lengths, size=plan.sizes // 3).tolist():
        if length > 2:
            start = max(1, length - int(plan.rng.integers(2, 2 * LEAD)))
            yield Case(plan.tokens(length), start)
    yield Case(plan.tokens(min(plan.longest, 2 * max(plan.joint, default=LEAD) + 3, MOST_STEPS)), LEAD)


def batch_cases(plan: Plan) -> Iterator[Case]:
    """No pad, one pad, and pads around every stride."""
    pads = sorted({0, 1, *(stride + near for stride in plan.joint for near in (-1, 0, 1))})
    lengths = plan.lengths()
    for index in range(max(plan.sizes, len(pads))):
        pad = pads[index % len(pads)]
        length = lengths[int(plan.rng.integers(len(lengths)))]
        length = max(2, min(length, plan.longest - pad))
        if length + pad <= plan.longest:
            yield Case(plan.tokens(length), other=plan.tokens(length + pad), pads=pad)


def draft_cases(plan: Plan) -> Iterator[Case]:
    """Rejected drafts at cuts."""
    return plan.cut_cases(other=DRAFT)


def tail_cases(plan: Plan) -> Iterator[Case]:
    """Other tokens at cuts, about as many as in a block."""
    return plan.cut_cases(other=24)


def beam_cases(plan: Plan) -> Iterator[Case]:
    """Cuts from which several rows go on."""
    return plan.cut_cases(other=1, rest=2)


def lookup_cases(plan: Plan) -> Iterator[Case]:
    """Prompts that repeat themselves, so that drafts are found in them."""
    for length in plan.rng.choice(plan.lengths(), size=max(3, plan.sizes // 4)).tolist():
        pattern = plan.tokens(PATTERN)
        length = max(length, 2 * PATTERN)
        yield Case((pattern * (length // PATTERN + 1))[:length])


def length_sweep(plan: Plan, like: Case) -> Iterator[Case]:
    """Consecutive lengths in one batch with the same number of pads."""
    for length in range(2, min(len(like.prompt), SWEPT)):
        other = like.other[: length + (like.pads or 0)]
        yield Case(like.prompt[:length], other=other, pads=like.pads)
    for pads in range(min(SWEPT, plan.longest - len(like.prompt))):
        yield Case(like.prompt, other=plan.tokens(len(like.prompt) + pads), pads=pads)


def no_more(plan: Plan, like: Case) -> Iterator[Case]:
    """The cases are all there is."""
    return iter(())


INVARIANCES: dict[str, Invariance] = {
    "repeat": Invariance("the same call twice", repeat_cases, read_again, refine=no_more),
    "prefill": Invariance(
        "a prompt of just this length against the same tokens inside a longer one",
        sweep_cases,
        read_inside,
        refine=no_more,
        new=lambda new: 1,
    ),
    "parts": Invariance("prefill in two parts", split_cases, read_parts, "prefill"),
    "chunks": Invariance(
        "prefill in chunks of one size",
        chunk_cases,
        read_chunks,
        "parts",
        refine=no_more,
        loose=True,
    ),
    "steps": Invariance("token-by-token decoding", step_cases, read_steps, "prefill", refine=no_more),
    "decode": Invariance(
        "a greedy continuation against a prefill of what it said",
        repeat_cases,
        read_decoded,
        "prefill",
        reference=reread,
        refine=no_more,
        loose=True,
    ),
    "prefix": Invariance("a warm prefix cache", tail_cases, read_warm, "parts", read_parts),
    "restore": Invariance("saving and restoring the cache", tail_cases, read_restored, "parts", read_parts),
    "crop": Invariance(
        "cropping a rejected draft and regrowing",
        draft_cases,
        read_cropped,
        "parts",
        read_parts,
        loose=True,
    ),
    "reorder": Invariance("reordering beams", beam_cases, read_reordered, "parts", read_parts, loose=True),
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
