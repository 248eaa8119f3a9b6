"""``ctx.llm``: a model for a plugin's own questions, with the user's settings and at the user's cost.

It is the model that writes summaries (``auxiliary.compression``), else the conversation's own. It is connected with the
first question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everlong.plugins.adapters.host_state import Host
from everlong.plugins.adapters.llm import Wish, model_for
from everlong.plugins.running import time_of_others

if TYPE_CHECKING:
    from everlong.model import Message
    from everlong.providers.auxiliary import AskModel
    from everlong.providers.base import CallOptions

__all__ = ["LlmAnswer", "PluginModel"]

_MOST_TOKENS = 2_048


@dataclass(frozen=True)
class LlmAnswer:
    """The model's answer; `str` gives its text."""

    text: str
    model: str
    usage: Mapping[str, int] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The text, by the name that other hosts use."""
        return self.text

    def __str__(self) -> str:
        return self.text


class PluginModel:
    """The auxiliary model, for plugins.

    Args:
        host: knows the settings and the conversation's own model.
        ask: asks a model, for whoever counts such calls.
    """

    def __init__(self, host: Host, ask: AskModel | None = None) -> None:
        self._host = host
        self._ask = ask

    def complete(
        self,
        messages: str | Sequence[Message],
        *,
        system: str | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> LlmAnswer:
        """Return the model's answer to a text or to messages.

        Args:
            messages: a text, or messages in the OpenAI format.
            system: a system prompt, in front of them.
            max_tokens: the most tokens of the answer.
            options: options of other hosts; ``temperature`` goes to the API, the rest is ignored.

        Raises:
            PluginError: no model is set up.
            ConfigError: the settings name a model that cannot be found.
            ProviderError: the model gave no answer.
        """
        said: list[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        if system is not None:
            said.insert(0, {"role": "system", "content": system})
        call: CallOptions = {"max_tokens": max_tokens or _MOST_TOKENS}
        if options.get("temperature") is not None:
            call["options"] = {"temperature": options["temperature"]}
        connection = model_for(self._host, Wish())
        with time_of_others():
            reply = self._ask(connection, said, call) if self._ask is not None else connection.complete(said, **call)
        return LlmAnswer(reply.text, str(connection.model_name), reply.usage.to_dict())
