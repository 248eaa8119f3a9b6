"""The conversations and questions of `bench.store.retrieval`: hand-written ones, and those of a folder.

friends, assistant   beside this file: two friends, and a person with an assistant
beam_100k.jsonl      chats with an assistant and their questions; never a part of the project
*.jsonl              transcripts of agents, with the questions in ``retrieval_data/transcripts.questions.txt``
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from everlong.model import Message
from everlong.store.search.corpus import searchable_text

DATA = Path(__file__).parent / "retrieval_data"
OWN = ("friends", "assistant")
CHATS = "beam_100k.jsonl"
TRANSCRIPTS = "transcripts.questions.txt"


class Question(NamedTuple):
    """A question of a kind. Each evidence is a set of places of which one is enough."""

    kind: str
    text: str
    evidence: list[frozenset[int]]
    is_dev: bool
    """True if it is for tuning, False if only for checking."""


class Conversation(NamedTuple):
    """Messages in order, the session and the time of each, and questions about them."""

    data: str
    """The name of its data set."""
    messages: list[Message]
    sessions: list[int]
    times: list[float]
    questions: list[Question]


def own_conversation(name: str) -> Conversation:
    """Return a hand-written conversation: sessions begin with ``## date``, turns with the speaker."""
    speakers, texts, sessions, times = [], [], [], []
    session, at = 0, 0.0
    for line in (DATA / f"{name}.txt").read_text("utf-8").splitlines():
        if line.startswith("## "):
            session += 1
            at = datetime.datetime.fromisoformat(line[3:]).replace(tzinfo=datetime.UTC).timestamp()
        elif line and not line.startswith("#"):
            speaker, _, text = line.partition(": ")
            speakers.append(speaker)
            texts.append(text)
            sessions.append(session)
            times.append(at)
            at += 40
    is_chat = set(speakers) <= {"user", "assistant"}
    messages: list[Message] = [
        {"role": speaker, "content": text}
        if is_chat
        else {"role": "user" if speaker == speakers[0] else "assistant", "content": f"{speaker}: {text}"}
        for speaker, text in zip(speakers, texts, strict=True)
    ]
    return Conversation(name, messages, sessions, times, _own_questions(name, texts))


def _own_questions(name: str, texts: list[str]) -> list[Question]:
    """Return questions with their evidence, named by fragments that each stand in one turn; every other one is dev."""
    questions: list[Question] = []
    for kind, text, fragments in _rows(f"{name}.questions.txt"):
        evidence: list[frozenset[int]] = []
        for fragment in fragments.split(" ;; "):
            places = [place for place, said in enumerate(texts) if fragment in said]
            if len(places) != 1:
                raise ValueError(f"{name}: {fragment!r} stands in {len(places)} turns, and must in one")
            evidence.append(frozenset(places))
        questions.append(Question(kind, text, evidence, is_dev=len(questions) % 2 == 0))
    return questions


def chats(folder: Path) -> list[Conversation]:
    """Return the chats of a folder; the first half of them, by id, is for tuning."""
    path = folder / CHATS
    if not path.is_file():
        return []
    found: list[Conversation] = []
    rows = sorted(_lines(path), key=lambda row: str(row["id"]))
    for place, row in enumerate(rows):
        questions = [
            Question(
                asked["kind"],
                asked["question"],
                [frozenset([number]) for number in asked["evidence"]],
                is_dev=place < len(rows) // 2,
            )
            for asked in row["questions"]
            if asked["evidence"]
        ]
        found.append(_single("chats", row["messages"], questions))
    return found


MOST_PLACES = 6
"""The most messages that a fragment of a transcript may stand in."""


def transcripts(folder: Path) -> list[Conversation]:
    """Return the transcripts of a folder that the project has questions about."""
    asked: dict[str, list[tuple[str, str, str]]] = {}
    for kind, name, text, fragment in _rows(TRANSCRIPTS):
        asked.setdefault(name, []).append((kind, text, fragment))
    found: list[Conversation] = []
    for path in sorted(folder.glob("*.jsonl")):
        for row in _lines(path):
            messages = row["messages"]
            questions: list[Question] = []
            for kind, text, fragment in asked.get(str(row["id"]), []):
                places = frozenset(
                    place
                    for place, message in enumerate(messages)
                    if message["role"] in {"tool", "assistant"} and fragment in searchable_text(message)
                )
                if not 1 <= len(places) <= MOST_PLACES:
                    raise ValueError(f"{row['id']}: {fragment!r} stands in {len(places)} messages")
                questions.append(Question(kind, text, [places], is_dev=len(questions) % 2 == 0))
            if questions:
                found.append(_single("transcripts", messages, questions))
    return found


def _single(data: str, messages: list[Message], questions: list[Question]) -> Conversation:
    return Conversation(
        data, messages, [0] * len(messages), [float(place) for place in range(len(messages))], questions
    )


def _rows(name: str) -> Iterator[list[str]]:
    for line in (DATA / name).read_text("utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line.split(" | ")


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        yield from map(json.loads, file)
