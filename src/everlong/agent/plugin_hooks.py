"""What plugins add to an agent: tools for its model, and hooks that hear what happens.

Turns what plugins registered into what the loop works with. Nothing that a plugin does here can break a turn; what it
registers is the business of `everlong.plugins`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from everlong.agent.events import AgentEvent, CompactionFinished, CompactionStarted, SessionStarted, TurnFinished
from everlong.agent.loop import Loop
from everlong.agent.tools.signature import tool
from everlong.agent.tools.tool import Tool
from everlong.agent.tools.toolbox import ToolResult, read_arguments
from everlong.errors import ConfigError, ToolError
from everlong.model import text_of
from everlong.plugins.checking import given_list
from everlong.plugins.hooks import Hooks, awaited

if TYPE_CHECKING:
    from everlong.model import Message, ToolCall
    from everlong.plugins.context import ToolOffer
    from everlong.providers.base import Reply

__all__ = ["PluggedLoop", "heard_by", "plugin_tools", "without_clashes"]

_PLATFORM = "cli"


# -- tools -------------------------------------------------------------------------------------------------------------


def plugin_tools(offers: Iterable[ToolOffer], session_id: Callable[[], str], warn: Callable[[str], None]) -> list[Tool]:
    """The tools that plugins offer, as far as they are available and can be used."""
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


def without_clashes(tools: Iterable[Tool], taken: Iterable[Tool], warn: Callable[[str], None]) -> list[Tool]:
    """Those tools whose names nobody has yet; the others are warned about."""
    names = {one.name for one in taken}
    kept = []
    for one in tools:
        if one.name in names:
            warn(f"a tool {one.name!r} is there already; the one of the same name that a plugin brings is left out")
        else:
            names.add(one.name)
            kept.append(one)
    return kept


def _tool_of(offer: ToolOffer, session_id: Callable[[], str]) -> Tool:
    if isinstance(offer.function, Tool):
        return offer.function
    if offer.function is not None:
        return tool(offer.function, effect=offer.effect)
    assert offer.handler is not None  # noqa: S101 - what is no function has a handler
    return Tool.from_schema(offer.schema, partial(_handled, offer.handler, session_id), offer.effect)


def _handled(handler: Callable[..., Any], session_id: Callable[[], str], name: str, args: dict[str, Any]) -> Any:
    """Call a handler as other hosts do: the arguments as one mapping, and what it takes of the surroundings."""
    del name
    facts = {"session_id": session_id(), "task_id": session_id()}
    parameters = inspect.signature(handler).parameters.values()
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)
    known = {one.name for one in parameters}
    answer = handler(args, **{key: value for key, value in facts.items() if takes_all or key in known})
    return awaited(answer) if inspect.isawaitable(answer) else answer


# -- hooks -------------------------------------------------------------------------------------------------------------


def heard_by(hooks: Hooks, listen: Callable[[AgentEvent], None]) -> Callable[[AgentEvent], None]:
    """A listener that also fires the hooks of what it hears."""

    def hear(event: AgentEvent) -> None:
        if isinstance(event, CompactionStarted):
            hooks.fire("pre_compress", reason=event.reason, tokens=event.tokens)
        listen(event)
        if isinstance(event, SessionStarted):
            facts = {"session_id": event.session_id, "model": event.model, "is_resumed": event.is_resumed}
            hooks.fire("on_session_start", **facts, platform=_PLATFORM)
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


class PluggedLoop(Loop):
    """The loop with hooks around its verbs."""

    hooks: Hooks = Hooks()
    """The hooks of all plugins; set by `open_agent`."""

    def run(self, prompt: str | Sequence[Mapping[str, Any]] | None = None) -> TurnFinished:
        """Work on a prompt; hooks may add to it, and hear what came of it. See `Loop.run`."""
        said = ""
        if prompt is not None:
            said = text_of({"role": "user", "content": prompt if isinstance(prompt, str) else list(prompt)})
            prompt = self._with_context(prompt, said)
        finished = super().run(prompt)
        if "post_llm_call" in self.hooks:
            history = self._history()
            self._fire(
                "post_llm_call", user_message=said, assistant_response=finished.text, conversation_history=history
            )
        return finished

    def _with_context(self, prompt: str | Sequence[Mapping[str, Any]], said: str) -> str | Sequence[Mapping[str, Any]]:
        """The prompt with what hooks have to add to it."""
        if "pre_llm_call" not in self.hooks:
            return prompt
        history = self._history()
        is_first = not any(message.get("role") == "user" for message in history)
        facts = {"user_message": said, "conversation_history": history, "is_first_turn": is_first}
        texts = [_context_of(answer) for answer in self._fire("pre_llm_call", **facts)]
        # Some say the same every time; once is enough for as long as the model can still read it.
        there = [f"\n{text_of(message)}\n" for message in self.conversation.messages]
        new = [text for text in dict.fromkeys(texts) if text and not any(f"\n{text}\n" in one for one in there)]
        if not new:
            return prompt
        parts = [{"type": "text", "text": prompt}] if isinstance(prompt, str) else list(prompt)
        return [*parts, *({"type": "text", "text": text} for text in new)]

    def _asked(self, answer_tokens: int) -> Reply:
        if "pre_api_request" in self.hooks:
            self._fire("pre_api_request", messages=self._history(), max_tokens=answer_tokens)
        reply = super()._asked(answer_tokens)
        if "post_api_request" in self.hooks:
            self._fire("post_api_request", text=reply.text, usage=reply.usage.to_dict(), finish_reason=reply.stop)
        return reply

    def _called(self, call: ToolCall) -> ToolResult:
        if not ("pre_tool_call" in self.hooks or "post_tool_call" in self.hooks):
            return super()._called(call)
        try:
            args = read_arguments(call)
        except ToolError:  # the model is told by the toolbox
            args = {}
        facts = {"tool_name": call.name, "tool_call_id": call.id}
        for answer in self._fire("pre_tool_call", **facts, args=copy.deepcopy(args)):
            if isinstance(answer, Mapping) and answer.get("action") == "block":
                reason = str(answer.get("message") or "a plugin stopped it")
                text = f"Not allowed, so nothing was done: {reason}"
                message: Message = {"role": "tool", "tool_call_id": call.id, "content": text, "is_error": True}
                return ToolResult(message, text, "refused", None, 0.0)
        result = super()._called(call)
        self._fire(
            "post_tool_call",
            **facts,
            args=copy.deepcopy(args),
            result=result.text,
            outcome=result.outcome,
            duration_ms=int(1_000 * result.seconds),
        )
        return result

    def _fire(self, event: str, **facts: Any) -> list[Any]:
        about = {"session_id": self.conversation.session_id, "model": self.asker.model, "platform": _PLATFORM}
        return self.hooks.fire(event, **about, **facts)

    def _history(self) -> list[Message]:
        return given_list(self.conversation.messages)


def _context_of(answer: Any) -> str:
    """The text that a hook wants to add."""
    given = answer.get("context") if isinstance(answer, Mapping) else answer
    return given if isinstance(given, str) else ""
