"""Needles in a haystack of needles: thousands of key-value lines in words, and one key is asked for.

A prompt is [template] instruction, filler line, records and filler lines, filler line, question [template].
A record is the line ` key: value`, a filler line a few common words without a colon. All is built on token
ids and checked against the tokenizer: the text of the ids is encoded to the same ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from ..errors import UsageError
from ..records import Observation, Reply, Trial
from ..text.synthetic import RetrievalVocabulary
from ..text.tokens import Tokenizer
from .base import Batch, Plan, Protocol
from .haystack import Frame, Ids, Lines
from .lexicon import MOST, Lexicon
from .turns import balanced_turns

Ints = npt.NDArray[np.int64]

INSTRUCTION = "Each line with a colon pairs a key with its value. The other lines mean nothing.\n"
QUESTION = " {key}:"
CHAT_QUESTION = "Which value is paired with the key {key}? Answer with the value alone, in one line."
SHORTEST_LINE = 2
"""A filler line is a word and a line break at least."""
NEAR = 1 / 32
"""How far from its depth the asked record lies at most, over contexts, as a share of the prompt."""
SPARE = 4
"""Tokens that a chat model may say beyond the answer: a line break or a quotation mark before it."""
SEAM = 16
"""Records read again on either side of what differs between two prompts of a context."""


@dataclass(frozen=True, kw_only=True)
class Needle(Protocol):
    """One of many key-value lines is asked for, in as many layouts as there are residues.

    All layouts of a context hold the same tokens in the same order but for fillers that move from behind
    the records to before them:

        tokens of the line before the records = 2 + layout + groups · turn        turn = 0 or 1
        tokens of the line behind them        = 2 · groups + 3 − those before

    So all layouts of a context agree in length, query position and bindings, and their sources visit every
    residue mod `groups` once. Turns are chosen over all contexts so that the residue groups agree in the mean
    and SD of the source's position: to 1 token from 8 contexts of 2 questions on. Gaps between records are
    drawn once per context, so the distractors' phases are mixed, and move with the source. The prompt's
    length, and with it the query's residue, varies over contexts: from `prompt_tokens` − groups + 1 up.

    Args:
        tokenizer: of the model that is asked.
        prompt_tokens: tokens of the longest prompt, a chat template's own included.
        pairs: records in a context, with different keys and different values.
        groups: residues, and layouts of a context; 8 is two turns of a stride of 4 and four of 2.
        contexts: contexts, each a cluster of its own.
        questions: records of a context that are asked, neighbours around `depth`.
        depth: where in the prompt they lie, from 0 to 1; over contexts it varies by 1/32 of the prompt.
        key_words, value_words: one-token words in each key and each value; by default the fewest that
            suffice for so many pairs, which is 1 in vocabularies of 100,000 tokens and more.
        chat: whether the prompt is a user's message in the tokenizer's chat template.
        instruction: what stands before the lines; ends with a line break.
        question: what stands behind them, with the place `{key}` after a blank; by default the beginning of
            the record, to be completed, and in chat a question.

    Raises:
        UsageError: for numbers outside their range, too few words, or records that don't fit.

    Source: arXiv 2609.36322, NIAH at 128K: 16K pairs, eight residue groups, prefix scoring.
    Differs: the paper's lines and fillers are not known. Layouts share their contexts, several questions
        share a prompt's prefix, and the query's residue varies over contexts.
    """

    name: ClassVar[str] = "needle"
    synthetic: ClassVar[bool] = False
    moves: ClassVar[Literal["source", "query"]] = "source"
    ranges: ClassVar[Mapping[str, tuple[int, int]]] = {
        "prompt_tokens": (1, 2**27),
        "pairs": (1, 2**24),
        "groups": (2, 1024),
        "contexts": (1, 2**20),
        "questions": (1, 2**20),
        "key_words": (1, MOST),
        "value_words": (1, MOST),
    }

    tokenizer: Tokenizer
    prompt_tokens: int = 131072
    pairs: int = 16384
    groups: int = 8
    contexts: int = 25
    questions: int = 8
    depth: float = 0.5
    key_words: int | None = None
    value_words: int | None = None
    chat: bool = False
    instruction: str = INSTRUCTION
    question: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        number = isinstance(self.depth, int | float) and not isinstance(self.depth, bool)
        if not number or not 0 <= self.depth <= 1:
            raise UsageError(f"depth is {self.depth!r}; give a number from 0, the beginning, to 1, the end")
        needed = self._fixed + self._moving + self.groups - 1
        if needed + self.pairs * self._record > self.prompt_tokens:
            fitting = (self.prompt_tokens - needed) // self._record
            raise UsageError(
                f"{self.pairs} pairs of {self._record} tokens do not fit into {self.prompt_tokens} prompt tokens; "
                f"give at least {needed + self.pairs * self._record} tokens"
                + (f", or at most {fitting} pairs" if fitting > 0 else "")
            )
        most = min(self.pairs, self._lexicon.most_questions)
        if self.questions > most:
            raise UsageError(f"{self.questions} questions about {self.pairs} pairs; ask at most {most}")

    def batch_sizes(self) -> list[int]:
        """One batch per context: layouts × questions."""
        return [self.groups * self.questions] * self.contexts

    def plan(self) -> Plan:
        """Exact: lengths are fixed, and questions of one layout differ from their key's first token on."""
        own = self._suffix if self.questions > 1 else 1
        lengths = self.prompt_tokens - self._ends()
        read = lengths - own + self.questions * own
        return Plan(
            trials=sum(self.batch_sizes()),
            prompt_tokens=int(self.groups * self.questions * lengths.sum()),
            prefix_tokens=int(self.groups * read.sum()),
        )

    def batches(self, vocabulary: RetrievalVocabulary | None, rng: np.random.Generator) -> Iterator[Batch]:
        """The trials, context by context; every context is checked against the tokenizer.

        Raises:
            UsageError: if the tokenizer reads a prompt's text as other tokens.
        """
        lengths = self.prompt_tokens - rng.permutation(self._ends())
        offsets = rng.permutation((np.arange(self.contexts) + 0.5) / self.contexts * 2 - 1) * NEAR
        seeds = rng.integers(2**63, size=self.contexts)
        facts = list(
            zip(range(self.contexts), lengths.tolist(), offsets.tolist(), seeds.tolist(), strict=True)
        )
        # Lines are drawn twice from the same seed: all contexts' at once would fill the memory.
        start_CQ = np.stack([self._arrange(*fact).start_Q for fact in facts])
        for fact, turn_L in zip(facts, balanced_turns(start_CQ, self.groups, rng), strict=True):
            yield self._trials(self._arrange(*fact), np.arange(self.groups) + self.groups * turn_L)

    def observe(self, trial: Trial, reply: Reply, condition: str) -> Observation:
        """Right is a continuation that, stripped, begins with the value; of ids without a text, their text."""
        text = reply.text if reply.text is not None else self.tokenizer.decode(reply.ids)
        value = self.tokenizer.decode(trial.answer_ids).strip()
        score = float(text.strip().startswith(value))
        return super().observe(trial, reply, condition).model_copy(update={"score": score, "text": text})

    @cached_property
    def _frame(self) -> Frame:
        default = CHAT_QUESTION if self.chat else QUESTION
        question = default if self.question is None else self.question
        return Frame.build(self.tokenizer, self.instruction, question, chat=self.chat)

    @cached_property
    def _lexicon(self) -> Lexicon:
        frame = self._frame
        return Lexicon.choose(
            self.tokenizer,
            self.pairs,
            taken={*frame.head, *frame.ask, *frame.close},
            key_words=self.key_words,
            value_words=self.value_words,
            bare=self.chat,
        )

    @property
    def _record(self) -> int:
        """Tokens of a record: key, colon, value, line break."""
        return self._lexicon.key_words + self._lexicon.value_words + 2

    @property
    def _suffix(self) -> int:
        """Tokens from the asked key to the prompt's end."""
        return self._lexicon.key_words + len(self._frame.close)

    @property
    def _fixed(self) -> int:
        """Tokens that are neither records nor fillers."""
        return len(self._frame.head) + len(self._frame.ask) + self._suffix

    @property
    def _moving(self) -> int:
        """Tokens of the two filler lines around all records, of which layouts move some."""
        return 2 * self.groups - 1 + 2 * SHORTEST_LINE

    def _ends(self) -> Ints:
        """By how much each context's prompts are shorter than the longest, not yet in random order."""
        return np.arange(self.contexts) * self.groups // self.contexts

    def _arrange(self, index: int, length: int, offset: float, seed: int) -> _Context:
        """Draw where the lines of a context go, and take the records nearest to their depth."""
        rng = np.random.default_rng(seed)
        fillers = length - self._fixed - self._moving - self.pairs * self._record
        spare = fillers if fillers == 1 else 0  # no line is that short, so the moving ones take it
        lines = Lines.draw(self.pairs, self._record, fillers - spare, rng)
        start_P = lines.start_P + len(self._frame.head) + SHORTEST_LINE
        nearest = int(np.abs(start_P - (self.depth + offset) * length).argmin())
        first = min(max(nearest - self.questions // 2, 0), self.pairs - self.questions)
        asked = range(first, first + self.questions)
        return _Context(f"c{index:04d}", lines, self._moving + spare, asked, start_P[asked], rng)

    def _trials(self, context: _Context, pad_L: Ints) -> Batch:
        """All questions of a context in all its layouts."""
        frame, words, rng = self._frame, self._lexicon, context.rng
        key_PK = words.draw_keys(self.pairs, rng)
        value_PV = words.draw_values(self.pairs, context.asked, rng)
        one_P1 = np.ones((self.pairs, 1), dtype=np.int64)
        record_PR = np.hstack([key_PK, frame.colon * one_P1, value_PV, frame.newline * one_P1])
        # All prompts of the context share one object per token: one of 128K tokens then costs 1 MB.
        body = tuple(context.lines.fill(record_PR, words.fillers, frame.newline, rng).tolist())
        moving = tuple(rng.choice(words.fillers, size=context.moving - 2).tolist())
        key_QK, answers = key_PK[context.asked], self._answers(value_PV[context.asked])
        trials: list[Trial] = []
        for layout, pad in enumerate(pad_L.tolist()):
            lead = (*moving[: pad + SHORTEST_LINE - 1], frame.newline)
            tail = (*moving[len(lead) - 1 :], frame.newline)
            shared = frame.head + lead + body + tail + frame.ask
            asked = zip(context.asked, context.start_Q.tolist(), key_QK.tolist(), answers, strict=True)
            for question, (record, start, key, answer) in enumerate(asked):
                prompt = shared + tuple(key) + frame.close
                trial = Trial(
                    prompt_ids=prompt,
                    answer_ids=answer,
                    candidate_ids=(),
                    source_position=start + pad,
                    block=f"{context.name}/k{record:05d}",
                    cluster=context.name,
                    layout=layout,
                    generate=len(answer) + SPARE if self.chat else None,
                    content=frame.content(len(prompt)) if self.chat else None,
                )
                self._read_again(prompt, context, pad, whole=not trials, front=not question)
                trials.append(trial)
        return tuple(trials)

    def _answers(self, value_QV: Ints) -> list[Ids]:
        """The right continuations: a value as it stands in its record, or as a chat model begins with it."""
        if not self.chat:
            return [tuple(value) for value in value_QV.tolist()]
        texts = [" ".join(self._lexicon.text[token] for token in value) for value in value_QV.tolist()]
        return [tuple(ids) for ids in self.tokenizer.encode_many(texts)]

    def _read_again(self, ids: Ids, context: _Context, pad: int, *, whole: bool, front: bool) -> None:
        """Check that a prompt's text is encoded to its ids, so that positions are what they say.

        A context's first prompt is read as a whole. The others differ from it in front of the first record,
        the same for all questions of a layout, and behind the last one; these parts are read, with some
        records beyond them.

        Raises:
            UsageError: if a text is encoded to other ids.
        """
        first, last = self._frame.content(len(ids))
        start_P = context.lines.start_P + len(self._frame.head) + SHORTEST_LINE + pad
        begin = 0 if self.chat else first  # a BOS is put in front by whoever reads the text
        same = True
        if not whole:
            same = self.tokenizer.survives(ids[start_P[-SEAM:][0] :])
            if front:
                same &= self.tokenizer.survives(ids[begin : start_P[: SEAM + 1][-1]])
        elif self.chat:
            same = self.tokenizer.chat_ids(ids[first:last], thinking=False)[0] == list(ids)
        else:
            same = self.tokenizer.survives(ids[begin:])
        if not same:
            raise UsageError(
                f"the tokenizer of {self.tokenizer.name} reads the text of a prompt as other tokens, so positions "
                "would be wrong; give another instruction or question"
            )


@dataclass(frozen=True, eq=False)
class _Context:
    """What is drawn of a context before its words: its lines, and which records are asked.

    Attributes:
        name: of the cluster.
        lines: records and filler lines.
        moving: tokens of the filler lines in front of them and behind.
        asked: the records that are asked.
        start_Q: positions of their keys where no pad is in front.
        rng: for the words.
    """

    name: str
    lines: Lines
    moving: int
    asked: range
    start_Q: Ints
    rng: np.random.Generator
