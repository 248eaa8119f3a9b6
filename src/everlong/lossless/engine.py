"""The engine ``lcm``: a conversation of any length inside a window, with every message in reach.

It decides when to compact as the built-in compressor does, and keeps a graph of summaries in place of one summary. Give
it a graph of the store (`Store.summaries`) to keep the graph on disk; without one it keeps everything in memory.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from everlong.context.compaction import CompactionRequest, CompactionRun
from everlong.context.compressor import DEFAULT_CONTEXT_LENGTH, ContextCompressor
from everlong.context.engine import MESSAGE_TAG
from everlong.context.literals import is_acknowledgement, summary_body, summary_indices
from everlong.lossless.author import SummaryAuthor
from everlong.lossless.frontier import GraphBroken, GraphSizes, read_node_ids, sizes_for
from everlong.lossless.graph import EDITED, ROOT, MemoryGraph, SummaryGraph, SummaryNode, tag_of
from everlong.lossless.run import LosslessRun, mend
from everlong.lossless.tools import SCHEMAS, answer_tool
from everlong.model import Message, checked_messages, is_system

if TYPE_CHECKING:
    from everlong.config import CompressionSettings
    from everlong.context.policy import Budgets, LeftAlone
    from everlong.context.summarizers import Summarizer

NAME = "lcm"
_AHEAD_LEAVES = 2
"""Leaves' worth of messages beyond the tail from which on one of them is made ahead."""
_REACH, _FURTHEST = 48, 3_072
"""Messages that are read to make a leaf ahead, at first and at most."""


class LosslessEngine(ContextCompressor):
    """An engine that summarizes in a graph under which every message can be opened.

    ``settings`` are those of the ``compression`` section, which say when to compact. The first exchange is
    not kept apart: it is under the oldest summary.

    >>> engine = LosslessEngine(16_000)
    >>> shorter = engine.compress(messages)
    >>> len(shorter) < len(messages), "lcm_grep" in [tool["name"] for tool in engine.get_tool_schemas()]
    (True, True)
    """

    def __init__(
        self,
        context_length: int = DEFAULT_CONTEXT_LENGTH,
        *,
        settings: CompressionSettings | Mapping[str, Any] | None = None,
        summarizer: Summarizer | None = None,
        model: str | None = None,
        overhead_tokens: int = 0,
        clock: Callable[[], float] = time.monotonic,
        graph: SummaryGraph | None = None,
    ) -> None:
        self._graph: SummaryGraph = graph or MemoryGraph()
        self._memory = self._graph if isinstance(self._graph, MemoryGraph) else MemoryGraph()
        """The graph for lists without ids."""
        self._repeated: dict[str, str] = {}
        """For lists without ids: the request that stands again after the summaries up to a message."""
        self._author: SummaryAuthor | None = None
        self._ahead: list[SummaryNode] | None = None
        """The frontier with the leaves that were made ahead; None if it is not known."""
        self._ahead_tokens = 0
        """The size of the prompt without the messages that no leaf covers yet, as far as it is known."""
        self._reach = _REACH
        self._may_be_degraded = True
        self._given_up: set[str] = set()
        """Degraded summaries that the model could not write better."""
        self._lock = threading.RLock()
        super().__init__(
            context_length,
            settings=settings,
            summarizer=summarizer,
            model=model,
            overhead_tokens=overhead_tokens,
            clock=clock,
        )
        self.settings = replace(self.settings, protect_first_n=1)
        self.protect_first_n = 1

    @property
    def name(self) -> str:
        """The engine's name in ``context.engine``."""
        return NAME

    @property
    def graph(self) -> SummaryGraph:
        """The graph of the conversation's summaries."""
        return self._graph

    def attach(self, graph: SummaryGraph) -> None:
        """Use another graph from now on: that of the conversation which the engine goes on with."""
        with self._lock:
            self._graph, self._ahead, self._may_be_degraded = graph, None, True

    @property
    def sizes(self) -> GraphSizes:
        """The sizes of the graph's parts for the current window."""
        return sizes_for(self.context_length)

    @property
    def author(self) -> SummaryAuthor:
        """The author of the summaries."""
        if self._author is None:
            self._author = SummaryAuthor(
                self.counter.count_text, self.settings.failure_cooldown_seconds, clock=self._clock
            )
        self._author.count = self.counter.count_text
        if self._author.summarizer is not self.summarizer:
            self._author.summarizer = self.summarizer
            self._author.reset()
        return self._author

    @property
    def left_alone(self) -> list[LeftAlone]:
        """The model, while it is left alone after a failure."""
        return self.author.left_alone

    def _use(self, budgets: Budgets) -> None:
        """Take over budgets; all summaries together have the room that the ``lcm`` section gives them."""
        total = self.sizes.total
        super()._use(replace(budgets, summary_cap=total, summary_floor=total, summary_ratio=1.0))

    # -- compacting ----------------------------------------------------------------------------------------------------

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        *,
        force: bool = False,
        memory_context: str | None = None,
        target_tokens: int | None = None,
        originals: Callable[[], Sequence[Message]] | None = None,
    ) -> list[Message]:
        """Compact a conversation; see `ContextCompressor.compress` for arguments and errors.

        Messages that stay as they were are the very same objects.
        """
        options: dict[str, Any] = {
            "force": force,
            "memory_context": memory_context,
            "target_tokens": target_tokens,
            "originals": originals,
        }
        with self._lock:
            self._ahead, self._may_be_degraded = None, True
            if _is_tagged(messages):
                return super().compress(messages, current_tokens, focus_topic, **options)
            given = checked_messages(messages)
            placed = self._place(given)
            attached, self._graph = self._graph, self._memory
            try:
                result = super().compress(placed, current_tokens, focus_topic, **options)
                self._note_changes(result)
            finally:
                self._graph = attached
        untagged = {id(copy): original for copy, original in zip(placed, given, strict=True)}
        return [untagged.get(id(message)) or _without_tag(message) for message in result]

    def prepare(self, messages: list[Message]) -> None:
        """Write the summaries of a conversation with ids now; the next `compress` finds them in the graph."""
        with self._lock:
            run = self._run_for(self.request_for(checked_messages(messages)))
            if _is_tagged(messages) and run.has_new_turns:
                _ = run.nodes

    def _place(self, messages: list[Message]) -> list[Message]:
        """Return copies with ids, for a list whose host gives none; its messages are kept in memory."""
        start, after = self._after_summary(messages)
        repeated = self._repeated.get(after)
        if repeated is not None and start < len(messages) and self._memory.is_message(repeated, messages[start]):
            start += 1
        else:
            repeated = None
        body = [place for place in range(start, len(messages)) if not is_system(messages[place])]
        ids = self._memory.place([messages[place] for place in body], after)
        is_same = self._memory.is_message
        tags = {
            place: ident if is_same(ident, messages[place]) else f"edited{EDITED}{ident}"
            for place, ident in zip(body, ids, strict=True)
        }
        if repeated is not None:
            tags[start - 1] = repeated
        return [
            {**message, MESSAGE_TAG: tags[place]} if place in tags else message
            for place, message in enumerate(messages)
        ]

    def _after_summary(self, messages: list[Message]) -> tuple[int, str]:
        """Return where the messages after a list's summaries begin, and the id of the last message under these."""
        found = summary_indices(messages, 0, self._summaries)
        if not found:
            return 0, ROOT
        ids = read_node_ids(summary_body(messages[found[0]]))
        node = self._memory.newest(ids[-1:])[0] if ids else None
        start = found[0] + 1
        start += start < len(messages) and is_acknowledgement(messages[start])
        return start, node.made.last if node is not None else ROOT

    def _note_changes(self, messages: list[Message]) -> None:
        """Remember the messages that a compaction shortened, and the request that it repeated after the summary."""
        for message in messages:
            if (ident := tag_of(message)) is not None:
                self._memory.note_edit(ident, message)
        start, after = self._after_summary(messages)
        ident = tag_of(messages[start]) if after != ROOT and start < len(messages) else None
        if ident is not None and not self._memory.message_ids(after, ident, 0, 1):
            self._repeated[after] = ident

    def _compact(self, request: CompactionRequest, current_tokens: int | None) -> list[Message]:
        try:
            result = super()._compact(request, current_tokens)
        except GraphBroken as broken:
            # Rather one summary of the usual kind than none: the store keeps every message all the same.
            result, report, _ = CompactionRun(request).run(current_tokens)
            self.last_report = replace(report, fallback_reason=f"{NAME}: {broken}")
            self.last_prompt_tokens = self.estimate_tokens(result)
            self.compression_count += 1
            return result
        tail = self.last_report.boundaries.tail_start if self.last_report is not None else 0
        kept = self._counter.total(request.messages[tail:])
        self._ahead_tokens = max(0, self.last_prompt_tokens - round(kept * request.scale))
        return result

    def _run_for(self, request: CompactionRequest) -> LosslessRun:
        return LosslessRun(request, graph=self._graph, author=self.author, sizes=self._sizes_in_units())

    def _sizes_in_units(self) -> GraphSizes:
        """Return the sizes in the counter's units, as the run counts."""
        scale, sizes = self._calibration.scale(self._model), self.sizes
        total, node, leaf = (max(1, int(tokens / scale)) for tokens in sizes[:3])
        return GraphSizes(total, node, leaf)

    def work_ahead(self) -> bool:
        """Do a bounded piece of the next compaction's work; return whether there was any.

        A host calls it between turns, in the background if it can. The context does not change. A degraded summary is
        written anew if its model is back; else one leaf is made of messages that the next compaction will cover.
        """
        with self._lock:
            return self._mend_one() or self._make_leaf_ahead()

    def _mend_one(self) -> bool:
        """Have a degraded summary written anew, if its model is back; return whether that was done."""
        if not self._may_be_degraded or not self.author.has_model:
            return False
        found = self._graph.degraded(len(self._given_up) + 1)
        waiting = next((node for node in found if node.id not in self._given_up), None)
        self._may_be_degraded = waiting is not None
        if waiting is None:
            return False
        is_good = mend(waiting, self._graph, self.author, self._sizes_in_units())
        if not is_good and self.author.has_model:  # it answered, and nothing of use
            self._given_up.add(waiting.id)
        return is_good

    def _make_leaf_ahead(self) -> bool:
        """Make a leaf of messages that the next compaction will cover; return whether there was one to make."""
        if not self._may_work_ahead():
            return False
        if self._ahead is None:
            context = self._graph.context()
            if context is None:
                return False
            self._ahead = self._run_for(self.request_for(checked_messages(context))).standing
        run = self._run_for(self.request_for([]))
        while self._may_work_ahead():
            after = self._ahead[-1].made.last if self._ahead else ROOT
            following = self._graph.following(after, self._reach)
            longer = run.extend(self._ahead, following)
            if longer is self._ahead:
                if len(following) < self._reach or self._reach >= _FURTHEST:
                    return False
                self._reach *= 2
                continue
            self._ahead = longer
            self._ahead_tokens += self.sizes.leaf
            if run.made:
                return True
        return False

    def _may_work_ahead(self) -> bool:
        """Return whether enough messages are under no leaf, besides those of the tail."""
        uncovered = self.last_prompt_tokens - self._ahead_tokens
        return uncovered >= self.budgets.tail_tokens + _AHEAD_LEAVES * self.sizes.leaf

    # -- tools ---------------------------------------------------------------------------------------------------------

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that open and search the graph."""
        return [dict(schema) for schema in SCHEMAS]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of the engine's tools with a JSON text."""
        messages = kwargs.get("messages") or []
        return answer_tool(name, args, self._graph, self.author, self.frontier(messages), self.get_status())

    def frontier(self, messages: Sequence[Message]) -> list[SummaryNode]:
        """Return the summaries that a list of messages stands on, oldest first."""
        given = list(messages)
        found = summary_indices(given, 0, self._summaries)
        ids = read_node_ids(summary_body(given[found[0]])) if found else []
        return [node for ident in ids if (node := self._graph.get(ident)) is not None]

    def get_status(self) -> dict[str, Any]:
        """Return the token and threshold figures, and the number of summaries by state."""
        return {**super().get_status(), "summaries": self._graph.count()}

    def on_session_reset(self) -> None:
        """Forget the conversation; its graph stays where it is kept."""
        super().on_session_reset()
        self._memory, self._repeated = MemoryGraph(), {}
        if isinstance(self._graph, MemoryGraph):
            self._graph = self._memory
        self._ahead, self._ahead_tokens = None, 0
        self.author.reset()


def _is_tagged(messages: Sequence[Message]) -> bool:
    """Return whether the host has given the messages ids."""
    if not isinstance(messages, list):
        return False
    return any(isinstance(message, dict) and tag_of(message) is not None for message in messages)


def _without_tag(message: Message) -> Message:
    return {key: value for key, value in message.items() if key != MESSAGE_TAG} if MESSAGE_TAG in message else message
