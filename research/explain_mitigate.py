"""Explanations and mitigations held against their bars: a head's contrast, the account's hits, what pads and votes win.

    python -m research.explain_mitigate [--models FOLDER] [--only head account mitigate]

The zoo's models are always taken; FOLDER holds further runs of `phasescope train` (one folder each, with a card), such
as other seeds. Every line but the last is for people, the last is one JSON object:

    head_contrast_points   accuracy lost without a head, at the phases its gate prefers less at the others: the largest
                           over the heads of W8/S8 with two KV heads, taken away whole at the last position, or
                           with what they read from entries at every position (`head_contrast_of` says which)
    head_contrast_last     the same of whole heads at the last position alone
    head_contrast_low      lower end of its interval; at or below 0 no specialisation is seen, and
    head_contrast_power    is the contrast that would have been found with 80 % power
    head_contrast_of       whose head it is, and how it was taken away
    account_hits, account_models   non-flat models whose phase named by the account is among their measured weakest two
    account_chance         probability of so many hits if each phase were drawn at random
    account_rank_correlation   of account and measured curve over phases, averaged over these models
    last_phase_hits        hits of a rule that reads no gate and always names the last phase, at the window's end
    explain_seconds        all heads of the zoo's model with the most of them, 200 blocks, one thread, wall clock
    explain_cpu_seconds    the same in seconds of CPU
    pack_worst_to_best_points   how far the worst residue is below the best phase once records are packed, in points
    pack_tokens_per_record      neutral tokens added per record, of unequal lengths that visit every residue
    pack_gain_over_random_points   mean accuracy over that with as many pads at random
    vote2_worst_gain       rise of the worst residue by two askings, as a share of its distance to the mean
    vote2_mean_points      rise of the mean by the same
    flat_pads, flat_mean_points    pads that the uncompressed control gets, and what its mean loses or gains
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from phasescope.backends.transformers.backend import TransformersBackend
from phasescope.checkpoints import zoo
from phasescope.explaining import ExplanationResult
from phasescope.explaining.ablation import Ablation
from phasescope.explaining.coverage_score import (
    CoverageScore,
    agreement,
    chance_of_hit,
    weakest_phases,
)
from phasescope.explaining.explanation import Explanation
from phasescope.explaining.gates import GateTally
from phasescope.explaining.hooks import find_attention_hooks
from phasescope.explaining.result import Contrast
from phasescope.explaining.settings import ExplainSettings
from phasescope.files import read_json
from phasescope.protocols import InSequencePadding
from phasescope.reporting import build_report
from phasescope.verbs import measure, mitigate

PROTOCOL = "in_sequence"
"""Distractors are not locked to the source there, so that the phase is the source's alone."""
GATE_CONTEXTS = 8
GATE_SEED = 11
"""Of the contexts over which gates are read; cards are measured with seed 0."""
PARTS = ("head", "account", "mitigate")
MENDED, FLAT = "w8s8-1kv", "full-1kv"
CONTEXTS = 48


def checkpoints(models: Path | None) -> Iterator[Path]:
    """The zoo's compressed models, then those of a folder; each has a card with a measured curve."""
    folders = [zoo.folder(name) for name in zoo.names()]
    folders += [path.parent for path in sorted(models.glob("*/card.json"))] if models is not None else []
    for folder in folders:
        card = read_json(folder / "card.json")
        if card["compression"] is not None and PROTOCOL in card.get("measured", {}):
            yield folder


def score_of(folder: Path) -> CoverageScore | None:
    """What a checkpoint's gates keep, read over contexts that its card was not measured on."""
    card = read_json(folder / "card.json")
    backend = TransformersBackend.load(folder)
    tally, hooks = GateTally(int(card["compression"]["stride"])), find_attention_hooks(backend.model)
    reader = Ablation(backend.model, hooks, [], max_tokens=backend.max_tokens)
    protocol = InSequencePadding(pairs=card["pairs"], contexts=GATE_CONTEXTS)
    for batch in protocol.batches(backend.vocabulary(), np.random.default_rng(GATE_SEED)):
        reader.learn(batch, tally.add)
    return tally.coverage_score()


def account_half(models: Path | None) -> dict[str, Any]:
    """Hits of the account over all non-flat models."""
    hits, phases, orders, last_hits = 0, [], [], 0
    for folder in checkpoints(models):
        card = read_json(folder / "card.json")["measured"][PROTOCOL]
        curve, account = np.asarray(card["phases"]), score_of(folder)
        if card["low"] <= 0 or account is None:
            print(
                f"{folder.name:14} left out: {'flat' if card['low'] <= 0 else 'its gates give no account'}",
                flush=True,
            )
            continue
        weakest = weakest_phases(curve)
        hit = account.weakest in weakest
        hits, phases = hits + hit, [*phases, len(curve)]
        order = agreement(account.phases_P, curve)
        orders.append(order or 0.0)
        last_hits += len(curve) - 1 in weakest
        print(
            f"{folder.name:14} {'hit ' if hit else 'miss'} names {account.weakest}, measured weakest {weakest}, chance "
            f"{chance_of_hit(len(curve)):.0%}, rank correlation {order or 0:+.2f}\n"
            f"{'':14} account  {np.round(account.phases_P, 2)}\n{'':14} measured {np.round(curve, 2)}",
            flush=True,
        )
    return {
        "account_hits": hits,
        "account_models": len(phases),
        "account_expected_by_chance": round(sum(map(chance_of_hit, phases)), 2),
        "account_chance": float(f"{chance_of_hits(phases, hits):.3g}"),
        "account_rank_correlation": round(float(np.mean(orders)), 2) if orders else None,
        "last_phase_hits": last_hits,
    }


def chance_of_hits(phases: Sequence[int], hits: int) -> float:
    """Probability of at least so many hits over several models if each phase were drawn at random.

    The number of hits is a sum of independent draws with different probabilities; its distribution is their
    convolution.

    Args:
        phases: number of phases of each model.
        hits: how many were scored.
    """
    distribution = np.ones(1)
    for count in phases:
        p = chance_of_hit(count)
        distribution = np.convolve(distribution, [1 - p, p])
    return float(distribution[hits:].sum())


def two_heads(models: Path | None) -> Path:
    """W8/S8 with two KV heads, of the zoo or else of the folder; failing that the zoo's W8/S8 with the fewest."""
    cards = {folder: read_json(folder / "card.json") for folder in checkpoints(models)}
    w8s8 = [f for f, c in cards.items() if (c["compression"]["width"], c["compression"]["stride"]) == (8, 8)]
    return min(w8s8, key=lambda folder: (cards[folder]["kv_heads"] != 2, cards[folder]["kv_heads"]))


def explained(folder: Path, out: Path, **settings: Any) -> tuple[ExplanationResult, float, float]:
    """An explanation on 200 blocks or more, and its seconds by the clock and of CPU."""
    run = out / folder.name
    measure(folder, protocol=PROTOCOL, out=run, contexts=13)
    started, cpu = time.perf_counter(), time.process_time()
    prepared = Explanation(run, ExplainSettings.checked(blocks=200, **settings))
    print(f"{folder.name}: {prepared.cost().words()}", flush=True)
    result = prepared.run()
    return result, time.perf_counter() - started, time.process_time() - cpu


def head_half(models: Path | None) -> dict[str, Any]:
    """The contrast of the two-headed model, and the time of the zoo's model with the most heads."""
    folder = two_heads(models)
    many = max(
        (zoo.folder(name) for name in zoo.names()), key=lambda f: read_json(f / "card.json")["kv_heads"]
    )
    found: dict[str, Contrast] = {}
    with tempfile.TemporaryDirectory() as out:
        last, seconds, cpu = explained(folder, Path(out))
        everywhere, *_ = explained(folder, Path(out), branch="entries", where="everywhere", rolls=False)
        if many != folder:
            _, seconds, cpu = explained(many, Path(out))
    for where, result in (("at the last position", last), ("at every position", everywhere)):
        for unit, contrast in result.contrasts.items():
            found[f"{folder.name} {unit} {where}"] = contrast
            print(f"{folder.name} {unit} {where}: {contrast}", flush=True)
    name, best = max(found.items(), key=lambda one: points(one[1].estimate.value))
    return {
        "head_contrast_points": points(best.estimate.value),
        "head_contrast_low": points(best.estimate.low),
        "head_contrast_power": points(best.smallest),
        "head_contrast_of": name,
        "head_contrast_last": max(points(one.estimate.value) for one in last.contrasts.values()),
        "explain_model": many.name,
        "explain_seconds": round(seconds, 1),
        "explain_cpu_seconds": round(cpu, 1),
    }


def points(share: float | None) -> float:
    """A share in points."""
    return round(100 * (share or 0.0), 2)


def mitigate_half() -> dict[str, Any]:
    """What pads and votes win on the zoo's most sensitive model, on prompts that its profile was not measured on."""
    with tempfile.TemporaryDirectory() as out:
        run = Path(out) / "run"
        measure([FLAT, MENDED], protocol=PROTOCOL, out=run, contexts=CONTEXTS)
        build_report([run])
        found = {}
        for condition in (MENDED, FLAT):
            result = mitigate(run, condition=condition, out=run / condition, contexts=CONTEXTS, anyway=True)
            print(*result.lines(), sep="\n", flush=True)
            found[condition] = {one.with_: one for one in result.outcomes}
        mended, flat = found[MENDED], found[FLAT]
        pairs = read_json(run / "run.json")["conditions"][0]["protocol"]["settings"]["pairs"]
    packed, random, vote = (
        mended[name].comparison for name in ("records packed", "records padded at random", "vote")
    )
    without, with_ = (points(one.value) for one in (vote.worst_without, vote.worst_with))
    unpadded = flat["records packed"]
    return {
        "pack_worst_to_best_points": points((packed.best_with.value or 0) - (packed.worst_with.value or 0)),
        "pack_tokens_per_record": round(mended["records packed"].pads / pairs, 2),
        "pack_gain_over_random_points": points(packed.mean_with - random.mean_with),
        "vote2_worst_gain": round((with_ - without) / (100 * vote.mean_without - without), 2),
        "vote2_mean_points": points(vote.mean_gain.value),
        "flat_pads": unpadded.pads,
        "flat_mean_points": points(unpadded.comparison.mean_gain.value),
    }


def main() -> None:
    """Print what was measured, and last one JSON object."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", type=Path, help="folder of further trained checkpoints, one folder each")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    logging.disable_progress_bar()
    result: dict[str, Any] = {}
    if "head" in given.only:
        result |= head_half(given.models)
    if "account" in given.only:
        result |= account_half(given.models)
    if "mitigate" in given.only:
        result |= mitigate_half()
    print(json.dumps(result))


if __name__ == "__main__":
    main()
