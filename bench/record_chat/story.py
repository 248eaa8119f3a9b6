"""The story of the recording: a harbour's logs, a model that reads them, and a person at the keyboard.

The model answers from what it is sent and from nothing else: what a summary has lost, it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from everlong.testing import Answer, Ask, Call

__all__ = ["STEPS", "WINDOW", "Step", "answer", "write_files"]

WINDOW = 14_336
DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_SHIPS = ("Amber", "Brigid", "Corvus", "Dunlin", "Esker", "Fulmar", "Gannet")
_GOODS = ("barley", "cider", "copper", "hemp", "linen", "salt", "slate", "tallow", "timber", "wool")
_LINES = 176
_ARRIVAL = re.compile(r"(\d\d:\d\d) (\w+) moors at berth (\d+), draught (\d\.\d) m")

_PILOT = re.compile(r"pilot boat (\d+) brings the Amber to berth (\d+) on (\w+)")


@dataclass(frozen=True)
class Step:
    """Text or keys of the person, and the pattern on the screen that they wait for."""

    keys: str
    until: str
    """A pattern on the screen, when all that follows has been shown."""
    is_line: bool = True
    """True if Enter follows, as it does not after a single key."""


def write_files(folder: Path) -> None:
    """Write the logs, one for each day."""
    (folder / "logs").mkdir(parents=True)
    for number, day in enumerate(DAYS):
        (folder / "logs" / f"{day}.log").write_text("\n".join(_log(number)) + "\n", encoding="utf-8")


def _log(day: int) -> Iterator[str]:
    for line in range(_LINES):
        time = f"{5 + line // 12:02}:{line % 12 * 5:02}"
        ship = _SHIPS[(day * 3 + line // 9) % len(_SHIPS)]
        if line % 37 == 7:
            draught = f"{3 + (day + line) % 5}.{line % 10} m"
            yield f"{time} {ship} moors at berth {(day * 5 + line) % 9 + 1}, draught {draught}"
        else:
            yield f"{time} {ship}: crates of {_GOODS[(day + line) % len(_GOODS)]} are carried to the sheds"


def answer(ask: Ask) -> Answer:
    """Return the model's answer."""
    if "## Next Steps" in ask.last_user:
        return Answer(_summary(ask))
    day = next((one for one in DAYS if one in ask.last_user.lower()), None)
    if "report.md" in ask.last_user:
        return _report(ask)
    if day is not None:
        if ask.results:
            return Answer(_table(day, ask.results[-1][1]))
        return Answer(calls=[Call("read_file", {"path": f"logs/{day}.log"})])
    return Answer(_from_memory(ask))


def _table(day: str, log: str) -> str:
    rows = [f"| {time} | {ship} | {berth} | {draught} m |" for time, ship, berth, draught in _ARRIVAL.findall(log)]
    head = ["| time | ship | berth | draught |", "|---|---|---|---|"]
    return "\n".join([f"**{day.title()}**: {len(rows)} arrivals.", "", *head, *rows, "", f"That was {day}."])


def _known(ask: Ask) -> list[tuple[str, str, str, str]]:
    """Return the arrivals in the model's request: in tables, in logs, or in a summary."""
    found = re.findall(r"(\w+) moored at berth (\d+) on (\w+) at (\d\d:\d\d)", ask.text)
    day = ""
    for line in ask.text.splitlines():
        named = re.match(r"\*\*(\w+)\*\*: \d+ arrivals", line)
        day = named[1].lower() if named else day
        row = re.match(r"\| (\d\d:\d\d) \| (\w+) \| (\d+) \|", line)
        if row and day:
            found.append((row[2], row[3], day, row[1]))
    return list(dict.fromkeys(found))


def _summary(ask: Ask) -> str:
    done = [f"- {ship} moored at berth {berth} on {day} at {time}" for ship, berth, day, time in _known(ask)]
    days = list(dict.fromkeys(day for _, _, day, _ in _known(ask)))
    files = [f"- logs/{day}.log: read" for day in days]
    rules = [f"- {known[0]}." for known in [_PILOT.search(ask.text)] if known]
    parts = ["## Goal", "- Know which ship lay where this week.", "## Constraints & Preferences", *rules]
    parts += ["## Progress", "### Done", *done]
    return "\n".join([*parts, "## Relevant Files", *files, "## Next Steps", "- Read the log of the next day."])


def _report(ask: Ask) -> Answer:
    if ask.results:
        return Answer("The report is written: `report.md`.")
    lines = [f"- {time}: {ship}, berth {berth}" for ship, berth, day, time in _known(ask) if day == "thursday"]
    text = "\n".join(["# Arrivals on Thursday", *lines, ""])
    return Answer(calls=[Call("write_file", {"path": "report.md", "content": text})])


def _from_memory(ask: Ask) -> str:
    known = _PILOT.search(ask.text)
    if known is None:
        return "I do not know."
    return f"Pilot boat **{known[1]}** brings the Amber to berth **{known[2]}**, on {known[3]}."


STEPS = (
    Step("Which ships arrived on Monday? The logs are in logs/", r"That was monday\."),
    Step("And on Tuesday? By the way: pilot boat 4471 brings the Amber to berth 8 on Sunday.", r"That was tuesday\."),
    Step("/context", r"so far in this chat"),
    Step("Go on with Wednesday.", r"That was wednesday\."),
    Step("Thursday, please.", r"That was thursday\."),
    Step("Write Thursday's arrivals to report.md", r"\[1\] yes"),
    Step("y", r"The report is written"),
    Step("Friday?", r"That was friday\."),
    Step("And Saturday?", r"That was saturday\."),
    Step("/compress the pilot boat", r"compacted \(manual\)"),
    Step("Who brings in the Amber, and to which berth?", r"brings the Amber to berth"),
    Step("/history", r"3  2\d\d\d-.*\n(.*\n)*.*❯"),
    Step("/context", r"3 so far in this chat"),
    Step("/quit", r"^\$$"),
)
