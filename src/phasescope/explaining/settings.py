"""What is to be explained, and how; read without torch."""

from __future__ import annotations

from ..settings import Settings, setting
from .units import Branch, Mode, Where


class ExplainSettings(Settings):
    """What is to be explained, and how: the options of `phasescope explain`."""

    condition: str | None = setting(None, "A condition of the run; by default the only one with a grid.")
    blocks: int | None = setting(
        None, "Questions, each at all its layouts; by default 200 or what there is.", ge=1
    )
    mode: Mode = setting("mean", "What stands in the place of a head's output.")
    branch: Branch = setting(
        "all",
        "What is taken from a head: everything, or what it reads from entries, or from uncompressed tokens.",
    )
    where: Where = setting(
        "last", "Take it away at the last position alone, or at every position, at a read per head."
    )
    together: tuple[str, ...] = setting((), "Heads taken away at once, such as L0.H0+L1.H0; may be repeated.")
    rolls: bool = setting(True, "Roll the gates' bias over its slots as well.")
    fold: int | None = setting(None, "Modulus of the phases; by default the model's stride.", ge=2)
    model: str | None = setting(None, "Zoo name or checkpoint folder, where the run does not say.")
    seed: int = setting(0, "Seed of reference prompts and permutations.", short="-s", ge=0)
    draws: int = setting(2000, "Permutations per test.", ge=20)
    device: str = setting("cpu", "Where torch runs the model.")
    trust_remote_code: bool = setting(False, "Run code that a checkpoint brings along.")
