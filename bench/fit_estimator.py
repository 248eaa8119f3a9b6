"""Fits the weights of `everlong.tokens.estimate` against the exact counts of ``o200k_base``.

    python -m bench.fit_estimator --data FOLDER [--write]

``FOLDER`` holds one folder for each kind of text, with ``.txt`` files of a few kilobytes in it. Names say how much a
kind weighs (see ``_importance``): ``python``, ``prose``, ``json``, ``lang-ru`` and so on. What machines print (hex,
logs, tables) is generated here from a seed. The fit is least squares on the relative error of each file, each kind
counting as a whole, so that a kind with many files does not drown the others. Without ``--write`` it only reports.

Does not know which texts are used to judge the result; `bench.estimator` and the tests bring their own.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

from everlong.tokens import ExactCounter, estimate

TRUTH = "o200k_base"
RIDGE = 1e-3
LEAN = 1.01  # a request that is a little smaller than thought still fits; the other way round it does not
TARGET = Path(estimate.__file__).with_name("_weights.py")
_FREE_PROSE = ("story-zh", "story-ja", "story-ko", "story-kss", "story-chat")  # stories, news and talk, no manuals
_WORDS = re.findall(
    r"\w+",
    """time person year way day thing world life hand part child eye place work week case point company number group
    problem fact have make know take see come think look want give use find tell ask work seem feel try leave call
    request response timeout connection server client session user token cache buffer index query table column error
    warning failed started finished handler worker queue message payload config value default path file directory
    module package version update install remove build test deploy release""",
)


def main() -> None:
    """Fit, report the error by kind, and write the weights if asked to."""
    arguments = _arguments()
    samples = [*_read(arguments.data), *_generated()]
    exact = ExactCounter(TRUTH)
    rows, kinds = [], []
    for kind, text in samples:
        tokens = exact.count_text(text)
        repeated, narrow, wide = estimate.features(text)
        if tokens and not repeated:
            counts = [*narrow, *(wide or [0] * len(estimate.WIDE_FEATURES))]
            rows.append([count / tokens for count in counts])
            kinds.append(kind)
    weights = _solve(rows, kinds)
    _report(rows, kinds, weights)
    if arguments.write:
        TARGET.write_text(_source(weights, len(rows), len(set(kinds))), encoding="utf-8")
        print(f"wrote {TARGET.name}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Fit the token estimator.")
    parser.add_argument("--data", type=Path, required=True, help="folder of folders of .txt files")
    parser.add_argument("--write", action="store_true", help="write tokens/_weights.py")
    return parser.parse_args()


def _read(folder: Path) -> Iterator[tuple[str, str]]:
    if not folder.is_dir():
        raise SystemExit(f"{folder} is no folder; give --data a folder with one folder of .txt files per kind of text")
    for path in sorted(folder.glob("*/*.txt")):
        yield path.parent.name, path.read_bytes().decode("utf-8", "replace")


def _importance(kind: str) -> float:
    """Return the weight of a kind: highest for texts that agents read all day, lowest for rare languages."""
    if kind in {"prose", "python", "science", "pip", "term-tb"}:
        return 5.0
    if kind.startswith("term-") or kind in {
        "docs",
        "json",
        "ts",
        "diff",
        "grep",
        "lang-zh",
        "lang-ja",
        "lang-ko",
        "lang-ru",
    }:
        return 3.0
    if kind in {"made-base64", "made-ruled_table", "made-tree", "story-ru"} or kind.startswith(_FREE_PROSE):
        return 2.0
    return 0.4 if kind.startswith(("lang-", "po-", "story-")) else 1.0


def _solve(rows: list[list[float]], kinds: list[str]) -> list[float]:
    """Return weights that bring ``row . weights`` near 1 in every row: ridge regression by the normal equations."""
    size = len(rows[0])
    share = {kind: _importance(kind) / kinds.count(kind) for kind in set(kinds)}
    matrix = [[0.0] * size for _ in range(size)]
    right = [0.0] * size
    for row, kind in zip(rows, kinds, strict=True):
        used = [(index, value) for index, value in enumerate(row) if value]
        for i, value in used:
            right[i] += share[kind] * value
            for j, other in used:
                matrix[i][j] += share[kind] * value * other
    for i in range(size):
        # In proportion to the feature's own size, so that rare features are held back as much as common ones.
        matrix[i][i] += RIDGE * matrix[i][i] + 1e-9
    return _descend(matrix, right, [_least(name) for name in (*estimate.ASCII_FEATURES, *estimate.WIDE_FEATURES)])


def _least(feature: str) -> float:
    """Return the smallest weight allowed: below zero only for corrections of another count, and by no more than it."""
    if feature in {"joins", "letter_to_wide", "wide_to_letter"}:
        return -0.8
    if feature in {"long_punctuation", "long_wide_words", "latin_letters"}:
        return -0.3
    corrections = {name for name, _ in estimate.PAIRS}
    return -0.4 if feature in corrections else 0.0


def _descend(matrix: list[list[float]], right: list[float], least: list[float]) -> list[float]:
    """Return the bounded least-squares solution, one weight at a time until nothing moves."""
    weights = [0.0] * len(right)
    for _ in range(5000):
        moved = 0.0
        for i, line in enumerate(matrix):
            others = sum(map(float.__mul__, line, weights)) - line[i] * weights[i]
            new = max(least[i], (right[i] - others) / line[i])
            moved = max(moved, abs(new - weights[i]))
            weights[i] = new
        if moved < 1e-6:
            break
    return [LEAN * weight for weight in weights]


def _report(rows: list[list[float]], kinds: list[str], weights: list[float]) -> None:
    errors: dict[str, list[float]] = {}
    for row, kind in zip(rows, kinds, strict=True):
        errors.setdefault(kind, []).append(sum(map(float.__mul__, row, weights)) - 1)
    print(f"{'kind':<20}{'files':>6}{'mean':>9}{'rms':>9}")
    for kind, found in sorted(errors.items()):
        rms = (sum(error * error for error in found) / len(found)) ** 0.5
        print(f"{kind:<20}{len(found):>6}{sum(found) / len(found):>+9.1%}{rms:>9.1%}")


def _source(weights: list[float], files: int, kinds: int) -> str:
    def table(name: str, features: tuple[str, ...], values: list[float]) -> str:
        lines = "".join(f"    {value:.4f},  # {label}\n" for label, value in zip(features, values, strict=True))
        return f"{name} = (\n{lines})\n"

    narrow = len(estimate.ASCII_FEATURES)
    return (
        f'"""Weights of the estimator, fitted on {files:,} files of {kinds} kinds by ``bench/fit_estimator.py``.\n\n'
        "Tokens for each thing that `everlong.tokens.estimate` counts, in its order. Do not edit by hand.\n"
        '"""\n\nfrom __future__ import annotations\n\n'
        + table("ASCII_WEIGHTS", estimate.ASCII_FEATURES, weights[:narrow])
        + "\n"
        + table("WIDE_WEIGHTS", estimate.WIDE_FEATURES, weights[narrow:])
    )


def _generated() -> Iterator[tuple[str, str]]:
    for maker in _MAKERS:
        for seed in range(40):
            yield f"made-{maker.__name__.strip('_')}", maker(Random(seed))


def _words(r: Random, count: int) -> str:
    return " ".join(r.choices(_WORDS, k=count))


def _clock(r: Random) -> str:
    return f"{r.randint(0, 23):02}:{r.randint(0, 59):02}:{r.randint(0, 59):02}"


def _hex(r: Random) -> str:
    size = r.choice([4, 6, 8, 16, 20, 32])
    return r.choice(["\n", " ", "  file\n", ", "]).join(r.randbytes(size).hex() for _ in range(1200 // size))


def _base64(r: Random) -> str:
    text, width = base64.b64encode(r.randbytes(1800)).decode(), r.choice([64, 76, 4000])
    return "\n".join(text[i : i + width] for i in range(0, len(text), width))


def _base64_of_text(r: Random) -> str:
    return base64.b64encode(_words(r, 300).encode()).decode()


def _uuids(r: Random) -> str:
    return "\n".join(f"{_words(r, 1)} {uuid.UUID(bytes=r.randbytes(16))}" for _ in range(60))


def _hexdump(r: Random) -> str:
    rows = [r.randbytes(16) for _ in range(40)]
    shown = ["".join(chr(b) if 32 < b < 127 else "." for b in row) for row in rows]
    return "\n".join(f"{i * 16:08x}: {row.hex(' ', 2)}  {shown[i]}" for i, row in enumerate(rows))


def _app_log(r: Random) -> str:
    return "\n".join(
        f"2024-{r.randint(1, 12):02}-{r.randint(1, 28):02} {_clock(r)},{r.randint(0, 999):03} "
        f"{r.choice(['INFO', 'DEBUG', 'WARNING', 'ERROR'])} [{_words(r, 1)}.{_words(r, 1)}] "
        f"{_words(r, r.randint(3, 9))} id={r.randint(1, 99999)}"
        for _ in range(40)
    )


def _access_log(r: Random) -> str:
    return "\n".join(
        f"{'.'.join(str(r.randint(1, 255)) for _ in range(4))} - - [{r.randint(1, 28):02}/Mar/2023:{_clock(r)} +0000] "
        f'"GET /{_words(r, 1)}/{_words(r, 1)}?{_words(r, 1)}={r.randint(0, 9999)} HTTP/1.1" '
        f'{r.choice([200, 301, 404, 500])} {r.randint(0, 99999)} "-" "Mozilla/5.0 (X11; Linux x86_64)"'
        for _ in range(25)
    )


def _trace_log(r: Random) -> str:
    return "\n".join(
        f"{r.choice('IWE')}{r.randint(101, 1231):04} {_clock(r)}.{r.randint(0, 999999):06} {r.randint(1, 99999):7} "
        f"{_words(r, 1)}.go:{r.randint(1, 999)}] {_words(r, 5)} trace={r.randbytes(8).hex()} dur={r.random() * 9:.3f}ms"
        for _ in range(30)
    )


def _cell(r: Random) -> str:
    return r.choice([_words(r, 1), str(r.randint(0, 99999)), f"{r.random() * 100:.2f}"])


def _table(r: Random) -> str:
    width = r.choice([12, 20, 30])
    return "\n".join("".join(_cell(r).ljust(width) for _ in range(5)) for _ in range(30))


def _ruled_table(r: Random) -> str:
    widths = [r.randint(6, 24) for _ in range(4)]
    ruler = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    rows = [ruler]
    for _ in range(20):
        rows.append("|" + "|".join(f" {_cell(r):{r.choice('<>')}{width}} " for width in widths) + "|")
        rows += [ruler] if r.random() < 0.3 else []
    return "\n".join(rows)


def _markdown_table(r: Random) -> str:
    return "\n".join(
        "|".join(f" {_words(r, 1)} {_cell(r)}".ljust(r.choice([1, 18])) for _ in range(5)) for _ in range(40)
    )


def _json(r: Random) -> str:
    records = [
        {
            "id": r.randint(1, 10**6),
            "name": _words(r, 2),
            "active": r.random() < 0.5,
            f"{_words(r, 1)}_{_words(r, 1)}": r.random(),
            "tags": r.choices(_WORDS, k=3),
            "created_at": f"2024-0{r.randint(1, 9)}-1{r.randint(0, 9)}T{_clock(r)}Z",
            "meta": {_words(r, 1): None, _words(r, 1) + _words(r, 1).title(): _words(r, 1)},
        }
        for _ in range(12)
    ]
    if r.random() < 0.5:
        return json.dumps(records, indent=r.choice([2, 4]))
    return json.dumps(records, separators=r.choice([(",", ":"), (", ", ": ")]))


def _csv(r: Random) -> str:
    def field() -> str:
        number = str(r.randint(0, 10 ** r.randint(1, 9)))
        return r.choice([number, f"{r.random():.{r.randint(2, 12)}f}", _words(r, 1)])

    return "\n".join(",".join(field() for _ in range(6)) for _ in range(50))


def _numbers(r: Random) -> str:
    return r.choice([" ", "\n", ", ", ""]).join(str(r.randint(0, 10 ** r.choice([2, 4, 8, 16]))) for _ in range(200))


def _random_letters(r: Random) -> str:
    more = r.choice(["", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "      "])
    return "".join(r.choices("abcdefghijklmnopqrstuvwxyz" + more, k=1500))


def _identifiers(r: Random) -> str:
    def name() -> str:
        cased: Callable[[str], str] = r.choice([str.title, str.lower, str.upper])
        return r.choice(["_", "", "-"]).join(cased(word) for word in r.choices(_WORDS, k=r.randint(2, 4)))

    return r.choice([" ", "\n", ", ", "("]).join(name() for _ in range(100))


def _paths(r: Random) -> str:
    endings = [".py", ".js", ".tsx", ".md", "", ".log", f":{r.randint(1, 999)}:"]
    return "\n".join("/" + "/".join(r.choices(_WORDS, k=r.randint(2, 6))) + r.choice(endings) for _ in range(60))


def _emoji(r: Random) -> str:
    icons = "😀😂🤣😊😍🙏👍🔥✨🎉🚀💡✅❌⚠️📦🐛🔧📝❤️👏🤔😭💯🌍🍕🏆⭐🟢🔴"
    return " ".join(_words(r, 1) if r.random() < 0.6 else "".join(r.choices(icons, k=2)) for _ in range(200))


def _emoji_only(r: Random) -> str:
    blocks = [(0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F900, 0x1F9FF)]
    return "".join(chr(r.randint(*r.choice(blocks))) + r.choice(["", " "]) for _ in range(300))


def _boxes(r: Random) -> str:
    rule = "├" + "─" * 18 + "┼" + "─" * 8 + "┤"
    return "\n".join(rule if r.random() < 0.3 else f"│ {_words(r, 1):16} │ {r.randint(0, 999):6} │" for _ in range(40))


def _tree(r: Random) -> str:
    return "\n".join("│   " * r.randint(0, 3) + r.choice(["├── ", "└── "]) + _words(r, 1) + ".py" for _ in range(60))


def _rulers(r: Random) -> str:
    return "\n".join(r.choice("-=#*_~.") * r.randint(10, 90) if r.random() < 0.4 else _words(r, 6) for _ in range(40))


def _gaps(r: Random) -> str:
    return "\n".join(" " * r.choice([2, 4, 8, 20, 40]) + _words(r, 1) + " " * r.randint(1, 30) + "7" for _ in range(50))


_MAKERS: tuple[Callable[[Random], str], ...] = (
    *(_hex, _base64, _base64_of_text, _uuids, _hexdump, _app_log, _access_log, _trace_log),
    *(_table, _ruled_table, _markdown_table, _json, _csv, _numbers, _random_letters, _identifiers, _paths),
    *(_emoji, _emoji_only, _boxes, _tree, _rulers, _gaps),
)

if __name__ == "__main__":
    main()
