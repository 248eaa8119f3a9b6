"""Conversations for the lossless engine, and the proof that none of their messages is lost."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from everlong.context.invariants import check_all
from everlong.context.literals import is_summary, summary_body
from everlong.context.summarizers import SummaryRequest
from everlong.lossless import LosslessEngine, SummaryNode
from everlong.lossless.frontier import read_node_ids
from everlong.model import Message, is_system
from everlong.store import Store
from everlong.store.tree import Branch

SYSTEM: Message = {"role": "system", "content": "You are a careful engineer."}


class Model:
    """A summary model that can be told to fail."""

    name = "a model"

    def __init__(self) -> None:
        self.is_dead = False
        self.asked = 0

    def summarize(self, request: SummaryRequest) -> str:
        self.asked += 1
        if self.is_dead:
            raise TimeoutError("no answer")
        words = " ".join(str(turn.get("content"))[:60] for turn in request.turns[:3])
        return f"## Goal\n- {words}"[: max(20, 2 * request.budget_tokens)]


def talk(turns: int, words: int = 60, seed: int = 1) -> list[Message]:
    """Return a conversation of an agent: requests, calls with results, answers; every message is unlike all others."""
    chance = random.Random(seed)
    said: list[Message] = []
    for turn in range(turns):
        noise = " ".join(chance.choice(_WORDS) + str(chance.randrange(10_000)) for _ in range(words))
        said.append({"role": "user", "content": f"request {turn}: change src/part_{turn}.py; {noise[:200]}"})
        if turn % 3:
            call = {"name": "read_file", "arguments": f'{{"path": "src/part_{turn}.py"}}'}
            said.append(
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"call_{turn}", "type": "function", "function": call}],
                }
            )
            said.append({"role": "tool", "tool_call_id": f"call_{turn}", "content": f"line {turn}: {noise}"})
        said.append({"role": "assistant", "content": f"Done with step {turn}: port {8000 + turn} is set."})
    return said


_WORDS = ("harbour", "lantern", "gravel", "violin", "meadow", "copper", "saddle", "thistle")


def turns_of(messages: Sequence[Message]) -> Iterator[list[Message]]:
    """Yield a conversation in the pieces that a host would append: a call together with its results."""
    piece: list[Message] = []
    for message in messages:
        if piece and message.get("role") != "tool":
            yield piece
            piece = []
        piece.append(message)
    if piece:
        yield piece


def frontier_of(store: Store, at: Branch) -> list[SummaryNode]:
    """Return the summaries that the context of a conversation shows."""
    told = next((message for message in store.context(at) if is_summary(message)), None)
    ids = [] if told is None else read_node_ids(summary_body(told))
    nodes = [store.graph(at).get(ident) for ident in ids]
    assert None not in nodes, f"a heading names a summary that is not there: {ids}"
    return [node for node in nodes if node is not None]


def faults_of(store: Store, at: Branch) -> list[str]:
    """Return every breach of the guarantee: a message that is lost, told twice, or cannot be opened."""
    faults = list(store.verify().problems)
    context, graph, entries = store.context(at), store.graph(at), store.entries(at)
    if broken := check_all(context):
        faults.append(f"the context breaks a rule: {broken}")
    nodes = frontier_of(store, at)
    under = [pair for node in nodes for pair in graph.messages(node.made.after, node.made.last)]
    stored = [entry.message for entry in entries if entry.depth > 0]
    if [message for _, message in under] != stored[: len(under)]:
        faults.append("the messages under the summaries are not the first ones of the conversation")
    covered = next((entry.depth for entry in entries if under and entry.id == bytes.fromhex(under[-1][0])), -1)
    tail = [entry.message.get("role") for entry in entries if entry.depth > covered]
    shown = [message.get("role") for message in context]
    if tail and shown[-len(tail) :] != tail:
        faults.append(f"{len(tail)} messages are under no summary, and the context does not end with them")
    return faults


_PIECES = 8
"""Pieces that are appended at once."""


def newest_request_tokens(engine: LosslessEngine, messages: Sequence[Message]) -> int:
    """Return the size of what a compaction cannot make smaller: system prompt, newest exchange and the frame."""
    fixed = [message for message in messages if is_system(message) or is_summary(message)][:1]
    latest = [message for message in messages if message.get("role") == "user" and not is_summary(message)][-1:]
    answer = [message for message in messages if message.get("role") == "assistant"][-1:]
    return engine.estimate_tokens([*fixed, *latest, *answer]) + 200


def grow(store: Store, at: Branch | None, engine: LosslessEngine, said: Sequence[Message]) -> Branch:
    """Append a conversation piece by piece, and compact wherever the engine asks for it."""
    pieces = list(turns_of(said))
    for start in range(0, len(pieces), _PIECES):
        more = [message for piece in pieces[start : start + _PIECES] for message in piece]
        at = store.record(more, conversation="a talk") if at is None else store.append(at, more)
        if engine.should_compress_preflight(store.context(at)):
            store.compact(at, engine)
    assert at is not None
    return at
