"""The long run: every conversation of a folder, cut at every tenth message, at four windows; then the long tests.

    python -m bench.soak [--data FOLDER] [--minutes N] [--examples N]

Each compaction is held against every invariant, an independent reading of the protocol and a brute-force search for
the least possible. Without a folder it uses the shipped session and generated conversations, and says so. Exits with
1 if anything was wrong. Knows nothing of how compaction works; the independent reading lives with the tests.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from tests.context.brute_force import most_allowed
from tests.context.engines import repaired
from tests.context.protocol import problems, role_problems

from bench.conversations import conversation
from everlong.context import ContextCompressor
from everlong.context.invariants import check_all
from everlong.model import Message

ROOT = Path(__file__).resolve().parent.parent
PROPERTIES = (
    "tests/context/test_properties.py",
    "tests/store/test_properties.py",
)
WINDOWS = (4_000, 8_000, 32_000, 128_000)
EVERY = 10
"""A conversation is cut at every so manieth message."""
SHARE = 20
"""The number of cuts of a conversation in one piece of work."""


class Work(NamedTuple):
    """Some cuts of one conversation at one window."""

    name: str
    messages: list[dict[str, Any]]
    window: int
    cuts: list[int]
    deadline: float | None
    """The time of day after which it is left undone."""


class Checked(NamedTuple):
    """One compaction: what was wrong with it, and whether only the least possible was too large for the threshold."""

    problems: list[str]
    at_least_possible: bool
    outcome: str


class Failure(NamedTuple):
    """One compaction that went wrong."""

    name: str
    window: int
    cut: int
    problem: str


class Tally(NamedTuple):
    """The outcome of one piece of work."""

    window: int
    outcomes: Counter[str]
    at_least_possible: int
    failures: list[Failure]
    complete: bool = True


def main() -> int:
    """Run everything and print a table."""
    options = _options()
    deadline = time.time() + options.minutes * 60 if options.minutes else None
    named = dict(_conversations(options.data))
    if not named:
        print(f"soak: no *.jsonl with conversations in {options.data}", file=sys.stderr)
        return 1
    tallies = _run(list(_pieces(named, deadline)))
    failures = [failure for tally in tallies for failure in tally.failures]
    _print_table(named, tallies)
    for failure in failures[:50]:
        print(f"FAILED {failure.name} window={failure.window} cut={failure.cut}: {failure.problem}")
    tests_pass = _run_tests(options.examples) if options.examples else True
    held = "all held" if all(tally.complete for tally in tallies) else "all that was tried held"
    print("soak: " + (held if tests_pass and not failures else "violations found"))
    return 0 if tests_pass and not failures else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of *.jsonl files, one object with 'messages' per line")
    parser.add_argument("--minutes", type=float, default=0, help="stop the conversations after so long; 0: all of them")
    parser.add_argument("--examples", type=int, default=100, help="examples of each property; 0: no tests")
    return parser.parse_args()


# -- what to try -------------------------------------------------------------------------------------------------------


def _conversations(data: Path | None) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    if data is None:
        print(
            "soak: no folder of transcripts given (--data FOLDER); using the shipped session and generated ones",
            file=sys.stderr,
        )
        yield from _built_in()
        return
    for path in sorted(data.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                entry = json.loads(line) if line.strip() else {}
                if isinstance(entry, dict) and isinstance(entry.get("messages"), list):
                    yield f"{path.stem}:{entry.get('id', number)}", entry["messages"]


def _built_in() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    from everlong.cli.demo import load_session  # noqa: PLC0415 - needed without data only

    try:
        yield "shipped session", load_session()[0]
    except FileNotFoundError:
        print("soak: this build ships no session", file=sys.stderr)
    for seed in range(6):
        yield f"generated {seed}", conversation(150 + 100 * seed, result_chars=400 * (1 + seed), seed=seed)


def _cuts(messages: list[Message]) -> Iterator[int]:
    """Yield the lengths at which a conversation is tried."""
    yield from range(EVERY, len(messages), EVERY)
    if messages:
        yield len(messages)


def _pieces(named: dict[str, list[dict[str, Any]]], deadline: float | None) -> Iterator[Work]:
    for name, messages in named.items():
        places = list(_cuts(messages))
        for window in WINDOWS:
            for start in range(0, len(places), SHARE):
                tried = places[start : start + SHARE]
                yield Work(name, messages[: tried[-1]], window, tried, deadline)


# -- trying it ---------------------------------------------------------------------------------------------------------


def _run(pieces: list[Work]) -> list[Tally]:
    tallies: list[Tally] = []
    with multiprocessing.get_context("spawn").Pool(os.cpu_count()) as pool:
        for done, tally in enumerate(pool.imap_unordered(_try, pieces), 1):
            tallies.append(tally)
            print(f"\rsoak: {done:,} of {len(pieces):,} pieces", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    return tallies


def _try(work: Work) -> Tally:
    outcomes: Counter[str] = Counter()
    failures: list[Failure] = []
    least = 0
    for cut in work.cuts:
        # Every worker looks at the clock itself: a pool that is stopped from outside may wait for ever.
        if work.deadline is not None and time.time() > work.deadline:
            return Tally(work.window, outcomes, least, failures, complete=False)
        checked = _checked(work.messages[:cut], work.window)
        outcomes[checked.outcome] += 1
        least += checked.at_least_possible
        failures.extend(Failure(work.name, work.window, cut, problem) for problem in checked.problems)
    return Tally(work.window, outcomes, least, failures)


def _checked(messages: list[dict[str, Any]], window: int) -> Checked:
    try:
        return _check(messages, window)
    except Exception as error:  # noqa: BLE001 - an exception is a finding here, and the run goes on
        return Checked([f"raised {type(error).__name__}: {error}"], at_least_possible=False, outcome="raised")


def _check(messages: list[Message], window: int) -> Checked:
    """Compact a conversation and hold the result against the contract."""
    before = copy.deepcopy(messages)
    engine = ContextCompressor(window)
    result = engine.compress(messages)
    report = engine.last_report
    mended = repaired(before)
    found = [*map(str, check_all(result, mended)), *problems(result), *role_problems(result)]
    if messages != before:
        found.append("the input was changed")
    size, size_before = sum(engine.counter.counts(result)), sum(engine.counter.counts(mended))
    if size > size_before:
        found.append(f"{size} tokens, more than the {size_before} of the repaired input")
    too_large = size > engine.threshold_tokens
    if size > (most := most_allowed(engine, mended)):
        found.append(f"{size} tokens, over the threshold {engine.threshold_tokens} and the most allowed {most}")
    resting = engine.compress(result, force=True)
    if engine.compress(resting, force=True) != resting:
        found.append("a second compaction at once changed the result")
    return Checked(found, too_large, report.outcome if report else "none")


# -- saying what came of it --------------------------------------------------------------------------------------------


def _print_table(named: dict[str, list[dict[str, Any]]], tallies: list[Tally]) -> None:
    count = sum(map(len, named.values()))
    complete = all(tally.complete for tally in tallies)
    print(f"{len(named):,} conversations, {count:,} messages{'' if complete else ' (stopped before the end)'}")
    print("  window  compactions  summarized  cleared  unchanged  at least  wrong")
    for window in WINDOWS:
        mine = [tally for tally in tallies if tally.window == window]
        outcomes = sum((tally.outcomes for tally in mine), Counter[str]())
        wrong = len({failure[:3] for tally in mine for failure in tally.failures})
        print(
            f"{window:>8,} {outcomes.total():>12,} {outcomes['summarized']:>11,} {outcomes['cleared']:>8,} "
            f"{outcomes['unchanged']:>10,} {sum(tally.at_least_possible for tally in mine):>9,} {wrong:>6,}"
        )
    print("at least: over the threshold, because the least possible is; wrong: any check failed")


def _run_tests(examples: int) -> bool:
    """Run the tests for long runs only, then the properties of compactions and stores; return True if all pass."""
    print(f"soak: the long tests, then properties with {examples:,} examples each", file=sys.stderr)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "auto"]
    environment = {**os.environ, "EVERLONG_TEST_EXAMPLES": str(examples)}
    outcomes = [
        subprocess.run([*command, *chosen], cwd=ROOT, env=environment, check=False).returncode
        for chosen in (("-m", "soak", "tests"), PROPERTIES)
    ]
    return not any(outcomes)


if __name__ == "__main__":
    sys.exit(main())
