"""The display of a chat: answers as Markdown, tool calls and compactions in one line each.

Blocks are printed once and never redrawn, so nothing flickers and everything can be scrolled and copied. It works with
any `rich` console and knows no input.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from everlong.agent import events as e
from everlong.agent.text import one_line, unmistakable, visible
from everlong.cli.output import counted
from everlong.cli.run import compaction_line, fallback_line, stop_line
from everlong.context.literals import is_summary
from everlong.model import text_of

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from everlong.agent import AgentConversation, AgentEvent, ApprovalRequest
    from everlong.cli.chat.state import ChatState


class ChatTheme(NamedTuple):
    """The colours of a chat."""

    code: str
    """The colours of code, by the name that `rich` has for them."""
    styles: Mapping[str, str]
    """Styles that stand in for others of the same name."""


DARK = ChatTheme("ansi_dark", {"markdown.code": "bold cyan"})
LIGHT = ChatTheme(
    "ansi_light",
    {
        "yellow": "magenta",
        "bold yellow": "bold magenta",
        "cyan": "blue",
        "markdown.code": "bold blue",
        "markdown.list": "blue",
        "markdown.item.number": "blue",
        "markdown.link": "blue",
        "markdown.table.border": "blue",
        "markdown.table.header": "not bold blue",
        "markdown.kbd": "bold",
    },
)
_LIGHT_GROUNDS = frozenset({"7", "15"})
"""White and bright white among the sixteen colours."""


def choose_theme(env: Mapping[str, str]) -> ChatTheme:
    """Return the theme for the background that ``COLORFGBG`` names, which many terminals set."""
    ground = env.get("COLORFGBG", "").rpartition(";")[2]
    return LIGHT if ground in _LIGHT_GROUNDS else DARK


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_LIVE_CHARS = 4_000
"""Characters kept of a running command's output, to show its newest lines."""
_OUTCOME_MARKS = {"done": "●", "failed": "✗", "refused": "⊘", "unknown": "?", "interrupted": "◌"}
_OUTCOME_STYLES = {"done": "green", "failed": "red", "refused": "yellow", "unknown": "red", "interrupted": "yellow"}


# -- Markdown ----------------------------------------------------------------------------------------------------------


class MarkdownBlocks:
    """A collector of streamed words that returns whole Markdown blocks."""

    def __init__(self) -> None:
        self._line = ""
        self._block: list[str] = []
        self._fence = ""

    @property
    def pending(self) -> str:
        """The text that does not form a whole block yet."""
        return "\n".join([*self._block, self._line]) if self._line or self._block else ""

    def add(self, text: str) -> Iterator[str]:
        """Add words, and yield the blocks that they complete."""
        *whole, self._line = (self._line + text).split("\n")
        for line in whole:
            yield from self._add_line(line.removesuffix("\r"))

    def end(self) -> Iterator[str]:
        """End the text, and yield what is left of it."""
        if self._line:
            line, self._line = self._line, ""
            yield from self._add_line(line)
        yield from self._take_block()
        self._fence = ""

    def drop(self) -> None:
        """Drop the text that does not form a whole block yet."""
        self._line, self._block, self._fence = "", [], ""

    def _add_line(self, line: str) -> Iterator[str]:
        fence = _FENCE.match(line)
        if self._fence:
            self._block.append(line)
            if fence and fence[1].startswith(self._fence) and not line[fence.end() :].strip():
                self._fence = ""
                yield from self._take_block()
            return
        if fence:
            yield from self._take_block()
            self._fence = fence[1]
            self._block.append(line)
        elif line.strip():
            self._block.append(line)
        elif self._block and not _is_list(self._block[-1]):
            yield from self._take_block()
        elif self._block:
            self._block.append(line)  # a list may go on after an empty line
            if len(self._block) > 1 and not self._block[-2].strip():
                yield from self._take_block()

    def _take_block(self) -> Iterator[str]:
        block, self._block = "\n".join(self._block).strip("\n"), []
        if block.strip():
            yield block


def _is_list(line: str) -> bool:
    return bool(re.match(r"\s*([-*+]|\d+[.)])\s|\s{2,}\S", line))


class _Heading(Heading):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the heading, aligned with all other text."""
        del console, options
        yield self.text


class _Code(CodeBlock):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the code without empty lines around it."""
        del console, options
        yield Padding(code_of(str(self.text).rstrip(), self.lexer_name, self.theme), (0, 2))


class _Table(TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the table without empty lines around it."""
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


def code_of(text: str, language: str, theme: str = DARK.code) -> Syntax:
    """Return code in the terminal's own colours."""
    return Syntax(text, language, theme=theme, word_wrap=True, background_color="default")


def print_markdown(console: Console, text: str, theme: str = DARK.code) -> None:
    """Print a block and an empty line, without trailing spaces, so that a resize breaks no line."""
    lines = [_strip_end(line) for line in console.render_lines(_Markdown(text, code_theme=theme), pad=False)]
    while lines and not lines[0]:  # lists, tables and quotes begin with one
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    console.print(Segments([part for line in [*lines, []] for part in (*line, Segment.line())]))


def _strip_end(line: list[Segment]) -> list[Segment]:
    """Return a line without trailing spaces."""
    while line and not line[-1].text.strip(" "):
        line = line[:-1]
    if line:
        line = [*line[:-1], line[-1]._replace(text=line[-1].text.rstrip(" "))]
    return line


# -- events ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ToolRecord:
    """A tool call of this chat; `/tools N` shows its text."""

    summary: str
    outcome: str
    text: str
    seconds: float


@dataclass
class Show:
    """A listener that prints the events of an agent on a console."""

    console: Console
    state: ChatState
    plain: bool = False
    """True if answers are printed as they were written, for screen readers and pipes."""
    aside: Console | None = None
    """The console for everything but answers; by default the same one."""
    tools: list[ToolRecord] = field(default_factory=list)
    _blocks: MarkdownBlocks = field(default_factory=MarkdownBlocks)
    _output: str = ""
    """The end of what the running command has printed."""
    _theme: ChatTheme = field(default_factory=lambda: choose_theme(os.environ))

    def __post_init__(self) -> None:
        for one in filter(None, (self.console, self.aside)):
            one.push_theme(Theme(dict(self._theme.styles)))

    def __call__(self, event: AgentEvent) -> None:
        """Print an event."""
        handle = self._HANDLERS.get(type(event))
        if handle is not None:
            handle(self, event)

    def _on_text(self, event: e.TextDelta) -> None:
        self.state.busy = "answering"
        for block in self._blocks.add(event.text):
            self._print_block(block)
        self.state.pending = visible(self._blocks.pending)
        self.state.changed()

    def _on_restart(self, event: e.Restarted) -> None:
        self._blocks.drop()
        self.state.pending = ""
        self.note(f"the answer broke off and is asked for again: {event.reason}")

    def _on_answer(self) -> None:
        self._end_answer()
        self.state.refresh()

    def _on_compaction_start(self, event: e.CompactionStarted) -> None:
        self._end_answer()
        if self.plain:  # for a screen reader or a pipe
            self.quiet(f"compacting {event.tokens:,} tokens …")
        self.state.set_busy(f"compacting {event.tokens:,} tokens")

    def _on_compaction_end(self, event: e.CompactionFinished) -> None:
        self._print_aside(Text(f"⟲ {compaction_line(event)}", style="cyan"))
        if event.fallback:
            self.note(f"{fallback_line(event.fallback)} (/history has more)")
        self.state.refresh()

    def _on_turn_end(self, event: e.TurnFinished) -> None:
        self._end_answer()
        if event.stop != "end":
            self.note("stopped" if event.stop == "interrupted" else stop_line(event))

    # -- pieces --------------------------------------------------------------------------------------------------------

    def _print_block(self, text: str) -> None:
        if self.plain:
            self.line(text)
        else:
            print_markdown(self.console, visible(text), self._theme.code)

    def _end_answer(self) -> None:
        self.state.pending = ""
        for block in self._blocks.end():
            self._print_block(block)

    def _print_aside(self, text: Text) -> None:
        self._print_words(self.aside or self.console, text)

    def _print_words(self, console: Console, text: Text) -> None:
        """Print a text that breaks between words; whole lines where no person reads, or a screen reader does."""
        console.print(text, soft_wrap=self.plain or not console.is_terminal)

    def _on_tool_start(self, event: e.ToolStarted) -> None:
        self._output = ""
        self.state.set_busy(event.summary)

    def _on_tool_end(self, event: e.ToolFinished) -> None:
        self.end_output()
        self.tools.append(ToolRecord(event.summary, event.outcome, event.text, event.seconds))
        lines = event.text.count("\n") + 1 if event.text else 0
        text = Text(f"{_OUTCOME_MARKS.get(event.outcome, '·')} ", style=_OUTCOME_STYLES.get(event.outcome, ""))
        text.append(visible(event.summary), style="default")
        told = f"  [{len(self.tools)}] {event.outcome}, {counted(lines, 'line')}, {event.seconds:.1f} s"
        text.append(told, style="dim")
        self._print_aside(text)
        self.state.refresh()

    def line(self, text: str, style: str = "") -> None:
        """Print a text of one or more lines, with control characters spelled out."""
        self._print_words(self.console, Text(visible(text), style=style))

    def output(self, data: bytes) -> None:
        """Show the newest lines that a running command prints; called in another thread."""
        self._output = (self._output + data.decode("utf-8", "replace"))[-_LIVE_CHARS:]
        self.state.pending = visible(self._output)
        self.state.changed()

    def end_output(self) -> None:
        """Show no more of a command that has ended."""
        self.state.pending = self._output = ""

    def code(self, text: str, language: str) -> None:
        """Print code in colours, or as it is for a screen reader or a pipe."""
        if self.plain:
            self.line(text)
        else:
            self.console.print(code_of(visible(text), language, self._theme.code))

    def note(self, text: str) -> None:
        """Print something that the user should know."""
        self._end_answer()
        self._print_aside(Text(f"! {visible(text)}", style="yellow"))

    def quiet(self, text: str) -> None:
        """Print something that the user may want to know."""
        self._print_aside(Text(visible(text), style="dim"))

    def earlier_prompt(self, prompt: str) -> None:
        """Print a prompt that was sent earlier."""
        first, *more = prompt.strip().splitlines() or [""]
        told = f" … {counted(len(more), 'more line')}" if more else ""
        self.quiet(f"» {one_line(first)}{told}")

    def last_exchange(self, conversation: AgentConversation) -> None:
        """Print the last exchange of a session that is continued."""
        messages = [message for message in conversation.messages if message.get("role") != "system"]
        session = conversation.session
        whole = None if session is None else conversation.store.conversations.get(session.id)
        ident, title = (conversation.session_id, None) if whole is None else (whole.id, whole.title)
        self.quiet(f"session {ident}{f' ({title})' if title else ''}: {counted(len(messages), 'message')} in context")
        at = max((n for n, one in enumerate(messages) if one.get("role") == "user"), default=None)
        if at is None or self.plain:
            return
        if not is_summary(messages[at]):
            self.earlier_prompt(text_of(messages[at]))
        answers = [text for one in messages[at + 1 :] if one.get("role") == "assistant" and (text := text_of(one))]
        if answers:
            self._print_block(answers[-1])
        elif at == len(messages) - 1:
            self.note("this was not answered; /retry asks again")

    def error(self, text: str) -> None:
        """Print an error."""
        self._end_answer()
        self._print_aside(Text(f"✗ {visible(text)}", style="red"))

    def request(self, request: ApprovalRequest) -> None:
        """Print a tool call that needs approval: one line, then its diff or command."""
        self._end_answer()
        detail = unmistakable(request.detail.strip("\n"))
        # The detail of a command is the command itself, and the place where it runs.
        summary = f"{request.tool}:" if request.effect == "runs" and detail else unmistakable(request.summary)
        self.line(f"? {summary}", "bold yellow")
        if not detail or detail == request.summary:
            return
        if self.plain:
            self.line(detail)
        else:
            kind = "diff" if detail.startswith(("---", "+++", "@@")) else "sh" if request.effect == "runs" else "text"
            self.console.print(Padding(code_of(detail, kind, self._theme.code), (0, 0, 0, 2)))

    _HANDLERS: ClassVar[dict[type, Callable[[Show, Any], None]]] = {
        e.TextDelta: _on_text,
        e.ThinkingDelta: lambda self, _: self.state.set_busy("thinking"),
        e.Restarted: _on_restart,
        e.Answered: lambda self, _: self._on_answer(),
        e.ToolStarted: _on_tool_start,
        e.ToolFinished: _on_tool_end,
        e.CompactionStarted: _on_compaction_start,
        e.CompactionFinished: _on_compaction_end,
        e.Notice: lambda self, event: self.note(event.text),
        e.TurnFinished: _on_turn_end,
    }
