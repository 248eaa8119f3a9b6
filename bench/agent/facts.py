"""Twenty facts that are told early in a long session, and what is asked about them at its end.

Half of the questions use the words in which the fact was told, half say it otherwise and share a name or a rare word
with it, as people do. Facts come in the user's words, in what a tool printed, and in the assistant's words. Written
without regard to how anything is searched; the requests of `bench.agent.requests` are full of facts of the same kind.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["FACTS", "FILES", "Fact"]

Teller = Literal["user", "tool", "assistant"]


@dataclass(frozen=True)
class Fact:
    """A fact, who tells it, and the question about it."""

    teller: Teller
    request: str
    """The user's words when it comes up; the fact itself if the user tells it."""
    words: str
    """The words that an answer needs to know, as they were told."""
    question: str
    is_literal: bool
    answer: str = "Noted."
    """The assistant's words then; the fact itself if the assistant tells it."""
    reads: str | None = None
    """The file whose reading tells it."""
    command: str | None = None
    """The command whose output tells it."""


FACTS = (
    # -- asked in the words in which they were told ---------------------------------------------------------------
    Fact(
        "user",
        "Before I forget: the staging database listens on port 6543, and a replica does not exist yet.",
        "the staging database listens on port 6543",
        "On which port does the staging database listen?",
        is_literal=True,
    ),
    Fact(
        "user",
        "Invoices for Bergström Marine must always be rounded down to whole crowns, they insist on it.",
        "rounded down to whole crowns",
        "How must invoices for Bergström Marine be rounded?",
        is_literal=True,
    ),
    Fact(
        "user",
        "Our contact at the customs office is Ilse Vandermeer. She only answers mail before ten in the morning.",
        "contact at the customs office is Ilse Vandermeer",
        "Who is our contact at the customs office?",
        is_literal=True,
    ),
    Fact(
        "user",
        "The release branch for the spring season is called release/halibut; nothing is merged there without Tomas.",
        "spring season is called release/halibut",
        "What is the release branch for the spring season called?",
        is_literal=True,
    ),
    Fact(
        "tool",
        "Have a look at settings/ferry.toml, I want to know whether the limits are sane.",
        "retry_ceiling_seconds = 340",
        "What is retry_ceiling_seconds set to in settings/ferry.toml?",
        is_literal=True,
        answer="They look sane to me.",
        reads="settings/ferry.toml",
    ),
    Fact(
        "tool",
        "Run the migrations on the copy, please.",
        'column "draught_cm" already exists',
        "Why did migration 0417_add_tide_table fail?",
        is_literal=True,
        answer="One of them failed; the others went through.",
        command="sh scripts/migrate.sh",
    ),
    Fact(
        "tool",
        "Something blocked the night run. See what the log says.",
        "lock on ledger.db held by process nightly-seal",
        "Which process held the lock on ledger.db?",
        is_literal=True,
        answer="There was a lock, and it was gone in the morning.",
        reads="logs/night.log",
    ),
    Fact(
        "assistant",
        "Find a good place for the tide calculation, and tell me where it is.",
        "tide calculation into src/tides/harmonic.py",
        "Where did you put the tide calculation?",
        is_literal=True,
        answer="I put the tide calculation into src/tides/harmonic.py and left the old polynomial where it was.",
    ),
    Fact(
        "assistant",
        "One test fails every other night. Find out which one and when.",
        "test_double_booking_over_midnight fails when the clock passes twelve",
        "Which test fails when the clock passes twelve between two inserts?",
        is_literal=True,
        answer="test_double_booking_over_midnight fails when the clock passes twelve between two inserts.",
    ),
    Fact(
        "assistant",
        "JSON is too large for the snapshots. Choose something else.",
        "decided on msgpack for the snapshot format",
        "Which snapshot format did you decide on?",
        is_literal=True,
        answer="I decided on msgpack for the snapshot format, because JSON made the files four times as large.",
    ),
    # -- asked in other words --------------------------------------------------------------------------------------
    Fact(
        "user",
        "My daughter Annelise has her school play on the 14th, so do not start a long import that evening.",
        "school play on the 14th",
        "When is Annelise going to be on stage?",
        is_literal=False,
    ),
    Fact(
        "user",
        "We pay Okonkwo Shipping within nine days, otherwise they take back the two percent.",
        "Okonkwo Shipping within nine days",
        "How quickly must a bill from Okonkwo be settled to keep the discount?",
        is_literal=False,
    ),
    Fact(
        "user",
        "The old Raspberry in the boathouse dies whenever somebody switches on the sauna heater.",
        "switches on the sauna heater",
        "What makes the Raspberry crash?",
        is_literal=False,
    ),
    Fact(
        "user",
        "Never send the weekly digest through Mailjet again, half of the members had it in the junk folder.",
        "half of the members had it in the junk folder",
        "What was the reason for dropping Mailjet?",
        is_literal=False,
    ),
    Fact(
        "tool",
        "Is there a comment in settings/lamps.yaml that explains the times? Check.",
        "Mrs Halloran's bedroom faces them",
        "Because of which neighbour do we darken the pier late in the evening?",
        is_literal=False,
        answer="Yes, there is one beside the times.",
        reads="settings/lamps.yaml",
    ),
    Fact(
        "tool",
        "Check the disks of the harbour server.",
        "3 reallocated sectors, serial KX-20931",
        "How can I identify the worn drive nvme1n1 when I order a new one?",
        is_literal=False,
        answer="One of them is getting old; we should keep an eye on it.",
        command="sh scripts/disks.sh",
    ),
    Fact(
        "tool",
        "Did the copy to the north arrive? The log should say.",
        "2 files skipped: cellar.img, photos-2019.tar",
        "What is missing from what we sent to Tromsø?",
        is_literal=False,
        answer="It arrived, though not quite all of it.",
        reads="logs/offsite.log",
    ),
    Fact(
        "assistant",
        "Users in Istanbul cannot log in. Please find out why.",
        "upper-casing the letter i gave a dotted capital",
        "What was behind the trouble of the Turkish customers?",
        is_literal=False,
        answer="The crash came from the Turkish locale: upper-casing the letter i gave a dotted capital, and the "
        "lookup missed.",
    ),
    Fact(
        "assistant",
        "Page 400 of the arrivals takes eleven seconds. Make it quick.",
        "a keyset over (berth, arrival)",
        "How did you speed up pagination far down the list?",
        is_literal=False,
        answer="Pagination now uses a keyset over (berth, arrival) instead of OFFSET, so page 400 is as quick as "
        "page 1.",
    ),
    Fact(
        "assistant",
        "The buoy reports nonsense temperatures. Mend it, and say what you left alone.",
        "left the Fahrenheit conversion in the sensor driver",
        "At which place are the degrees Fahrenheit of the buoy dealt with?",
        is_literal=False,
        answer="Mended. I left the Fahrenheit conversion in the sensor driver, because the firmware reports it so.",
    ),
)


def _toml() -> str:
    names = ("boarding", "loading", "mooring", "fuel", "pilot", "radio", "gate", "ramp", "crew", "deck")
    lines = [f"{name}_limit_seconds = {30 + 7 * place}\n" for place, name in enumerate(names)]
    lines[6:6] = ["retry_ceiling_seconds = 340\n"]
    return "[ferry]\n" + "".join(lines) + "".join(f"{name}_weight = {place}\n" for place, name in enumerate(names))


def _printing(*lines: str) -> str:
    return "".join(f"echo '{line}'\n" for line in lines)


FILES = {
    "README.md": "# Harbour office\n\nBerths, crews and ferries.\n",
    "settings/ferry.toml": _toml(),
    "settings/lamps.yaml": "quay: from dusk to 01:00\n"
    "pier: from dusk to 23:30  # off early because Mrs Halloran's bedroom faces them\n"
    "ramp: always\nboathouse: by switch\n",
    "logs/night.log": "".join(f"02:{minute:02} INFO  sealed page {70 + minute}\n" for minute in range(40))
    + "02:41 WARN  lock on ledger.db held by process nightly-seal\n"
    + "".join(f"03:{minute:02} INFO  waiting\n" for minute in range(20)),
    "logs/offsite.log": "".join(f"sent volume {number} of 30\n" for number in range(1, 31))
    + "copy to Tromsø finished after 5 h 12 min, 2 files skipped: cellar.img, photos-2019.tar\n",
    "scripts/migrate.sh": _printing(
        *(f"migration 04{number}_step applied" for number in range(10, 17)),
        'migration 0417_add_tide_table failed: column "draught_cm" already exists',
        *(f"migration 04{number}_step applied" for number in range(18, 25)),
    ),
    "scripts/disks.sh": _printing(
        "/dev/nvme0n1: ok, serial KX-18220",
        "/dev/nvme1n1: 3 reallocated sectors, serial KX-20931, bought used",
        "/dev/sda: ok, serial QQ-5512",
    ),
}
"""The files that the workspace has from the beginning."""
