"""Padding sweeps in a report: a sentence, numbers and a strip over L per prompt and family."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..records import Finding
from ..statistics.verdict import (
    SLIGHT,
    by_condition,
    find,
    is_slight,
    is_sweep,
    judge,
)
from ..wording import columns
from .figure import Figure, figure
from .svg import Frame, dot, path, text
from .words import STATES, listed, nats, number, p_of, percent, plain, points

FIGURES = 12
"""Strips that are drawn or printed of one condition; findings.json holds all."""
WIDTH = 16
"""Lengths in a line of a terminal."""
PALETTE = 8  # colours for residues in figure.css


def apart(findings: Iterable[Finding]) -> tuple[list[Finding], dict[str, list[Finding]]]:
    """Findings of everything but sweeps, and those of each condition that is one, controls first."""
    conditions = by_condition(findings)
    sweeps = {name: own for name, own in conditions.items() if is_sweep(own)}
    return [f for name, own in conditions.items() if name not in sweeps for f in own], sweeps


def _primary(own: Sequence[Finding]) -> Finding:
    """The period in the outcome that decides."""
    return next(f for f in own if f.name == "period" and f.detail.get("primary"))


def _advice(own: Sequence[Finding]) -> Finding:
    return next(f for f in own if f.name == "pads_to_add")


def _flips(own: Sequence[Finding]) -> list[Finding]:
    return [f for f in own if f.name == "flips"]


_OUTCOMES = {
    "margin": "the margin over the rival",
    "logprob": "the log-probability of the expected continuation",
    "accuracy": "the score",
}


def _size(value: float | None, outcome: str) -> str:
    """A phase SD with its unit."""
    if value is None:
        return "–"
    return f"{points(value)} points" if outcome == "accuracy" else f"{nats(value)} nats"


def _period_words(own: Sequence[Finding]) -> str:
    period, judgement = _primary(own), judge(own)
    what, least = _OUTCOMES[period.outcome], period.detail["smallest_detectable_effect"]
    if judgement.p_value is None:
        return "there are too few lengths to test any period"
    if (
        period.outcome == "accuracy"
        and len({score for f in _flips(own) for score in f.detail["scores"]}) == 1
    ):
        return f"{what} is the same in every trial, so that no period can be tested"
    if judgement.period is None:
        seen = (
            "" if least is None else f"; a phase SD of {_size(least, period.outcome)} would have been found"
        )
        few = f"; give --draws {judgement.draws_needed} or more to find any" if judgement.draws_needed else ""
        return f"{what} has no period ({p_of(period)}{seen}{few})"
    known = "" if period.expected is None else f", its own stride is {period.expected}"
    size = _size(period.detail["phase_sd"] or 0.0, period.outcome)
    slight = f", too little to matter (below {SLIGHT} nats)" if is_slight(period) else ""
    every = f"{what} repeats every {judgement.period} pad tokens ({p_of(period)}{known})"
    return f"{every}, with a phase SD of {size}{slight}"


def _flip_words(own: Sequence[Finding]) -> str:
    flips, total = _flips(own), _total_flips(own)
    lengths = flips[0].detail["lengths"]
    strips = f"{len(flips)} strips" if len(flips) > 1 else "one strip"
    changes = f"changes {total} times" if total else "never changes"
    return (
        f"the answer on top {changes} over L = {lengths[0]} to {lengths[-1]} in {strips} (prompt and padding)"
    )


def _total_flips(own: Sequence[Finding]) -> int:
    return sum(int(f.value or 0) for f in _flips(own))


def _residue_words(residues: Sequence[int], stride: int) -> str:
    return f"L mod {stride} is {listed([str(r) for r in residues]).replace(' and ', ' or ')}"


def _advice_words(own: Sequence[Finding]) -> str:
    advice = _advice(own)
    detail, right = advice.detail, "the expected answer is"
    if detail["state"] == "all":
        return f"{right} on top in every trial, so no padding is needed"
    if detail["state"] == "none":
        return f"{right} never on top, so no number of these pads helps"
    if detail["stride_from"] == "found" and judge(own).state == "sensitive":
        stride, held = detail["stride"], detail["held_out"]
        if advice.value is None:
            best = max((f for f in own if f.name == "sweep_residue"), key=lambda f: f.value or 0.0)
            return (
                f"no residue is safe; best is L mod {stride} = {best.residue}, right in {best.detail['right']} of "
                f"{best.detail['trials']} trials"
            )
        checked = f"{held['right']} of {held['trials']}" if held["trials"] else "none"
        add, least = int(advice.value), int(advice.value) % stride
        unseen = "" if least == add else f" ({least} would have the same residue, but was not measured)"
        todo = f"add {add} pads{unseen}" if add else "the prompt as it is needs no pads"
        return (
            f"{right} on top in every trial where {_residue_words(detail['safe'], stride)} (on lengths left out of "
            f"the choice: {checked}); {todo}"
        )
    always = detail["always_right"]
    if not always:
        return "no number of pads is right in every trial, and without a period none can be predicted"
    return (
        f"{right} on top in every trial at L = {', '.join(map(str, always))}, but without a period other lengths "
        "cannot be predicted"
    )


def sweep_sentence(own: Sequence[Finding]) -> str:
    """What one condition's sweep says, in a sentence."""
    judgement = judge(own)
    control = "Control " if judgement.control else ""
    words = "; ".join((_period_words(own), _flip_words(own), _advice_words(own)))
    return f"{control}{plain(judgement.condition)} is {STATES[judgement.state]}: {words}.{_pads_words(own)}"


def _pads_words(own: Sequence[Finding]) -> str:
    """A warning where a padding repeats in step with the period that was found."""
    period, repeats = judge(own).period, _primary(own).detail.get("pads_repeat", {})
    in_step = [name for name, every in repeats.items() if period and math.gcd(every, period) > 1]
    if not in_step:
        return ""
    which = listed([f"{plain(name)} (every {repeats[name]} tokens)" for name in in_step])
    return f" But the padding itself repeats in {which}, which can look like this; sweep again without it."


def sweep_text(own: Sequence[Finding]) -> str:
    """One condition's sweep for a terminal: a strip per prompt and family, the safe residues, and the sentence."""
    flips, residues = _flips(own), [f for f in own if f.name == "sweep_residue"]
    lines = [line for block in flips[:FIGURES] for line in (*_strip(block), "")]
    if len(flips) > FIGURES:
        lines += [f"… and {len(flips) - FIGURES} more strips in findings.json", ""]
    if residues:
        heads = ("L", "right", "trials", "lengths all right", "95 % interval", "safe")
        lines += [*columns([heads, *(_residue_row(f)[:-1] for f in residues)]), ""]
    return "\n".join([*lines, sweep_sentence(own)])


def _strip(block: Finding) -> Iterator[str]:
    """The numbers of one prompt under one family, in lines of `WIDTH` lengths."""
    yield f"{plain(block.condition)} · {plain(block.detail['prompt'])} · {plain(block.detail['family'])}"
    rows = _block_rows(block)
    for start in range(0, len(rows), WIDTH):
        part = [
            [label, *cells]
            for label, *cells in zip(*(_labels(block), *rows[start : start + WIDTH]), strict=True)
        ]
        yield from (f"  {line}" for line in columns(part))


def _probabilities(block: Finding) -> list[list[float]]:
    """Log-probabilities of the answer and of its rival, as far as all trials have them."""
    return [column for name in ("logprob", "rival_logprob") if None not in (column := block.detail[name])]


def _labels(block: Finding) -> tuple[str, ...]:
    """What the rows of a strip are: the expected answer's and its rivals' probability, or the score."""
    answers = [plain(repr(answer)[1:-1] or "''", 12) for answer in block.detail["answers"]] or ["expected"]
    rivals = " or ".join(answers[1:3]) + (" or …" if len(answers) > 3 else "") or "rival"
    pairs = zip(("logprob", "rival_logprob"), (answers[0], rivals), strict=True)
    shown = [f"P({answer})" for name, answer in pairs if None not in block.detail[name]]
    return ("L", "on top", *shown) if shown else ("L", "answer", "score")


def _block_rows(block: Finding) -> list[tuple[str, ...]]:
    """Per length: L, what was on top, and the probabilities or the score."""
    detail, probabilities, rows = block.detail, _probabilities(block), []
    for index, length in enumerate(detail["lengths"]):
        top = plain(repr(detail["top"][index])[1:-1] or "''", 8 if probabilities else 16)
        shown = [f"{math.exp(column[index]):.3f}" for column in probabilities]
        rows.append((str(length), top, *(shown or [f"{detail['scores'][index]:.2g}"])))
    return rows


def _residue_row(found: Finding) -> tuple[str, ...]:
    detail, margin = found.detail, found.detail["mean_margin"]
    return (
        f"{found.residue} mod {found.stride}",
        str(detail["right"]),
        str(detail["trials"]),
        f"{detail['right_lengths']} of {detail['lengths']}",
        f"{100 * (found.low or 0):.0f} to {100 * (found.high or 0):.0f} %",
        "yes" if detail["safe"] else "no",
        "–" if margin is None else number(margin, 2),
    )


def sweep_section(key: str, own: Sequence[Finding]) -> dict[str, Any]:
    """What the page shows of one condition's sweep."""
    judgement, more = judge(own), len(_flips(own)) - FIGURES
    return {
        "key": key,
        "name": plain(judgement.condition, 120),
        "state": judgement.state,
        "tag": ("control, " if judgement.control else "") + STATES[judgement.state],
        "sentence": sweep_sentence(own),
        "numbers": _numbers(own),
        "residues": [_residue_row(f) for f in own if f.name == "sweep_residue"],
        "figures": sweep_figures(key, own),
        "more": f"{more} more strips are in findings.json." if more > 0 else "",
    }


def sweep_figures(key: str, own: Sequence[Finding]) -> list[Figure]:
    """The first strips of a sweep."""
    stride = next((f.stride for f in own if f.name == "sweep_residue"), None)
    return [_figure(f"{key}-{n}", block, stride) for n, block in enumerate(_flips(own)[:FIGURES])]


def _numbers(own: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """Term, number and note."""
    period, advice, accuracy = _primary(own), _advice(own), find(own, "sweep_mean")
    detail, least = period.detail, period.detail["smallest_detectable_effect"]
    right = "–" if accuracy is None or accuracy.value is None else percent(accuracy.value)
    strides = ", ".join(map(str, detail["tested"])) or "none"
    seen = "not known" if least is None else _size(least, period.outcome)
    numbers = [
        ("Prompts, prompts × paddings", f"{period.n_clusters}, {period.n_blocks}", ""),
        ("Right answers", right, ""),
        ("Flips of the answer on top", str(_total_flips(own)), "changes from one length to the next"),
        ("Period found", str(judge(own).period or "none"), f"in {_OUTCOMES[period.outcome]}"),
        (
            "Phase SD at that period",
            _size(detail["phase_sd"], period.outcome),
            f"below {SLIGHT} nats it is called flat",
        ),
        ("Any period at all", p_of(period), f"one p over the strides {strides}"),
        ("Smallest phase SD that would show", seen, "at the worst of these strides"),
    ]
    if advice.stride:
        held, safe = advice.detail["held_out"], ", ".join(map(str, advice.detail["safe"])) or "none"
        whose = "the period found" if advice.detail["stride_from"] == "found" else "the model’s own stride"
        numbers += [
            (f"Safe residues of L mod {advice.stride}", safe, f"of {whose}"),
            ("Right where not used for the choice", f"{held['right']} of {held['trials']}", ""),
        ]
    return numbers


def _figure(key: str, block: Finding, stride: int | None) -> Figure:
    """P(expected) and P(rival), or the score, against L; dots are coloured by residue and numbered above."""
    detail, lengths = block.detail, block.detail["lengths"]
    frame = Frame(len(lengths), "pad tokens L", names=tuple(map(str, lengths)))
    labels = _labels(block)
    series = [[math.exp(x) for x in column] for column in _probabilities(block)] or [detail["scores"]]
    parts = [frame.axes()]
    for kind, values in zip(("condition", "control"), series, strict=False):
        parts.append(path(frame.points(values), f"curve {kind}"))
    for column, (length, value) in enumerate(zip(lengths, series[0], strict=True)):
        at = (frame.x(column), frame.y(value))
        kind = "condition" if stride is None else f"r{length % stride % PALETTE}"
        parts.append(dot(at, 3.8 if len(lengths) <= 48 else 2.0, f"dot {kind}"))
        if stride is not None and len(lengths) <= 32:
            parts.append(text(at[0], frame.top - 8, str(length % stride), "tick"))
    title = f"{plain(detail['prompt'], 40)} · {plain(detail['family'])}"
    rival = f"; dashed: {labels[3]}" if len(series) > 1 else ""
    residue = "" if stride is None else f" Above and by colour: L mod {stride}."
    at = detail["at"]
    some = ", ".join(map(str, at[:10])) + (", …" if len(at) > 10 else "")
    flips = f"The answer on top changes at {some}." if at else "The answer on top never changes."
    caption = f"Line and dots: {labels[2]}{rival}. {flips}{residue}"
    whole = f"{plain(block.condition)}: {title}"
    return figure(key, whole, caption, frame.size, parts, labels, _block_rows(block), title)
