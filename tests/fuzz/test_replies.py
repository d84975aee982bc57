"""No damaged reply of a server ends in a traceback, in "this is a bug", without end, or in all the memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phasescope.backends.openai.client import Limits
from phasescope.testing.fake_server import FakeServer, Offers
from phasescope.testing.fake_server.model import Hashed
from tests.backends.conftest import small_tokenizer
from tests.fuzz.damage import Step, damaged, steps
from tests.fuzz.running import fault
from tests.fuzz.test_files import CASES

SIZES = "--pairs 8 --contexts 1 --questions 1 --residues 2"
COMMANDS = (
    "probe {url} --tokenizer tokenizer --timeout 2 --tries 1",
    f"measure --backend openai --base-url {{url}} --tokenizer tokenizer --out run --timeout 2 --tries 1 {SIZES}",
    f"measure --backend openai --base-url {{url}} --tokenizer tokenizer --out run --timeout 2 --tries 2 {SIZES}",
    "check {url} --tokenizer tokenizer --cases 4 --sweep 4 --longest 24 --feature repeat",
)
OFFERS = (
    Offers(logprobs="records", top=0),
    Offers(token_ids=False, logprobs=None),
    Offers(chat=True, tokenize="content", caches="cache_prompt"),
)


class Damaging(FakeServer):
    """A server whose replies are damaged from some request on."""

    steps: tuple[Step, ...] = ()
    first = 0

    @contextmanager
    def damaging(self, done: list[Step], first: int, offers: Offers) -> Iterator[None]:
        """Damage all replies but the first ones while the block lasts."""
        self.steps, self.first, self.offers = tuple(done), len(self.asked) + first, offers
        yield
        self.steps = ()

    def content(self, body: Any) -> bytes:
        """The bytes of a reply."""
        whole = json.dumps(body).encode()
        return damaged(whole, "json", list(self.steps)) if len(self.asked) > self.first else whole


@pytest.fixture(scope="module")
def server() -> Iterator[Damaging]:
    """A server with a tokenizer."""
    small = small_tokenizer()
    with Damaging(Hashed(small.size - 4), Offers(), small) as server:
        yield server


def fuzz(server: Damaging, cases: int, tmp_path: Path) -> int:
    """Damage the replies to commands in so many ways."""
    small_tokenizer().fast.save(str(tmp_path / "tokenizer.json"))
    done = 0

    @settings(
        max_examples=cases,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(steps, st.sampled_from(COMMANDS), st.sampled_from([0, 1, 20, 60]), st.sampled_from(OFFERS))
    def one(steps, command, first, offers):
        nonlocal done
        done += 1
        there = tmp_path / f"{done}"
        there.mkdir()
        (there / "tokenizer").mkdir()
        (there / "tokenizer" / "tokenizer.json").symlink_to(tmp_path / "tokenizer.json")
        with pytest.MonkeyPatch.context() as patch, server.damaging(steps, first, offers):
            # `check` asks eight times and waits a minute in all, as for a server that recovers; not here.
            patch.setattr("phasescope.checking.server.Limits", lambda: Limits(tries=2, first_wait=0.01))
            wrong = fault(command.format(url=server.url).split(), there)
        assert wrong is None, f"replies after {steps} from request {first} of {offers}; {command}: {wrong}"

    one()
    return done


def test_a_few_damaged_replies_are_refused_or_read(server, tmp_path, record_property):
    """Exit code 0 or 2, or 1 of `check`; one line."""
    record_property("fuzzed", fuzz(server, 4, tmp_path))


@pytest.mark.slow
def test_damaged_replies_are_refused_or_read(server, tmp_path, record_property):
    """The same at length."""
    record_property("fuzzed", fuzz(server, CASES, tmp_path))
