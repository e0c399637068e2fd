"""Takes the measures against a server of its own, prints the table and writes `bench/results/latest.json`.

    python bench/run.py [--short] [--state DIR]

Run it with the interpreter of an environment that holds bench/requirements.txt, as `make bench` does.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path

TOP = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TOP / "scripts"))
from foundation import Foundation  # noqa: E402
from measure import Measure, table  # noqa: E402
from stack import Server, default_state  # noqa: E402

FULL, SHORT = 50, 5


def host() -> dict[str, object]:
    """The machine, as far as it explains the numbers."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cores": os.cpu_count(), "memory_gib": round(memory / (1 << 30), 1), "kernel": platform.release()}


def written(measures: list[Measure], path: Path) -> None:
    """Writes the results file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    results = {
        "taken_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "host": host(),
        "client": "python http.client, keep-alive",
        "measures": [measure.as_json() for measure in measures],
    }
    path.write_text(json.dumps(results, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures Atoll against the same work without it.")
    parser.add_argument("--short", action="store_true", help=f"{SHORT} samples instead of {FULL}: shows that it works")
    parser.add_argument("--state", type=Path, default=default_state(), help="state folder of the server")
    parser.add_argument("--output", type=Path, default=TOP / "bench/results/latest.json")
    arguments = parser.parse_args()

    server = Server(arguments.state).start()
    measures: list[Measure] = []
    try:
        for measure in Foundation(server, SHORT if arguments.short else FULL).measures():
            measures.append(measure)
            print(f"{measure.name}: {measure.p50:.2f} {measure.unit}", file=sys.stderr, flush=True)
    finally:
        server.stop()
    print(table(measures))
    written(measures, arguments.output)
    print(f"\nwritten to {arguments.output}")


if __name__ == "__main__":
    main()
