"""The tables of docs/results.md, each from the kept summaries alone."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from phasescope.files import read_json
from phasescope.statistics.verdict import holm

PROTOCOLS = ("prefix", "in_sequence")
SHOWN = ("in_sequence", "prefix")
ORDER = (
    "full", "w4s4", "w8s4", "w8s6", "w8s8", "w12s12", "full-2kv", "full-4kv", "w8s8-2kv", "w8s8-4kv",
    "w8s4-vector", "w8s4-uniform", "w8s4-binding", "w8s4-norope", "w8s4-csa", "w8s4-tail",
)  # fmt: skip
SETTLED = 0.9  # correlation with the final slot weights
GOAL, MOST_LOSS, SEEDS = 0.2, 0.005, 3  # of the open problem
BYTES = 2  # of a cached number, in bfloat16

# Published: validation loss, and the phase gap in points under prefix padding; None where it is not known. The one
# gap of the full-attention models is an upper bound over 1, 4 and 8 KV heads. Source: arXiv 2609.36322.
PUBLISHED: dict[str, tuple[float | None, float | None]] = {
    "full": (2.466, 6.1),
    "w8s4": (2.467, 39.8),
    "w8s6": (2.470, 31.9),
    "w8s8": (2.478, 75.3),
    "w12s12": (2.487, 63.2),
}
PUBLISHED_ABLATIONS = "33.9 to 40.9"  # the gaps of all of them


@dataclass(frozen=True)
class Run:
    """One kept summary."""

    row: str
    seed: int
    facts: dict[str, Any]

    @property
    def stride(self) -> int | None:
        """The model's own; None for full attention."""
        plan = self.facts["settings"]["compression"]
        return None if plan is None else int(plan["stride"])

    @property
    def trying(self) -> bool:
        """Whether it is an attempt on the open problem and no row of the published grid."""
        return self.row.startswith("try-")

    def finding(self, protocol: str, name: str, outcome: str = "accuracy") -> dict[str, Any]:
        """A finding by name; accuracy is the outcome that a summary leaves out."""
        found: dict[str, Any] = next(
            f for f in self.facts[protocol] if f["name"] == name and f.get("outcome", "accuracy") == outcome
        )
        return found

    def value(self, protocol: str, name: str) -> float:
        """Its value, in points where it is a share."""
        return 100 * float(self.finding(protocol, name)["value"])

    def phases(self, protocol: str) -> list[float]:
        """Recall at each phase, in points."""
        return [100 * f["value"] for f in self.facts[protocol] if f["name"] == "phase_rate"]

    @property
    def cache_bytes(self) -> int:
        """Of the entries of 1,000 tokens in all layers, in bfloat16; raw tokens still needed come on top."""
        settings, plan = self.facts["settings"], self.facts["settings"]["compression"]
        tensors = 1 if plan and plan["binding"] else 2
        entry = tensors * settings["head_dim"] * settings["kv_heads"] * settings["layers"] * BYTES
        return round(1000 * entry / (plan["stride"] if plan else 1))


def read(keep: Path) -> list[Run]:
    """All summaries, in the order of the table."""
    runs = [Run(facts["row"], facts["seed"], facts) for facts in map(read_json, sorted(keep.glob("*.json")))]
    return sorted(runs, key=lambda r: (ORDER.index(r.row) if r.row in ORDER else len(ORDER), r.row, r.seed))


def grid(runs: Sequence[Run], protocol: str) -> str:
    """Every run of the published grid under one padding."""
    lines = [
        "| row | seed | held out | mean | worst | phase SD | gap | period found |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for run in runs:
        if not run.trying:
            lines.append(
                f"| {run.row} | {run.seed} | {run.facts['held_out']:.3f} | {_cells(run, protocol)} |"
            )
    return "\n".join(lines) + "\n"


def matrix(runs: Sequence[Run]) -> str:
    """Recall at each phase, in sequence; the control is left out, which has none."""
    lines = ["In sequence, mean over seeds.", "", "| row | phases 0, 1, … |", "|---|---|"]
    for row, group in _rows(runs):
        if group[0].stride and group[0].stride < 24:
            curve = np.mean([run.phases("in_sequence") for run in group], axis=0)
            lines.append(f"| {row} | {' '.join(f'{value:.0f}' for value in curve)} |")
    return "\n".join(lines) + "\n"


def bars(runs: Sequence[Run]) -> tuple[dict[str, int], str]:
    """Whether periods are strides, and whether a control has one."""
    wrong, sensitive, flat = [], 0, []
    for run, protocol in itertools.product(runs, PROTOCOLS):
        spread, period = run.finding(protocol, "phase_sd"), run.finding(protocol, "period")
        if run.stride is None:
            continue
        if spread["low"] and spread["low"] > 0:
            sensitive += 1
            if period["value"] != run.stride:
                wrong.append(f"{run.row} seed {run.seed}, {protocol}: {period['value'] or 'none'}")
        else:
            flat.append(f"{run.row} seed {run.seed}, {protocol}{_coverage(run)}")
    controls = [
        run.finding(protocol, "period", outcome)["p_value"]
        for run, protocol, outcome in itertools.product(runs, PROTOCOLS, ("accuracy", "logprob"))
        if run.stride is None
    ]
    corrected = holm(np.array(controls, float)) if controls else np.array([])
    below = int((corrected < 0.01).sum())
    text = (
        f"In {sensitive} conditions (a run under one padding) the interval of the phase SD excludes 0; the "
        f"period found from the "
        f"data alone is the model's stride in {sensitive - len(wrong)} of them"
        + (f", and not in: {'; '.join(wrong)}.\n" if wrong else ".\n")
        + (f"\nFlat by that interval: {'; '.join(flat)}.\n" if flat else "")
        + (
            f"\nFull attention, accuracy and log-probability (an accuracy of 100 % can show no phase, "
            f"its log-probability "
            f"can): of {len(controls)} searches {below} name a stride at p < 0.01 after Holm; the "
            f"smallest corrected p is "
            f"{corrected.min():.2g}.\n"
            if controls
            else ""
        )
    )
    return {"rows": len(runs), "periods_wrong": len(wrong), "controls_below_01": below}, text


def beside(runs: Sequence[Run]) -> str:
    """Our gaps and losses beside the published ones, and how often the order of two rows agrees."""
    lines = [
        "Gaps under prefix padding in points, losses as the difference to full attention in nats; "
        "ours are means over seeds "
        "(lowest to highest).",
        "",
        "| row | gap: ours | published | loss: ours | published | period: ours | published |",
        "|---|---|---|---|---|---|---|",
    ]
    means = {row: _mean_row(group) for row, group in _rows(runs) if not group[0].trying}
    for row, ours in means.items():
        loss, gap = PUBLISHED.get(row, (None, None))
        base = PUBLISHED["full"][0]
        lines.append(
            f"| {row} | {ours['gap']:.1f} ({ours['least']:.1f} to {ours['most']:.1f}) | "
            f"{_published_gap(row, gap)} | "
            f"{ours['loss'] - means['full']['loss'] if 'full' in means else float('nan'):+.3f} | "
            f"{'not known' if loss is None or base is None else f'{loss - base:+.3f}'} | "
            f"{ours['periods']} | {ours['stride'] or 'none'} |"
        )
    return "\n".join(lines) + "\n\n" + _orders(means)


def dynamics(runs: Sequence[Run]) -> str:
    """Phase SD and gate preference along training, in sequence."""
    lines = [
        f"Phase SD in points at looks along training (in sequence, 24 contexts, the same at every "
        f"look). **Settled**: the first "
        f"look from which on the last layer's slot weights correlate with their final values by {SETTLED} or more.",
        "",
    ]
    shown = [run for run in runs if run.stride and run.facts["curve"][-1].get("gates")]
    if not shown:
        return "No compressed row has been trained yet.\n"
    steps = [look["step"] for look in shown[0].facts["curve"]]
    picked = sorted({steps[i] for i in np.linspace(0, len(steps) - 1, 9).round().astype(int)})
    lines += [
        f"| row | seed | {' | '.join(map(str, picked))} | settled at |",
        "|" + "---|" * (len(picked) + 3),
    ]
    for run in shown:
        looks = {look["step"]: look for look in run.facts["curve"]}
        cells = [f"{100 * looks[s]['phase_sd']:.1f}" if s in looks else "" for s in picked]
        lines.append(f"| {run.row} | {run.seed} | {' | '.join(cells)} | {_settled(run)} |")
    return "\n".join(lines) + "\n"


def attempts(runs: Sequence[Run]) -> str:
    """Every attempt beside its baseline: where settings were chosen, and on seeds that nobody had looked at."""
    looked_at, fresh = ([run for run in runs if (run.seed >= SEEDS) == new] for new in (False, True))
    if not any(run.trying for run in looked_at):
        return "None has been trained yet.\n"
    said = (
        "Against W8/S8 with as many KV heads, parameters and tokens, over the seeds that the attempt has. Points; "
        "means over seeds; in sequence / prefix. The goal is a phase SD of a fifth of the baseline's, with mean "
        f"recall no lower and a held-out loss at most {MOST_LOSS} higher.\n\n{_attempts(looked_at)}"
    )
    if any(run.trying for run in fresh):
        said += (
            f"\nSettings were chosen on the seeds above. Seeds from {SEEDS} on had no part in that, and only they can "
            f"confirm an attempt:\n\n{_attempts(fresh)}"
        )
    return said


def _attempts(runs: Sequence[Run]) -> str:
    """The attempts among these runs, each after its baseline: means over the seeds of the attempt."""
    groups = dict(_rows(runs))
    tried = {row: group for row, group in groups.items() if group[0].trying}
    lines = [
        "| attempt | seeds | phase SD | of the baseline's | worst | mean | held out | cache bytes per 1,000 tokens "
        "| goal |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    beside: list[tuple[list[Run], list[Run]]] = []
    for heads in sorted({group[0].facts["settings"]["kv_heads"] for group in tried.values()}):
        base = groups.get("w8s8" if heads == 1 else f"w8s8-{heads}kv", [])
        if base:
            lines.append(_attempt(base, base))
        for group in tried.values():
            if group[0].facts["settings"]["kv_heads"] == heads:
                seeds = {run.seed for run in group}
                beside.append((group, [run for run in base if run.seed in seeds]))
                lines.append(_attempt(*beside[-1]))
    return "\n".join(lines) + f"\n\nSeed by seed:\n\n{_pair_by_pair(beside)}"


def _attempt(group: list[Run], base: list[Run]) -> str:
    """A line of attempts: the group's means, and how they stand to the baseline's."""
    shares = [_over(group, p, "phase_sd") / _over(base, p, "phase_sd") for p in SHOWN] if base else []
    cells = [
        group[0].row,
        ", ".join(str(run.seed) for run in group),
        _both(group, "phase_sd"),
        " / ".join(f"{share:.2f}" for share in shares),
        _both(group, "worst_residue"),
        _both(group, "mean_accuracy"),
        f"{_held_out(group):.3f}",
        f"{group[0].cache_bytes:,}",
        "baseline" if group is base else _goal(group, base),
    ]
    return f"| {' | '.join(cells)} |"


def _goal(group: list[Run], base: list[Run]) -> str:
    """In how many seeds the goal is reached: a failure and a success do not average to "met"."""
    pairs = _pairs(group, base)
    if len(pairs) < len(group):
        return "no baseline"
    met = [str(run.seed) for run, other in pairs if not _missed(run, other)]
    seeds = f"{len(pairs)} seed{'s' * (len(pairs) > 1)}"
    return f"met in {len(met)} of {seeds}" + (f" ({', '.join(met)})" if met else "")


def _pairs(group: list[Run], base: list[Run]) -> list[tuple[Run, Run]]:
    """Each run of an attempt beside the baseline's run of its seed."""
    others = {run.seed: run for run in base}
    return [(run, others[run.seed]) for run in group if run.seed in others]


def _missed(run: Run, base: Run) -> list[str]:
    """What one seed misses of the goal."""
    missed = [] if run.facts["held_out"] <= base.facts["held_out"] + MOST_LOSS else ["loss"]
    for protocol in SHOWN:
        said = protocol.replace("_", " ")
        missed += [f"SD {said}"] * (run.value(protocol, "phase_sd") > GOAL * base.value(protocol, "phase_sd"))
        worse = run.value(protocol, "mean_accuracy") < base.value(protocol, "mean_accuracy")
        missed += [f"mean {said}"] * worse
    return missed


def _pair_by_pair(tried: Sequence[tuple[list[Run], list[Run]]]) -> str:
    """Each seed's pair, and the mean difference over seeds with its interval over seeds."""
    lines = [
        "| attempt | seed | phase SD · baseline | mean · baseline | held out · baseline | misses |",
        "|---|---|---|---|---|---|",
    ]
    for group, base in tried:
        pairs = _pairs(group, base)
        for run, other in pairs:
            cells = (
                *(f"{_both([run], name)} · {_both([other], name)}" for name in ("phase_sd", "mean_accuracy")),
                f"{_held_out([run]):.3f} · {_held_out([other]):.3f}",
                ", ".join(_missed(run, other)) or "nothing",
            )
            lines.append(f"| {run.row} | {run.seed} | {' | '.join(cells)} |")
        if len(pairs) > 1:
            cells = (
                *(_differences(pairs, name) for name in ("phase_sd", "mean_accuracy")),
                _difference([_held_out([run]) - _held_out([other]) for run, other in pairs], 3),
                "",
            )
            lines.append(f"| {group[0].row} | difference, 95 % | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _differences(pairs: list[tuple[Run, Run]], name: str) -> str:
    return " / ".join(
        _difference([run.value(protocol, name) - other.value(protocol, name) for run, other in pairs], 1)
        for protocol in SHOWN
    )


def _difference(values: list[float], digits: int) -> str:
    """A mean over seeds with Student's interval over seeds."""
    mean, half = float(np.mean(values)), float(np.std(values, ddof=1) / np.sqrt(len(values)))
    half *= float(stats.t.isf(0.025, len(values) - 1))
    return f"{mean:+.{digits}f} [{mean - half:+.{digits}f}, {mean + half:+.{digits}f}]"


def _held_out(group: Sequence[Run]) -> float:
    return float(np.mean([run.facts["held_out"] for run in group]))


def _both(group: Sequence[Run], name: str) -> str:
    return " / ".join(f"{_over(group, protocol, name):.1f}" for protocol in SHOWN)


def _over(group: Sequence[Run], protocol: str, name: str) -> float:
    return float(np.mean([run.value(protocol, name) for run in group]))


def _cells(run: Run, protocol: str) -> str:
    spread, period = run.finding(protocol, "phase_sd"), run.finding(protocol, "period")
    return (
        f"{run.value(protocol, 'mean_accuracy'):.1f} | {run.value(protocol, 'worst_residue'):.1f} | "
        f"{100 * spread['value']:.1f} ({100 * (spread['low'] or 0):.1f} to {100 * (spread['high'] or 0):.1f}) | "
        f"{run.value(protocol, 'split_half_gap'):.1f} | {_period(period)}"
    )


def _period(finding: dict[str, Any]) -> str:
    return "none" if finding.get("value") is None else f"{finding['value']:.0f}"


def _rows(runs: Sequence[Run]) -> Iterator[tuple[str, list[Run]]]:
    for row, group in itertools.groupby(runs, key=lambda run: run.row):
        yield row, list(group)


def _mean_row(group: Sequence[Run]) -> dict[str, Any]:
    gaps = [run.value("prefix", "split_half_gap") for run in group]
    return {
        "gap": float(np.mean(gaps)),
        "least": min(gaps),
        "most": max(gaps),
        "loss": float(np.mean([run.facts["held_out"] for run in group])),
        "periods": ", ".join(_period(run.finding("prefix", "period")) for run in group),
        "stride": group[0].stride,
    }


def _orders(means: dict[str, dict[str, Any]]) -> str:
    known = [row for row in PUBLISHED if row in means]
    lines = []
    for index, what, key in ((1, "gap", "gap"), (0, "loss", "loss")):
        pairs = list(itertools.combinations(known, 2))
        agree = [
            (PUBLISHED[a][index] < PUBLISHED[b][index]) == (means[a][key] < means[b][key])  # type: ignore[operator]
            for a, b in pairs
        ]
        turned = [f"{a} and {b}" for (a, b), same in zip(pairs, agree, strict=True) if not same]
        lines.append(
            f"The order by {what} agrees in {sum(agree)} of {len(pairs)} pairs of rows with published numbers"
            + (f"; turned round: {', '.join(turned)}." if turned else ".")
        )
    return "\n".join(lines) + "\n"


def _settled(run: Run) -> str:
    looks = [(look["step"], np.ravel(look["gates"][-1])) for look in run.facts["curve"] if look.get("gates")]
    final = looks[-1][1]
    if np.ptp(final) < 0.01:
        return "no preference"
    step = None
    for at, weights in reversed(looks):
        if np.ptp(weights) < 1e-6 or np.corrcoef(weights, final)[0, 1] < SETTLED:
            break
        step = at
    return "at the end" if step == looks[-1][0] else str(step)


def _coverage(run: Run) -> str:
    """Heads × slots kept of the last layer: how many slots are weighed at half the even share or more by some head."""
    gates = run.facts["curve"][-1].get("gates")
    if not gates:
        return ""
    weight_HW = np.array(gates[-1])
    kept_HW = weight_HW >= 0.5 / weight_HW.shape[1]
    heads = " + ".join(str(int(kept_W.sum())) for kept_W in kept_HW)
    return f" (the last layer's heads keep {heads} slots of {weight_HW.shape[1]}, together {int(kept_HW.any(0).sum())})"


def _published_gap(row: str, gap: float | None) -> str:
    if gap is None:
        ablated = row.startswith("w8s4-") and row != "w8s4-uniform"
        return f"among {PUBLISHED_ABLATIONS}" if ablated else "not known"
    return f"at most {gap:.1f}" if row == "full" else f"{gap:.1f}"
