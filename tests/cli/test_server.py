"""Servers on the command line, in a base install: no torch, one line per mistake, exit code 2."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from phasescope.logs import read_log
from phasescope.runs import read_run
from phasescope.testing.fake_server import FakeServer, Fault, Offers
from phasescope.testing.fake_server.model import Hashed
from tests.backends.conftest import TEMPLATE, small_tokenizer
from tests.cli.base_install import SCRIPT, BaseInstall

SIZES = ["--pairs", "8", "--contexts", "2", "--questions", "2", "--residues", "4"]
LONG = ["--pairs", "40", *SIZES[2:]]
SERVER = ["--backend", "openai", "--base-url"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tokenizer as a folder."""
    there = tmp_path / "tokenizer"
    there.mkdir()
    small_tokenizer().fast.save(str(there / "tokenizer.json"))
    (there / "chat_template.jinja").write_text(TEMPLATE)
    return there


@pytest.mark.parametrize(
    "offers", [Offers(logprobs="records", top=0), Offers(token_ids=False, logprobs=None)]
)
def test_a_server_is_measured_and_reported_without_torch(
    base_install: BaseInstall, tmp_path: Path, folder: Path, offers: Offers
) -> None:
    """From ids or from text; the same command changes nothing, and the report tells how to do it again."""
    small = small_tokenizer()
    with FakeServer(Hashed(small.size - 4), offers, small) as server:
        command = ["measure", *SERVER, server.url, "--tokenizer", str(folder), *SIZES, "--out", "run"]
        base_install(*command, "--grid", "W4/S4", cwd=tmp_path)
        before = (tmp_path / "run" / "observations.jsonl").read_bytes()
        base_install(*command, "--grid", "W4/S4", cwd=tmp_path)
    assert (tmp_path / "run" / "observations.jsonl").read_bytes() == before
    assert len(read_run(tmp_path / "run").observations["planted"]) == 16
    base_install("report", "run", "--draws", "50", cwd=tmp_path)
    page = (tmp_path / "run" / "report.html").read_text()
    assert "phasescope measure --backend openai --base-url URL --tokenizer" in page
    assert server.url not in page
    assert "--grid W4/S4" in page


def test_probe_prints_what_a_server_can_do(base_install: BaseInstall, tmp_path: Path, folder: Path) -> None:
    """A line per ability."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), Offers(chat=True, tokenize="content", caches="cache_prompt"), small) as server:
        said = base_install("probe", server.url, "--tokenizer", str(folder), cwd=tmp_path)
    for line in ("prompt as token ids            yes", "/tokenize                        yes, of 'content'"):
        assert line in said
    assert "off by cache_prompt" in said


def test_the_key_of_the_environment_is_used_and_written_nowhere(
    base_install: BaseInstall, tmp_path: Path, folder: Path
) -> None:
    """Neither to the terminal nor to the run's folder, also where the server refuses it."""
    small = small_tokenizer()
    offers = Offers(logprobs="records", top=0, key="sk-hunter2")
    with FakeServer(Hashed(9), offers, small) as server:
        command = ["measure", *SERVER, server.url, "--tokenizer", str(folder), *SIZES, "--out", "run"]
        said = base_install(*command, "--key-env", "MINE", cwd=tmp_path, MINE="sk-hunter2")
        server.offers = replace(offers, key="sk-other")
        refused = base_install(*command, cwd=tmp_path, code=2, OPENAI_API_KEY="sk-hunter2")
    assert "OPENAI_API_KEY" in refused
    written = "".join(path.read_text() for path in (tmp_path / "run").iterdir())
    assert "hunter2" not in said + refused + written


def test_a_failing_server_ends_in_one_line_and_the_same_command_goes_on(
    base_install: BaseInstall, tmp_path: Path, folder: Path
) -> None:
    """Exit code 2; then everything that was planned is there."""
    small = small_tokenizer()
    with FakeServer(Hashed(9), Offers(logprobs="records", top=0), small) as server:
        command = [
            "measure",
            *SERVER,
            server.url,
            "--tokenizer",
            str(folder),
            *LONG,
            "--out",
            "run",
            "--tries",
            "1",
        ]
        server.fault = Fault(kind="500", share=0.2, times=None, longer_than=80)
        said = base_install(*command, code=2, cwd=tmp_path)
        server.fault = None
        base_install(*command, cwd=tmp_path)
    assert len([line for line in said.splitlines() if line.startswith("phasescope: ")]) == 1
    assert "does not answer: status 500: out of luck" in said
    assert "the same command goes on from there" in said
    assert len(list(read_log(tmp_path / "run" / "observations.jsonl"))) == 16


BAD: list[tuple[list[str], str]] = [
    ([*SERVER, "localhost:8000"], "such as http://localhost:8000/v1"),
    ([*SERVER, "http://me:hunter2@localhost/v1"], "environment variable"),
    ([*SERVER, "http://127.0.0.1:9/v1", "--tries", "1"], "does not answer"),
    (["--backend", "openai"], "--base-url"),
    (["--backend", "opnai", "--base-url", "{url}"], "--backend"),
    (["--base-url", "{url}", "planted"], "add --backend openai"),
    ([], "no model named"),
    ([*SERVER, "{url}"], "--tokenizer"),
    ([*SERVER, "{url}", "--tokenizer", "nowhere"], "no tokenizer at nowhere"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--grid", "8/4"], "write W8/S4"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--grid", "W4/S0"], "1 to 1,048,576 tokens"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--concurrency", "0"], "concurrency"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--timeout", "0"], "timeout is 0"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--timeout", "nan"], "timeout is nan"),
    (
        [*SERVER, "{url}", "--tokenizer", "{folder}", "--requests-per-minute", "-1"],
        "requests_per_minute is -1.0; give more than 0",
    ),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--deadline", "0"], "deadline"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--key-env", "sk-hunter2"], "not a key"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--key-env", "NOT_SET"], "empty or not set"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--ask", "chat"], "cannot be asked as chat"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--protocol", "prefx"], "did you mean 'prefix'"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--pairs", "9999"], "9999 pairs"),
    ([*SERVER, "{url}", "--tokenizer", "{folder}", "--top-logprobs", "-1"], "top-logprobs"),
]


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a server, and a folder with its tokenizer."""
    there = tmp_path_factory.mktemp("bad")
    small = small_tokenizer()
    small.fast.save(str(there / "tokenizer.json"))
    with FakeServer(Hashed(9), Offers(), small) as server:
        yield server.url, there


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_bad_input_is_one_line_and_exit_code_2(
    base_install: BaseInstall, bad: tuple[str, Path], tmp_path: Path, arguments: list[str], said: str
) -> None:
    """What was given, and what is allowed; nothing is observed, and no secret is repeated."""
    url, folder = bad
    words = (word.format(url=url, folder=folder) for word in arguments)
    error = base_install("measure", *words, "--out", "x", code=2, cwd=tmp_path)
    assert said in " ".join(error.split())
    assert "hunter2" not in error
    assert not (tmp_path / "x" / "observations.jsonl").exists()


def test_where_no_model_is_listed_one_has_to_be_named(base_install: BaseInstall, tmp_path: Path) -> None:
    """As at an address that is none of an API."""
    with FakeServer(Hashed(9), Offers(key="sk-right")) as server:
        said = base_install("probe", server.url, code=2, cwd=tmp_path)
    assert "OPENAI_API_KEY" in said
    with FakeServer(Hashed(9)) as server:
        server.listed = []
        said = base_install("probe", server.url, code=2, cwd=tmp_path)
    assert "lists 0 models (none); name one with --model" in said


@pytest.mark.slow
def test_an_interrupt_says_that_the_same_command_goes_on(tmp_path: Path, folder: Path) -> None:
    """Within a moment, although every request hangs; exit code 130."""
    with FakeServer(Hashed(9), Offers(logprobs="records", top=0), small_tokenizer()) as server:
        server.fault = Fault(kind="time-out", share=1.0, times=None, seconds=60.0, longer_than=80)
        command = ["measure", *SERVER, server.url, "--tokenizer", str(folder), *LONG, "--out", "run"]
        started = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, *command],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        while started.poll() is None and not any(
            len(body.get("prompt") or "") > 80 for _, body in server.asked
        ):
            time.sleep(0.01)
        started.send_signal(signal.SIGINT)
        _, said = started.communicate(timeout=20)
    assert started.returncode == 130
    assert "interrupted; the same command goes on from here" in said
    assert "Traceback" not in said
