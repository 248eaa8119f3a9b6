"""The scripted model of the long sessions: works with real tools, and knows only what stands in its request.

Asked about a fact, it looks in the request that it received. If the words are not there it calls ``recall`` with the
question as it was asked, then reads on like an honest agent would: a long hit in full, a second page. It answers only
if the words are in what it then got. It has no memory of its own of what was said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

from bench.agent.facts import FACTS, Fact
from bench.agent.requests import Job
from everlong.testing import Answer, Ask, Call

__all__ = ["Clerk", "is_for_memory", "is_for_summary"]

_TICKET = re.compile(r"\(HB-(\d+)\)")
_CALL = re.compile(r"hb(\d+)_(\d+)_\d+$")
_LONG_HIT = re.compile(r", id ([0-9a-f]{12})\]\n(?:(?!\n\n\[).)*?\w*read_turn gives the rest", re.DOTALL)
_LONG_PASSAGE = re.compile(r'"id": "([0-9a-f]{12})"[^{}]*"chars": ')
_LOOKS = ("page 1", "whole message", "page 2")
"""The distances to which it reads on, and their names."""

UNKNOWN = "I do not know."
_SUMMARY_ITEMS = 24


class Clerk:
    """Answers by ticket, and questions from what is in sight.

    Its tools for looking back may have a prefix, or be those of the engine ``lcm``.
    """

    def __init__(self, jobs: Iterable[Job], prefix: str = "", *, engine: str = "compressor") -> None:
        self._prefix = prefix
        self._is_lossless = engine.endswith("lcm")
        self._jobs = {job.ticket: job for job in jobs}
        self._questions = {fact.question: fact for fact in FACTS}
        self.found: dict[str, str] = {}
        """The place of each question's answer: ``in sight``, or how far it had to read; missing if not found."""
        self.asked: Counter[str] = Counter()
        """Requests by what they were for."""

    def __call__(self, ask: Ask) -> Answer:
        """Return the answer to a request."""
        if is_for_memory(ask):
            self.asked["memory"] += 1
            return Answer("nothing")
        if is_for_summary(ask):
            self.asked["summary"] += 1
            return Answer(summary_of(ask))
        self.asked["conversation"] += 1
        said = ask.last_user
        fact = next((fact for question, fact in self._questions.items() if question in said), None)
        if fact is not None:
            return self._about(fact, ask)
        tickets = _TICKET.findall(said)
        if not tickets:
            return Answer("What shall I do?")
        return self._next(self._jobs[int(tickets[-1])], ask)

    def _next(self, job: Job, ask: Ask) -> Answer:
        """Return the step after the one whose results came last."""
        known = [_CALL.search(ident) for ident, _ in ask.results]
        done = [int(match[2]) + 1 for match in known if match is not None and int(match[1]) == job.ticket]
        step = max(done, default=0)
        if step >= len(job.steps):
            return Answer(job.answer)
        calls = [
            Call(name, arguments, f"call_hb{job.ticket}_{step}_{place}")
            for place, (name, arguments) in enumerate(job.steps[step])
        ]
        return Answer("Let me see." if step == 0 else "", calls)

    # -- questions -----------------------------------------------------------------------------------------------------

    def _about(self, fact: Fact, ask: Ask) -> Answer:
        place = FACTS.index(fact)
        looks = [int(ident.rsplit("_", 1)[1]) for ident, _ in ask.results if f"ask{place}_" in ident]
        look = max(looks) + 1 if looks else 0
        if _plain(fact.words) in _plain(ask.text):
            self.found[fact.question] = _LOOKS[look - 1] if look else "in sight"
            return Answer(f"It is this: {fact.words}.")
        long = _LONG_PASSAGE if self._is_lossless else _LONG_HIT
        if look == 1 and (best := long.search(ask.results[-1][1])) is None:
            look = 2  # there is nothing to read on in
        if look == 0:
            call = self._find(fact, 1, f"call_ask{place}_0")
        elif look == 1 and best is not None:
            call = self._read(best[1], f"call_ask{place}_1")
        elif look == 2:
            call = self._find(fact, 2, f"call_ask{place}_2")
        else:
            return Answer(UNKNOWN)
        return Answer("", [call])

    def _find(self, fact: Fact, page: int, ident: str) -> Call:
        name = "lcm_grep" if self._is_lossless else f"{self._prefix}recall"
        return Call(name, {"query": fact.question, **({"page": page} if page > 1 else {})}, ident)

    def _read(self, message: str, ident: str) -> Call:
        if self._is_lossless:
            return Call("lcm_expand", {"ids": [message]}, ident)
        return Call(f"{self._prefix}read_turn", {"id": message}, ident)


# -- what else a model is asked ---------------------------------------------------------------------------------------


def is_for_memory(ask: Ask) -> bool:
    """Return whether the model is asked what to keep for other sessions."""
    return ask.system.startswith("You keep the memory of an assistant")


def is_for_summary(ask: Ask) -> bool:
    """Return whether the model is asked for a summary, in either form."""
    return ask.system.startswith("You write handoff summaries") or "The conversation pauses here." in ask.last_user


def summary_of(ask: Ask) -> str:
    """Return a summary as a middling model would write it: the newest things in a few words each, and no more."""
    said = [turn.text for turn in ask.turns if turn.role == "assistant" and turn.text]
    if not said:  # a transcript rather than the conversation itself
        said = [line for line in ask.last_user.splitlines() if "HB-" in line]
    done = list(dict.fromkeys(re.split(r"(?<=\.)\s", text)[0][:120].strip() for text in said))[-_SUMMARY_ITEMS:]
    files = sorted(set(re.findall(r"src/\w+/\w+\.py", ask.text)))
    parts = ["## Goal", "- Keep the harbour office's programs going.", "## Progress", "### Done"]
    parts += [f"- {item}" for item in done if item]
    return "\n".join([*parts, "## Relevant Files", *(f"- {path}" for path in files)])


def _plain(text: str) -> str:
    """Return a text on one line, as a reader of JSON sees it."""
    return " ".join(text.replace("\\n", " ").replace('\\"', '"').split())
