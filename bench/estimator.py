"""The token estimator's error against ``o200k_base``, and its speed beside the exact counter.

    python -m bench.estimator [--data FOLDER]

Reads the samples of the tests, which no weight was fitted on, and, with ``--data``, a folder of real conversations as
JSON lines with a ``messages`` list each. Throughputs are measured in one run and printed as a ratio, since megabytes
per second alone say more about the machine.
"""

from __future__ import annotations

import argparse
import json
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path

from everlong.model.content import text_of
from everlong.model.message import calls_of
from everlong.tokens import EstimatingCounter, ExactCounter, TokenCounter

SAMPLES = Path(__file__).parent.parent / "tests" / "tokens" / "samples"
ESTIMATOR = EstimatingCounter()
EXACT = ExactCounter("o200k_base")


def main() -> None:
    """Print errors by kind of text, then throughput, then errors on real conversations."""
    parser = argparse.ArgumentParser(description="Measure the token estimator.")
    parser.add_argument("--data", type=Path, help="folder of .jsonl files with conversations")
    arguments = parser.parse_args()
    samples = {path.stem: path.read_bytes().decode() for path in sorted(SAMPLES.glob("*.txt"))}
    _errors(samples)
    _throughputs()
    if arguments.data is None:
        print("\nno --data: real conversations are not measured")
    else:
        _conversations(arguments.data)


def _errors(samples: dict[str, str]) -> None:
    print(f"{'sample':<12}{'bytes':>8}{'tokens':>8}{'estimate':>10}{'error':>9}{'len/4':>9}")
    for name, text in samples.items():
        true, estimated = EXACT.count_text(text), ESTIMATOR.count_text(text)
        print(
            f"{name:<12}{len(text.encode()):>8,}{true:>8,}{estimated:>10,}"
            f"{estimated / true - 1:>+9.1%}{len(text) / 4 / true - 1:>+9.1%}"
        )


def _throughputs() -> None:
    # Python's own library is varied text of some size that is there wherever this runs.
    library = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    sources = "".join(path.read_text(encoding="utf-8", errors="replace") for path in library)
    text = sources.encode("ascii", "replace").decode()
    print(f"\n{'MB per CPU second':<20}{'estimate':>10}{'exact':>10}{'ratio':>8}{'exact again':>14}{'ratio':>8}")
    fast, slow = _rate(ESTIMATOR, text), _rate(EXACT, text)
    again = _rate(EXACT, text)  # the tokenizer remembers words, so what it has seen before goes faster
    print(f"{'source code':<20}{fast:>10.1f}{slow:>10.1f}{fast / slow:>7.1f}x{again:>14.1f}{fast / again:>7.1f}x")


def _rate(counter: TokenCounter, text: str) -> float:
    counter.count_text(text[:100])
    started = time.process_time()
    counter.count_text(text)
    return len(text.encode()) / 1e6 / (time.process_time() - started)


def _conversations(folder: Path) -> None:
    files = sorted(folder.glob("*.jsonl"))
    if not files:
        raise SystemExit(f"no .jsonl files in {folder}")
    print(f"\n{'conversations':<24}{'count':>6}{'tokens':>10}{'lowest':>9}{'whole':>9}{'highest':>9}{'len/4':>9}")
    for path in files:
        rows = [_count(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        true, estimated, quarter = (sum(column) for column in zip(*rows, strict=True))
        errors = [row[1] / row[0] - 1 for row in rows if row[0]]
        print(
            f"{path.stem:<24}{len(rows):>6}{true:>10,.0f}{min(errors):>+9.1%}{estimated / true - 1:>+9.1%}"
            f"{max(errors):>+9.1%}{quarter / true - 1:>+9.1%}"
        )


def _count(line: str) -> tuple[float, float, float]:
    texts = list(_texts(line))
    return (
        sum(map(EXACT.count_text, texts)),
        sum(map(ESTIMATOR.count_text, texts)),
        sum(len(text) / 4 for text in texts),
    )


def _texts(line: str) -> Iterator[str]:
    for message in json.loads(line)["messages"]:
        yield text_of(message)
        for call in calls_of(message):
            yield call.arguments


if __name__ == "__main__":
    main()
