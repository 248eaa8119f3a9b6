"""The thread in which a chat works: it opens the agent, then runs prompts and commands one after the other.

The user can type meanwhile; what they send waits its turn. The worker knows no terminal.
"""

from __future__ import annotations

import os
import queue
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import everlong.agent
from everlong import config
from everlong.agent.approval import ApprovalRefused, approve_everything, refuse_everything
from everlong.agent.commands.registry import Registry
from everlong.agent.watch import Interrupted
from everlong.cli.chat.commands import ChatDesk
from everlong.cli.chat.state import STARTING, ChatState, Question
from everlong.cli.chosen_store import newest_to_resume, open_chosen_store
from everlong.cli.local import local_model, open_agent
from everlong.errors import AuthenticationFailed, ConfigError, EverlongError

if TYPE_CHECKING:
    import click

    from everlong.agent import Agent, AgentOptions, ApprovalRequest, Decision
    from everlong.agent.approval import Approver
    from everlong.cli.chat.show import Show

_BROKEN = "[The program failed while this was running; whether it was done is not known. Check before doing it again.]"
_LOCAL = "  or use a server of your own, without a key: everlong chat -m MODEL --base-url http://localhost:8080/v1"
_AT_ONCE = {"/history", "/search", "/context"}
"""Commands that answer while the model works."""
_LOOK_SECONDS = 15.0
"""Seconds between looks, while the chat waits, at whether the provider still caches the conversation."""
_LEAVE_SECONDS = 1.0
"""Seconds to wait for work that the user leaves."""


def _is_command(text: str) -> bool:
    """Return whether a text is a slash command; a path, as a terminal pastes it, has another slash."""
    return text.startswith("/") and "/" not in text.split(maxsplit=1)[0][1:]


class _SentPrompt(NamedTuple):
    text: str
    has_waited: bool


class ChatWorker:
    """The thread that does what the user sends, in order.

    Args:
        state: The state of the chat, shared with the thread that draws.
        make_show: Returns the `Show` that prints events; called in the worker's own thread.
        open_desk: Opens settings, store and agent, to be closed with the stack; called in the same thread.
    """

    def __init__(
        self,
        state: ChatState,
        make_show: Callable[[], Show],
        open_desk: Callable[[ChatWorker, Show, ExitStack], ChatDesk],
    ) -> None:
        self.state = state
        self._make_show = make_show
        self._open_desk = open_desk
        self._sent: queue.Queue[_SentPrompt | None] = queue.Queue()
        self._thread = threading.Thread(target=self._work, name="everlong-chat", daemon=True)
        self._show: Show
        self._desk: ChatDesk | None = None
        self.could_not_begin = False
        self.failures = 0
        """The number of prompts and commands that failed."""

    def start(self) -> None:
        """Start the thread, which opens the agent and waits for work."""
        self._thread.start()

    def send(self, text: str) -> None:
        """Queue a prompt or a command; ``quit`` and ``exit`` alone are commands, as in other programs."""
        if text.strip() in {"quit", "exit"}:
            text = "/quit"
        self.state.hint = ""
        desk = self._desk
        if desk is not None and self.state.busy and text.split(maxsplit=1)[0] in _AT_ONCE:
            threading.Thread(target=self._look, args=(desk, text), name="everlong-look", daemon=True).start()
        else:
            self._sent.put(_SentPrompt(text, bool(self.state.busy)))

    def _look(self, desk: ChatDesk, text: str) -> None:
        """Run a command that only looks, beside the work under way."""
        self._show.quiet(f"» {text}")
        try:
            desk.run(text)
        except (EverlongError, OSError) as error:
            self._show.line(f"✗ {error}", "red")

    @property
    def waiting(self) -> int:
        """The number of prompts and commands that wait their turn."""
        return self._sent.qsize()

    @property
    def is_done(self) -> bool:
        """True if everything that was sent is done."""
        return not self._sent.unfinished_tasks

    def interrupt(self) -> list[str] | None:
        """Stop the work under way and return what waits, unsent again; None if there is no work."""
        if not self.state.busy:
            return None
        unsent: list[str] = []
        while not self._sent.empty():
            sent = self._sent.get_nowait()
            self._sent.task_done()
            unsent += [] if sent is None else [sent.text]
        if self.state.agent is not None:
            self.state.agent.interrupt()
        if self.state.question is not None:
            self.state.question.is_answered.set()
        return unsent

    def end(self) -> None:
        """Finish what was sent, then stop the thread; the session can be resumed."""
        self._sent.put(None)
        if self._thread.is_alive():
            # Nothing was said during the start, so nobody need wait for a server that does not answer.
            self._thread.join(_LEAVE_SECONDS if self.state.busy == STARTING else None)

    def leave(self) -> bool:
        """Stop the work under way and the thread; return False if it is still at something that cannot be stopped."""
        self.interrupt()
        self._sent.put(None)
        if self._thread.is_alive():
            self._thread.join(_LEAVE_SECONDS)
        return not self._thread.is_alive()

    # -- in the thread -------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        with ExitStack() as opened:
            desk = self._start_up(opened)
            self.state.set_busy("")
            if desk is not None:
                self._desk = desk
                self._warm_up(desk)
            while (sent := self._next(desk)) is not None:
                try:
                    if desk is not None:
                        self._do(desk, sent)
                finally:
                    self._sent.task_done()
                    self.state.set_busy("")

    def _start_up(self, opened: ExitStack) -> ChatDesk | None:
        self._show = self._make_show()
        try:
            desk = self._open_desk(self, self._show, opened)
        except (EverlongError, OSError) as error:
            self._show.error(str(error))
            if isinstance(error, AuthenticationFailed) or (
                isinstance(error, ConfigError) and error.key == "agent.model"
            ):
                self._show.quiet(_LOCAL)
        except Exception as error:  # noqa: BLE001 - a bug must not leave a chat that never starts
            self._report_bug(error)
        else:
            return desk
        self.could_not_begin = self.state.is_over = True
        return None

    def _warm_up(self, desk: ChatDesk) -> None:
        """Do what can wait until the user may type: count the conversation, load the model's client."""
        self.state.refresh()
        if self._sent.empty():
            desk.agent.connection.load()

    def _next(self, desk: ChatDesk | None) -> _SentPrompt | None:
        """Wait for the next thing that is sent, and show how the cache cools meanwhile."""
        while True:
            try:
                return self._sent.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                if desk is not None and self.state.agent is not None:
                    self.state.refresh()

    def _do(self, desk: ChatDesk, sent: _SentPrompt) -> None:
        self.state.set_busy("working")
        if sent.has_waited:  # other answers were printed since it was typed
            self._show.earlier_prompt(sent.text)
        try:
            if _is_command(sent.text):
                desk.run(sent.text)
            else:
                desk.agent.run(desk.prompt(sent.text))
        except (EverlongError, OSError) as error:
            self.failures += 1
            self._show.error(str(error))
        except Interrupted:
            self._show.note("stopped; nothing was changed")
        except Exception as error:  # noqa: BLE001 - a bug must not cost the user their terminal or their conversation
            self._report_bug(error)
            if self.state.agent is not None:
                self.state.agent.conversation.answer_what_is_open(_BROKEN)
        self.state.refresh()

    def _report_bug(self, error: Exception) -> None:
        self.failures += 1
        if os.environ.get("EVERLONG_DEBUG"):
            self._show.line("".join(traceback.format_exception(error)))
        said = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        self._show.error(f"this is a bug in Everlong; the conversation is kept: {said} (everlong --debug shows more)")

    def approve(self, request: ApprovalRequest) -> Decision:
        """Ask the user about a tool call, and wait for the decision."""
        self._show.request(request)
        before, self.state.busy = self.state.busy, "waiting for you"
        self.state.question = question = Question(request)
        self.state.changed()
        try:
            question.is_answered.wait()
        finally:
            self.state.question = None
            self.state.set_busy(before)
        if question.answer is None:
            raise Interrupted
        if question.answer == "no":
            raise ApprovalRefused(f"the user said no, and: {question.instead}" if question.instead else "")
        return question.answer


def _banner(agent: Agent) -> list[str]:
    """Return the first lines of a chat: model, window, folder, caching, sandbox, and how to learn more."""
    context = agent.tools.context
    root = str(context.workspace.root).replace(str(Path.home()), "~", 1)
    confined, window = context.confinement.describe().partition(":")[0], agent.engine.context_length
    return [
        f"Everlong {everlong.__version__} · {agent.asker.model} · window {window:,} tokens · {root}",
        agent.caching_line,
        f"commands run {confined} · /help lists what you can type",
    ]


class Opening:
    """Opens settings, store and agent as the command line says.

    Args:
        context: The command's context, which knows the chosen store.
        given: The options.
        state: The state of the chat.
        registry: The slash commands.
        asks: True if there is somebody to ask.
    """

    def __init__(
        self, context: click.Context, given: dict[str, Any], state: ChatState, registry: Registry, *, asks: bool
    ) -> None:
        self._context = context
        self._given = given
        self._state = state
        self._registry = registry
        self._asks = asks

    def desk(self, worker: ChatWorker, show: Show, opened: ExitStack) -> ChatDesk:
        """Open everything, to be closed with the stack."""
        loaded = config.load_settings()
        for notice in loaded.notices:
            show.note(notice)
        settings = loaded.settings
        local = opened.enter_context(local_model(self._given, settings))
        with self._context.scope(cleanup=False):
            store = opened.enter_context(open_chosen_store(new=True))
        approver = self._choose_approver(worker)

        def open_on(resume: str | None) -> Agent:
            agent = open_agent(self._given, settings, self._make_options(approver, resume), store, show, local)
            agent.tools.context.heard = show.output
            return agent

        self._state.agent = agent = open_on(
            newest_to_resume(store, Path.cwd()) if self._given["goes_on"] else self._given["resume"]
        )
        opened.callback(self._close)
        for line in _banner(agent):
            show.quiet(line)
        if agent.conversation.branch is not None:
            show.last_exchange(agent.conversation)
        return ChatDesk(self._state, show, settings, self._registry, open_agent=open_on)

    def _close(self) -> None:
        if self._state.agent is not None:  # /resume may have replaced it
            self._state.agent.close()

    def _choose_approver(self, worker: ChatWorker) -> Approver:
        if self._given["yes"]:
            return approve_everything
        return worker.approve if self._asks else refuse_everything("there is no terminal to ask; say --yes")

    def _make_options(self, approver: Approver, resume: str | None) -> AgentOptions:
        return everlong.agent.AgentOptions(
            root=Path.cwd(),
            allowed=self._given["allow"],
            approver=approver,
            resume=resume,
            title=self._given["title"] if resume is None else None,
        )
