"""`python -m scripted_model SCRIPT.py [--port N]`: serves the script and prints the base URL as its first line."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from .server import Script, ScriptedModel


def load(path: Path) -> Script:
    """The `decide` function of the script at `path`."""
    spec = importlib.util.spec_from_file_location("script", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    decide = getattr(module, "decide", None)
    if not callable(decide):
        raise SystemExit(f"{path} defines no function decide(conversation)")
    return decide


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripted_model", description="A chat model played by a script.")
    parser.add_argument("script", type=Path, help="a Python file that defines decide(conversation)")
    parser.add_argument("--port", type=int, default=0, help="port on the loopback address (default: a free one)")
    arguments = parser.parse_args()
    model = ScriptedModel(load(arguments.script), arguments.port)
    print(model.base_url, flush=True)
    model.serve_forever()


if __name__ == "__main__":
    sys.exit(main())
