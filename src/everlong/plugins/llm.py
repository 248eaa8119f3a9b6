"""``ctx.llm``: a model for a plugin's own questions, under the user's settings and at the user's cost.

It is the model that writes summaries (``auxiliary.compression``), else the conversation's own. Nothing is connected
before the first question.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from everlong.errors import ConfigError

if TYPE_CHECKING:
    from everlong.config import Settings
    from everlong.model import Message
    from everlong.providers.auxiliary import AskModel
    from everlong.providers.connection import Connection

__all__ = ["Answer", "PluginModel"]


@dataclass(frozen=True)
class Answer:
    """What the model said; as text, just its words."""

    text: str
    model: str
    usage: Mapping[str, int] = field(default_factory=dict)

    @property
    def content(self) -> str:
        """The words, under the name that other hosts have for them."""
        return self.text

    def __str__(self) -> str:
        return self.text


class PluginModel:
    """Asks the auxiliary model.

    Args:
        settings: the configuration.
        main: tells the conversation's own model; None where there is none.
        ask: how a model is asked, for whoever counts or watches calls.
    """

    def __init__(
        self, settings: Settings, main: Callable[[], Connection | None] = lambda: None, ask: AskModel | None = None
    ) -> None:
        self._settings = settings
        self.main = main
        self.ask = ask
        self._picked: Connection | None = None
        self._has_picked = False

    def complete(
        self,
        messages: str | Sequence[Message],
        *,
        system: str | None = None,
        max_tokens: int | None = None,
        **options: Any,
    ) -> Answer:
        """The model's answer to a text or to messages.

        Args:
            messages: a text, or messages in the OpenAI format.
            system: a system prompt, in front of them.
            max_tokens: the most tokens of the answer.
            options: what other hosts take; ``temperature`` goes to the API, the rest is ignored.

        Raises:
            ConfigError: no model is set up.
            ProviderError: the model gave no answer.
        """
        from everlong.providers.base import CallOptions  # noqa: PLC0415 - loaded when a plugin first asks

        said: list[Message] = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        if system is not None:
            said.insert(0, {"role": "system", "content": system})
        call: CallOptions = {"max_tokens": max_tokens or 2_048}
        if options.get("temperature") is not None:
            call["options"] = {"temperature": options["temperature"]}
        connection = self._connection()
        reply = self.ask(connection, said, call) if self.ask is not None else connection.complete(said, **call)
        return Answer(reply.text, str(connection.model_name), reply.usage.to_dict())

    def close(self) -> None:
        """Let go of the connection, if it is one of its own."""
        if self._picked is not None:
            self._picked.close()
            self._picked, self._has_picked = None, False

    def _connection(self) -> Connection:
        from everlong.providers.auxiliary import auxiliary_connection  # noqa: PLC0415 - as above

        main = self.main()
        if not self._has_picked:
            self._picked = auxiliary_connection(self._settings, main)
            self._has_picked = True
        connection = self._picked or main
        if connection is None:
            raise ConfigError(
                "there is no model for the plugin to ask: set auxiliary.compression.model or agent.model",
                key="auxiliary.compression.model",
            )
        return connection
