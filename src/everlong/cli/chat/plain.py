"""The chat line by line, for pipes, screen readers and dumb terminals: every line is a prompt or a command."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from everlong.cli.chat.state import STARTING

if TYPE_CHECKING:
    from everlong.agent import Decision
    from everlong.cli.chat.state import ChatState, Question
    from everlong.cli.chat.worker import Worker

__all__ = ["talk_plainly"]

_ANSWERS: dict[str, Decision] = {"y": "once", "a": "session", "n": "no", "yes": "once", "always": "session", "no": "no"}


class _LineTalk:
    """Reads lines and waits for what becomes of them."""

    def __init__(self, state: ChatState, worker: Worker) -> None:
        self._state = state
        self._worker = worker
        self._is_asked = sys.stdin.isatty()
        self._changed = threading.Event()
        state.changed = self._changed.set

    def talk(self) -> None:
        """Send every line, and wait until it is done."""
        self._worker.start()
        self._until(lambda: self._state.busy != STARTING)
        while not self._state.is_over:
            try:
                line = self._line("> ")
            except KeyboardInterrupt:
                if not self._is_asked:
                    raise
                sys.stdout.write("\n")  # as a shell does: the line is thrown away
                continue
            if line is None:
                return
            if line.strip():
                self._worker.send(line)
                self._done()

    def _line(self, prompt: str) -> str | None:
        """The next line; None at the end."""
        if self._is_asked:
            sys.stdout.write(prompt)
            sys.stdout.flush()
        line = sys.stdin.readline()
        if not line and self._is_asked:
            sys.stdout.write("\n")
        return line.rstrip("\r\n") if line else None

    def _done(self) -> None:
        """Wait until all that was sent is done; Ctrl-C stops it, and ends a pipe."""
        try:
            self._until(lambda: self._worker.is_done)
        except KeyboardInterrupt:
            self._worker.interrupt()
            self._until(lambda: self._worker.is_done)
            if not self._is_asked:
                raise

    def _until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self._changed.wait(1.0)
            self._changed.clear()
            question = self._state.question
            if question is not None and not question.is_answered.is_set():
                self._ask(question)

    def _ask(self, question: Question) -> None:
        from everlong.agent.approval import forget_typed  # noqa: PLC0415 - loaded by then

        answer: Decision | None = None
        forget_typed(sys.stdin)
        while answer is None:
            line = self._line("allow? [y]es, [a]lways in this session, [n]o: ")
            answer = "no" if line is None else _ANSWERS.get(line.strip().lower())
        question.decide(answer)


def talk_plainly(state: ChatState, worker: Worker) -> None:
    """Chat line by line until there are no more lines."""
    _LineTalk(state, worker).talk()
