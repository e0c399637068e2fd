"""One measure: its samples, what they are compared with, and whether the goal is met."""

from __future__ import annotations

import dataclasses
import math
from typing import Any


def percentile(samples: list[float], share: float) -> float:
    """The nearest-rank percentile; no value is invented between two samples."""
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


@dataclasses.dataclass
class Goal:
    """What a measure is to reach; every part that is set counts. Compared with p50."""

    at_most: float | None = None
    at_least: float | None = None
    ratio_at_most: float | None = None

    def text(self, unit: str) -> str:
        """The goal as a person reads it."""
        parts = []
        if self.at_most is not None:
            parts.append(f"≤ {self.at_most:g} {unit}")
        if self.at_least is not None:
            parts.append(f"≥ {self.at_least:g} {unit}")
        if self.ratio_at_most is not None:
            parts.append(f"≤ {self.ratio_at_most:g} × baseline")
        return ", ".join(parts)


@dataclasses.dataclass
class Measure:
    """A name, its unit, the samples and their baseline, taken in turn in the same run."""

    name: str
    unit: str
    goal: Goal
    samples: list[float] = dataclasses.field(default_factory=list)
    baseline_name: str | None = None
    baseline: list[float] = dataclasses.field(default_factory=list)
    remark: str | None = None
    # What makes the goal missed whatever the samples say.
    fault: str | None = None

    @property
    def p50(self) -> float:
        """The median sample."""
        return percentile(self.samples, 0.5)

    @property
    def ratio(self) -> float | None:
        """The median against the baseline's median."""
        return self.p50 / percentile(self.baseline, 0.5) if self.baseline else None

    @property
    def met(self) -> bool:
        """Whether every part of the goal is reached."""
        goal = self.goal
        if self.fault:
            return False
        if goal.at_most is not None and self.p50 > goal.at_most:
            return False
        if goal.at_least is not None and self.p50 < goal.at_least:
            return False
        return goal.ratio_at_most is None or (self.ratio is not None and self.ratio <= goal.ratio_at_most)

    def as_json(self) -> dict[str, Any]:
        """The form of the results file."""
        return {
            "name": self.name,
            "unit": self.unit,
            "n": len(self.samples),
            "p50": round(self.p50, 3),
            "p90": round(percentile(self.samples, 0.9), 3),
            "p99": round(percentile(self.samples, 0.99), 3),
            "raw": [round(sample, 3) for sample in self.samples],
            "baseline": round(percentile(self.baseline, 0.5), 3) if self.baseline else None,
            "baseline_name": self.baseline_name,
            "baseline_raw": [round(sample, 3) for sample in self.baseline],
            "ratio": round(self.ratio, 3) if self.ratio is not None else None,
            "goal": self.goal.text(self.unit),
            "met": self.met,
            "remark": self.fault or self.remark,
        }


def table(measures: list[Measure]) -> str:
    """All measures, one a line, misses marked."""
    head = ("measure", "n", "p50", "p90", "p99", "unit", "baseline", "ratio", "goal", "")
    rows = [head]
    for measure in measures:
        told = measure.as_json()
        baseline = f"{told['baseline']:.2f} {measure.baseline_name}" if measure.baseline else "-"
        rows.append(
            (
                measure.name,
                str(told["n"]),
                *(f"{told[key]:.2f}" for key in ("p50", "p90", "p99")),
                measure.unit,
                baseline,
                f"{told['ratio']:.2f}" if told["ratio"] is not None else "-",
                told["goal"],
                "met" if measure.met else "MISSED",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    right = {1, 2, 3, 4, 7}
    lines = [
        "  ".join(
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    remarks = [f"{measure.name}: {text}" for measure in measures for text in (measure.remark, measure.fault) if text]
    return "\n".join([*lines, *remarks])
