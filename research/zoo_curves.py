"""What the demo finds on the shipped models, on several evaluation seeds.

    python -m research.zoo_curves [--seeds 3] [--first-seed 0]

Per condition: mean accuracy, phase SD with interval, period found and expected. The last line is one JSON object:
`sensitive` (conditions whose interval excludes 0 on every seed), `wrong_periods` (such an interval, another period than
the stride), `control_over_model` (largest upper bound of a control's phase SD over the smallest phase SD of a
sensitive condition under the same protocol), `control_smallest_p` (of a period in a control).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import Counter
from pathlib import Path

from phasescope.records import Finding
from phasescope.reporting import build_report
from phasescope.statistics.analyses import read_findings
from phasescope.verbs import demo


def curves(seed: int) -> dict[str, dict[str, Finding]]:
    """Run the demo and pick what is compared, by condition and name."""
    with tempfile.TemporaryDirectory() as folder:
        demo(Path(folder), seed=seed)
        build_report([Path(folder)], seed=seed)
        findings = read_findings(Path(folder) / "findings.json")
    conditions: dict[str, dict[str, Finding]] = {}
    for finding in findings:
        if finding.outcome == "accuracy" and finding.name in ("mean_accuracy", "phase_sd", "period"):
            conditions.setdefault(finding.condition, {}).setdefault(finding.name, finding)
    return conditions


def main() -> None:
    """Print a line per condition and seed, and the comparison as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=0)
    given = parser.parse_args()
    seeds = given.seeds
    excluded: Counter[str] = Counter()
    wrong, smallest_p = 0, 1.0
    uppers: dict[str, float] = {}
    sizes: dict[tuple[str, str], float] = {}
    for seed in range(given.first_seed, given.first_seed + seeds):
        for condition, found in curves(seed).items():
            sd, period, mean = found["phase_sd"], found["period"], found["mean_accuracy"]
            print(
                f"seed {seed}  {condition:24} accuracy {mean.value:.3f}  phase SD {sd.value:.4f} "
                f"({sd.low:.4f} to {sd.high:.4f})  period {period.value} of {period.expected}, p {period.p_value:.4f}",
                flush=True,
            )
            protocol = condition.rpartition("/")[2]
            if period.expected is None:
                uppers[protocol] = max(uppers.get(protocol, 0.0), sd.high)
                smallest_p = min(smallest_p, period.p_value)
            elif sd.low > 0:
                excluded[condition] += 1
                wrong += period.value != period.expected
                sizes[condition, protocol] = min(sizes.get((condition, protocol), 1.0), sd.value)
    sensitive = sorted(condition for condition, times in excluded.items() if times == seeds)
    ratios = [
        uppers[protocol] / size for (condition, protocol), size in sizes.items() if condition in sensitive
    ]
    result = {
        "seeds": seeds,
        "first_seed": given.first_seed,
        "sensitive": sensitive,
        "wrong_periods": wrong,
        "control_over_model": max(ratios, default=None),
        "control_smallest_p": smallest_p,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
