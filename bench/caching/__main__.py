"""Runs the caching benchmarks; name some of them to run only those."""

from __future__ import annotations

import argparse

from bench.caching import placement, speed

PARTS = {"placement": placement.main, "speed": speed.main}


def main() -> None:
    """Print the tables that were asked for, or all."""
    parser = argparse.ArgumentParser(prog="python -m bench.caching", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which to run; all by default")
    for name in parser.parse_args().parts or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
