"""The built-in compressor, with the constructor that engines know from another host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from everlong.context import ContextCompressor as _ContextCompressor
from everlong.context.invariants import repair_all
from everlong.context.literals import CLEARED_RESULT, SUMMARY_PREFIX, is_summary
from everlong.model import SUMMARY_STARTS, Message
from everlong.plugins.adapters.host.agent.auxiliary_client import call_llm
from everlong.plugins.adapters.host.agent.model_metadata import (
    estimate_messages_tokens_rough,
    get_model_context_length,
)

__all__ = [
    "LEGACY_SUMMARY_PREFIX",
    "SUMMARY_PREFIX",
    "ContextCompressor",
    "call_llm",
    "estimate_messages_tokens_rough",
    "get_model_context_length",
    "resolve_model_threshold",
]

LEGACY_SUMMARY_PREFIX = SUMMARY_STARTS[-1]
_PRUNED_TOOL_PLACEHOLDER = CLEARED_RESULT


class ContextCompressor(_ContextCompressor):
    """Everlong's compressor, with its own arguments and those of another host."""

    def __init__(  # noqa: PLR0913 - the arguments that engines pass elsewhere
        self,
        model: str | int | None = None,
        threshold_percent: float | None = None,
        protect_first_n: int | None = None,
        protect_last_n: int | None = None,
        summary_target_ratio: float | None = None,
        quiet_mode: bool = False,
        *,
        context_length: int | None = None,
        config_context_length: int | None = None,
        settings: Any = None,
        **more: Any,
    ) -> None:
        if isinstance(model, int):  # Everlong's own first argument
            model, context_length = None, model
        name = model or ""
        window = context_length or config_context_length or get_model_context_length(name)
        given = {
            "threshold": threshold_percent,
            "protect_first_n": protect_first_n,
            "protect_last_n": protect_last_n,
            "target_ratio": summary_target_ratio,
        }
        own = {key: more[key] for key in ("summarizer", "overhead_tokens", "clock") if key in more}
        super().__init__(window, settings=_settings(settings, given), model=name or None, **own)
        self.model = name
        self.base_url = str(more.get("base_url") or "")
        self.api_key = str(more.get("api_key") or "")
        self.provider = str(more.get("provider") or "")
        self.api_mode = str(more.get("api_mode") or "")
        self.summary_model = str(more.get("summary_model_override") or "")
        self.quiet_mode = quiet_mode

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        **kwargs: Any,
    ) -> None:
        """Go on with another model."""
        super().update_model(model, context_length, base_url, api_key, provider, **kwargs)
        self.model, self.base_url, self.api_key, self.provider = model, base_url, api_key, provider

    def _sanitize_tool_pairs(self, messages: list[Message]) -> list[Message]:
        """Return the messages with calls and results one to one; engines mend their own lists with it."""
        return repair_all(list(messages))

    @staticmethod
    def _is_context_summary_content(content: Any) -> bool:
        return is_summary({"role": "user", "content": content if isinstance(content, str | list) else str(content)})


def _settings(settings: Any, given: Mapping[str, Any]) -> dict[str, Any] | Any:
    """Return the settings with the given values over them; values out of range become the nearest valid one."""
    wanted = {key: value for key, value in given.items() if value is not None}
    if "target_ratio" in wanted:
        wanted["target_ratio"] = min(0.80, max(0.10, wanted["target_ratio"]))
    if "protect_last_n" in wanted:
        wanted["protect_last_n"] = max(1, wanted["protect_last_n"])
    if not wanted:
        return settings
    if settings is None:
        return wanted
    if isinstance(settings, Mapping):
        return {**settings, **wanted}
    base = settings.model_dump() if hasattr(settings, "model_dump") else asdict(settings)
    return {**base, **wanted}


def resolve_model_threshold(
    model: str, thresholds: Mapping[str, float] | None, default: float, provider: str = ""
) -> float:
    """Return the threshold for a model: that of the longest matching name, else the default."""
    full = f"{provider}/{model}".lower()
    fits = [name for name in thresholds or {} if name and str(name).lower() in full]
    return float((thresholds or {})[max(fits, key=len)]) if fits else default
