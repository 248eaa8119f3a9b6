"""Good and bad summaries of one conversation: the checks tell them apart, and the best of two is a good one."""

from __future__ import annotations

from itertools import chain

from bench.retention.ranking import request_for

from everlong import Message
from everlong.config import Settings
from everlong.context import ContextCompressor
from everlong.context.literals import summary_body, summary_indices
from everlong.context.report import check_summary
from everlong.providers.auxiliary import summarizer_for
from everlong.testing import ModelServer
from everlong.testing.server import Answer
from tests.context.builders import assistant, call, user
from tests.examples import few

OPENING = (
    "The nightly export of the lighthouse archive stopped on 14 March. Find out why export_tides in "
    "archive/export.py fails for Station Norderney, mend it, and leave the CSV format as it is."
)
NEWEST = "Good. Now add a test for leap days to tests/test_export.py, and tell Ines Brandt what changed."
WORK: list[Message] = [
    *call(
        1, "bash", "ValueError: day is out of range for month\n  archive/export.py:88 in export_tides", command="run"
    ),
    assistant("archive/export.py fails in export_tides at line 88: it builds a date for 29 February of another year."),
    *call(2, "read", "def export_tides(station, year):\n    start = date(year, 2, 29)", path="archive/export.py"),
    assistant("export_tides adds a year to 29 February. I shall use calendar.isleap and fall back to 28 February."),
    *call(3, "edit", "archive/export.py: 3 lines changed", path="archive/export.py"),
    *call(4, "bash", "tests/test_export.py: 11 passed\nStation Norderney: 8,760 rows", command="pytest"),
    assistant("export_tides works for Station Norderney again: 8,760 rows, tests/test_export.py passes."),
    user("Does the timezone in settings.toml matter? It says Europe/Berlin."),
    *call(5, "bash", 'timezone = "Europe/Berlin"', command="grep timezone settings.toml"),
    assistant("No: export_tides writes UTC; settings.toml with Europe/Berlin is only for the web page."),
]
GOOD = {
    "with every section": """## Goal
- Find out why export_tides in archive/export.py fails for Station Norderney since 14 March and mend it
## Constraints & Preferences
- The CSV format stays as it is
## Progress
### Done
- export_tides built 29 February of a year without one (line 88); calendar.isleap now decides
- tests/test_export.py: 11 passed; Station Norderney has 8,760 rows again
### In Progress
- A test for leap days in tests/test_export.py; then tell Ines Brandt what changed
## Key Decisions
- export_tides writes UTC; Europe/Berlin in settings.toml is for the web page only""",
    "short": """## Goal
- Repair the nightly export of the lighthouse archive (export_tides, archive/export.py, Station Norderney); same CSV
## Progress
### Done
- Cause: 29 February in a common year; mended with calendar.isleap, tests/test_export.py passes, 8,760 rows
## Next Steps
- Add a leap day test, tell Ines Brandt what changed""",
    "as prose under its headings": """## Goal
The export of the tide archive had stopped for Station Norderney, and the user wants to know why and have it mended \
without a change of the CSV format.
## Progress
export_tides in archive/export.py raised a ValueError for 29 February. It now asks calendar.isleap, and \
tests/test_export.py passes with 8,760 rows for the station. settings.toml (Europe/Berlin) plays no part.
## Next Steps
A test for leap days is wanted in tests/test_export.py, and Ines Brandt is to hear what changed.""",
    "in other words": """## Goal
- Get the nightly lighthouse export going again: export_tides stopped at Norderney; output format untouched
## Critical Context
- Crash came from archive/export.py line 88, an impossible day in February; the repair uses calendar.isleap
- Checked: 11 tests of tests/test_export.py, 8,760 rows
## Pending User Asks
- Cover leap days with a test, and report the change to Ines Brandt""",
    "terse": """## Goal
- export_tides in archive/export.py fails for Station Norderney: find why, mend, leave CSV format
## Progress
- isleap fix in; tests/test_export.py passes; 8,760 rows
## Next Steps
- leap days test; tell Ines Brandt what changed""",
}
BAD = {
    "something": "## Goal\n- something\n## Progress\n- done\n## Next Steps\n- continue",
    "a refusal": "## Goal\n- I'm sorry, but I can't summarize this conversation. Please provide more context.",
    "invented": """## Goal
- Repair the export of the archive
## Progress
- Rewrote core/pipeline.rs in Rust, moved to PostgreSQL 17 at db.example.org:5433, release v4.2.0 is out
- TideSync and WaveBroker now talk over Kafka; Pieter Aldermans has approved it""",
    "names without a word about them": """## Goal
- archive/export.py, export_tides, Station Norderney, tests/test_export.py, settings.toml, Europe/Berlin, UTC, 8,760
- calendar.isleap, Ines Brandt, CSV, 14 March, ValueError""",
    "only the last answer": """## Goal
- No: it writes UTC; the file is only for the web page.
## Progress
- No: it writes UTC; the file is only for the web page.""",
}
TALK = [user(OPENING), *WORK, user(NEWEST)]


def score(text: str) -> float:
    return check_summary(text, request_for(TALK)).score


def test_every_bad_summary_scores_below_every_good_one() -> None:
    good, bad = ({name: score(text) for name, text in some.items()} for some in (GOOD, BAD))
    assert max(bad.values()) < min(good.values()), (good, bad)


def test_the_best_of_two_models_summaries_is_the_good_one_in_every_pairing() -> None:
    pairs = few([*zip(GOOD.values(), BAD.values(), strict=True)], 3)
    said: dict[str, str] = {}
    talk = [*chain.from_iterable([TALK[:-1]] + [[user("Go on."), assistant("I do. " * 200)]] * 30), TALK[-1]]
    with ModelServer(lambda ask: Answer(said[ask.model])) as server:
        chosen = []
        for first, second in (("a", "b"), ("b", "a")):
            settings = Settings.model_validate(
                {
                    "providers": {"shop": {"base_url": f"{server.url}/v1", "key_variable": "WRITER_KEY"}},
                    "models": {name: {"context_length": 100_000} for name in "ab"},
                    "auxiliary": {"compression": {"models": [f"shop:{first}", f"shop:{second}"], "choose": "best"}},
                }
            )
            for good, bad in pairs:
                said |= {"a": good, "b": bad}
                engine = ContextCompressor(
                    16_000, summarizer=summarizer_for(settings, env={"WRITER_KEY": "made-up-key"})
                )
                made = engine.compress([dict(message) for message in talk])
                summary = summary_body(made[summary_indices(made)[0]])
                chosen.append(good.splitlines()[-1] in summary)
    assert chosen == [True] * 2 * len(pairs)
