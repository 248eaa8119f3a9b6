"""The cost of Everlong in a fresh process: CPU above that of bare Python.

Bars: importing, making a `ContextCompressor` and compacting 50 messages at most 250 ms; ``everlong --help`` at most
150 ms; commands that open the store at most 1.5 times the import of SQLAlchemy.
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
RUN = """
import os, sys
os.environ["EVERLONG_HOME"] = sys.argv[1]
from everlong.cli.main import main
main({arguments!r})
"""
HELP = RUN.format(arguments=["--help"])
LIST = RUN.format(arguments=["sessions", "list"])
SEARCH = RUN.format(arguments=["sessions", "search", "the", "harbour"])
DATABASE = 1.5
"""The most that a command which opens the store may cost, with the import of its database library as 1."""


def main() -> None:
    """Print the table."""
    import json  # noqa: PLC0415 - the generator imports everlong, which this module otherwise does not

    from bench.conversations import conversation  # noqa: PLC0415 - as above

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "messages.json"
        path.write_text(json.dumps(conversation(50)), encoding="utf-8")
        bare = best_child_cpu([sys.executable, "-c", "pass"])
        database = best_child_cpu([sys.executable, "-c", "import sqlalchemy"]) - bare
        rows = (
            ("import everlong", ["-c", "import everlong"], None),
            ("import, make an engine, compact 50 messages", ["-c", COMPACT, str(path)], 0.250),
            ("everlong --help", ["-c", HELP, folder], 0.150),
            ("everlong sessions list", ["-c", LIST, folder], DATABASE * database),
            ("everlong sessions search", ["-c", SEARCH, folder], DATABASE * database),
        )
        print("CPU of a fresh process above bare Python, ms:\n")
        print(f"{bare * 1e3:>7.0f}  bare Python")
        print(f"{database * 1e3:>7.0f}  import sqlalchemy")
        for name, arguments, bar in rows:
            cost = best_child_cpu([sys.executable, *arguments]) - bare
            held = "" if bar is None else f"  (bar {bar * 1e3:.0f})  {verdict(cost, bar)}"
            print(f"{cost * 1e3:>7.0f}  {name}{held}")
        print()


if __name__ == "__main__":
    main()
