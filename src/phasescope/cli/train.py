"""`phasescope train`: train a compressed model on records, on text, or on both."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from ..errors import UsageError
from ..models import Compression
from ..training import RetrievalTask, Text, Training
from .extras import prepare_models
from .options import command_line, options_from, settings_options, spoken
from .progress import bar
from .terminal import say

EXAMPLES = {
    "train": (
        "--compressor scalar_gate --width 8 --stride 8 --out runs/trained",
        "--recipe small/w8s8 --seed 1 --out runs/w8s8",
        "--corpus corpus --from FOLDER --compressor scalar_gate --out runs/fine --plan",
    )
}
GRID = settings_options(Compression)
TASK = settings_options(RetrievalTask)
TEXT = settings_options(Text)
TRAINING = settings_options(Training)


@options_from(grid=GRID, task=TASK, reading=TEXT, given=TRAINING)
def train(
    context: typer.Context,
    grid: dict[str, Any],
    task: dict[str, Any],
    reading: dict[str, Any],
    given: dict[str, Any],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="Folder of the run; the same command resumes what it finds there."),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=NUMBER of the compressor, such as topk=64; may be repeated.",
            rich_help_panel="Compression",
        ),
    ] = None,
    keys: Annotated[
        int | None,
        typer.Option(
            help="Different keys, and as many values, to draw records from; 112 by default.",
            rich_help_panel="Records",
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(help="NAME/ROW: start from these settings; what is given beside it wins.")
    ] = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Text beside the records; see phasescope corpus.")
    ] = None,
    with_records: Annotated[
        bool, typer.Option("--records/--no-records", help="Whether there are records beside the text.")
    ] = True,
    start: Annotated[
        str | None,
        typer.Option("--from", help="Start from a plain Qwen3 checkpoint: a folder, or a zoo name."),
    ] = None,
    checkpoint_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    watch_every: Annotated[
        int, typer.Option(help="Steps between looks at held-out loss and phase curve; 0 for none.", min=0)
    ] = 0,
    tracker: Annotated[
        str | None, typer.Option(help="tensorboard, or another tracker of accelerate by name.")
    ] = None,
    measure: Annotated[
        bool,
        typer.Option(help="Measure held-out loss and phase curve at the end, and write them in the card."),
    ] = True,
    parallel: Annotated[
        Literal["ddp", "fsdp"],
        typer.Option(help="With torchrun: whole models (ddp), or matrices in shards (fsdp)."),
    ] = "ddp",
    plan: Annotated[bool, typer.Option("--plan", help="Say what the run will take, and stop.")] = False,
    processes: Annotated[int, typer.Option(help="Plan: for so many processes.", min=1)] = 1,
    accelerator: Annotated[
        str | None, typer.Option(help="Plan: for this kind of accelerator; here: try a few steps.")
    ] = None,
    threads: Annotated[int, typer.Option(help="CPU threads.", min=1)] = 1,
) -> None:
    """Train a Qwen3 with a compressed KV cache on records, on text or on both, and measure its phase curve."""
    compression = _compression(spoken(context, grid), setting)
    records = spoken(context, task) | ({} if keys is None else {"keys": keys})
    text = {name.removeprefix("text_"): value for name, value in spoken(context, reading).items()}
    chosen = spoken(context, given)
    for kind, values in (
        (Training, chosen),
        (RetrievalTask, spoken(context, task)),
        (Compression, compression),
    ):
        kind.refuse_out_of_range(values)  # before torch is imported
    from .. import verbs  # with scipy, which a refused setting does without

    prepare_models(threads)
    inputs = verbs.Inputs(corpus=corpus, start=start)
    settings = verbs.training_settings(
        inputs,
        recipe=recipe,
        records=with_records,
        compression=compression,
        text=text,
        task=records,
        **chosen,
    )
    if plan:
        say("\n".join(verbs.cost(settings, processes=processes, accelerator=accelerator, tracker=tracker)))
        return
    if accelerator is not None or processes > 1:
        raise UsageError("--accelerator and --processes are for --plan; a run takes what `torchrun` gives it")
    if out is None:
        raise UsageError("give --out, the folder of the run; or --plan to see what it would take")
    with bar() as progress:
        training = progress.add_task("training", total=settings.steps, note="")
        measuring = progress.add_task("measuring", total=None, note="", start=False, visible=False)
        card = verbs.train(
            settings,
            out,
            inputs,
            command=command_line(),
            every=checkpoint_every,
            watch_every=watch_every,
            tracker=tracker,
            parallel=parallel,
            measured=measure,
            report=lambda now: progress.update(training, completed=now.step, note=_note(now)),
            measuring=lambda done, total: progress.update(
                measuring, completed=done, total=total, visible=True
            ),
        )
    if card is not None:
        say("\n".join(_summary(out, card) or [f"wrote {out}"]))


def _compression(given: Mapping[str, Any], settings: list[str] | None) -> dict[str, Any]:
    """Fields of `Compression`."""
    fields = dict(given)
    if settings:
        fields["settings"] = dict(map(_setting, settings))
    if "shift" in given:
        fields["shift"] = _shift(given["shift"])
    return fields


def _note(now: Any) -> str:
    """What the progress bar says of a step."""
    facts = []
    if now.loss is not None:
        facts.append(f"{now.pairs} pairs, loss {now.loss:.3f}, accuracy {now.accuracy:.1%}")
    if now.text_loss is not None:
        facts.append(f"text {now.text_loss:.3f}")
    return ", ".join(facts)


def _summary(out: Path, card: Mapping[str, Any]) -> list[str]:
    """What a card says, in lines."""
    lines = [
        f"{out}: {protocol}: accuracy {found['mean_accuracy']:.1%} at {card['pairs']} pairs, "
        f"phase SD {found['phase_sd']:.1%} ({found['low']:.1%} to {found['high']:.1%})"
        for protocol, found in card.get("measured", {}).items()
    ]
    text = card.get("text", {})
    if "windows" in text:
        lines.append(
            f"{out}: held-out text: {text['nats_per_token']:.3f} nats per token, {text['nats_per_byte']:.3f} per byte, "
            f"on {text['windows']} windows of {text['window']} tokens"
        )
    return lines


def _shift(text: str) -> int | tuple[int, ...] | tuple[tuple[int, ...], ...]:
    """Shifts of a grid: one, one per layer, or one per layer and KV head."""
    try:
        if ";" in text:
            layers = text.rstrip("; ").split(";")
            return tuple(tuple(map(int, layer.split(","))) for layer in layers)
        if "," in text:
            return tuple(map(int, text.split(",")))
        return int(text)
    except ValueError:
        raise UsageError(
            f"--shift {text} is no number of tokens; give 4, one per layer (0,4), or one per layer and KV head "
            "(0,4;2,6)"
        ) from None


def _setting(text: str) -> tuple[str, float]:
    """A compressor's setting from NAME=NUMBER."""
    name, _, value = text.partition("=")
    try:
        return name, int(value) if value.strip("-").isdigit() else float(value)
    except ValueError:
        raise UsageError(f"--setting {text} is not NAME=NUMBER; give for example --setting topk=64") from None
