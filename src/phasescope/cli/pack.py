"""`phasescope pack` and `phasescope warn`: place the facts of a prompt by a measured profile, or look at them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from ..files import write_atomic
from ..mitigations import Fact, Packed, read_profile
from ..mitigations.files import PackSettings, pack_file, read_prompt
from ..mitigations.text import warn as warned
from ..text.tokens import Tokenizer
from .options import options_from
from .terminal import Terminal, say

ProfileOption = Annotated[Path, typer.Option(help="profile.json, or the run folder where `report` wrote it.")]
ConditionOption = Annotated[str | None, typer.Option(help="Whose profile, where the file has several.")]
TokenizerOption = Annotated[Path, typer.Option(help="The model's folder, or its tokenizer.json.")]


@options_from(settings=PackSettings)
def pack(
    settings: PackSettings,
    records: Annotated[Path, typer.Argument(help="JSONL: a record or retrieved passage a line.")],
    profile: ProfileOption,
    tokenizer: TokenizerOption,
    out: Annotated[Path, typer.Option(help="The same lines, with neutral tokens in front of their texts.")],
    condition: ConditionOption = None,
    prompt: Annotated[Path | None, typer.Option(help="Also write the whole padded message here.")] = None,
) -> None:
    """Put the fewest neutral tokens between records so that what will be asked for stands on strong phases."""
    chosen = read_profile(profile, condition)
    done = pack_file(records, out, settings, chosen, Tokenizer.load(tokenizer))
    if prompt is not None:
        write_atomic(prompt, done.message)
    say(_summary(done.packed, out))


def warn(
    prompt: Annotated[
        Path, typer.Argument(help="A text file: the prompt, or the user's message with --chat.")
    ],
    mark: Annotated[
        list[str], typer.Option(help="A fact: text that occurs once in the prompt; may be repeated.")
    ],
    profile: ProfileOption,
    tokenizer: TokenizerOption,
    condition: ConditionOption = None,
    chat: Annotated[
        bool, typer.Option(help="The prompt is a user message in the model's chat template.")
    ] = False,
) -> None:
    """Say which marked facts of a prompt stand on weak phases, and how many pads would move them."""
    chosen, loaded = read_profile(profile, condition), Tokenizer.load(tokenizer)
    facts = warned(read_prompt(prompt, loaded, chat=chat), mark, chosen, loaded)
    Terminal(soft_wrap=True).print(_table(facts))
    weak = [fact for fact in facts if not fact.strong]
    if not chosen.sensitive:
        say(f"{chosen.condition} shows no phase effect: no phase is weaker than another")
    else:
        say(
            f"{len(weak)} of {len(facts)} facts on weak phases (stride {chosen.stride}, profile of {chosen.condition})"
        )


def _summary(packed: Packed, out: Path) -> str:
    weak = [sum(not fact.strong for fact in facts) for facts in (packed.before, packed.after)]
    return (
        f"{packed.added} tokens in front of {len(packed.pads)} records; of {len(packed.before)} facts, {weak[0]} stood "
        f"on weak phases, {weak[1]} do now; wrote {out}"
    )


def _table(facts: Sequence[Fact]) -> Table:
    table = Table(box=None)
    for name in ("fact", "position", "phase", "expected", "", "pads to a strong phase"):
        table.add_column(name, justify="left" if name in ("fact", "") else "right")
    for fact in facts:
        table.add_row(
            fact.text,
            str(fact.position),
            str(fact.phase),
            f"{fact.accuracy:.1%}",
            "strong" if fact.strong else "weak",
            str(fact.pads),
        )
    return table
