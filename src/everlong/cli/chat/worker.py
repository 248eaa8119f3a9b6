"""The thread in which a chat works: opens the agent, runs prompts and commands one after the other.

The user can go on typing meanwhile; what they send waits its turn. Knows the agent and what to show, no terminal.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from everlong.agent.approval import ApprovalRefused
from everlong.agent.watch import Interrupted
from everlong.cli.chat.state import ChatState, Question
from everlong.errors import EverlongError

if TYPE_CHECKING:
    from everlong.agent import Agent, ApprovalRequest, Decision
    from everlong.cli.chat.show import Show

__all__ = ["Worker"]

_END = object()
_REST = object()


class Worker:
    """Does what the user sends, in order.

    Args:
        state: what is going on, shared with whoever draws.
        show: shows what happens.
        open_agent: makes the agent; called in the worker's own thread.
        command: runs a slash command.
    """

    def __init__(
        self,
        state: ChatState,
        show: Show,
        open_agent: Callable[[], Agent],
        command: Callable[[str], None],
    ) -> None:
        self.state = state
        self._show = show
        self._open_agent = open_agent
        self._command = command
        self._sent: queue.Queue[object] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="everlong-chat", daemon=True)
        self.failed = False
        """Whether the agent could not be opened."""

    def start(self) -> None:
        """Open the agent and wait for work."""
        self._thread.start()

    def send(self, text: str) -> None:
        """Have a prompt or a command done as soon as what was sent before is."""
        self._sent.put((text, bool(self.state.busy)))

    @property
    def waiting(self) -> int:
        """How much was sent and has not begun yet."""
        return self._sent.qsize()

    def interrupt(self) -> bool:
        """Stop what is under way, and forget what waits; False where nothing is."""
        if not self.state.busy:
            return False
        while not self._sent.empty():
            self._sent.get_nowait()
            self._sent.task_done()
        if self.state.agent is not None:
            self.state.agent.interrupt()
        if self.state.question is not None:
            self.state.question.is_answered.set()
        return True

    def rest(self) -> None:
        """Use the pause, where it is time to."""
        due = self.state.rest_at
        if due is not None and not self.state.busy and time.monotonic() >= due:
            self.state.rest_at = None
            self._sent.put(_REST)

    def wait(self) -> None:
        """Wait until everything that was sent is done."""
        self._sent.join()

    def end(self) -> None:
        """Do what was sent, then stop; the session can be resumed."""
        self._sent.put(_END)
        self._thread.join()

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        self.state.doing("starting")
        try:
            self.state.agent = self._open_agent()
        except (EverlongError, OSError) as error:
            self.failed = True
            self._show.error(str(error))
            self.state.is_over = True
        self.state.doing("")
        while True:
            sent = self._sent.get()
            try:
                if sent is _END:
                    return
                if sent is _REST:
                    self._rest()
                elif not self.failed and isinstance(sent, tuple):
                    self._do(*sent)
            finally:
                self._sent.task_done()
                self.state.doing("")

    def _rest(self) -> None:
        if self.state.agent is None:
            return
        now = time.monotonic()
        try:
            wait = self.state.agent.rest(now - self.state.last_used)
        except (EverlongError, Interrupted) as error:
            self._show.note(f"the pause could not be used: {error}")
            return
        self.state.rest_at = None if wait is None else now + wait

    def _do(self, text: str, has_waited: bool) -> None:
        self.state.doing("working")
        if has_waited:  # what was answered meanwhile stands between it and its own answer
            self._show.line(f"» {text}", "dim")
        try:
            if text.startswith("/"):
                self._command(text)
            elif self.state.agent is not None:
                self.state.agent.run(text)
                self.state.last_used = self.state.rest_at = time.monotonic()
        except (EverlongError, OSError) as error:
            self._show.error(str(error))
        except Interrupted:
            self._show.note("stopped; nothing was changed")

    def approve(self, request: ApprovalRequest) -> Decision:
        """Put a call to the user and wait for their decision."""
        question = Question(request)
        self._show.request(request)
        self.state.question = question
        before, self.state.busy = self.state.busy, "waiting for you"
        self.state.changed()
        try:
            question.is_answered.wait()
        finally:
            self.state.question = None
            self.state.doing(before)
        if question.answer is None:
            raise Interrupted
        if question.answer == "no":
            raise ApprovalRefused
        return question.answer
