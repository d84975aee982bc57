"""The same observations give the same findings as an earlier version, apart from rules that were corrected since.

The earlier version measures two models of the zoo and sweeps a prompt over pads, because a later version reads its
runs but not the other way round. Both versions then report the same run folders, audit the same benchmark, and explain
the same run, each in a process of its own; every number of findings.json, profile.json, audit.json and explain.json is
compared to six digits. Keys that were renamed are translated first. What differs is printed with the rule that
explains it; a difference that no rule explains makes the benchmark fail.

    python -m benchmarks.same_findings [--old COMMIT] [--contexts 24] [--draws 500] [--blocks 24] [--run FOLDER …]

A folder given with --run (a run of the earlier version) is reported too.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
OLD = "7e9addf"  # version 0.1
MODELS = ("full-1kv", "w8s8-1kv")
RENAMED = {
    "arm": "condition",
    "arms": "conditions",
    "arms_compared": "conditions_compared",
    "account": "coverage_score",
    "facts": "settings",
}
"""Keys, and names of findings, that version 0.1 wrote otherwise."""
RULES = {
    r"\.(method|p_method)$": "how a number was computed is told in other words",
    r"^findings\.json\..*/(depth|steps|inside_gap|boundary_loss|interaction|missing)/": "version 0.1 had none such",
    r" \(beyond steps\)$": "steps explain more than a period does, and phases are compared beyond them",
    r"^explain\.json\.cost(\.|$)": "an explanation says what was read",
    r"^profile\.json\.profiles\.\d+\.sensitive$": "a profile is sensitive by the one rule, which corrects p over "
    "conditions",
    r"^audit\.json\.(verdict|note|left_out|left_out_examples)": "an audit's sentences are told in other words",
}
"""Which difference is explained by what, by its path."""
JUDGED_BEYOND = "phase_sd|split_half_gap|raw_gap|phase_test|period"


def _same(old: object, new: object) -> bool:
    """Whether two values are the same to six digits.

    Numbers are summed in another order since, and ends of intervals are found by bisection.
    """
    if isinstance(old, float) and isinstance(new, float):
        return math.isclose(old, new, rel_tol=1e-6, abs_tol=1e-12)
    return old == new


@dataclass
class Tally:
    """What was compared.

    Attributes:
        compared, equal, explained, unexplained: numbers, texts and nulls.
        rules: how many differences each rule explains.
    """

    compared: int = 0
    equal: int = 0
    explained: int = 0
    unexplained: int = 0
    rules: dict[str, int] = field(default_factory=dict)

    def add(self, path: str, old: object, new: object) -> None:
        """Compare one value, and print a difference."""
        self.compared += 1
        if _same(old, new):
            self.equal += 1
            return
        rule = next((why for pattern, why in RULES.items() if re.search(pattern, path)), None)
        if rule is None:
            self.unexplained += 1
            print(f"UNEXPLAINED {path}: {old!r} → {new!r}", file=sys.stderr)
            return
        self.explained += 1
        self.rules[rule] = self.rules.get(rule, 0) + 1
        if self.rules[rule] <= 3:
            print(f"{path}: {old!r:.60} → {new!r:.60}: {rule}")


def translated(value: Any, key: str = "") -> Any:
    """A JSON value of version 0.1 with today's keys."""
    if isinstance(value, dict):
        return {RENAMED.get(name, name): translated(item, name) for name, item in value.items()}
    if isinstance(value, list):
        return [translated(item, key) for item in value]
    return RENAMED.get(value, value) if key == "name" else value


def _identity(item: Any) -> str | None:
    """What a finding is called apart from its place; None for anything else."""
    if not (isinstance(item, dict) and {"name", "method", "outcome"} <= item.keys()):
        return None
    parts = (item.get(key) for key in ("condition", "name", "outcome", "coordinate", "stride", "residue"))
    unit = item.get("detail", {}).get("unit") or item.get("detail", {}).get("prompt") or ""
    return "/".join(map(str, (*parts, unit)))


def leaves(value: Any, path: str) -> Iterator[tuple[str, object]]:
    """Every number, text and null of a JSON value, with its path."""
    if isinstance(value, dict) and value:
        for name, item in value.items():
            yield from leaves(item, f"{path}.{name}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from leaves(item, f"{path}.{_identity(item) or index}")
    else:
        yield path, value


def compare(tally: Tally, old: Path, new: Path, name: str) -> None:
    """Compare one file of two folders; what only one of them has is compared with nothing."""
    there, here = (json.loads((folder / name).read_text(encoding="utf-8")) for folder in (old, new))
    before, after = (dict(leaves(value, name)) for value in (translated(there), translated(here)))
    stepped = [
        re.compile(rf"{re.escape(finding['condition'])}/({JUDGED_BEYOND})/{finding['outcome']}/")
        for finding in (here.get("findings", ()) if name == "findings.json" else ())
        if finding["name"] == "steps" and finding["detail"]["more_than_period"]
    ]
    for path in dict.fromkeys([*before, *after]):
        beyond = " (beyond steps)" if any(one.search(path) for one in stepped) else ""
        tally.add(path + beyond, before.get(path, "(absent)"), after.get(path, "(absent)"))


def run(source: Path, *words: str) -> None:
    """A command of the version whose source lies there."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "phasescope", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{source}: phasescope {' '.join(words)} failed:\n{done.stdout}\n{done.stderr}")


def unpack(commit: str, folder: Path) -> Path:
    """The source of a commit."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "archive", commit, "src"], cwd=ROOT, capture_output=True, check=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive, check=True)
    return folder / "src"


def prompts(folder: Path) -> Path:
    """A prompt of token ids for models of the zoo, which read no text."""
    ids = np.random.default_rng(3).integers(20, 60, size=96).tolist()
    prompt = {"prompt_ids": ids, "expected_ids": [30], "rival_ids": [[40]], "at": 8, "source": 48}
    path = folder / "prompts.jsonl"
    path.write_text(json.dumps(prompt) + "\n", encoding="utf-8")
    return path


def benchmark(folder: Path) -> Path:
    """A log of 600 scored answers at every second token, every fourth of them weaker."""
    rng = np.random.default_rng(4)
    rows = [
        {"position": 2 * n, "score": int(rng.random() < (0.5 if n % 4 == 1 else 0.9))} for n in range(600)
    ]
    path = folder / "benchmark.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def main() -> None:
    """Measure with the old version, analyse with both, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--old", default=OLD, help="the commit of the earlier version")
    parser.add_argument("--contexts", type=int, default=24)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--blocks", type=int, default=24, help="questions that are explained")
    parser.add_argument("--run", type=Path, nargs="*", default=[], help="further runs of the earlier version")
    asked = parser.parse_args()
    tally, draws = Tally(), ("--draws", str(asked.draws))
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        old, new = unpack(asked.old, work / "source"), ROOT / "src"
        measured, swept = work / "measured", work / "swept"
        sizes = ("--contexts", str(asked.contexts), "--pairs", "24", "--threads", "1")
        protocols = ("--protocol", "prefix", "--protocol", "in_sequence")
        run(old, "measure", *MODELS, *protocols, *sizes, "--out", str(measured))
        family = ("--family", "ids:7", "--family", "ids:8,9", "--lengths", "0:24", "--threads", "1")
        models = ("--control", MODELS[0], "--model", MODELS[1])
        run(old, "sweep", str(prompts(work)), *models, *family, "--out", str(swept))
        given = [folder.resolve() for folder in asked.run]
        for number, folder in enumerate([measured, swept, *given]):
            for version, source in (("old", old), ("new", new)):
                run(source, "report", str(folder), *draws, "--out", str(work / version / str(number)))
            for file in ("findings.json", "profile.json"):
                compare(tally, work / "old" / str(number), work / "new" / str(number), file)
        for version, source in (("old", old), ("new", new)):
            out = work / version
            run(source, "audit", str(benchmark(work)), *draws, "--out", str(out / "audit"))
            copy = shutil.copytree(measured, out / "measured")
            option = "--arm" if version == "old" else "--condition"
            chosen = (option, f"{MODELS[1]}/in_sequence", "--blocks", str(asked.blocks))
            run(source, "explain", str(copy), *chosen, *draws, "--out", str(out / "explain"))
        compare(tally, work / "old" / "audit", work / "new" / "audit", "audit.json")
        compare(tally, work / "old" / "explain", work / "new" / "explain", "explain.json")
    for rule, count in tally.rules.items():
        print(f"{count} differences: {rule}")
    counts = {name: getattr(tally, name) for name in ("compared", "equal", "explained", "unexplained")}
    print(json.dumps(counts))
    if tally.unexplained:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
