"""Markdown as the chat shows it: close together, to the left, and without frames, so that it can be read and copied."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement, TableElement
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.syntax import Syntax
from rich.table import Table

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["code_of", "print_markdown"]


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
