"""A compaction of the lossless engine: the middle becomes leaves of the graph, and the frontier fits its room.

Boundaries, rules, invariants and report are those of `everlong.context.compaction`. What differs is the summary: not
one document that is written anew, but the newest summaries of a graph under which every message stands exactly once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from everlong.context.boundary import LEAST_SUMMARY, Plan
from everlong.context.compaction import CompactionRun
from everlong.context.document import SummaryDocument
from everlong.context.report import Quality
from everlong.context.summarizers import WrittenSummary
from everlong.context.text import cut_at_clause, one_line, shorten_text
from everlong.lossless.author import Source, SummaryAuthor
from everlong.lossless.frontier import (
    INTRODUCTION,
    GraphBroken,
    GraphSizes,
    crowded_run,
    cut_runs,
    frontier_problems,
    full_run,
    read_node_ids,
    read_state,
    render_frontier,
    render_node,
)
from everlong.lossless.graph import (
    ROOT,
    NewSummary,
    SummaryGraph,
    SummaryNode,
    is_aside,
    is_edited,
    tag_of,
)
from everlong.model import Message

_RUNS = 2
"""Leaves that a compaction makes at least, if it leaves the last messages of the middle to the tail."""
_LONGEST_NEWEST = 400
"""Characters of the newest request that the state of the work quotes."""
_CARRIED = 3
"""Node budgets that the summary of another engine may take."""


@dataclass
class LosslessRun(CompactionRun):
    """One compaction over a graph."""

    graph: SummaryGraph
    author: SummaryAuthor
    sizes: GraphSizes
    made: list[SummaryNode] = field(default_factory=list)
    """The summaries that this run has written."""

    # -- what is covered -----------------------------------------------------------------------------------------------

    @cached_property
    def standing(self) -> list[SummaryNode]:
        """The summaries that the conversation stands on before this compaction, oldest first."""
        body = super()._previous()
        if body is None:
            return []
        found = self.graph.newest(read_node_ids(body))
        nodes = [node for node in found if node is not None]
        is_whole = bool(nodes) and len(nodes) == len(found) and not frontier_problems(nodes, nodes[-1].made.last)
        return nodes if is_whole else [self._carry_over(body)]

    def _carry_over(self, body: str) -> SummaryNode:
        """Return a summary of another engine as one of the graph's, over everything before the new messages."""
        body_tags = (tag_of(message) for message in self.known.repaired[self._body_start :])
        first, second = [*dict.fromkeys(tag for tag in body_tags if tag), None, None][:2]
        if second is not None and self.graph.before(second) != first:  # the first one is a request that was repeated
            first = second
        known = _own_ids(self.request.messages)
        last = self.graph.before(first) if first is not None else known[-1] if known else ROOT
        text = shorten_text(body, _CARRIED * self.sizes.node, self.author.count, otherwise="")
        count = len(self.graph.message_ids(ROOT, last, 0, 1 << 40))
        tokens = self.author.count(text)
        return self.graph.add(NewSummary(1, ROOT, last, text, tokens, tokens, count, "carried over", 1.0))

    @property
    def _body_start(self) -> int:
        layout = self.known.layout
        return layout.body_start if layout.summaries else layout.system_end

    def _new_messages(self, stop: int) -> tuple[list[Message], list[int], list[str]]:
        """Return the messages up to a place that no summary covers yet, their sizes, and their ids.

        One without an identity of its own goes with the message before it.
        """
        start, inserted = self._body_start, self.known.layout.inserted
        places = [place for place in range(start, stop) if place not in inserted]
        said = [self.known.repaired[place] for place in places]
        covered = self._covered
        ids: list[str] = []
        for message in said:
            ids.append(tag_of(message) or (ids[-1] if ids else covered))
        begin = self._first_new(ids, covered)
        while begin and begin < len(ids) and is_aside(said[begin - 1]):
            begin -= 1
        return said[begin:], [self.known.counts[place] for place in places[begin:]], ids[begin:]

    @property
    def _covered(self) -> str:
        """The id of the last message that a summary covers before this compaction."""
        return self.standing[-1].made.last if self.standing else ROOT

    def _first_new(self, ids: Sequence[str], covered: str) -> int:
        """Return the index of the first message after the covered ones.

        A request that was repeated after the summary, or belongs to the last covered message, comes before it.
        """
        old = {covered, ROOT}
        for place, ident in enumerate(ids):
            if ident in old:
                continue
            if covered == ROOT or self.graph.message_ids(covered, ident, 0, 1):
                return place
            old.add(ident)
        return len(ids)

    @cached_property
    def plan(self) -> Plan:
        """The cuts between middle and tail; the tail begins where a leaf of full size ends, if there is room for it."""
        plan, latest = self._leaf_plan(super().plan), self.known.layout.latest_user
        if latest is not None and latest == plan.tail_start - 1:  # it is in the tail then, and not under a summary too
            return replace(plan, tail_start=latest)
        return plan

    def _leaf_plan(self, plan: Plan) -> Plan:
        if self.request.target_tokens is not None or plan.tail_room is not None:
            return plan
        start = max(plan.head_end, self._body_start)
        messages, counts = self.known.repaired[start : plan.tail_start], self.known.counts[start : plan.tail_start]
        runs = cut_runs(messages, counts, self.sizes.leaf)
        if len(runs) < _RUNS or sum(counts[slice(*runs[-1])]) >= self.sizes.leaf:
            return plan
        cut = start + runs[-1][0]
        tail = sum(self.known.counts[cut:])
        fixed = sum(self.known.counts[: plan.head_end]) + self.known.limits.frame + self.known.limits.acknowledgement
        repeated = sum(self.known.counts[index] for index in self.known.layout.repeated(cut))
        if fixed + repeated + plan.summary_tokens + tail > self.known.limits.total:
            return plan
        return replace(plan, tail_start=cut)

    # -- the summary ---------------------------------------------------------------------------------------------------

    @cached_property
    def nodes(self) -> list[SummaryNode]:
        """The frontier after this compaction, oldest first, within its room."""
        stop = self.plan.tail_start
        leaves = self._leaves(*self._new_messages(stop))
        return self._fit([*self.standing, *leaves])

    def _leaves(self, messages: Sequence[Message], counts: Sequence[int], ids: Sequence[str]) -> list[SummaryNode]:
        """Return the leaves of new messages; the last one takes in those before the tail that had to be left out."""
        leaves: list[SummaryNode] = []
        after, end = self._covered, self._before_tail
        runs = cut_runs(messages, counts, self.sizes.leaf)
        for start, stop in runs:
            last = end if stop == len(messages) else ids[stop - 1]
            if last != after:
                leaves.append(self.leaf(messages[start:stop], sum(counts[start:stop]), after, last))
                after = last
        if after != end:
            leaves.append(self.leaf((), 0, after, end))
        return leaves

    def leaf(self, messages: Sequence[Message], tokens: int, after: str, last: str) -> SummaryNode:
        """Return the leaf of a run; it is written only if it is not there, or degraded and a model can do better."""
        there = self.graph.find(after, last)
        if there is not None and (there.state == "good" or not self._can_better):
            return there
        if not messages or any(map(is_edited, messages)):
            messages = [message for _, message in self.graph.messages(after, last)]
            tokens = self.request.counter.total(messages)
        return self._write(Source(messages, tokens=tokens), 0, after, last, len(messages), replaces=there)

    def condense(self, nodes: Sequence[SummaryNode]) -> SummaryNode:
        """Return the summary that stands for some neighbouring ones."""
        after, last = nodes[0].made.after, nodes[-1].made.last
        there = self.graph.find(after, last, [node.id for node in nodes])
        if there is not None and (there.state == "good" or not self._can_better):
            return there
        source = Source((), nodes, sum(node.made.tokens for node in nodes))
        level = 1 + max(node.made.level for node in nodes)
        messages = sum(node.made.messages for node in nodes)
        return self._write(source, level, after, last, messages, replaces=there)

    def _write(
        self, source: Source, level: int, after: str, last: str, messages: int, *, replaces: SummaryNode | None
    ) -> SummaryNode:
        request = self.request
        written = self.author.write(
            source,
            self.sizes.node,
            focus_topic=request.focus_topic,
            memory_context=request.memory_context if not self.made else None,
            ignore_cooldown=request.force,
        )
        is_degraded = written.state == "degraded" or any(child.state == "degraded" for child in source.children)
        node = self.graph.add(
            NewSummary(
                level,
                after,
                last,
                written.text,
                written.tokens,
                source.tokens,
                messages,
                written.model,
                written.quality,
                "degraded" if is_degraded else "good",
                tuple(child.id for child in source.children),
                None if replaces is None else replaces.id,
            )
        )
        self.made.append(node)
        return node

    @property
    def _can_better(self) -> bool:
        return self.author.has_model or (self.request.force and self.author.summarizer is not None)

    def _fit(self, nodes: list[SummaryNode]) -> list[SummaryNode]:
        """Condense summaries until the frontier has room; one alone always has, since it is shown in part then."""
        while (run := full_run(nodes)) is not None:
            nodes[slice(*run)] = [self.condense(nodes[slice(*run)])]
        room = self.summary_budget - self.author.count("\n\n".join([INTRODUCTION, self._state]))
        costs = {node.id: self.author.count(render_node(node)) + 2 for node in nodes}
        while len(nodes) > 1 and sum(costs[node.id] for node in nodes) > room:
            start, stop = crowded_run(nodes)
            condensed = self.condense(nodes[start:stop])
            costs[condensed.id] = self.author.count(render_node(condensed)) + 2
            nodes[start:stop] = [condensed]
        return nodes

    @cached_property
    def _state(self) -> str:
        """The exact state of the work, in the sections of a summary."""
        request, document = self.summary_request, SummaryDocument()
        document.items["In Progress"] += request.state.state_items()
        if request.newest_words and self.summary_budget > LEAST_SUMMARY:
            words = cut_at_clause(one_line(request.newest_words), _LONGEST_NEWEST)
            document.items["Pending User Asks"].append(f'- Newest request: "{words}"')
        return document.fit(max(1, self.summary_budget // 2), self.author.count)

    def _write_summary(self) -> WrittenSummary:
        """Return the text of the frontier, after proving that it covers every message before the tail once."""
        text = render_frontier(self.nodes, self._state, self.summary_budget, self.author.count)
        if problems := frontier_problems(self.nodes, self._before_tail):
            raise GraphBroken("; ".join(problems))
        reason = self.author.failure if any(node.state == "degraded" for node in self.made) else None
        writers = dict.fromkeys(node.made.model for node in self.made)
        return WrittenSummary(text, ", ".join(writers) or "graph", reason)

    @cached_property
    def _before_tail(self) -> str:
        """The id of the message right before the tail, as the graph knows it."""
        covered = self._covered
        tail = _own_ids(self.known.repaired[self.plan.tail_start :])
        begin = self._first_new(tail, covered)
        if begin < len(tail):
            return self.graph.before(tail[begin])
        given = _own_ids(self.request.messages)  # also those that cannot be sent
        return given[-1] if self._first_new(given[-1:], covered) == 0 and given else covered

    def _measure_quality(self, written: WrittenSummary) -> Quality:
        """Return how much of the names worth keeping the summaries of this run kept."""
        shares = [node.made.quality for node in self.made] or [1.0]
        rules = len(self.known.rules.lines)
        problems = () if written.fallback_reason is None else (written.fallback_reason,)
        return Quality(True, True, sum(shares) / len(shares), (rules, rules), problems=problems)

    # -- what the base class asks --------------------------------------------------------------------------------------

    def _previous(self) -> str | None:
        """Return the state of the work that the last compaction left; the summaries themselves stay as they are."""
        body = super()._previous()
        return body if body is None or not read_node_ids(body) else read_state(body)

    def _summary_is_too_long(self) -> bool:
        body = super()._previous()
        if body is None or sum(self.known.counts) <= self.known.limits.total:
            return False
        return self.author.count(body) > self.plan.summary_tokens

    # -- ahead of time -------------------------------------------------------------------------------------------------

    def extend(self, nodes: list[SummaryNode], following: Sequence[tuple[str, Message]]) -> list[SummaryNode]:
        """Return a frontier with the leaf of the messages that follow it, and at most one condensed summary more.

        Without enough messages for a leaf of full size, the frontier stays as it is. The context does not change: the
        next compaction finds the leaf in the graph.
        """
        messages = [message for _, message in following]
        counts = self.request.counter.counts(messages)
        runs = cut_runs(messages, counts, self.sizes.leaf)
        if len(runs) < _RUNS:
            return nodes
        stop = runs[0][1]
        after = nodes[-1].made.last if nodes else ROOT
        leaf = self.leaf(messages[:stop], sum(counts[:stop]), after, following[stop - 1][0])
        longer = [*nodes, leaf]
        if (run := full_run(longer)) is not None:
            longer[slice(*run)] = [self.condense(longer[slice(*run)])]
        return longer


def _own_ids(messages: Sequence[Message]) -> list[str]:
    """Return the ids of the messages that have one of their own."""
    return [ident for message in messages if not is_aside(message) and (ident := tag_of(message))]


def mend(node: SummaryNode, graph: SummaryGraph, author: SummaryAuthor, sizes: GraphSizes) -> bool:
    """Write a degraded summary anew; return whether it is good now."""
    if node.made.children:
        known = [child for child in graph.newest(node.made.children) if child is not None]
        source = Source((), known, sum(child.made.tokens for child in known))
    else:
        said = [message for _, message in graph.messages(node.made.after, node.made.last)]
        source = Source(said, tokens=node.made.source_tokens)
    written = author.write(source, sizes.node)
    if written.state == "degraded":
        return False
    graph.add(
        replace(
            node.made,
            text=written.text,
            tokens=written.tokens,
            model=written.model,
            quality=written.quality,
            state="good",
            children=tuple(child.id for child in source.children),
            replaces=node.id,
        )
    )
    return True
