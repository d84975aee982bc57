"""A run's description: what it takes, how conditions are folded, and what a damaged folder ends in."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from phasescope import BrokenRecordError, UsageError, WindowGrid
from phasescope.backends import Planted
from phasescope.errors import PhasescopeError
from phasescope.files import read_bytes, read_record
from phasescope.planning.build import plan_run
from phasescope.protocols import InSequencePadding, PrefixPadding, described_protocol
from phasescope.reporting import build_report
from phasescope.running.runner import Condition, run
from phasescope.runs import RunDescription, folds, read_description, read_run
from phasescope.statistics.conditions import read_conditions
from phasescope.statistics.effect import read_effect
from tests.descriptions import described, without_digests


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two conditions."""
    out = tmp_path_factory.mktemp("run")
    planted = Planted(grid=WindowGrid(4, 4), curve=(0.9, 0.6, 0.3, 0.75))
    protocols = PrefixPadding(pairs=3, contexts=2), InSequencePadding(pairs=3, contexts=2)
    command = "phasescope measure http://me:secret@host/v1 --out here"
    run([Condition(p.name, planted, p) for p in protocols], out, seed=3, command=command)
    return out


def test_a_description_is_read_as_it_was_written(folder: Path) -> None:
    """Typed, with its command, whose address has lost its password; and written again it has the same facts."""
    description = read_description(folder)
    assert (description.format, description.seed) == (2, 3)
    assert description.conditions[0].backend.grids == (WindowGrid(4, 4),)
    assert description.conditions[1].protocol.plan.trials == 144
    assert description.command == "phasescope measure http://(hidden)@host/v1 --out here"
    assert description.facts() == json.loads((folder / "run.json").read_text())


def test_a_run_that_version_0_1_wrote_is_read(folder: Path, tmp_path: Path) -> None:
    """It calls conditions arms, and knows no command."""
    facts = json.loads((folder / "run.json").read_text())
    old = {"schema": 1, "seed": 3, "versions": facts["versions"], "arms": facts["conditions"]}
    (tmp_path / "run.json").write_text(json.dumps(old))
    description = read_description(tmp_path)
    assert description.conditions == read_description(folder).conditions
    assert description.command is None


def test_a_protocol_is_made_again_from_its_description(folder: Path) -> None:
    """With the settings it had; other contexts may be asked."""
    first, second = read_description(folder).conditions
    assert described_protocol(first.protocol, folder) == PrefixPadding(pairs=3, contexts=2)
    again = described_protocol(second.protocol, folder).with_contexts(9)
    assert again == InSequencePadding(pairs=3, contexts=9)


@pytest.mark.parametrize("settings", [{"pairs": "many"}, {"pears": 3}, {"pairs": [3]}])
def test_settings_that_a_protocol_does_not_have_are_one_line(settings: dict[str, Any]) -> None:
    """A run.json of somebody else's protocol, or a damaged one."""
    with pytest.raises(UsageError, match=r"protocol prefix cannot be made again from run\.json: p"):
        described_protocol(described("m", settings=settings).protocol, Path("nowhere"))


def test_a_control_is_folded_by_the_largest_stride_beside_it() -> None:
    """Of those that move the same coordinate; alone by what its layouts visit."""
    control, narrow, wide = described("c"), described("a", [4]), described("b", [4, 6])
    other = described("q", [8], moves="query")
    assert folds([control, narrow, wide, other]) == [12, 4, 12, 8]
    assert folds([control]) == [24]
    assert folds([described("c", settings={"groups": 8}), other]) == [8, 8]
    assert [one.control for one in (control, narrow, described("u", None))] == [True, False, False]


@pytest.mark.parametrize(("strides", "fold"), [((4, 128), 4), ((6, 4), 12)])
def test_every_verb_folds_a_run_by_the_same_stride(
    tmp_path: Path, strides: tuple[int, ...], fold: int
) -> None:
    """What a report tests, a plan states the power of, and check judges by; so does explain, from the same property."""

    class Pooled(Planted):
        """A model with several grids."""

        def describe(self) -> dict[str, Any]:
            grids = [{"width": stride, "stride": stride, "shift": 0} for stride in strides]
            return {**super().describe(), "grids": grids}

    pooled = Pooled(grid=WindowGrid(4, 4), curve=(0.9, 0.3, 0.3, 0.75))
    conditions = [Condition("m", pooled, PrefixPadding(pairs=6, contexts=8))]
    run(conditions, tmp_path, seed=0)
    ((condition,), _) = read_conditions([tmp_path])
    assert (condition.stride, condition.fold) == (fold, fold)
    assert plan_run(conditions, 0, budget=0).conditions[0].fold == fold
    assert build_report([tmp_path], draws=9).page.is_file()
    findings = json.loads((tmp_path / "findings.json").read_text())["findings"]
    assert {one["stride"] for one in findings if one["name"] == "phase_sd"} == {fold}
    assert "modulo 4" in read_effect(tmp_path, draws=99).sentence


def test_a_run_is_short_in_words(folder: Path) -> None:
    """A notebook that shows one is not filled by it."""
    assert repr(read_run(folder)) == "Run(seed=3: prefix 144/144, in_sequence 144/144)"


def test_runs_differ_by_a_dotted_key_but_not_by_their_command_and_place() -> None:
    """The command may be another, as `--engine` or a folder is; a model is the same by its digest."""

    def of(seed: int, path: str, command: str, **backend: Any) -> RunDescription:
        one = described("m", backend={"path": path, **backend})
        return RunDescription.now([one], seed, command)

    here = of(1, "/a", "x", digest="1")
    assert here.difference(of(1, "/b", "y", digest="1")) is None
    assert here.difference(of(2, "/a", "x", digest="1")) == "seed = 1, this run 2"
    told = here.difference(of(1, "/a", "x", digest="2"))
    assert told == "conditions[0].backend.digest = '1', this run '2'"


def test_a_seed_that_no_generator_takes_is_refused() -> None:
    """Before anything is written."""
    with pytest.raises(UsageError, match="seed is -1"):
        RunDescription.now([described("m")], -1)


DAMAGE: dict[str, tuple[Any, str]] = {
    "nothing": (b"", "Invalid JSON"),
    "an empty object": (b"{}", "schema is missing"),
    "a list": (b"[]", "RunDescription: "),
    "deep": (b"[" * 100_000, "recursion limit"),
    "a long number": (b'{"schema": 2, "seed": ' + b"7" * 400 + b"}", "seed is 777"),
    "a lone surrogate": (b'{"schema": 2, "seed": 1, "command": "\\ud800"}', "Invalid JSON"),
    "not UTF-8": (b'{"schema": 2, "\xff": 1}', "Invalid JSON"),
}


@pytest.mark.parametrize(("content", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_file_that_is_no_description_is_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    """Naming the file and what is wrong with it."""
    (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(BrokenRecordError, match=rf"run\.json is damaged: .*{message}") as caught:
        read_description(tmp_path)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 2000


def test_a_byte_order_mark_is_passed_over(folder: Path, tmp_path: Path) -> None:
    """Some editors write one when they save a file."""
    (tmp_path / "run.json").write_bytes(b"\xef\xbb\xbf" + (folder / "run.json").read_bytes())
    assert read_description(tmp_path) == read_description(folder)


def test_a_file_without_end_is_not_read_whole(tmp_path: Path) -> None:
    """A size is checked before memory is filled."""
    with (tmp_path / "x").open("wb") as file:
        file.truncate(10_001)
    with pytest.raises(BrokenRecordError, match="more than 10,000 bytes"):
        read_bytes(tmp_path / "x", most=10_000)
    with pytest.raises(UsageError, match="not a file"):
        read_record(Path("/dev/zero"), RunDescription)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("versions",), None, "versions is missing"),
        (("seed",), None, "seed is missing"),
        (("conditions",), [], "conditions is"),
        (("conditions", 0, "protocol", "plan"), None, "protocol.plan is missing"),
        (("conditions", 0, "protocol", "moves"), "both", "'both'"),
        (("conditions", 0, "protocol", "settings", "residues"), 10**9, "settings.residues is 1000000000"),
        (("conditions", 0, "backend", "grids", 0, "stride"), "4", "stride is '4'"),
        (("conditions", 0, "backend", "grids", 0, "stride"), 10**9, "1 to 1,048,576 tokens"),
        (("conditions", 0, "backend", "elsewhere"), 10**30, "a number beyond"),
        (("conditions", 1, "name"), "prefix", "2 conditions are named 'prefix'"),
    ],
)
def test_a_damaged_description_names_the_field(
    folder: Path, tmp_path: Path, path: tuple[Any, ...], value: Any, message: str
) -> None:
    """Its value and what is allowed, in one line; None stands for a field that is not there."""
    facts = at = json.loads((folder / "run.json").read_text())
    for key in path[:-1]:
        at = at[key]
    if value is None:
        del at[path[-1]]
    else:
        at[path[-1]] = value
    (tmp_path / "run.json").write_text(json.dumps(facts))
    with pytest.raises(BrokenRecordError, match=message) as caught:
        read_run(tmp_path)
    assert "\n" not in str(caught.value)


HOSTILE: list[Any] = [
    None,
    "",
    "4",
    "a\u2028b\n" * 50,
    -1,
    0,
    2**31,
    2**63,
    10**9,
    10**400,
    0.5,
    1e308,
    True,
    [],
    {},
    [[]],
    ["x"],
    {"name": "x", "digest": "y"},
    [{"width": 1, "stride": 2**20, "shift": 0}, {"width": 1, "stride": 2**20 - 1, "shift": 0}],
]
"""What a file may hold in the place of any value."""


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a JSON value with each of its keys."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, part in items for place in [(value, key), *places(part)]]


def damage(facts: Any, draw: Any) -> None:
    """Put something else into one place of a JSON value, or take it away."""
    container, key = draw(st.sampled_from(places(facts)))
    if isinstance(container, dict) and draw(st.integers(0, 4)) == 0:
        del container[key]
    else:
        container[key] = deepcopy(draw(st.sampled_from(HOSTILE)))  # a later damage may change it


def damaged(folder: Path, out: Path, data: st.DataObject) -> None:
    """Copy a run with a few damages: in values of run.json, in values of an observation, or in bytes of either."""
    facts = json.loads((folder / "run.json").read_text())
    lines = [json.loads(line) for line in without_digests(folder / "observations.jsonl").splitlines()]
    for _ in range(data.draw(st.integers(1, 3))):
        damage(facts if data.draw(st.booleans()) else lines, data.draw)
    files = {"run.json": json.dumps(facts).encode()}
    files["observations.jsonl"] = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    if data.draw(st.integers(0, 2)) == 0:
        name = data.draw(st.sampled_from(sorted(files)))
        at = data.draw(st.integers(0, len(files[name])))
        files[name] = files[name][:at] + data.draw(st.binary(max_size=9)) + files[name][at + 3 :]
    for name, content in files.items():
        (out / name).write_bytes(content)


def survives(folder: Path, out: Path, data: st.DataObject, use: Callable[[Path], object]) -> None:
    """Whatever is done with a damaged run ends well, or in one line."""
    damaged(folder, out, data)
    said = ""
    try:
        with np.errstate(all="ignore"):  # two contexts that agree have no variance
            use(out)
    except PhasescopeError as error:
        said = str(error)
    assert "\n" not in said
    assert len(said) < 5000


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_run_is_read_or_refused_in_one_line(
    folder: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Whatever a disk, an editor or another program made of it."""
    survives(folder, tmp_path, data, lambda out: read_conditions([out]))


@pytest.mark.slow
@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_run_is_reported_or_refused_in_one_line(
    folder: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Nothing that was let in stops the statistics and the page."""
    survives(folder, tmp_path, data, lambda out: build_report([out], draws=9))
