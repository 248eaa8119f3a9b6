"""The chat on a terminal: a prompt that stays at the bottom while everything else is printed above it.

`prompt_toolkit` reads the input; the agent works in another thread. Nothing is drawn over printed text, so the terminal
itself can scroll, copy and resize it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import nullcontext, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app
from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys
from prompt_toolkit.patch_stdout import StdoutProxy

from everlong.cli.chat.state import ASKED, SETTLING_SECONDS, STARTING
from everlong.config.paths import data_home

if TYPE_CHECKING:
    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

    from everlong.agent.commands.registry import Registry
    from everlong.cli.chat.state import ChatState
    from everlong.cli.chat.worker import ChatWorker

_TAB = "    "


def last_rows(text: str, columns: int, rows: int) -> list[str]:
    """Return the last rows of a text, wrapped to the columns."""
    from rich.cells import chop_cells  # noqa: PLC0415 - the prompt comes before this is loaded

    if not text or columns < 2 or rows < 1:
        return []
    found: list[str] = []
    # Earlier characters cannot be in the last rows, however narrow they are.
    for line in text[-columns * rows * 2 :].expandtabs(len(_TAB)).split("\n"):
        found += chop_cells(line, columns) or [""]
    return found[-rows:]


class ChatCompleter(Completer):
    """Completes a command's name; elsewhere a path after ``./``, ``/`` or ``~``."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._paths = PathCompleter(expanduser=True)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        """Yield the completions at the cursor."""
        text = document.text_before_cursor
        if text.startswith("/") and "\n" not in text:
            for command in self._registry.commands.values():
                if command.name.startswith(text[1:]):
                    yield Completion(command.name, 1 - len(text), display_meta=command.about)
            return
        word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
        if word.startswith("@"):
            yield from self._paths.get_completions(Document(word[1:]), complete_event)
            return
        if "/" in word or word.startswith(("~", ".")):
            yield from self._paths.get_completions(Document(word), complete_event)


_MOST_PASTED_LINES = 10
"""Lines of a paste that are shown; of a longer one, a mark stands in the line."""


class PastedTexts:
    """Long pastes, each behind a mark in the line, such as ``[pasted 150 lines]``."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def take(self, text: str) -> str:
        """Return what stands in the line for a paste: a short text itself, or a mark."""
        lines = len(text.splitlines())
        if lines <= _MOST_PASTED_LINES:
            return text
        mark = f"[pasted {lines:,} lines]"
        if self._texts.get(mark, text) != text:
            mark = f"[pasted {lines:,} lines, {len(self._texts) + 1}]"
        self._texts[mark] = text
        return mark

    def put_back(self, line: str) -> str:
        """Return a line with the pastes in the places of their marks."""
        for mark, text in self._texts.items():
            line = line.replace(mark, text)
        return line


_REDRAW_SECONDS = 0.02
_PRINT_SECONDS = 0.02
"""Seconds between prints above the prompt: rare enough to type, and soon enough that no words seem lost."""
_PENDING_ROWS = 8
"""Rows shown of a block that is still being written."""


def talk(state: ChatState, worker: ChatWorker, registry: Registry) -> bool:
    """Let a person chat until they leave; return False if work is still under way that cannot be stopped.

    Raises:
        KeyboardInterrupt: the user stopped the chat while it was starting.
    """
    with StdoutProxy(_PRINT_SECONDS, raw=True) as above, redirect_stdout(above), redirect_stderr(above):
        asyncio.run(_Talk(state, worker, registry).talk())
        return worker.leave()


class _Talk:
    """One chat at a terminal."""

    def __init__(self, state: ChatState, worker: ChatWorker, registry: Registry) -> None:
        self._state = state
        self._worker = worker
        self._pasted = PastedTexts()
        self._session: PromptSession[str] = PromptSession(
            history=_open_history(),
            completer=ChatCompleter(registry),
            complete_while_typing=False,
            key_bindings=self._bindings(),
            bottom_toolbar=self._toolbar,
            multiline=False,
            prompt_continuation="… ",
            enable_open_in_editor=True,
        )
        self._session.app.min_redraw_interval = _REDRAW_SECONDS
        # While something is printed above the prompt, too, Enter and Ctrl-D are keys and no business of the terminal's.
        self._session.app.input.cooked_mode = nullcontext  # type: ignore[method-assign]
        self._session.app.after_render += self._begin
        self._session.default_buffer.on_text_changed += lambda _: self._open_question()

    async def talk(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._state.changed = self._changed
        # Between two prompts, too.
        with self._session.input.raw_mode():
            while not self._state.is_over:
                try:
                    text = await self._session.prompt_async(self._prompt, pre_run=self._redraw)
                except EOFError:
                    return
                if text.strip():
                    self._worker.send(self._pasted.put_back(text))

    def _begin(self, _: object) -> None:
        """Start the worker once the prompt is drawn, so that the user can read and type meanwhile."""
        self._session.app.after_render -= self._begin
        self._worker.start()

    # -- drawing -------------------------------------------------------------------------------------------------------

    def _changed(self) -> None:
        with suppress(RuntimeError):  # the loop is gone: the chat is over
            self._loop.call_soon_threadsafe(self._redraw)
            if self._state.question is not None:
                self._loop.call_soon_threadsafe(self._loop.call_later, SETTLING_SECONDS, self._redraw)

    def _redraw(self) -> None:
        app = self._session.app
        if self._state.is_over and app.is_running and not app.is_done:
            app.exit(result="")
        self._open_question()
        app.invalidate()

    def _open_question(self) -> None:
        """Let the next line answer the question, once it has settled and nothing is being typed."""
        question = self._state.question
        if question is not None and question.is_settled and not self._session.default_buffer.text:
            question.is_open = True

    @property
    def _is_asked(self) -> bool:
        """True if the line being typed is an answer."""
        question = self._state.question
        return question is not None and question.is_open

    def _prompt(self) -> StyleAndTextTuples:
        app = get_app()
        if app.is_done:  # what stays on the screen
            return [("bold", "❯ ")]
        size = app.output.get_size()
        shown: StyleAndTextTuples = [
            ("class:pending", f"{row}\n")
            for row in last_rows(self._state.pending, size.columns, min(_PENDING_ROWS, size.rows // 3))
        ]
        return [*shown, ("bold", ASKED) if self._is_asked else ("bold", "❯ ")]

    def _toolbar(self) -> str:
        if self._state.question is not None and not self._is_asked and self._session.default_buffer.text:
            return " you are asked something: send your line or clear it (Ctrl-U), then answer "
        columns = get_app().output.get_size().columns
        return f" {self._state.status(columns - 2, self._worker.waiting)} "

    # -- keys ----------------------------------------------------------------------------------------------------------

    def _bindings(self) -> KeyBindings:
        keys = KeyBindings()
        is_asked = Condition(lambda: self._is_asked)

        is_empty = Condition(lambda: not self._session.default_buffer.text)

        @keys.add("enter", filter=is_asked, eager=True)
        def decide(event: KeyPressEvent) -> None:
            self._answer(event, event.current_buffer.text)

        @keys.add("1", filter=is_asked & is_empty, eager=True)
        @keys.add("2", filter=is_asked & is_empty, eager=True)
        @keys.add("3", filter=is_asked & is_empty, eager=True)
        def decide_alone(event: KeyPressEvent) -> None:
            # A number that begins a sentence is no answer, so the next key is waited for.
            event.current_buffer.insert_text(event.data)
            asked, typed = self._state.question, event.data

            def decide() -> None:
                if self._state.question is asked and event.current_buffer.text == typed:
                    self._answer(event, typed)

            self._loop.call_later(SETTLING_SECONDS, decide)

        @keys.add(Keys.BracketedPaste)
        def paste_text(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text(self._pasted.take(event.data.replace("\r\n", "\n").replace("\r", "\n")))

        @keys.add("c-c")
        def stop(event: KeyPressEvent) -> None:
            self._stop(event)

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def newline(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        return keys

    def _answer(self, event: KeyPressEvent, said: str) -> None:
        """Decide the question with a key or a line."""
        question = self._state.question
        if said.strip() and question is not None:
            event.current_buffer.reset()
            question.decide(self._pasted.put_back(said))

    def _stop(self, event: KeyPressEvent) -> None:
        """Handle Ctrl-C: stop the work under way, or clear the line, or say how to leave."""
        state, buffer = self._state, event.current_buffer
        if state.busy == STARTING and not buffer.text:
            event.app.exit(exception=KeyboardInterrupt())
        elif state.busy != STARTING and (unsent := self._worker.interrupt()) is not None:
            if unsent and not buffer.text:  # what waited is there to be sent again, or changed
                buffer.insert_text("\n".join(unsent))
        elif buffer.text:
            buffer.reset()
        else:
            state.hint = "Ctrl-D leaves"
            event.app.invalidate()


def _open_history() -> History:
    """Return the history of prompts, in a private file, or in memory if there can be no file."""
    folder: Path = data_home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "chat_history"
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
