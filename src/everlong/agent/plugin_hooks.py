"""Plugins in an agent: their tools for its model, and their hooks around its loop.

Nothing that a plugin does here can break a turn. `everlong.plugins` takes in what plugins register.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.agent.conversation import Prompt, prompt_parts, prompt_text
from everlong.agent.events import AgentEvent, CompactionFinished, CompactionStarted, SessionStarted, TurnFinished
from everlong.agent.tools.tool import Tool, tool
from everlong.agent.tools.toolbox import ToolResult, read_arguments
from everlong.errors import ConfigError, ToolError
from everlong.model import added_parts, text_of
from everlong.plugins.checking import copy_for_plugin, wanted_arguments
from everlong.plugins.hooks import Hooks, run_awaitable

if TYPE_CHECKING:
    from everlong.model import Message, ToolCall
    from everlong.plugins.context import ToolOffer
    from everlong.providers.base import Reply

__all__ = ["PluginHooks", "heard_by", "plugin_tools"]

PLATFORM = "cli"
"""The platform that hooks are told."""


# -- tools -------------------------------------------------------------------------------------------------------------


def plugin_tools(offers: Iterable[ToolOffer], session_id: Callable[[], str], warn: Callable[[str], None]) -> list[Tool]:
    """Return the tools that plugins offer, as far as they are available and can be used."""
    made = []
    for offer in offers:
        try:
            if offer.is_available is not None and not offer.is_available():
                continue
            made.append(_tool_of(offer, session_id))
        except (Exception, SystemExit) as error:  # noqa: BLE001 - foreign code; warned about, and the agent goes on
            said = str(error) if isinstance(error, ConfigError) else f"{type(error).__name__}: {error}"
            warn(f"plugin {offer.plugin!r}: its tool {offer.name} is left out: {said}")
    return made


def _tool_of(offer: ToolOffer, session_id: Callable[[], str]) -> Tool:
    if isinstance(offer.function, Tool):
        return offer.function
    if offer.function is not None:
        return tool(offer.function, effect=offer.effect)
    assert offer.handler is not None  # noqa: S101 - what is no function has a handler
    return Tool.from_schema(offer.schema, partial(_handle, offer.handler, session_id), offer.effect)


def _handle(handler: Callable[..., Any], session_id: Callable[[], str], name: str, args: dict[str, Any]) -> Any:
    """Call a handler as other hosts do: with the arguments as one mapping, and the session's facts that it takes."""
    del name
    facts = {"session_id": session_id(), "task_id": session_id()}
    answer = handler(args, **wanted_arguments(handler, facts))
    return run_awaitable(answer) if inspect.isawaitable(answer) else answer


# -- hooks -------------------------------------------------------------------------------------------------------------


def heard_by(hooks: Hooks, listen: Callable[[AgentEvent], None]) -> Callable[[AgentEvent], None]:
    """Return a listener that fires the hooks of sessions and compactions, and passes every event on."""

    def hear(event: AgentEvent) -> None:
        if isinstance(event, CompactionStarted):
            hooks.fire("pre_compress", reason=event.reason, tokens=event.tokens)
        listen(event)
        if isinstance(event, SessionStarted):
            facts = {"session_id": event.session_id, "model": event.model, "is_resumed": event.is_resumed}
            hooks.fire("on_session_start", **facts, platform=PLATFORM)
        elif isinstance(event, CompactionFinished):
            hooks.fire(
                "post_compress",
                reason=event.reason,
                outcome=event.outcome,
                session_id=event.session_id,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
            )

    return hear


class PluginHooks:
    """The hooks of plugins, fired around the verbs of a loop; ``facts`` returns what each is told of the session."""

    def __init__(self, hooks: Hooks, facts: Callable[[], dict[str, Any]]) -> None:
        self._hooks = hooks
        self._facts = facts

    def before_prompt(self, prompt: Prompt, messages: Sequence[Message]) -> Prompt:
        """Return the prompt with the context that hooks add to it."""
        if "pre_llm_call" not in self._hooks:
            return prompt
        history = copy_for_plugin(messages)
        is_first = not any(message.get("role") == "user" for message in history)
        facts = {"conversation_history": history, "is_first_turn": is_first}
        answers = self._fire("pre_llm_call", user_message=prompt_text(prompt), **facts)
        # Some hooks say the same every time; once is enough for as long as the model can still read it.
        there = [f"\n{text_of(message)}\n" for message in messages]
        texts = dict.fromkeys(map(_context_of, answers))
        new = [text for text in texts if text and not any(f"\n{text}\n" in one for one in there)]
        return [*prompt_parts(prompt), *(part for text in new for part in added_parts(text))] if new else prompt

    def after_prompt(self, prompt: Prompt | None, finished: TurnFinished, messages: Sequence[Message]) -> None:
        """Tell hooks the answer."""
        if "post_llm_call" in self._hooks:
            said = "" if prompt is None else prompt_text(prompt)
            history = copy_for_plugin(messages)
            facts = {"assistant_response": finished.text, "conversation_history": history}
            self._fire("post_llm_call", user_message=said, **facts)

    def before_request(self, messages: Sequence[Message], answer_tokens: int) -> None:
        """Show hooks the messages that are about to be sent."""
        if "pre_api_request" in self._hooks:
            history = copy_for_plugin(messages)
            self._fire("pre_api_request", messages=history, max_tokens=answer_tokens)

    def after_request(self, reply: Reply) -> None:
        """Tell hooks the model's answer and what it used."""
        if "post_api_request" in self._hooks:
            usage = reply.usage.to_dict()
            self._fire("post_api_request", text=reply.text, usage=usage, finish_reason=reply.stop)

    def before_call(self, call: ToolCall) -> ToolResult | None:
        """Return a refusal where a hook blocks the call."""
        if "pre_tool_call" not in self._hooks:
            return None
        for answer in self._fire("pre_tool_call", **_facts_of(call)):
            if isinstance(answer, Mapping) and answer.get("action") == "block":
                reason = str(answer.get("message") or "a plugin stopped it")
                text = f"Not allowed, so nothing was done: {reason}"
                message: Message = {"role": "tool", "tool_call_id": call.id, "content": text, "is_error": True}
                return ToolResult(message, text, "refused", None, 0.0)
        return None

    def after_call(self, call: ToolCall, result: ToolResult) -> None:
        """Tell hooks the result of a call."""
        if "post_tool_call" in self._hooks:
            facts = {"result": result.text, "outcome": result.outcome, "duration_ms": int(1_000 * result.seconds)}
            self._fire("post_tool_call", **_facts_of(call), **facts)

    def _fire(self, event: str, **facts: Any) -> list[Any]:
        return self._hooks.fire(event, **self._facts(), platform=PLATFORM, **facts)


def _facts_of(call: ToolCall) -> dict[str, Any]:
    try:
        args = read_arguments(call)
    except ToolError:  # the toolbox tells the model
        args = {}
    return {"tool_name": call.name, "tool_call_id": call.id, "args": args}


def _context_of(answer: Any) -> str:
    """Return the text that a hook wants to add."""
    given = answer.get("context") if isinstance(answer, Mapping) else answer
    return given if isinstance(given, str) else ""
