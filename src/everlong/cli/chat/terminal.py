"""The chat's terminal: a prompt that stays at the bottom while everything else is printed above it.

Input is `prompt_toolkit`'s; the agent works in another thread. Nothing is drawn over what was printed, so scrolling,
copying and resizing are the terminal's own business.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import HTML, AnyFormattedText
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.patch_stdout import patch_stdout

from everlong.cli.chat.completion import ChatCompleter
from everlong.config.paths import data_home

if TYPE_CHECKING:
    from prompt_toolkit.history import History
    from prompt_toolkit.key_binding import KeyPressEvent

    from everlong.agent import Decision
    from everlong.cli.chat.commands import Registry
    from everlong.cli.chat.state import ChatState
    from everlong.cli.chat.worker import Worker

__all__ = ["talk"]

_LOOK_SECONDS = 2.0
"""How often it is looked whether a pause should be used."""
_KEYS: dict[str, Decision] = {"y": "once", "a": "session", "n": "no"}


def talk(state: ChatState, worker: Worker, registry: Registry) -> None:
    """Let a person chat until they leave."""
    with patch_stdout(raw=True):
        asyncio.run(_talk(state, worker, registry))


async def _talk(state: ChatState, worker: Worker, registry: Registry) -> None:
    loop = asyncio.get_running_loop()
    session: PromptSession[str] = PromptSession(
        history=_history(),
        completer=ChatCompleter(registry, lambda: state.agent),
        complete_while_typing=False,
        key_bindings=_bindings(state, worker),
        bottom_toolbar=lambda: _toolbar(state, worker),
        multiline=False,
        prompt_continuation="… ",
        enable_open_in_editor=True,
    )

    def redraw() -> None:
        app = session.app
        if state.is_over and app.is_running and not state.busy:
            app.exit(result="/quit")
        app.invalidate()

    def changed() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is gone: the chat is over
            loop.call_soon_threadsafe(redraw)

    state.changed = changed
    worker.start()
    pauses = asyncio.create_task(_use_pauses(worker))
    while not state.is_over:
        try:
            text = await session.prompt_async(lambda: _prompt(state))
        except KeyboardInterrupt:
            continue
        except EOFError:
            break
        if text.strip() in {"/quit", "/exit"}:
            break
        if text.strip():
            worker.send(text)
    pauses.cancel()


async def _use_pauses(worker: Worker) -> None:
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        worker.rest()


def _prompt(state: ChatState) -> AnyFormattedText:
    if state.question is not None:
        return HTML("<ansiyellow>allow? [y]es, [a]lways in this session, [n]o </ansiyellow>")
    return HTML("<b>❯ </b>")


def _toolbar(state: ChatState, worker: Worker) -> str:
    waiting = f" │ {worker.waiting} waiting" if worker.waiting else ""
    return f" {state.status()}{waiting} "


def _bindings(state: ChatState, worker: Worker) -> KeyBindings:
    keys = KeyBindings()
    is_asked = Condition(lambda: state.question is not None)

    for key, decision in _KEYS.items():

        @keys.add(key, filter=is_asked, eager=True)
        def decide(event: KeyPressEvent, decision: Decision = decision) -> None:
            del event
            if state.question is not None:
                state.question.decide(decision)

    @keys.add("<any>", filter=is_asked)
    @keys.add("enter", filter=is_asked)
    def ignore(event: KeyPressEvent) -> None:
        """While something is asked, only an answer counts."""
        del event

    @keys.add("c-c")
    def stop(event: KeyPressEvent) -> None:
        if worker.interrupt():
            return
        if event.current_buffer.text:
            event.current_buffer.reset()
        else:
            with contextlib.suppress(Exception):
                event.app.output.bell()

    @keys.add("escape", "enter", filter=~is_asked)
    @keys.add("c-j", filter=~is_asked)
    def newline(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    return keys


def _history() -> History:
    """What was typed before, in a file that only its owner reads; in memory where there can be none."""
    folder: Path = data_home()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / "chat_history"
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()
    return FileHistory(str(path))
