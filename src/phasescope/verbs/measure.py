"""Measure models under the protocols of the catalog, and the demo."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..catalog import PROTOCOLS
from ..checkpoints import zoo
from ..checkpoints.resolve import LONGEST_PROMPT, ROOM
from ..errors import UsageError
from ..planning.build import BUDGET, EFFECT, Prices, RunPlan, plan_run
from ..protocols import PaddingSweep, Protocol
from ..running import Engine
from ..running.runner import Condition, Report, run
from ..runs import Run, read_description, read_run
from ..statistics.power import Guess
from .answerers import Answerer, answerers_of

DEMO_PROTOCOLS = ("prefix", "in_sequence")
DEMO_SEED = 0
DEMO_CONTEXTS = 72  # three full rounds of the 24 offsets
DEFAULT_PAIRS = 64
TOKENS_PER_PAIR = 8  # 16K pairs in 128K tokens


def conditions_of(
    answerers: Sequence[Answerer], protocols: Sequence[str], **settings: Any
) -> list[Condition]:
    """Every model under every protocol; none of them is loaded yet.

    Args:
        answerers: who is asked; a model without a grid among them is the control.
        protocols: names of the protocol catalog.
        **settings: settings of the protocols (pairs, contexts, questions, residues, prompt_tokens, …); each takes
            those that it has, and None is the protocol's own default. `pairs` are by default what the models'
            cards say they were trained on (the fewest, where they differ), 64 without a card, and in real text
            one per 8 prompt tokens.

    Raises:
        UsageError: for unknown names or settings that do not fit.
    """
    if PaddingSweep.name in protocols:
        raise UsageError(
            "protocol 'sweep' asks prompts of your own; use phasescope sweep PROMPT.txt --model …"
        )
    kinds = {name: PROTOCOLS.load(name) for name in protocols}
    given = {name: value for name, value in settings.items() if value is not None}
    _refuse_unknown(given, kinds)
    trained = min(answerer.pairs or DEFAULT_PAIRS for answerer in answerers)
    return [
        Condition(
            answerer.name if len(kinds) == 1 else f"{answerer.name}/{label}",
            answerer.backend,
            _protocol(kind, answerer, given, trained),
        )
        for answerer in answerers
        for label, kind in kinds.items()
    ]


def measure(
    models: Any,
    *,
    out: str | Path,
    protocol: str | Sequence[str] = "prefix",
    control: Any = (),
    seed: int = 0,
    report: Report = lambda done, total: None,
    engine: Engine | None = None,
    command: str | None = None,
    loading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Run:
    """Ask every model every question at every residue, in one run folder; an interrupted run goes on.

        ps.measure(["full-1kv", "w8s8-1kv"], protocol="in_sequence", out="runs/first")

    Args:
        models: names, folders, or live models of `transformers`: one, or a list.
        out: the run folder.
        protocol: one or several names of the protocol catalog.
        control: models that have no grid by your word.
        seed: of every draw.
        report: told the trials that are done, and all.
        engine: who runs the models; by default this process.
        command: the command line, for a run that has one.
        loading: who answers, and how: `device`, `dtype`, `threads`, `tokenizer`, `vocabulary`, `base_url`, … as
            `answerers_of` has them.
        **settings: of the protocols, as `conditions_of` has them: `pairs`, `contexts`, ….

    Returns:
        the run.

    Raises:
        UsageError: for unknown names, settings that do not fit, or another run in `out`.
    """
    conditions = _conditions(models, protocol, control, loading or {}, settings)
    refuse_other_run(Path(out), conditions, seed)
    run(conditions, Path(out), seed, report, engine, command)
    return read_run(Path(out))


def plan(
    models: Any,
    *,
    protocol: str | Sequence[str] = "prefix",
    control: Any = (),
    seed: int = 0,
    effect: float = EFFECT,
    accuracy: float = 0.5,
    prices: Prices | None = None,
    budget: float = BUDGET,
    loading: Mapping[str, Any] | None = None,
    **settings: Any,
) -> RunPlan:
    """What `measure` with the same arguments will see and cost; nothing is written.

    Args:
        models: as in `measure`.
        protocol: as in `measure`.
        control: as in `measure`.
        seed: as in `measure`.
        loading: as in `measure`.
        effect: phase SD whose power is stated, as a fraction.
        accuracy: the accuracy that is expected; 0.5 is the most cautious.
        prices: per million tokens.
        budget: seconds of calibration per condition; 0 for none.
        **settings: of the protocols.

    Raises:
        UsageError: for what `measure` would refuse.
    """
    conditions = _conditions(models, protocol, control, loading or {}, settings)
    return plan_run(
        conditions, seed, guess=Guess(accuracy=accuracy), effect=effect, prices=prices, budget=budget
    )


def _conditions(
    models: Any,
    protocol: str | Sequence[str],
    control: Any,
    loading: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> list[Condition]:
    answerers = answerers_of(models, **loading)
    if control:
        answerers += answerers_of(control, **{**loading, "control": True})
    return conditions_of(answerers, [protocol] if isinstance(protocol, str) else protocol, **settings)


def refuse_other_run(out: Path, conditions: Sequence[Condition], seed: int) -> None:
    """Refuse a folder with another run before any model is loaded, as far as that shows without one.

    Raises:
        UsageError: naming what differs.
    """
    if not ((out / "run.json").is_file() and (out / "observations.jsonl").is_file()):
        return
    there = read_description(out)
    named = [condition.name for condition in there.conditions]
    wanted = [condition.name for condition in conditions]
    for key, old, new in (("seed", there.seed, seed), ("conditions", named, wanted)):
        if old != new:
            raise UsageError(
                f"{out / 'run.json'} has {key} = {old!r}, this run {new!r}; resume with the same, or use another folder"
            )


def demo(out: Path, *, seed: int = DEMO_SEED, report: Report = lambda done, total: None) -> None:
    """Measure the models that ship with the package for it under both paddings of key-value retrieval."""
    measure(
        zoo.names(demo=True),
        protocol=DEMO_PROTOCOLS,
        out=out,
        seed=seed,
        report=report,
        contexts=DEMO_CONTEXTS,
    )


def _refuse_unknown(given: dict[str, Any], kinds: dict[str, type[Protocol]]) -> None:
    """Refuse a setting that none of the protocols has."""
    known = {field.name for kind in kinds.values() for field in fields(kind)}
    for name in given:
        if name not in known:
            raise UsageError(
                f"{name} is no setting of {', '.join(kinds)}, which know: {', '.join(sorted(known - {'tokenizer'}))}"
            )


def _protocol(kind: type[Protocol], answerer: Answerer, given: dict[str, Any], trained: int) -> Protocol:
    """A protocol with the settings that it has; of text with the tokenizer and the reach of the model."""
    own = {field.name for field in fields(kind)}
    settings = {name: value for name, value in given.items() if name in own}
    if kind.synthetic:
        return kind(**{"pairs": trained, **settings} if "pairs" in own else settings)
    settings["tokenizer"] = answerer.read_tokenizer()
    if "prompt_tokens" in own:
        longest = answerer.longest_prompt
        tokens = settings.setdefault("prompt_tokens", min(LONGEST_PROMPT, longest - ROOM))
        if tokens > longest:
            raise UsageError(
                f"prompt_tokens is {tokens}; by its config.json {answerer.name} reads at most {longest} tokens"
            )
        settings.setdefault("pairs", max(1, tokens // TOKENS_PER_PAIR))
    return kind(**settings)
