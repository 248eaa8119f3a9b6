"""The opening of a chat: settings, store and agent.

The worker calls it after the prompt is on the screen, because it loads everything heavy.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import everlong.agent
from everlong import config
from everlong.agent.approval import approve_everything, refuse_everything
from everlong.cli.chat.commands import ChatDesk, Registry, register_plugin_commands
from everlong.cli.chat.themes import choose_theme
from everlong.cli.chosen_store import newest_to_resume, open_chosen_store
from everlong.cli.local import local_model, open_agent

if TYPE_CHECKING:
    import click

    from everlong.agent import Agent, AgentOptions
    from everlong.agent.approval import Approver
    from everlong.cli.chat.show import Show
    from everlong.cli.chat.state import ChatState
    from everlong.cli.chat.worker import ChatWorker
    from everlong.store import Store

__all__ = ["Opening"]


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
        show.use_theme(choose_theme(os.environ))
        local = opened.enter_context(local_model(self._given, settings))
        with self._context.scope(cleanup=False):
            store = opened.enter_context(open_chosen_store(new=True))
        approver = self._choose_approver(worker)

        def open_on(resume: str | None) -> Agent:
            agent = open_agent(self._given, settings, self._make_options(approver, resume), store, show, local)
            agent.tools.context.heard = show.output
            register_plugin_commands(self._registry, agent.plugins.registered.commands.values(), show.note)
            return agent

        self._state.agent = agent = open_on(self._find_resumed(store, show))
        opened.callback(self._close)
        for line in _banner(agent):
            show.quiet(line)
        if agent.conversation.branch is not None:
            show.last_exchange(agent.conversation)
        return ChatDesk(self._state, show, settings, self._registry, open_agent=open_on)

    def _close(self) -> None:
        if self._state.agent is not None:  # /resume may have replaced it
            self._state.agent.close()

    def _find_resumed(self, store: Store, show: Show) -> str | None:
        """Return the id of the conversation to continue; None for a new one."""
        name: str | None = self._given["resume"]
        if not self._given["goes_on"]:
            return name
        newest, instead = newest_to_resume(store, Path.cwd(), "everlong chat")
        if newest is None:
            show.quiet(f"{instead}; this is a new one")
        return newest

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
