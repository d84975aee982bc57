"""How an engine is checked; read without torch."""

from __future__ import annotations

from pathlib import Path

from ..settings import LOCAL, SERVER, Settings, setting
from .invariances import INVARIANCES


class SuiteSettings(Settings):
    """What any engine is asked."""

    features: tuple[str, ...] = setting(
        (), f"Check only this; repeat it: {', '.join(INVARIANCES)}.", option="feature"
    )
    longest: int | None = setting(
        None,
        "Tokens of the longest prompt; by default two periods of the longest stride and some, or what --sweep needs, "
        "within what the engine takes.",
        ge=16,
    )
    cases: int = setting(24, "Cases of each invariance.", ge=4)
    sweep: int = setting(
        256, "Consecutive lengths read in one piece, to find a single length that goes wrong.", ge=0
    )
    new: int = setting(3, "Tokens of the continuation that is compared.", ge=1, le=64)
    lossy: str | None = setting(
        None,
        "How its cache loses by design: quantised, evicting or sparse (a prefill), or a technique of `inspect`.",
    )
    seed: int = setting(0, "Seed of every draw.", short="-s", ge=0)


class CheckSettings(SuiteSettings):
    """What is checked, and how: the options of `phasescope check`."""

    strides: tuple[int, ...] = setting(
        (),
        "A grid's stride, beside those of the model's config and pages of 16 and 64; repeat it.",
        option="stride",
    )
    run: Path | None = setting(
        None, "A run of `measure` with this engine: is there an effect at all?", panel="Measured effect"
    )
    condition: str | None = setting(None, "Which condition of that run.", panel="Measured effect")
    dtype: str = setting(
        "auto", "Number format: of a local model, or the coarsest of a server's engine (auto: bfloat16)."
    )
    device: str = setting("cpu", "Where torch runs the model.", panel=LOCAL)
    trust_remote_code: bool = setting(False, "Run code that a checkpoint brings along.", panel=LOCAL)
    served: str | None = setting(None, "Which of the server's models.", panel=SERVER)
    tokenizer: Path | None = setting(
        None, "The tokenizer of its model, to draw prompts from the whole vocabulary.", panel=SERVER
    )
    no_selection: bool = setting(
        False, "Its model chooses nothing by scores, as a dense one does not.", panel=SERVER
    )
    no_drafts: bool = setting(False, "It decodes without speculation.", panel=SERVER)
