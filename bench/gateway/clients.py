"""Real clients on a 200k model, direct and through the gateway: compactions, cache, and the bill of both.

The model server answers from a script, holds the cache by the providers' published rules and bills by it; the table is
its account. `python -m bench.clients.install` installs the clients.

    python -m bench.gateway.clients --client claude-code --steps 45
"""

from __future__ import annotations

import argparse
import sys

from bench.clients.programs import PROGRAMS
from bench.clients.script import KNOWN, expected_files, long_plan
from bench.clients.session import CENT, Played, play
from bench.measure import verdict

CLIENTS = ("claude-code", "pi", "pi-openai", "opencode", "opencode-openai", "codex")
WINDOW = 200_000
TOKENS = 4_900
STEPS = 45
READ_SHARE, REPEATED_SHARE = 0.92, 0.99
MOST_COMPACTIONS = 2
DEARER, CHEAPER = 1.05, 0.95
FACTS_KNOWN = 0.92
_HEAD = (
    f"{'client':16} {'steps':>5} {'':8} {'requests':>8} {'refused':>7} {'compactions':>18} {'own':>4} {'cache':>7} "
    f"{'again':>7} {'largest':>8} {'cost':>8} {'/direct':>8} {'known':>6} {'stalls':>6} {'lines':>5} "
    f"{'rows':>4} {'booked':>8} {'s':>5}"
)


def row(name: str, steps: int, way: str, played: Played, direct: Played | None) -> str:
    """Return a line of the table."""
    bill = played.bill
    reasons = " ".join(f"{number}×{reason}" for reason, number in sorted(played.compactions.items())) or "0"
    ratio = f"{bill.dollars / direct.bill.dollars:.3f}" if direct is not None and direct.bill.dollars else ""
    return (
        f"{name:16} {steps:>5} {way:8} {bill.requests:>8} {len(bill.refused):>7} {reasons:>18} "
        f"{played.own_compactions:>4} {bill.read_share:>7.1%} {bill.repeated_share:>7.1%} {bill.largest:>8,} "
        f"{bill.dollars:>8.3f} {ratio:>8} {played.known:>3}/{len(KNOWN)} "
        f"{_stalls(played):>6} {played.fallbacks:>5} {played.rows:>4} {played.booked:>8.3f} {played.seconds:>5.0f}"
    )


def _stalls(played: Played) -> int:
    """Return how many requests the gateway held for more than a second."""
    return sum(seconds > 1.0 for seconds in played.held)


def judge(played: Played, direct: Played | None, *, is_long: bool) -> list[str]:
    """Return the bars that a session misses, in words."""
    bill = played.bill
    allowed = CHEAPER if is_long else DEARER
    dearer = 0.0 if direct is None else float(bill.dollars / direct.bill.dollars)
    bars = [
        ("compactions", sum(played.compactions.values()), MOST_COMPACTIONS, False),
        ("read from the cache", bill.read_share, READ_SHARE, True),
        ("read of what was sent before", bill.repeated_share, REPEATED_SHARE, True),
        ("cost / direct cost", dearer, allowed, False),
        ("refused requests", len(bill.refused), 0, False),
        ("facts known", played.known, FACTS_KNOWN * len(KNOWN), True),
        ("requests held for more than a second", _stalls(played), 0, False),
        ("summaries that no model wrote", played.fallbacks, 0, False),
        ("rows of the list", played.rows, 1, False),
        ("dollars that the books are off", float(abs(played.booked - bill.dollars)), float(CENT), False),
    ]
    if is_long:
        del bars[0]
    return [
        f"{name}: {value:.3f} {'>=' if at_least else '<='} {bar}"
        for name, value, bar, at_least in bars
        if verdict(value, bar, at_least=at_least) != "ok"
    ]


def main() -> int:
    """Play, print the table; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.gateway.clients", description=__doc__)
    parser.add_argument("--client", choices=CLIENTS, action="append", help="several times for several; all by default")
    parser.add_argument("--steps", type=int, action="append", help="45, and 3 windows' worth, by default")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="of each tool result")
    parser.add_argument("--window", type=int, default=WINDOW)
    parser.add_argument(
        "--seconds", type=float, nargs=2, default=(0.0, 0.0), help="that the model takes for an answer and a summary"
    )
    parser.add_argument("--no-recall", action="store_true", help="without the gateway's own tools")
    parser.add_argument("--requests", action="store_true", help="a line for each request")
    asked = parser.parse_args()
    long = 3 * asked.window // asked.tokens
    settings = {} if asked.no_recall else {"gateway": {"routes": {"*": {"recall": True}}}}
    missed: list[str] = []
    print(_HEAD, flush=True)
    for name in asked.client or CLIENTS:
        program = PROGRAMS[name]
        for steps in asked.steps or (STEPS, long):
            plan = long_plan(steps, asked.tokens)
            direct = None
            try:
                direct = play(program, plan, through_gateway=False, window=asked.window)
                print(row(name, steps, "direct", direct, None), flush=True)
            except RuntimeError as error:
                print(f"{name:16} {steps:>5} direct   gives up: {' '.join(str(error).split())[:100]}", flush=True)
            played = play(
                program,
                plan,
                through_gateway=True,
                window=asked.window,
                settings=settings,
                seconds=tuple(asked.seconds),
            )
            print(row(name, steps, "gateway", played, direct), flush=True)
            if asked.requests and direct is not None:
                for number, (one, other) in enumerate(_paired(direct, played)):
                    print(f"    {number:4} {one:30} {other:30}")
            missed += [f"{name}, {steps} steps: {bar}" for bar in judge(played, direct, is_long=steps >= long)]
            missed += [f"{name}, {steps} steps: {problem}" for problem in played.problems]
            missed += [f"{name}, {steps} steps: files differ"] * (played.files != expected_files(plan))
            for text in played.bill.refused[:3]:
                print(f"    refused: {text[:200]}")
    for bar in missed:
        print(f"MISSED  {bar}")
    return 1 if missed else 0


def _paired(direct: Played, played: Played) -> list[tuple[str, str]]:
    """Return prompt and read tokens of both sessions, request by request."""
    both = (direct, played)
    lines = [[f"{prompt:,} read {read:,} {status}" for prompt, read, status in one.requests] for one in both]
    length = max(map(len, lines))
    first, second = ([*line, *[""] * (length - len(line))] for line in lines)
    return list(zip(first, second, strict=True))


if __name__ == "__main__":
    sys.exit(main())
