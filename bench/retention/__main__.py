"""Future-reference recall: what a compaction keeps of what the rest of the conversation really goes on to use.

    python -m bench.retention [--data FOLDER] [--shares .10,.15,.25,.40] [--split dev|test|all] [--only NAME]
                              [--methods A,B] [--chain] [--rounds N] [--misses N] [--json OUT] [--jobs N]
    python -m bench.retention --kept | --state | --ranking [FOLDER] [--data FOLDER]
    python -m bench.retention --rules [--data FOLDER] [--split dev|test|all] [--sessions N] [--misses N]

Cuts recorded conversations at several points, compacts the part before, and looks in the result for the facts that the
assistant's real later turns use. Without a folder of transcripts it uses the shipped session, and says so.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from bench.retention.data import CHAINS, Conversation, load, shipped
from bench.retention.facts import COMMON, common_entities, own_entities
from bench.retention.kept import run_kept
from bench.retention.methods import DEFAULT, METHODS
from bench.retention.ranking import WRITTEN, run_ranking
from bench.retention.report import as_values, print_misses, print_table, print_wrong
from bench.retention.rule_sessions import print_sessions
from bench.retention.rules import WINDOW, detect, load_chats, measure, print_rules, split_of
from bench.retention.state import run_state
from bench.retention.summary import rows
from bench.retention.trials import Trial, Work, try_all

SHARES = (0.10, 0.15, 0.25, 0.40)


def main() -> int:
    """Measure and print."""
    options = _options()
    if options.rules:
        return _rules(options)
    everything = load(options.data)
    if not everything:
        where = (
            "no folder of transcripts given (--data FOLDER)"
            if options.data is None
            else (f"no conversations in *.jsonl files of {options.data}")
        )
        print(f"retention: {where}; using the shipped session", file=sys.stderr)
        everything = shipped()
    chosen = [c for c in everything if options.split in (c.split, "all") and _is_chosen(c, options.only)]
    if not chosen:
        print(f"retention: no conversation of split {options.split} matches {options.only!r}", file=sys.stderr)
        return 1
    print(f"retention: {len(chosen)} of {len(everything)} conversations, split {options.split}", file=sys.stderr)
    if options.kept:
        return run_kept(chosen, options.jobs)
    if options.ranking:
        return run_ranking(options.ranking, chosen)
    if options.state:
        return run_state(chosen, chain=bool(options.chain), misses=options.misses)
    return _measure(everything, chosen, options)


def _measure(everything: Sequence[Conversation], chosen: Sequence[Conversation], options: argparse.Namespace) -> int:
    """Measure what later turns need, and print it."""
    start = time.perf_counter()
    trials = _run(everything, chosen, options)
    found = rows(trials)
    print_table(found)
    print_wrong(trials)
    if options.misses:
        print_misses(trials, options.misses)
    if options.json:
        setup = {"split": options.split, "conversations": [c.name for c in chosen]}
        options.json.write_text(json.dumps(as_values(found, trials, setup), ensure_ascii=False, indent=1), "utf-8")
    print(f"retention: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.retention", description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of *.jsonl files, one object with 'messages' per line")
    parser.add_argument("--shares", type=_shares, default=SHARES, help="shares of the tokens to keep, as .10,.25")
    parser.add_argument("--split", choices=("dev", "test", "all"), default="all", help="half of the conversations")
    parser.add_argument("--only", default="", help="conversations whose name or kind contains this")
    parser.add_argument("--methods", type=_methods, default=DEFAULT, help=f"of {', '.join(METHODS)}")
    parser.add_argument(
        "--chain",
        nargs="?",
        choices=("history", "context"),
        const="history",
        default="",
        help="several compactions in a row instead of one, each within the share of all the history that it "
        "stands for, or of the context that it was given",
    )
    parser.add_argument("--rounds", type=int, choices=tuple(CHAINS), default=3, help="compactions of a chain")
    parser.add_argument("--rules", action="store_true", help="standing rules of chats with questions, instead")
    parser.add_argument("--sessions", type=int, default=2, metavar="N", help="with --rules: generated long sessions")
    parser.add_argument("--kept", action="store_true", help="what no compaction may lose, in four windows, instead")
    parser.add_argument("--state", action="store_true", help="where the work stands, against labels, instead")
    parser.add_argument(
        "--ranking",
        type=Path,
        nargs="?",
        const=WRITTEN,
        metavar="FOLDER",
        help="whether the score ranks good summaries of this folder above bad ones, instead",
    )
    parser.add_argument("--misses", type=int, default=0, metavar="N", help="show so many lost facts")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write everything measured to this file")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args()


def _rules(options: argparse.Namespace) -> int:
    """Measure standing rules: in chats with questions, in labelled sentences, in generated sessions."""
    chats = load_chats(options.data)
    chosen = [chat for place, chat in enumerate(chats) if options.split in (split_of(place, len(chats)), "all")]
    is_good = True
    if chosen:
        print(f"{len(chosen)} of {len(chats)} chats, split {options.split}, a window of {WINDOW:,} tokens, no model")
        is_good = print_rules(measure(chosen), misses=options.misses)
    else:
        print(f"retention: no chats with questions in {options.data}; only sentences and sessions", file=sys.stderr)
    for name in ("tuning", "blind"):
        print(f"sentences, {name}:")
        for found in detect(name):
            shares = f"recall {found.recall:.2f}, precision {found.precision:.2f}"
            print(f"  {found.language:<4} {found.rules:>4} rules, {shares}")
    return 0 if print_sessions(options.sessions, jobs=options.jobs) and is_good else 1


def _shares(text: str) -> tuple[float, ...]:
    shares = tuple(float(share) for share in text.split(","))
    if not all(0 < share < 1 for share in shares):
        raise argparse.ArgumentTypeError(f"{text}: shares are between 0 and 1, as in .10,.25")
    return shares


def _methods(text: str) -> tuple[str, ...]:
    methods = tuple(text.split(","))
    if unknown := [method for method in methods if method not in METHODS]:
        raise argparse.ArgumentTypeError(f"unknown {', '.join(unknown)}; there are {', '.join(METHODS)}")
    return methods


def _is_chosen(conversation: Conversation, only: str) -> bool:
    return only in conversation.name or only in conversation.kind


def _run(
    everything: Sequence[Conversation], chosen: Sequence[Conversation], options: argparse.Namespace
) -> list[Trial]:
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        stated = pool.map(own_entities, [conversation.messages for conversation in everything], chunksize=1)
        counted = common_entities(stated)
        common = {entity for entity, count in counted.items() if count > COMMON}
        own = {c.name: mine for c, mine in zip(everything, stated, strict=True)}
        pieces = [
            Work(
                c,
                common & own[c.name],
                options.shares,
                options.methods,
                options.chain,
                bool(options.misses),
                options.rounds,
            )
            for c in sorted(chosen, key=lambda c: -sum(len(str(m)) for m in c.messages))
        ]
        trials: list[Trial] = []
        for done, made in enumerate(pool.imap_unordered(try_all, pieces), 1):
            trials += made
            print(f"\rretention: {done:,} of {len(pieces):,} conversations", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    order = {name: place for place, name in enumerate(METHODS)}
    return sorted(trials, key=lambda t: (t.kind, t.share, order.get(t.method, 0), t.conversation, t.cut))


if __name__ == "__main__":
    sys.exit(main())
