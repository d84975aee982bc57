"""Padding sweeps in a report: a sentence, numbers and a strip over L per prompt and family."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from pydantic import JsonValue

from ..records import Finding
from ..runs import ConditionDescription
from ..statistics import analyse_sweep
from ..statistics.conditions import Condition
from ..statistics.verdict import (
    STATES,
    State,
    by_condition,
    corrected,
    find,
    found_period,
    is_control,
    listed,
    number,
    p_words,
    percent,
    plain,
)
from .figures import Figure
from .svg import Frame, dot, drawing, path, text

SWEEP = "sweep"
FIGURES = 12
"""Strips that are drawn or printed of one condition; findings.json holds all."""
WIDTH = 16
"""Lengths in a line of a terminal."""
SLIGHT = 0.05
"""Nats of phase SD below which a period is called flat: it moves no probability by more than about a point."""
PALETTE = 8  # colours for residues in report.css


def sweep_findings(condition: Condition, seed: int, draws: int) -> list[Finding]:
    """The findings of one condition's sweep, with the texts that were compared."""
    answers = {prompt.name: list(prompt.answers) for prompt in condition.described.protocol.prompts}
    findings = analyse_sweep(
        condition.observations,
        stride=condition.stride,
        comparable=condition.described.protocol.comparable,
        coordinate=condition.coordinate,
        rng=np.random.default_rng([seed, *condition.name.encode()]),
        draws=draws,
    )
    told = []
    for finding in findings:
        named: dict[str, Any] = {}
        if finding.name == "flips":
            named["answers"] = answers.get(finding.detail["prompt"], [])
        if finding.name == "period":
            named["pads_repeat"] = condition.described.protocol.repeating_families
        told.append(
            finding.model_copy(update={"condition": condition.name, "detail": {**finding.detail, **named}})
        )
    return told


def apart(findings: Iterable[Finding]) -> tuple[list[Finding], dict[str, list[Finding]]]:
    """Findings of everything but sweeps, and those of each condition that is one, controls first."""
    every = list(findings)
    sweeping = {finding.condition for finding in every if finding.name == "flips"}
    return [f for f in every if f.condition not in sweeping], by_condition(
        f for f in every if f.condition in sweeping
    )


def _primary(own: Sequence[Finding]) -> Finding:
    """The period in the outcome that decides."""
    return next(f for f in own if f.name == "period" and f.detail.get("primary"))


def _standing(own: Sequence[Finding]) -> int | None:
    """The period that stands after correction over conditions."""
    return found_period(own, _primary(own).outcome)


def _slight(own: Sequence[Finding]) -> bool:
    """Whether the period that stands is too weak to matter: deterministic models show the faintest ones."""
    period = _primary(own)
    return period.outcome != "accuracy" and (period.detail["phase_sd"] or 0.0) < SLIGHT


def _state(own: Sequence[Finding]) -> State:
    if _standing(own) is not None:
        return "flat" if _slight(own) else "sensitive"
    return "undecided" if _primary(own).detail["smallest_detectable_effect"] is None else "flat"


_OUTCOMES = {
    "margin": "the margin over the rival",
    "logprob": "the log-probability of the expected continuation",
    "accuracy": "the score",
}


def _nats(value: float, outcome: str) -> str:
    return f"{number(100 * value)} points" if outcome == "accuracy" else f"{number(value, 2)} nats"


def _period_words(own: Sequence[Finding]) -> str:
    period, standing = _primary(own), _standing(own)
    what, p = _OUTCOMES[period.outcome], corrected(period)
    if standing is not None and p is not None:
        known = "" if period.expected is None else f", its own stride is {period.expected}"
        size = _nats(period.detail["phase_sd"] or 0.0, period.outcome)
        slight = f", too little to matter (below {SLIGHT} nats)" if _slight(own) else ""
        return f"{what} repeats every {standing} pad tokens ({p_words(p)}{known}), with a phase SD of {size}{slight}"
    if p is None:
        return "there are too few lengths to test any period"
    least = period.detail["smallest_detectable_effect"]
    seen = "" if least is None else f"; a phase SD of {_nats(least, period.outcome)} would have been found"
    return f"{what} has no period ({p_words(p)}{seen})"


def _flip_words(own: Sequence[Finding]) -> str:
    flips = [f for f in own if f.name == "flips"]
    total = sum(int(f.value or 0) for f in flips)
    lengths = flips[0].detail["lengths"]
    over = f"L = {lengths[0]} to {lengths[-1]}"
    blocks = (
        f"{len(flips)} strips (prompt and padding)" if len(flips) > 1 else "one strip (prompt and padding)"
    )
    changes = "never changes" if not total else f"changes {total} times"
    return f"the answer on top {changes} over {over} in {blocks}"


def _residue_words(residues: Sequence[int], stride: int) -> str:
    return f"L mod {stride} is {listed([str(r) for r in residues]).replace(' and ', ' or ')}"


def _advice_words(own: Sequence[Finding]) -> str:
    advice = next(f for f in own if f.name == "pads_to_add")
    detail, right = advice.detail, "the expected answer is"
    if detail["state"] == "all":
        return f"{right} on top in every trial, so no padding is needed"
    if detail["state"] == "none":
        return f"{right} never on top, so no number of these pads helps"
    if detail["stride_from"] == "found" and _state(own) == "sensitive":
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
    control = "Control " if is_control(own) else ""
    said = "; ".join((_period_words(own), _flip_words(own), _advice_words(own)))
    return f"{control}{plain(own[0].condition)} is {STATES[_state(own)]}: {said}.{_pads_words(own)}"


def _pads_words(own: Sequence[Finding]) -> str:
    """A warning where a padding repeats in step with the period that was found."""
    standing, repeats = _standing(own), _primary(own).detail.get("pads_repeat", {})
    own_beat = [name for name, every in repeats.items() if standing and math.gcd(every, standing) > 1]
    if not own_beat:
        return ""
    which = listed([f"{plain(name)} (every {repeats[name]} tokens)" for name in own_beat])
    return f" But the padding itself repeats in {which}, which can look like this; sweep again without it."


def sweep_text(own: Sequence[Finding]) -> str:
    """One condition's sweep for a terminal: a strip per prompt and family, the safe residues, and the sentence."""
    flips = [f for f in own if f.name == "flips"]
    lines = [line for block in flips[:FIGURES] for line in (*_strip(block), "")]
    if len(flips) > FIGURES:
        lines += [f"… and {len(flips) - FIGURES} more strips in findings.json", ""]
    residues = [f for f in own if f.name == "sweep_residue"]
    if residues:
        lines += [*_columns([_RESIDUES[:-1], *(row[:-1] for row in _residue_rows(residues))]), ""]
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
        yield from (f"  {line}" for line in _columns(part))


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]


def _answers(block: Finding) -> tuple[str, str]:
    """What the probabilities are of: the expected answer, and its rivals."""
    answers = [plain(repr(answer)[1:-1] or "''", 12) for answer in block.detail["answers"]] or ["expected"]
    return answers[0], " or ".join(answers[1:3]) + (" or …" if len(answers) > 3 else "") or "rival"


def _labels(block: Finding) -> tuple[str, ...]:
    expected, rival = _answers(block)
    probability = [f"P({expected})"] if None not in block.detail["logprob"] else []
    probability += [f"P({rival})"] if None not in block.detail["rival_logprob"] else []
    return ("L", "on top", *probability) if probability else ("L", "answer", "score")


def _block_rows(block: Finding) -> list[tuple[str, ...]]:
    """Per length: L, what was on top, and the probabilities or the score."""
    detail, rows = block.detail, []
    columns = [c for c in (detail["logprob"], detail["rival_logprob"]) if None not in c]
    for index, length in enumerate(detail["lengths"]):
        top = plain(repr(detail["top"][index])[1:-1] or "''", 8 if columns else 16)
        shown = [f"{math.exp(column[index]):.3f}" for column in columns]
        rows.append((str(length), top, *(shown or [f"{detail['scores'][index]:.2g}"])))
    return rows


_RESIDUES = ("L", "right", "trials", "lengths all right", "95 % interval", "safe", "mean margin, nats")


def _residue_rows(residues: Sequence[Finding]) -> list[tuple[str, ...]]:
    rows: list[tuple[str, ...]] = []
    for f in residues:
        margin = f.detail["mean_margin"]
        interval = f"{100 * (f.low or 0):.0f} to {100 * (f.high or 0):.0f} %"
        rows.append(
            (
                f"{f.residue} mod {f.stride}",
                str(f.detail["right"]),
                str(f.detail["trials"]),
                f"{f.detail['right_lengths']} of {f.detail['lengths']}",
                interval,
                "yes" if f.detail["safe"] else "no",
                "–" if margin is None else number(margin, 2),
            )
        )
    return rows


def sweep_section(key: str, own: Sequence[Finding]) -> dict[str, Any]:
    """What the page shows of one condition's sweep."""
    flips = [f for f in own if f.name == "flips"]
    residues = [f for f in own if f.name == "sweep_residue"]
    stride = residues[0].stride if residues else None
    columns = ("L", "Right", "Trials", "Lengths all right", "95 % interval", "Safe", "Mean margin, nats")
    return {
        "key": key,
        "name": plain(own[0].condition, 120),
        "state": _state(own),
        "tag": ("control, " if is_control(own) else "") + STATES[_state(own)],
        "sentence": sweep_sentence(own),
        "numbers": _numbers(own),
        "residues": {"columns": columns, "rows": _residue_rows(residues)},
        "figures": [_figure(f"{key}-{n}", block, stride) for n, block in enumerate(flips[:FIGURES])],
        "more": f"{len(flips) - FIGURES} more strips are in findings.json." if len(flips) > FIGURES else "",
    }


def _numbers(own: Sequence[Finding]) -> list[tuple[str, str, str]]:
    """Term, number and note."""
    period, advice = _primary(own), next(f for f in own if f.name == "pads_to_add")
    flips = [f for f in own if f.name == "flips"]
    accuracy = find(own, "sweep_mean")
    p, least = corrected(period), period.detail["smallest_detectable_effect"]
    held = advice.detail.get("held_out", {"right": 0, "trials": 0})
    safe = advice.detail.get("safe", [])
    tested = ", ".join(map(str, period.detail["tested"])) or "none"
    numbers = [
        ("Prompts, prompts × paddings", f"{period.n_clusters}, {period.n_blocks}", ""),
        ("Right answers", "–" if accuracy is None or accuracy.value is None else percent(accuracy.value), ""),
        (
            "Flips of the answer on top",
            str(sum(int(f.value or 0) for f in flips)),
            "changes from one length to the next",
        ),
        ("Period found", str(_standing(own) or "none"), f"in {_OUTCOMES[period.outcome]}"),
        ("Phase SD at that period", _size_words(period), f"below {SLIGHT} nats it is called flat"),
        ("Any period at all", "–" if p is None else p_words(p), f"one p over the strides {tested}"),
        (
            "Smallest phase SD that would show",
            "not known" if least is None else _nats(least, period.outcome),
            "at the worst of these strides",
        ),
    ]
    if advice.stride:
        numbers += [
            (f"Safe residues of L mod {advice.stride}", ", ".join(map(str, safe)) or "none", _from(advice)),
            ("Right where not used for the choice", f"{held['right']} of {held['trials']}", ""),
        ]
    return numbers


def _size_words(period: Finding) -> str:
    size = period.detail["phase_sd"]
    return "–" if size is None else _nats(size, period.outcome)


def _from(advice: Finding) -> str:
    return "of the period found" if advice.detail["stride_from"] == "found" else "of the model’s own stride"


def _figure(key: str, block: Finding, stride: int | None) -> Figure:
    """P(expected) and P(rival), or the score, against L; dots are coloured by residue and numbered above."""
    detail = block.detail
    lengths = detail["lengths"]
    frame = Frame(len(lengths), "pad tokens L", ticks=tuple(map(str, lengths)))
    labels, rows = _labels(block), _block_rows(block)
    series = [[math.exp(x) for x in c] for c in (detail["logprob"], detail["rival_logprob"]) if None not in c]
    series = series or [detail["scores"]]
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
    what = labels[2] if len(series[0]) else ""
    rival = f"; dashed: {labels[3]}" if len(series) > 1 else ""
    residue = "" if stride is None else f" Above and by colour: L mod {stride}."
    flips = (
        f"The answer on top changes at {_some(detail['at'])}."
        if detail["at"]
        else "The answer on top never changes."
    )
    caption = f"Line and dots: {what}{rival}. {flips}{residue}"
    svg = drawing(key, f"{plain(block.condition)}: {title}", caption, (frame.width, frame.height), *parts)
    return Figure(svg, title, caption, labels, rows)


def _some(lengths: Sequence[int]) -> str:
    return ", ".join(map(str, lengths[:10])) + (", …" if len(lengths) > 10 else "")


def sweep_command(conditions: Sequence[ConditionDescription], folder: str) -> str:
    """The command line that sweeps these conditions, with prompts by name; they are the user's own files."""
    protocol, settings = conditions[0].protocol, conditions[0].protocol.settings
    files = dict.fromkeys(prompt.name.rpartition(":")[0] or prompt.name for prompt in protocol.prompts)
    words = ["phasescope", "sweep", *files]
    for condition in conditions:
        words += ["--control" if condition.backend.grids == () else "--model", condition.backend.model]
    words += ["--lengths", ",".join(map(str, _listed(settings.get("lengths"))))]
    words += ["--place", str(settings.get("placement"))]
    for family in _listed(settings.get("families")):
        words += ["--family", str(family)]
    given = {(prompt.expected, *prompt.rival) for prompt in protocol.prompts}
    expected, *rivals = given.pop() if len(given) == 1 else ("",)  # else the file says it for each
    words += ["--expected", expected] if expected else []
    for rival in rivals:
        words += ["--rival", rival]
    for option in ("mark", "second_mark", "source_mark", "system"):
        if settings.get(option) is not None:
            words += [f"--{option.replace('_', '-')}", str(settings[option])]
    if settings.get("chat"):
        words.append("--chat")
    if isinstance(scorer := settings.get("scorer"), dict):
        words += ["--scorer", str(scorer.get("given")), "--tokens", str(settings.get("new_tokens"))]
    return shlex.join([*words, "--out", folder])


def _listed(value: JsonValue) -> list[JsonValue]:
    return value if isinstance(value, list) else []
