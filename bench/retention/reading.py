"""Summaries read by a person: the share of lines that are right in their place, by section.

    python -m bench.retention.reading [--labels FILE]

The labels were made by reading the built-in summaries of forty cuts line by line. They hold no text of the
conversations: of each summary its digest, how many lines each section has, and the numbers of those that are wrong,
each with a word why. A line is wrong where it stands in the wrong section, says nothing by itself, is a piece of code
or data outside of Critical Context, repeats another, or was overtaken by a later turn.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

LABELS = Path(__file__).parent / "labels" / "reading.jsonl"
KINDS = ("coding", "chat", "service")


def main() -> int:
    """Print the shares."""
    parser = argparse.ArgumentParser(prog="python -m bench.retention.reading", description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=Path, default=LABELS, help="file of labels, one summary per line")
    options = parser.parse_args()
    labels = read_labels(options.labels)
    print(f"{len(labels)} summaries read")
    for kind in (*KINDS, "all"):
        chosen = [label for label in labels if kind in (label["kind"], "all")]
        goals, newest = sum(label["goal"] for label in chosen), sum(label["newest"] for label in chosen)
        print(f"\n{kind}: goal right in {goals} of {len(chosen)}, newest request in {newest} of {len(chosen)}")
        for section, (right, of) in shares(chosen).items():
            print(f"  {section:<28}{right:>4} of {of:>4}  {right / of:.2f}")
        bare = sum(label["without_source"] for label in chosen)
        print(f"  {'Critical Context':<28}{quoted_lines(chosen)}; {bare} lines without a source")
    print("\nwhy lines are wrong: " + ", ".join(f"{why} {count}" for why, count in reasons(labels).most_common()))
    return 0


def quoted_lines(labels: list[dict[str, Any]]) -> str:
    """Return in words how many quoted lines are right, and why others are not."""
    wrong: Counter[str] = Counter()
    for label in labels:
        wrong.update(label["critical"])
    of = sum(label["quoted"] for label in labels)
    return f"{of - wrong.total()} of {of} right, " + ", ".join(f"{why} {count}" for why, count in wrong.items())


def read_labels(path: Path) -> list[dict[str, Any]]:
    """Return the labels of a file."""
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


def shares(labels: list[dict[str, Any]]) -> dict[str, tuple[int, int]]:
    """Return for each section the number of right lines, and of all."""
    lines: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for label in labels:
        lines.update(label["lines"])
        wrong.update({section: len(numbers) for section, numbers in label["wrong"].items()})
    return {section: (of - wrong[section], of) for section, of in lines.items()}


def reasons(labels: list[dict[str, Any]]) -> Counter[str]:
    """Return how many lines are wrong for each reason."""
    return Counter(why for label in labels for lines in label["wrong"].values() for why in lines.values())


if __name__ == "__main__":
    sys.exit(main())
