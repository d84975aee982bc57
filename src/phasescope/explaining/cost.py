"""What an explanation will take, before it starts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cost:
    """What is read, how often, and for how long.

    Attributes:
        units: how many are taken away, one at a time.
        rolls: how many times gates are rolled.
        contexts, blocks, layouts: what is asked.
        prompt_tokens: tokens of context that are read once for all units, and once more for each roll.
        last_tokens: last tokens that are read again from the layer of a unit on.
        seconds: by the run's own speed; None where it does not say.
    """

    units: int
    rolls: int
    contexts: int
    blocks: int
    layouts: int
    prompt_tokens: int
    last_tokens: int
    seconds: float | None

    def words(self) -> str:
        """One line."""
        time = (
            "" if self.seconds is None else f", about {max(1, round(self.seconds))} s by the run's own speed"
        )
        return (
            f"{self.units} units and {self.rolls} rolls over {self.blocks} blocks at {self.layouts} layouts in "
            f"{self.contexts} contexts: {self.prompt_tokens:,} tokens of context, {self.last_tokens:,} last tokens "
            f"again{time}"
        )
