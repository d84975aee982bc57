"""Write the table of docs/inside_gap.md from results/packed.

    python -m research.small_grid --recipe packed --rows w8s8:0,1,2 full:0    # trains and measures what is missing
    python -m research.packed_page

The last line is one JSON object: `rows`, and of W8/S8 in how many seeds the interval of the inside gap lies above 30
points and its value is 50 or more, by protocol.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from phasescope.files import read_json, write_atomic

ROOT = Path(__file__).resolve().parents[1]
PAGE, KEPT = ROOT / "docs" / "inside_gap.md", ROOT / "results" / "packed"
MARK = "<!-- table -->\n"
PROTOCOLS = ("prefix", "in_sequence")
COLUMNS = (
    "row",
    "seed",
    "pairs",
    "protocol",
    "mean",
    "inside gap",
    "boundary loss",
    "recall by phase",
    "period",
)
HEAD = f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|"


def finding(found: list[dict[str, Any]], name: str) -> dict[str, Any]:
    """The finding of accuracy with that name; empty without one."""
    return next(
        (one for one in found if one["name"] == name and one.get("outcome", "accuracy") == "accuracy"), {}
    )


def estimate(one: dict[str, Any]) -> str:
    """Points with their interval."""
    if one.get("value") is None:
        return "–"
    value, low, high = (100 * one.get(key, 0.0) for key in ("value", "low", "high"))
    return f"{value:.1f} ({low:.1f} to {high:.1f})".replace("-", "−")


def line(summary: dict[str, Any], protocol: str) -> str:
    """One row of the table."""
    found = summary[protocol]
    rates = sorted(
        (one for one in found if one["name"] == "phase_rate"), key=lambda one: one.get("residue", 0)
    )
    period = finding(found, "period").get("value")
    cells = [
        summary["row"],
        summary["seed"],
        summary["pairs"],
        protocol,
        f"{100 * finding(found, 'mean_accuracy')['value']:.1f}",
        estimate(finding(found, "inside_gap")),
        estimate(finding(found, "boundary_loss")),
        " ".join(f"{100 * one['value']:.0f}" for one in rates),
        "none" if period is None else f"{period:.0f}",
    ]
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> None:
    """Fill the table."""
    summaries = [read_json(path) for path in sorted(KEPT.glob("*.json"))]
    lines = [line(one, protocol) for one in summaries for protocol in PROTOCOLS]
    head, _, _ = PAGE.read_text().partition(MARK)
    write_atomic(PAGE, (head + MARK + HEAD + "\n" + "\n".join(lines) + "\n").encode())
    met = {}
    for protocol in PROTOCOLS:
        gaps = [finding(one[protocol], "inside_gap") for one in summaries if one["row"] == "w8s8"]
        met[protocol] = sum(gap["value"] >= 0.5 and gap["low"] > 0.3 for gap in gaps)
    print(json.dumps({"rows": len(summaries), "w8s8_met": met}))


if __name__ == "__main__":
    main()
