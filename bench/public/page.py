"""docs/benchmark.md and its pictures, from the stored results: nothing on the page is written by hand but its words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.gateway.driving import LARGE, SMALL
from bench.public.chats import KINDS, ROOM as CHAT_ROOM, TRIGGER as CHAT_TRIGGER
from bench.public.cost import ROOM, SIZES, TRIGGER
from bench.public.keeping import CHAIN_SHARE, LEAST_ROOM, SHARES
from bench.public.plots import Bars, Panel, Point, draw_bars, draw_lines
from bench.public.stub import VERSION

__all__ = ["PAGE", "PICTURES", "RESULTS", "ROOT", "pictures", "render", "write_page"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "benchmark.md"
PICTURES = ROOT / "docs" / "benchmark"
RESULTS = PICTURES / "results.json"
OURS = ("Everlong", "Everlong, no model", "Everlong, words", "Everlong, words and meaning")
SHOWN = 0.25
"""The share whose table is shown; the plots have all."""
_NAMES = {"recall": "needed facts", "bound": "with context", "far": "far facts"}
_KIND_NAMES = {"coding": "coding sessions", "chats": "long chats", "demo": "the shipped session", "all": "all"}

_PICTURES = {
    "keeping": "retention.svg",
    "chats": "rules.svg",
    "cpu": "cpu.svg",
    "cache": "cache.svg",
    "retrieval": "retrieval.svg",
    "gateways": "gateways.svg",
}
_KEEPING_HEADS = (
    *("", "needed facts", "with context", "far", "user turns", "valid", "newest request"),
    *("kept", "over", "CPU ms", "read by model"),
)

Results = Mapping[str, Any]


def _rows(results: Results, part: str) -> list[Any]:
    """Return the rows of a part; none where it was not measured."""
    return list(results.get(part, {}).get("rows", ()))


def write_page(results: Results) -> None:
    """Write results, page and pictures."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n", "utf-8")
    for name, picture in pictures(results).items():
        (PICTURES / name).write_text(picture, "utf-8")
    PAGE.write_text(render(results), "utf-8")


# -- pictures ----------------------------------------------------------------------------------------------------------


def pictures(results: Results) -> dict[str, str]:
    """Return the pictures of the page by file name, of the parts that were measured."""
    rows = [row for row in _rows(results, "keeping") if row["kind"] == "all" and not row["chained"]]
    panels = [Panel(title, "share of the tokens", _lines(rows, measure)) for measure, title in _NAMES.items()]
    chats = {kind: {row["method"]: row[kind] for row in _rows(results, "chats")} for kind in KINDS}
    cpu = _rows(results, "cpu")
    cache = _rows(results, "cache")
    retrieval = _rows(results, "retrieval")
    gateways = _rows(results, "gateways")
    drawn = {
        "retention.svg": draw_lines("What a compaction keeps, by the share of the tokens that are left", panels),
        "rules.svg": draw_bars(
            "Long chats: what is still there after each compaction",
            [Bars(f"{kind}s", chats[kind], most=1.0) for kind in KINDS],
        ),
        "cpu.svg": draw_bars(
            "CPU of one compaction without the model",
            [
                Bars(
                    f"{size:,} messages",
                    {row["method"]: row.get(str(size)) for row in cpu},
                    ",.1f",
                    note="ms, less is better",
                )
                for size in SIZES
            ],
        ),
        "cache.svg": draw_bars(
            "Input cost of a session with a prompt cache",
            [
                Bars(
                    "Fresh input tokens for each request",
                    {row["method"]: row["cost"] for row in cache},
                    ",.0f",
                    note="summaries included, less is better",
                )
            ],
        ),
        "retrieval.svg": draw_bars(
            "Search: the share of the evidence among the first ten hits",
            [
                Bars(data, {row["way"]: row["recall"] for row in retrieval if row["data"] == data}, most=1.0)
                for data in dict.fromkeys(row["data"] for row in retrieval)
            ],
        ),
        "gateways.svg": draw_bars(
            "Gateways: CPU of one request, all processes together",
            [
                Bars(
                    f"request of {size:,} bytes",
                    {row["gateway"]: row[f"cpu_ms {size}"] for row in gateways},
                    ",.1f",
                    note="ms, less is better",
                )
                for size in (SMALL, LARGE)
            ],
        ),
    }
    return {name: drawn[name] for part, name in _PICTURES.items() if part in results}


def _lines(rows: Sequence[Results], measure: str) -> dict[str, list[Point]]:
    found: dict[str, list[Point]] = {}
    for row in rows:
        mean = row[measure]
        if mean is not None:
            point = Point(row["kept"], mean["value"], mean["low"], mean["high"])
            found.setdefault(row["method"], []).append(point)
    return found


# -- page --------------------------------------------------------------------------------------------------------------


def render(results: Results) -> str:
    """Return the page."""
    sections = {
        "keeping": _keeping,
        "chats": _chats,
        "cpu": _cpu,
        "cache": _cache,
        "retrieval": _retrieval,
        "gateways": _gateways,
    }
    measured = [section(results[name]) for name, section in sections.items() if name in results]
    parts = [_head(results), _better(results), *measured, _method(results)]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def _head(results: Results) -> str:
    measured = [part for part in results.values() if isinstance(part, Mapping) and "date" in part]
    dates = sorted({part["date"] for part in measured}) or ["not yet"]
    trees = sorted({part["tree"] for part in measured if part["tree"]})
    machine = results["machine"]
    minutes = sum(part["cpu_seconds"] for part in measured) / 60
    versions = {**results.get("keeping", {}).get("versions", {}), "everlong": machine["everlong"]}
    told = [f"{name} {version}" for name, version in sorted(versions.items())]
    told += [row["gateway"] for row in _rows(results, "gateways") if row["gateway"] != "Everlong"]
    most = max((part["most"] for part in measured), default=0)
    left_out = [part for part in _PICTURES if part not in results]
    stale = [part for part in ("keeping", "chats", "cache") if results.get(part, {}).get("stub", VERSION) != VERSION]
    again = f"| to be measured anew | {', '.join(stale)}: the stubbed model has changed since |\n" if stale else ""
    absent = f"| not measured in this run | {', '.join(left_out)} |\n" if left_out else ""
    limited = f"at most {most} of each kind (`--most {most}`); the lists below name them" if most else "all there are"
    return f"""
# Benchmark: Everlong beside others

```sh
make bench-public DATA="transcripts questions"     # measures everything, and writes this page from the results
```

Every package is the real one from the registry, behind one small adapter (`bench/public/adapters`), with the same
stubbed model, the same conversations and the same room for its result. The command above writes every figure and
picture of this page; the figures lie in [benchmark/results.json](benchmark/results.json).

| | |
|---|---|
| measured on | {" to ".join(dict.fromkeys((dates[0], dates[-1])))} |
| versions | {", ".join(told)} |
| Everlong's source | `git rev-parse HEAD:src` {", ".join(trees) or "not known"} |
| machine | {machine["cores"]} cores, {machine["system"]}, Python {machine["python"]} |
| conversations | {limited} |
{absent}{again}| duration | {minutes:.0f} minutes of CPU in all, {minutes / 2:.0f} on two cores of its own |
"""


def _better(results: Results) -> str:
    """Return the measures at which another package is better than each of Everlong's rows."""
    lines = []
    for name, values, is_less_better in _contests(results):
        ours = {method: value for method, value in values.items() if method in OURS}
        others = {method: value for method, value in values.items() if method not in OURS}
        if not ours or not others:
            continue
        choose = min if is_less_better else max
        best, mine = choose(others, key=lambda one: others[one]), choose(ours, key=lambda one: ours[one])
        if (others[best] < ours[mine]) if is_less_better else (others[best] > ours[mine]):
            lines.append(f"- {name}: {best} {_figure(others[best])}, {mine} {_figure(ours[mine])}.")
    listed = "\n".join(lines) or "- In none of the measures of this page."
    return f"""
## Where others are better

Of the rows below, these are the ones at which another package beats every way of using Everlong, at equal room where
*over* says nothing else:

{listed}

Apart from these figures: LangChain's middleware and OpenHands' condenser are part of frameworks that run the agent,
too; LiteLLM speaks to a hundred providers; a sliding window is ten lines of code and needs no model.
"""


def _contests(results: Results) -> Iterable[tuple[str, dict[str, float], bool]]:
    keeping = _rows(results, "keeping")
    for measure, title in {**_NAMES, "turns": "user turns"}.items():
        for chained in (False, True):
            mine = [
                row
                for row in keeping
                if row["kind"] == "all" and row["share"] == SHOWN and row["chained"] == chained and row[measure]
            ]
            values = {row["method"]: row[measure]["value"] for row in mine}
            yield f"{title}, {'after three compactions' if chained else 'one compaction'}", values, False
    for kind in KINDS:
        yield f"{kind}s in long chats", _values(_rows(results, "chats"), "method", kind), False
    for size in SIZES:
        yield (
            f"CPU of a compaction of {size:,} messages, ms",
            _values(_rows(results, "cpu"), "method", str(size)),
            True,
        )
    yield "input cost of a session, tokens per request", _values(_rows(results, "cache"), "method", "cost"), True
    retrieval = _rows(results, "retrieval")
    for data in dict.fromkeys(row["data"] for row in retrieval):
        mine = [row for row in retrieval if row["data"] == data]
        yield f"search in {data}, recall", _values(mine, "way", "recall"), False
        yield f"search in {data}, CPU of a question, ms", _values(mine, "way", "cpu_ms"), True
    for size in (SMALL, LARGE):
        rows = _rows(results, "gateways")
        yield f"gateway, CPU of a request of {size:,} bytes, ms", _values(rows, "gateway", f"cpu_ms {size}"), True
        yield f"gateway, requests per second at {size:,} bytes", _values(rows, "gateway", f"per_second {size}"), False
    yield "gateway, first byte of a stream, ms", _values(_rows(results, "gateways"), "gateway", "first_byte_ms"), True


def _values(rows: Sequence[Results], key: str, field: str) -> dict[str, float]:
    return {row[key]: row[field] for row in rows if row.get(field) is not None}


def _figure(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 10 else f"{value:,.1f}" if abs(value) < 100 else f"{value:,.0f}"


def _keeping(keeping: Results) -> str:
    names = [one["kind"] for one in keeping["conversations"]]
    counted = ", ".join(f"{names.count(kind)} of {_KIND_NAMES.get(kind, kind)}" for kind in dict.fromkeys(names))
    once = _keeping_table([row for row in _at(keeping, chained=False) if row["kind"] == "all"])
    chain = _keeping_table([row for row in _at(keeping, chained=True) if row["kind"] == "all"])
    missing = "".join(f"\n{name} is not in these tables: {reason}" for name, reason in keeping["missing"].items())
    failed = "".join(
        f"\n{name} raised in {sum(reasons.values())} compactions: `{next(iter(reasons))[:100]}`."
        for name, reasons in keeping["failures"].items()
    )
    return f"""
## What a compaction keeps

{len(names)} conversations ({counted}), cut at two thirds. A fact (a path, name, id or figure) is
needed if the assistant's real later turns use it and only the part before the cut states it. *With context*: at
least two of the words that it stood with are near it. *Far*: last said before the final fifth. *User turns*: half
of their words together. *Valid*: every call has its result, as providers demand; conversations that were broken
before are left out. *Newest request*: still there word for word. *Kept*: the mean share of the tokens; *over*:
compactions that did not get as small as asked, counted all the same. In brackets: 95 % of resamples of the
conversations.

![Needed facts, with context and far, over the share of the tokens kept](benchmark/retention.svg)

**One compaction** to {SHOWN:.0%} of the tokens, all conversations (`results.json` has long chats and coding sessions
apart)

{once}

**After a chain** of three compactions, each within {CHAIN_SHARE:.0%} of all the history that it stands for

{chain}
{missing}{failed}
"""


def _at(keeping: Results, *, chained: bool) -> list[Results]:
    return [row for row in keeping["rows"] if row["chained"] == chained and row["share"] == SHOWN]


def _keeping_table(rows: Sequence[Results]) -> str:
    return _table(
        _KEEPING_HEADS,
        [
            [
                row["method"],
                *(_with_interval(row[measure]) for measure in _NAMES),
                *(_plain(row[measure]) for measure in ("turns", "valid", "latest")),
                "–" if row["kept"] is None else f"{row['kept']:.2f}",
                f"{row['over']}/{row['compactions']}",
                "–" if row["cpu_ms"] is None else f"{row['cpu_ms']:,.0f}",
                f"{row['asked']:,.0f}" if row["asked"] else "–",
            ]
            for row in rows
        ],
        best=(1, 2, 3, 4),
    )


def _chats(chats: Results) -> str:
    rows = chats["rows"]
    table = _table(
        ["", *(f"{kind}s" for kind in KINDS)],
        [[row["method"], *(_number(row[kind]) for kind in KINDS)] for row in rows],
        best=(1, 2, 3, 4),
    )
    points = ", ".join(f"{rows[0][f'{kind} points']:,} points of {kind}s" for kind in KINDS) if rows else "no points"
    return f"""
## Rules and facts in long chats

{len(chats["chats"])} chats with questions. A chat that has grown past {CHAT_TRIGGER:,} tokens is compacted to
{CHAT_ROOM:,} and goes on from there, about {chats["compactions"] // max(1, len(chats["chats"]))} times each. After
every compaction the context is searched for everything that was said by then: standing instructions and
preferences, word for word or in most of their words; figures that were updated later, and single facts, beside a
word of their question. {points[:1].upper()}{points[1:]} for Everlong.

![Instructions, preferences, updated figures and single facts kept](benchmark/rules.svg)

{table}
"""


def _cpu(cpu: Results) -> str:
    table = _table(
        ["CPU ms", *(f"{size:,} messages" for size in SIZES)],
        [[row["method"], *(_number(row.get(str(size)), ",.1f") for size in SIZES)] for row in cpu["rows"]],
    )
    failed = "".join(f"\n{name}: {'; '.join(reasons)[:200]}" for name, reasons in cpu["failures"].items())
    return f"""
## CPU of a compaction

A first compaction of generated agent sessions by a fresh engine with its documented defaults and a window of
128,000 tokens; the model answers at once, and its time is not counted. Everlong reads every message for names,
rules and where the work stands, which the others leave to their model (`python -m bench.throughput --peers`).

![CPU milliseconds of one compaction](benchmark/cpu.svg)

{table}
{failed}
"""


def _cache(cache: Results) -> str:
    rows = cache["rows"]
    table = _table(
        ["", "tokens per request", "of them for summaries", "prompt", "read from the cache", "compactions"],
        [
            [
                row["method"],
                f"{row['cost']:,.0f}",
                f"{row['summaries']:,.0f}",
                f"{row['prompt']:,.0f}",
                f"{row['read']:.0%}",
                f"{row['compactions']:,}",
            ]
            for row in rows
        ],
    )
    sessions = (
        f"{rows[0]['sessions']} recorded sessions with {rows[0]['requests']:,} requests" if rows else "No sessions"
    )
    return f"""
## Input cost with a prompt cache

{sessions}, replayed against a simulator of Anthropic's cache (`everlong cache-sim`), one request every 30 seconds,
with the same four markers for all. A context past {TRIGGER:,} tokens is brought to {ROOM:,}; the sliding window
slides with every request instead and stays at {TRIGGER:,}, as such windows do. The cost is in tokens at the price
of a fresh one: a read costs 0.1, a write 1.25, the summarizer's prompt 1 and its answer 5 each. A method that lets
its model read less pays less here, and keeps less above.

![Input cost for each request](benchmark/cache.svg)

{table}
"""


def _retrieval(retrieval: Results) -> str:
    table = _table(
        ["", "", "questions", "evidence found", "any found", "CPU of a question, ms"],
        [
            [
                row["data"],
                row["way"],
                str(row["questions"]),
                f"{row['recall']:.2f}",
                f"{row['any']:.2f}",
                f"{row['cpu_ms']:.1f}",
            ]
            for row in retrieval["rows"]
        ],
    )
    missing = "".join(f"\n{name} is not in this table: {reason}" for name, reason in retrieval["missing"].items())
    return f"""
## Search

Questions as people ask them, with the messages that hold the answer; the share of those messages among the first
ten hits. *friends* and *assistant* are written for this project, *chats* and *transcripts* are public. BM25 is
SQLite's own, with Porter stemming and all words joined by OR. MiniLM (all-MiniLM-L6-v2) ranks messages by the
cosine of their beginning and the question. Everlong searches by words; with the same MiniLM as its embedder it
searches by words and meaning.

![Evidence found among the first ten hits](benchmark/retrieval.svg)

{table}
{missing}
"""


def _gateways(gateways: Results) -> str:
    table = _table(
        [
            "",
            *(f"CPU ms, {size // 1000} KB" for size in (SMALL, LARGE)),
            *(f"added ms, {size // 1000} KB" for size in (SMALL, LARGE)),
            *(f"requests/s, {size // 1000} KB" for size in (SMALL, LARGE)),
            "first byte after the relay's, ms",
        ],
        [
            [
                row["gateway"],
                *(f"{row[f'{field} {size}']:,.1f}" for field in ("cpu_ms", "latency_ms") for size in (SMALL, LARGE)),
                *(f"{row[f'per_second {size}']:,.0f}" for size in (SMALL, LARGE)),
                f"{row['first_byte_ms']:+.1f}",
            ]
            for row in gateways["rows"]
        ],
    )
    missing = "".join(f"\n{name} is not in this table: {reason}" for name, reason in gateways["missing"].items())
    return f"""
## Gateways

The same upstream on loopback behind each gateway: CPU of a request in all its processes, the latency that it adds
for one client, requests in a second for {gateways["clients"]} clients. Everlong stores every message and is ready
to compact; LiteLLM and headroom run in one process with default settings and without a database. headroom runs
without its limit of 60 requests a minute and, as it may fetch nothing, without the model that shortens prose; it
shortens tool results on the way, which Everlong does not do here. Times depend on a machine that others used too;
CPU hardly does.

![CPU milliseconds of one request](benchmark/gateways.svg)

{table}
{missing}
"""


def _method(results: Results) -> str:
    names = ", ".join(one["name"] for one in results.get("keeping", {}).get("conversations", ()))
    shares = ", ".join(f"{share:.0%}" for share in SHARES)
    return f"""
## How it is measured

**Model.** All packages that ask a model get the same stub (`bench/public/stub.py`). It copies the lines of the prompt
that name most for their length, and those with the words of a standing rule, and never invents anything. So the
tables compare what a package hands to its model and what it keeps beside the answer, not how well a real model writes.

**Room.** Results have at most {shares} of the tokens before, without the system prompt. Packages that take no such
parameter are asked with more or fewer of the newest messages until it fits. Rooms under {LEAST_ROOM:,} tokens are left
out.

**Settings.** Else the documented defaults. LangChain's model reads the newest 4,000 tokens of what is summarized, and
everything in the row *untrimmed*. Every compaction is by a fresh engine.

**Not comparable.** hermes-agent is made for windows of 64,000 tokens and more, which the column *over* shows. LangChain
and OpenHands decide by themselves when to compact, which is left out. Fetching a lost fact again from a store is no
part of these figures. The needed facts are names and figures, which favours whoever copies lines.

**Conversations.** {names}. The transcripts are public, under MIT: badlogic/pi-mono (83378aad7e74) and
gruckion/mini-swe-agent (d12a71affd95). The chats are of the BEAM benchmark, size 100K, which states no licence and is
not part of this project. Nothing was tuned on any of them.

**Again.** `python -m bench.public --data FOLDER --write` installs the pinned packages into `.bench-peers/` (once, 3 GB)
and writes this page; `--page` only draws it again.
"""


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], best: Sequence[int] = ()) -> str:
    """Return a Markdown table; in the columns of ``best`` the largest figure is bold."""
    cells = [list(row) for row in rows]
    for column in best:
        figures = [_first_number(row[column]) for row in cells]
        known = [figure for figure in figures if figure is not None]
        for row, figure in zip(cells, figures, strict=True):
            if known and figure == max(known):
                row[column] = f"**{row[column]}**"
    lines = [heads, ["---"] * len(heads), *cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _first_number(text: str) -> float | None:
    try:
        return float(text.split(maxsplit=1)[0].replace(",", ""))
    except (ValueError, IndexError):
        return None


def _with_interval(mean: Results | None) -> str:
    return "–" if mean is None else f"{mean['value']:.2f} ({mean['low']:.2f}–{mean['high']:.2f})"


def _plain(mean: Results | None) -> str:
    return "–" if mean is None else f"{mean['value']:.2f}"


def _number(value: float | None, form: str = ".2f") -> str:
    return "–" if value is None else f"{value:{form}}"
