"""In which form a server is asked a trial, and what tells which tokens of it the server read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ...errors import UsageError
from ...records import Trial
from ...text.tokens import Tokenizer
from .capabilities import Capabilities, Endpoint
from .client import UnusableError
from .replies import Answer

Form = Literal["ids", "text", "chat"]
Proof = Literal["echoed ids", "token counts", "tokenize endpoint", "nothing"]


@dataclass(frozen=True, kw_only=True)
class Forms:
    """The forms that one server takes.

    Attributes:
        host: the server, for messages.
        capabilities: what it can do.
        tokenizer: of the served model; without it there is only the form of ids.
        ask: the one form that is wanted; None for the first that the server takes.
        unverified: whether a form may be used where nothing tells what the server read.

    Raises:
        UsageError: if there is no form to ask in, or nothing can verify what the server reads.
    """

    host: str
    capabilities: Capabilities
    tokenizer: Tokenizer | None
    ask: Form | None
    unverified: bool

    def __post_init__(self) -> None:
        if not self.taken:
            asked = f"as {self.ask}" if self.ask else "as token ids"
            raise UsageError(
                f"{self.host} cannot be asked {asked}; name the folder of its model's tokenizer with "
                "--tokenizer, or see `phasescope probe`"
            )
        if not self.unverified and all(self.verified_by(form) == "nothing" for form in self.taken):
            raise UsageError(
                f"nothing tells which tokens {self.host} reads: no echoed ids, no right count, no /tokenize; "
                "use another server, or measure with --unverified"
            )
        if "chat" in self.taken and self._own.template is not None:
            planned = len(self._own.chat("a b c")[0]) - len(self._own.encode("a b c"))
            extra = self.endpoint("chat").extra
            if extra is not None and extra != planned:
                raise UsageError(
                    f"the server's chat template has {extra} tokens, that of {self._own.name} {planned}; name the "
                    "folder of the model that is served with --tokenizer"
                )

    @cached_property
    def taken(self) -> tuple[Form, ...]:
        """The forms in which this server may be asked, the best first."""
        found = self.capabilities
        if found.completions and found.completions.token_ids and self.ask in (None, "ids"):
            return ("ids",)
        offered: dict[Form, Endpoint | None] = {"chat": found.chat, "text": found.completions}
        return tuple(
            form
            for form, endpoint in offered.items()
            if endpoint is not None and self.tokenizer is not None and self.ask in (None, form)
        )

    def of(self, trial: Trial) -> Form:
        """The form in which this trial is asked.

        Raises:
            UsageError: if there is none.
        """
        for form in self.taken:
            sure = self.unverified or self.verified_by(form) != "nothing"
            if sure and (form != "chat" or trial.content is not None):
                return form
        raise UsageError(
            f"{self.host} cannot be asked a {'chat' if trial.content else 'plain'} prompt in a form that can "
            "be verified; see `phasescope probe` for what it takes"
        )

    def endpoint(self, form: Form) -> Endpoint:
        """Where a form is asked."""
        endpoint = self.capabilities.chat if form == "chat" else self.capabilities.completions
        assert endpoint is not None  # `taken` names only what is there
        return endpoint

    def survives(self, form: Form, trial: Trial) -> bool:
        """Whether the prompt in that form has the tokens of the trial."""
        return form == "ids" or self._own.survives(trial.prompt_ids)

    def prompt(self, form: Form, trial: Trial) -> str | tuple[int, ...]:
        """The prompt in that form; a BOS that the server adds to texts itself is left to it."""
        if form == "ids":
            return trial.prompt_ids
        if form == "chat" and trial.content is not None:
            return self._own.decode(trial.prompt_ids[slice(*trial.content)])
        extra = self.endpoint(form).extra or 0
        if extra and trial.prompt_ids[:extra] != self._own.start_ids:
            raise UsageError(
                f"{self.host} puts {extra} tokens in front of every text, with which these prompts do not "
                "begin; use a server that takes token ids, or a protocol in a chat template"
            )
        return self._own.decode(trial.prompt_ids[extra:])

    def verified_by(self, form: Form) -> Proof:
        """What tells which tokens the server read."""
        endpoint = self.endpoint(form)
        if endpoint.echoes:
            return "echoed ids"
        if endpoint.counts:
            return "token counts"
        return "tokenize endpoint" if form == "text" and self.capabilities.tokenize else "nothing"

    def refuse_unproven(self, form: Form, answer: Answer) -> None:
        """Raise `UnusableError` for an answer that lacks what this server's answers are verified by."""
        verified = self.verified_by(form)
        if verified == "echoed ids" and answer.prompt_ids is None:
            raise UnusableError("echoed ids missing")
        if verified == "token counts" and answer.prompt_tokens is None:
            raise UnusableError("count of prompt tokens missing")

    def drift(self, form: Form, trial: Trial, answer: Answer) -> str | None:
        """How an answer shows that another prompt than planned was read, in words; nothing if it does not."""
        verified = self.verified_by(form)
        if verified == "echoed ids" and answer.prompt_ids is not None:
            return _difference(answer.prompt_ids, trial.prompt_ids)
        if verified == "token counts" and answer.prompt_tokens is not None:
            return _difference(range(answer.prompt_tokens), range(len(trial.prompt_ids)))
        return None

    @property
    def _own(self) -> Tokenizer:
        if self.tokenizer is None:
            raise UsageError(
                f"{self.host} takes prompts as text only; name the folder of its model's tokenizer with "
                "--tokenizer"
            )
        return self.tokenizer


def _difference(read: Sequence[int], planned: Sequence[int]) -> str | None:
    """How two prompts differ, in the same words for the same kind of difference."""
    if len(read) != len(planned):
        return f"{'fewer' if len(read) < len(planned) else 'more'} tokens read than planned"
    return None if tuple(read) == tuple(planned) else "other tokens read than planned"
