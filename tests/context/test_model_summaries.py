"""A model's summary is the summary: ten written as a careful engineer would come out as they went in."""

from __future__ import annotations

import pytest

from everlong import ContextCompressor, Message, SummaryRequest
from everlong.cli.demo import load_session
from everlong.context.document import SummaryDocument
from everlong.context.summarizers import ADDED_HEADING
from everlong.tokens import EstimatingCounter
from tests.context.builders import summary_text
from tests.examples import few

COUNT = EstimatingCounter().count_text
RULES_BLOCK = "Standing rules of the user, in force:"
NEWEST = "- Newest request: Good plan. One more run of everything please, then we call it a day."

GOAL = "- Replace the booking system of the guest harbour in Grönvik: 46 berths on four pontoons, A to D."
RULES = [
    "- Never touch legacy/, not even whitespace.",
    "- Tests run offline and in under 20 seconds in total; they run on a Raspberry Pi.",
    "- Port 8437 only, the office firewall lets nothing else through.",
]
DONE = [
    "- Importer for legacy/dump_2025.csv; berth codes B7, B-07 and B-7 are one berth.",
    "- One file per handler under src/harbour/handlers/, a router with @route, one test each.",
    "- Prices of 2026 from legacy/prislista.ini: up to 8 m 280 kr, up to 12 m 360 kr, above 480 kr per night.",
    "- v0.4.0 is tagged locally; nothing was pushed.",
    "- docs/deploy.md for user hamn in /opt/harbour.",
]
DECISIONS = [
    "- SQLite instead of PostgreSQL 15: nobody looks after a database server at the office.",
    "- German was dropped: both German boats of last year spoke English.",
]
QUESTIONS = ["- How long is legacy/ in use? Until 31 May."]
STEPS = ["- Run everything once more, then stop for today."]
FILES = [
    "- `docs/decisions.md` — wrote",
    "- `CHANGELOG.md` — wrote",
    "- `var/office.py` — wrote",
    "- `docs/deploy.md` — wrote",
]
CONTEXT = ["- Guests of Chinese groups are in data/guests_zh.csv, encoded as GB18030."]


def written(**sections: list[str]) -> str:
    document = SummaryDocument()
    for section, items in sections.items():
        document.items[section.replace("_", " ").replace(" and ", " & ")] = list(items)
    document.items["Pending User Asks"] = [NEWEST]
    return document.render()


SUMMARIES = {
    "goal and rules": written(Goal=[GOAL], Constraints_and_Preferences=RULES),
    "goal and progress": written(Goal=[GOAL], Done=DONE),
    "what was decided": written(Goal=[GOAL], Key_Decisions=DECISIONS, Resolved_Questions=QUESTIONS),
    "short": written(Goal=[GOAL], Done=DONE[-2:], Next_Steps=STEPS),
    "with files": written(Goal=[GOAL], Done=DONE, Relevant_Files=FILES),
    "with context": written(Goal=[GOAL], Constraints_and_Preferences=RULES, Critical_Context=CONTEXT),
    "under way": written(Goal=[GOAL], Done=DONE[:3], In_Progress=["- The last run of all tests."], Next_Steps=STEPS),
    "rules first": written(Constraints_and_Preferences=RULES, Done=DONE, Key_Decisions=DECISIONS),
    "questions": written(Goal=[GOAL], Resolved_Questions=QUESTIONS, Next_Steps=STEPS, Key_Decisions=DECISIONS),
    "everything": written(
        Goal=[GOAL],
        Constraints_and_Preferences=RULES,
        Done=DONE,
        Key_Decisions=DECISIONS,
        Resolved_Questions=QUESTIONS,
        Relevant_Files=FILES,
        Next_Steps=STEPS,
        Critical_Context=CONTEXT,
    ),
}


class Written:
    name = "an engineer"

    def __init__(self, text: str) -> None:
        self._text = text

    def summarize(self, request: SummaryRequest) -> str:
        del request
        return self._text


@pytest.fixture(scope="module")
def session() -> list[Message]:
    return load_session()[0]


@pytest.mark.spec("5.3")
@pytest.mark.parametrize("kind", few([*SUMMARIES], 4))
def test_a_summary_comes_out_as_it_went_in(kind: str, session: list[Message]) -> None:
    given = SUMMARIES[kind]
    engine = ContextCompressor(200_000, summarizer=Written(given))
    made = summary_text(engine.compress(session, force=True)).split(RULES_BLOCK)[0].strip()
    assert engine.last_report is not None
    assert engine.last_report.summarizer == "an engineer"
    assert made == given or made.startswith(f"{given}\n\n{ADDED_HEADING}\n")
    assert COUNT(made) <= 1.2 * COUNT(given)
