"""The cost of Everlong in a fresh process: CPU above that of bare Python.

Bars: importing, making a `ContextCompressor` and compacting 50 messages at most 350 ms; ``everlong --help`` at most
500 ms.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench.measure import best_child_cpu, verdict

COMPACT = """
import json, sys
from everlong import ContextCompressor
messages = json.load(open(sys.argv[1]))
engine = ContextCompressor(16_000)
engine.compress(messages)
assert engine.last_report.outcome == "summarized"
"""
HELP = """
from everlong.cli.main import main
main(["--help"])
"""


def main() -> None:
    """Print the table."""
    import json  # noqa: PLC0415 - the generator imports everlong, which this module otherwise does not

    from bench.conversations import conversation  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "messages.json"
        path.write_text(json.dumps(conversation(50)), encoding="utf-8")
        bare = best_child_cpu([sys.executable, "-c", "pass"])
        rows = (
            ("import everlong", ["-c", "import everlong"], None),
            ("import, make an engine, compact 50 messages", ["-c", COMPACT, str(path)], 0.350),
            ("everlong --help", ["-c", HELP], 0.500),
        )
        print("CPU of a fresh process above bare Python, ms:\n")
        print(f"{bare * 1e3:>7.0f}  bare Python")
        for name, arguments, bar in rows:
            cost = best_child_cpu([sys.executable, *arguments]) - bare
            held = "" if bar is None else f"  (bar {bar * 1e3:.0f})  {verdict(cost, bar)}"
            print(f"{cost * 1e3:>7.0f}  {name}{held}")
        print()


if __name__ == "__main__":
    main()
