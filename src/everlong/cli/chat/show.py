"""What happens in a chat, as lines on a screen: answers as Markdown, tools and compactions in one line each.

Whole blocks are printed once and never again, so nothing flickers and everything can be scrolled and copied. Works with
a `rich` console of any kind; knows no input.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar

from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text

from everlong.agent import events as e
from everlong.agent.text import one_line, unmistakable, visible
from everlong.cli.speaking import compaction_line
from everlong.context.literals import is_summary
from everlong.model import text_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from everlong.agent import AgentConversation, AgentEvent, ApprovalRequest
    from everlong.cli.chat.state import ChatState

__all__ = ["MarkdownBlocks", "Show", "ToolRecord", "code_of", "print_markdown"]

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class MarkdownBlocks:
    """Collects words as they come and gives back whole blocks."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._fence = ""

    @property
    def pending(self) -> str:
        """What has come and is not complete yet."""
        return "\n".join([*self._block, self._line]) if self._line or self._block else ""

    def add(self, text: str) -> Iterator[str]:
        """Take in more words; the blocks that they complete."""
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            yield from self._add_line(line.removesuffix("\r"))

    def end(self) -> Iterator[str]:
        """The end of the text; what is left of it."""
        if self._line:
            line, self._line = self._line, ""
            yield from self._add_line(line)
        yield from self._taken()
        self._fence = ""

    def drop(self) -> None:
        """Forget what has come and was not handed on."""
        self._line, self._block, self._fence = "", [], ""

    def _add_line(self, line: str) -> Iterator[str]:
        fence = _FENCE.match(line)
        if self._fence:
            self._block.append(line)
            if fence and fence[1].startswith(self._fence) and not line[fence.end() :].strip():
                self._fence = ""
                yield from self._taken()
            return
        if fence:
            yield from self._taken()
            self._fence = fence[1]
            self._block.append(line)
        elif line.strip():
            self._block.append(line)
        elif self._block and not _is_list(self._block[-1]):
            yield from self._taken()
        elif self._block:
            self._block.append(line)  # a list may go on after an empty line
            if len(self._block) > 1 and not self._block[-2].strip():
                yield from self._taken()

    def _taken(self) -> Iterator[str]:
        block, self._block = "\n".join(self._block).strip("\n"), []
        if block.strip():
            yield block


def _is_list(line: str) -> bool:
    return bool(re.match(r"\s*([-*+]|\d+[.)])\s|\s{2,}\S", line))


_MARKS = {"done": "●", "failed": "✗", "refused": "⊘", "unknown": "?", "interrupted": "◌"}
_STYLES = {"done": "green", "failed": "red", "refused": "yellow", "unknown": "red", "interrupted": "yellow"}
_STOPS = {
    "interrupted": "stopped",
    "length": "the answer was cut off at its longest (agent.max_output_tokens)",
    "refusal": "the model declined to answer",
}


@dataclass(frozen=True)
class ToolRecord:
    """A tool call of this chat, to be opened on demand."""

    summary: str
    outcome: str
    text: str
    seconds: float


@dataclass
class Show:
    """Shows the events of an agent on a console."""

    console: Console
    state: ChatState
    plain: bool = False
    """Whether answers are shown as they were written, for screen readers and pipes."""
    aside: Console | None = None
    """Where goes what is no answer; the console itself by default."""
    tools: list[ToolRecord] = field(default_factory=list)
    _blocks: MarkdownBlocks = field(default_factory=MarkdownBlocks)
    _is_told: bool = False
    """Whether it was said that a summary is being written."""

    def __call__(self, event: AgentEvent) -> None:
        """Show an event."""
        shown = self._SHOWN.get(type(event))
        if shown is not None:
            shown(self, event)

    def _words(self, event: e.TextDelta) -> None:
        self.state.busy = "answering"
        for block in self._blocks.add(event.text):
            self._block(block)
        self.state.pending = visible(self._blocks.pending)
        self.state.changed()

    def _restarted(self, event: e.Restarted) -> None:
        self._blocks.drop()
        self.state.pending = ""
        self.note(f"the answer broke off and is asked for again: {event.reason}")

    def _answered(self, event: e.Answered) -> None:
        self._end_of_answer()
        self.state.cost += event.cost or 0.0
        self.state.look()

    def _compacting(self, event: e.CompactionStarted) -> None:
        self._end_of_answer()
        self._is_told = False
        self.state.doing(f"compacting {event.tokens:,} tokens")

    def _summarizing(self, event: e.CompactionProgress) -> None:
        if self.plain and not self._is_told:  # a screen reader reads every line, and a pipe keeps it: one will do
            self._is_told = True
            self.quiet("a model writes the summary …")
        self.state.progress = event
        self.state.changed()

    def _compacted(self, event: e.CompactionFinished) -> None:
        self.state.cost += event.cost or 0.0
        self.state.progress = None
        self._beside(Text(f"⟲ {compaction_line(event)}", style="cyan"))
        self.state.look()

    def _finished(self, event: e.TurnFinished) -> None:
        self._end_of_answer()
        if event.stop != "end":
            self.note(_STOPS.get(event.stop) or f"stopped at a limit: {event.detail}")

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _block(self, text: str) -> None:
        if self.plain:
            self.text(text)
        else:
            print_markdown(self.console, visible(text))

    def _end_of_answer(self) -> None:
        self.state.pending = ""
        for block in self._blocks.end():
            self._block(block)

    def _beside(self, text: Text) -> None:
        (self.aside or self.console).print(text, soft_wrap=True)

    def _tool(self, event: e.ToolFinished) -> None:
        self.tools.append(ToolRecord(event.summary, event.outcome, event.text, event.seconds))
        lines = event.text.count("\n") + 1 if event.text else 0
        text = Text(f"{_MARKS.get(event.outcome, '·')} ", style=_STYLES.get(event.outcome, ""))
        text.append(visible(event.summary), style="default")
        told = f"  [{len(self.tools)}] {event.outcome}, {lines} line{'' if lines == 1 else 's'}, {event.seconds:.1f} s"
        text.append(told, style="dim")
        self._beside(text)
        self.state.look()

    def line(self, text: str, style: str = "") -> None:
        """One line."""
        self.console.print(Text(visible(text), style=style), soft_wrap=True)

    def text(self, text: str) -> None:
        """A text as it was written; nothing in it can move the cursor, hide anything or colour it."""
        self.console.print(Text(visible(text)), soft_wrap=True)

    def note(self, text: str) -> None:
        """Something that the user should know."""
        self._end_of_answer()
        self._beside(Text(f"! {visible(text)}", style="yellow"))

    def quiet(self, text: str) -> None:
        """Something that the user may want to know."""
        self._beside(Text(visible(text), style="dim"))

    def said(self, prompt: str) -> None:
        """A prompt that was sent before."""
        first, *more = prompt.strip().splitlines() or [""]
        told = f" … {len(more)} more line{'' if len(more) == 1 else 's'}" if more else ""
        self.quiet(f"» {one_line(first)}{told}")

    def where_it_stands(self, conversation: AgentConversation) -> None:
        """What a session is about that is gone on with: its last exchange."""
        messages = [message for message in conversation.messages if message.get("role") != "system"]
        session = conversation.session
        whole = None if session is None else conversation.store.conversations.get(session.id)
        ident, title = (conversation.session_id, None) if whole is None else (whole.id, whole.title)
        count = f"{len(messages)} message{'' if len(messages) == 1 else 's'}"
        self.quiet(f"session {ident}{f' ({title})' if title else ''}: {count}")
        at = max((n for n, one in enumerate(messages) if one.get("role") == "user"), default=None)
        if at is None or self.plain:
            return
        if not is_summary(messages[at]):
            self.said(text_of(messages[at]))
        answers = [text for one in messages[at + 1 :] if one.get("role") == "assistant" and (text := text_of(one))]
        if answers:
            self._block(answers[-1])
        elif at == len(messages) - 1:
            self.note("this was not answered any more; /retry asks again")

    def error(self, text: str) -> None:
        """Something that went wrong."""
        self._end_of_answer()
        self._beside(Text(f"✗ {visible(text)}", style="red"))

    def request(self, request: ApprovalRequest) -> None:
        """What is to be decided: the call in one line, and its diff or command."""
        self._end_of_answer()
        self.line(f"? {unmistakable(request.summary)}", "bold yellow")
        detail = unmistakable(request.detail.strip("\n"))
        if not detail or detail == request.summary:
            return
        if self.plain:
            self.text(detail)
        else:
            kind = "diff" if detail.startswith(("---", "+++", "@@")) else "sh" if request.effect == "runs" else "text"
            self.console.print(Padding(code_of(detail, kind), (0, 0, 0, 2)))

    _SHOWN: ClassVar[dict[type, Callable[[Show, Any], None]]] = {
        e.TextDelta: _words,
        e.ThinkingDelta: lambda self, _: self.state.doing("thinking"),
        e.Restarted: _restarted,
        e.Answered: _answered,
        e.ToolStarted: lambda self, event: self.state.doing(event.summary),
        e.ToolFinished: _tool,
        e.CompactionStarted: _compacting,
        e.CompactionProgress: _summarizing,
        e.CompactionFinished: _compacted,
        e.Notice: lambda self, event: self.note(event.text),
        e.TurnFinished: _finished,
    }


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The heading where all other text begins."""
        del console, options
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The code without empty lines around it."""
        del console, options
        yield Padding(code_of(str(self.text).rstrip(), self.lexer_name), (0, 2))


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The table without empty lines around it."""
        for part in super().__rich_console__(console, options):
            if isinstance(part, Table):
                part.show_edge = False
            yield part


class _Markdown(Markdown):
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "table_open": _Table,
    }


def code_of(text: str, language: str) -> Syntax:
    """Code in the terminal's own colours, which can be read on a dark ground and on a light one."""
    return Syntax(text, language, theme="ansi_dark", word_wrap=True, background_color="default")


def print_markdown(console: Console, text: str) -> None:
    """Print a block and one empty line after it; no line is longer than its words, so that a resize breaks none."""
    lines = [_without_end(line) for line in console.render_lines(_Markdown(text), pad=False)]
    while lines and not lines[0]:  # lists, tables and quotes begin with one
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    console.print(Segments([part for line in [*lines, []] for part in (*line, Segment.line())]))


def _without_end(line: list[Segment]) -> list[Segment]:
    """A line without the spaces at its end."""
    while line and not line[-1].text.strip(" "):
        line = line[:-1]
    if line:
        line = [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip(" "))]
    return line
