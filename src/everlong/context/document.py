"""The summary as a document: fixed headings, items under them, a token budget.

It reads summaries of this and older versions back in, so that the next compaction can update instead of rewrite. It
knows headings and items, no conversations.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

CONSTRAINTS = "Constraints & Preferences"
PROGRESS = "Progress"
PROGRESS_PARTS = ("Done", "In Progress", "Blocked")

SECTIONS = (
    "Goal",
    CONSTRAINTS,
    *PROGRESS_PARTS,
    "Key Decisions",
    "Resolved Questions",
    "Pending User Asks",
    "Relevant Files",
    "Next Steps",
    "Critical Context",
    "Tools & Patterns",
)
"""All sections, in the order of the document."""

_ALIASES = {
    "remaining work": "Next Steps",
    "constraints": CONSTRAINTS,
    "preferences": CONSTRAINTS,
    "constraints and preferences": CONSTRAINTS,
    "tools and patterns": "Tools & Patterns",
    "completed": "Done",
    "completed actions": "Done",
    "progress": "Done",
    "active task": "In Progress",
    "active state": "In Progress",
    "pending asks": "Pending User Asks",
    "files": "Relevant Files",
    "decisions": "Key Decisions",
}
_SECTION_OF_NAME = {section.lower(): section for section in SECTIONS} | _ALIASES
_HEADING = re.compile(r"#{2,3}\s++(.*)$")
_EMPTY_ITEM = re.compile(r"[-*•]?\s*+(?:\(?(?:none|n/a|nothing|无|没有)[.。)]*+)?\s*+$", re.IGNORECASE)

_OLDEST_FIRST = frozenset({"Done", "Resolved Questions", "Key Decisions", "Critical Context"})
"""Sections whose oldest item comes first, and goes first when room runs out."""

SHARES = {
    "Goal": 0.10,
    CONSTRAINTS: 0.25,
    "Done": 0.35,
    "In Progress": 0.06,
    "Blocked": 0.05,
    "Key Decisions": 0.10,
    "Resolved Questions": 0.05,
    "Pending User Asks": 0.06,
    "Relevant Files": 0.09,
    "Next Steps": 0.04,
    "Critical Context": 0.22,
    "Tools & Patterns": 0.02,
}
"""The share of a budget that each section may claim while another wants room. They add up to more than one, since many
sections are short."""


@dataclass(slots=True)
class SummaryDocument:
    """Items by section; an item is one bullet, perhaps with continuation lines."""

    items: dict[str, list[str]] = field(default_factory=lambda: {section: [] for section in SECTIONS})

    @classmethod
    def parse(cls, text: str) -> SummaryDocument:
        """Read a summary; text under no known heading counts as critical context."""
        items: dict[str, list[list[str]]] = {name: [] for name in SECTIONS}
        section = "Critical Context"
        for line in text.splitlines():
            heading = _HEADING.match(line)
            if heading:
                name = heading[1].rstrip().rstrip("#").rstrip().removesuffix(":").strip(" *")
                section = _SECTION_OF_NAME.get(name.lower(), "Critical Context")
            elif _EMPTY_ITEM.match(line.strip()):
                continue
            elif line[:1].isspace() and items[section]:
                items[section][-1].append(line.rstrip())
            else:
                items[section].append([line.strip()])
        return cls({name: ["\n".join(lines) for lines in found] for name, found in items.items()})

    def render(self) -> str:
        """Return the document as Markdown, in fixed order, without empty headings."""
        blocks: list[str] = []
        for section in SECTIONS:
            if section == PROGRESS_PARTS[0] and any(self.items[part] for part in PROGRESS_PARTS):
                blocks.append(f"## {PROGRESS}")
            if self.items[section]:
                level = "###" if section in PROGRESS_PARTS else "##"
                blocks.append("\n".join([f"{level} {section}", *self.items[section]]))
        return "\n".join(block if block.startswith("###") else f"\n{block}" for block in blocks).strip()

    def filled_sections(self) -> tuple[str, ...]:
        """Return the sections that have items."""
        return tuple(section for section in SECTIONS if self.items[section])

    def is_empty(self) -> bool:
        """Return whether no section has an item."""
        return not self.filled_sections()

    def fit(self, budget: int, count: Callable[[str], int], keep: Callable[[str], object] = lambda _: False) -> str:
        """Drop items until the document fits a budget, and return it rendered.

        Sections beyond their share give up items first. Items for which ``keep`` is true go last.
        """
        costs = {section: [count(item) + 1 for item in self.items[section]] for section in SECTIONS}
        heading = 6
        text = self.render()
        while count(text) > budget and not self.is_empty():
            # Drop about the surplus before rendering again, so that the work stays linear.
            over = max(1, count(text) - budget)
            while over > 0 and not self.is_empty():
                over -= self._drop_one(costs, budget, keep)
                over -= heading if not self.is_empty() and over > 0 else 0
            text = self.render()
        return text

    def _drop_one(self, costs: dict[str, list[int]], budget: int, keep: Callable[[str], object]) -> int:
        filled = self.filled_sections()
        fullest = max(
            [section for section in filled if not all(map(keep, self.items[section]))] or filled,
            key=lambda section: sum(costs[section]) / (budget * SHARES[section] + 1),
        )
        places = [place for place, item in enumerate(self.items[fullest]) if not keep(item)]
        places = places or list(range(len(self.items[fullest])))
        place = places[0 if fullest in _OLDEST_FIRST else -1]
        above, line_break, line = self.items[fullest][place].rpartition("\n")
        if "\n" in above:  # drop the last line under a source; the source alone says nothing
            share = max(1, costs[fullest][place] * len(line) // len(above + line_break + line))
            self.items[fullest][place] = above
            costs[fullest][place] -= share
            return share
        self.items[fullest].pop(place)
        return costs[fullest].pop(place)
