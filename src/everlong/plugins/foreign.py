"""The modules of another host, for plugins that were written for it and run here unchanged.

Such a plugin imports ``agent.context_engine`` and the like; `_MODULES` lists all. Only plugins see these modules.
``python -m everlong.plugins.foreign pytest TESTS`` runs a plugin's own tests with them.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import runpy
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from contextvars import ContextVar, Token
from dataclasses import asdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any

from everlong.caching import apply_anthropic_cache_control, estimate_messages_tokens_rough
from everlong.config.paths import user_config_path
from everlong.context import ContextCompressor as _ContextCompressor, ContextEngine
from everlong.context.invariants import repair_all
from everlong.context.literals import CLEARED_RESULT, SUMMARY_PREFIX, is_summary
from everlong.errors import ConfigError, PluginError
from everlong.model import SUMMARY_STARTS, Message
from everlong.plugins.host import as_config, current_host, home
from everlong.plugins.models import Wish, ask_model, model_for
from everlong.providers.endpoints import ENDPOINTS, endpoint_for, parse_model_name
from everlong.redaction import redact
from everlong.tokens.estimate import CHARS_PER_TOKEN, rough_tokens

if TYPE_CHECKING:
    from everlong.providers.base import Reply

__all__ = ["import_module", "run"]

# -- agent.context_engine and agent.context_compressor -----------------------------------------------------------------

_MEMORY_CONTEXT_CHARS = 6_000
_CUT = "\n…\n"


def sanitize_memory_context(memory_context: str) -> str:
    """Return a memory provider's text without secrets; a long one loses its middle."""
    text = redact(memory_context.strip())
    if len(text) <= _MEMORY_CONTEXT_CHARS:
        return text
    half = (_MEMORY_CONTEXT_CHARS - len(_CUT)) // 2
    return text[:half] + _CUT + text[-half:]


def automatic_compaction_status_message(engine: Any, *, phase: str, default_message: str, **facts: Any) -> str | None:
    """Return the status message of a compaction: the engine's own, the default, or None."""
    if not getattr(engine, "emit_automatic_compaction_status", True):
        return None
    own = getattr(engine, "get_automatic_compaction_status_message", None)
    text = own(phase=phase, default_message=default_message, **facts) if callable(own) else default_message
    return (str(text).strip() or None) if text is not None else None


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
            "protect_last_n": None if protect_last_n is None else max(1, protect_last_n),
            "target_ratio": None if summary_target_ratio is None else min(0.80, max(0.10, summary_target_ratio)),
        }
        own = {key: more[key] for key in ("summarizer", "overhead_tokens", "clock") if key in more}
        super().__init__(window, settings=_merge_settings(settings, given), model=name or None, **own)
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


def _merge_settings(settings: Any, given: Mapping[str, Any]) -> Any:
    """Return the settings with the given values over them."""
    wanted = {key: value for key, value in given.items() if value is not None}
    if not wanted:
        return settings
    if settings is None or isinstance(settings, Mapping):
        return {**(settings or {}), **wanted}
    base = settings.model_dump() if hasattr(settings, "model_dump") else asdict(settings)
    return {**base, **wanted}


def resolve_model_threshold(
    model: str, thresholds: Mapping[str, float] | None, default: float, provider: str = ""
) -> float:
    """Return the threshold for a model: that of the longest matching name, else the default."""
    full = f"{provider}/{model}".lower()
    fits = [name for name in thresholds or {} if name and str(name).lower() in full]
    return float((thresholds or {})[max(fits, key=len)]) if fits else default


# -- agent.auxiliary_client --------------------------------------------------------------------------------------------


def call_llm(  # noqa: PLR0913 - the arguments that engines pass elsewhere
    task: str | None = None,
    *,
    messages: Sequence[dict[str, Any]] | None = None,
    prompt: str | None = None,
    provider: str | None = None,
    model: str | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    temperature: float | None = None,
    max_tokens: int | None = None,
    tools: Sequence[dict[str, Any]] | None = None,
    timeout: float | None = None,
    extra_body: dict[str, Any] | None = None,
    **ignored: Any,
) -> SimpleNamespace:
    """Ask the user's auxiliary model, or the one that is named; return its answer."""
    del task, ignored  # there is one auxiliary model for all tasks
    said = list(messages) if messages is not None else [{"role": "user", "content": prompt or ""}]
    reply = ask_model(
        said,
        Wish(model or "", provider or "", base_url or "", api_key or "", timeout),
        max_tokens=max_tokens,
        temperature=temperature,
        tools=tools,
        options=extra_body,
    )
    return _as_completion(reply)


async def async_call_llm(task: str | None = None, **call: Any) -> SimpleNamespace:
    """Ask a model asynchronously. See `call_llm`."""
    return await asyncio.to_thread(call_llm, task, **call)


_FINISH = {"tool_calls": "tool_calls", "length": "length", "window": "length", "refusal": "content_filter"}


def _as_completion(reply: Reply) -> SimpleNamespace:
    """Return a reply in the shape of OpenAI's chat completions: ``.choices[0].message.content``, ``.usage``."""
    calls = [
        SimpleNamespace(id=call.id, type="function", function=SimpleNamespace(name=call.name, arguments=call.arguments))
        for call in reply.calls
    ]
    message = SimpleNamespace(role="assistant", content=reply.text, tool_calls=calls or None, reasoning_content=None)
    usage = reply.usage
    return SimpleNamespace(
        id=reply.id or "",
        object="chat.completion",
        model=reply.model,
        choices=[SimpleNamespace(index=0, message=message, finish_reason=_FINISH.get(reply.stop, "stop"))],
        usage=SimpleNamespace(
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
        ),
    )


def aux_interrupt_protection(active: bool = True) -> nullcontext[None]:
    """Return a context manager that does nothing; another host protects calls from interrupts with one."""
    del active
    return nullcontext()


def extract_content_or_reasoning(response: Any) -> str:
    """Return the text of an answer; its thinking where it has no text."""
    message = response.choices[0].message
    for name in ("content", "reasoning_content", "reasoning"):
        text = getattr(message, name, None)
        if isinstance(text, str) and text.strip():
            return text.strip()
    return ""


def _client(ask: Callable[..., Any], **fixed: Any) -> SimpleNamespace:
    """Return a client with ``client.chat.completions.create(…)``, as OpenAI's has it."""
    wishes = {name: value for name, value in fixed.items() if value}
    completions = SimpleNamespace(create=lambda **call: ask(**{**wishes, **call}))
    return SimpleNamespace(chat=SimpleNamespace(completions=completions))


def _auxiliary_model() -> str:
    return model_for(current_host(), Wish()).model


def get_text_auxiliary_client(task: str = "", **ignored: Any) -> tuple[SimpleNamespace, str]:
    """Return a client for the auxiliary model, and that model's name."""
    del task, ignored
    return _client(call_llm), _auxiliary_model()


def get_async_text_auxiliary_client(task: str = "", **ignored: Any) -> tuple[SimpleNamespace, str]:
    """Return an asynchronous client for the auxiliary model, and that model's name."""
    del task, ignored
    return _client(async_call_llm), _auxiliary_model()


def resolve_provider_client(
    provider: str | None = None, model: str | None = None, async_mode: bool = False, **more: Any
) -> tuple[SimpleNamespace, str]:
    """Return a client for a provider and a model, and the model's name."""
    where, key = more.get("explicit_base_url"), more.get("explicit_api_key")
    ask = async_call_llm if async_mode else call_llm
    return _client(ask, provider=provider, model=model, base_url=where, api_key=key), model or _auxiliary_model()


# -- agent.model_metadata, agent.redact, gateway.session_context, tools.registry ---------------------------------------

_UNKNOWN_WINDOW = 200_000


def estimate_tokens_rough(text: str | None) -> int:
    """Estimate the tokens of a text: four characters each, rounded up."""
    return rough_tokens(len(text)) if text else 0


def estimate_request_tokens_rough(
    messages: Sequence[dict[str, Any]], *, system_prompt: str = "", tools: Sequence[dict[str, Any]] | None = None
) -> int:
    """Estimate the tokens of a whole request: system prompt, messages and tools."""
    more = estimate_tokens_rough(system_prompt) + (estimate_tokens_rough(str(list(tools))) if tools else 0)
    return estimate_messages_tokens_rough(messages) + more


def get_model_context_length(
    model: str,
    base_url: str = "",
    api_key: str = "",
    config_context_length: int | None = None,
    provider: str = "",
    **ignored: Any,
) -> int:
    """Return a model's window: the given one, else that of the settings or the catalogue, else a usual one."""
    del base_url, api_key, ignored
    if config_context_length:
        return int(config_context_length)
    from everlong.providers.catalogue import Catalogue  # noqa: PLC0415 - only where somebody asks

    host = current_host()
    own = host.settings.providers
    try:
        name = parse_model_name(f"{provider}:{model}" if provider else model, own)
        return Catalogue(host.settings.models).info(name, endpoint_for(name.provider, own)).context_length
    except ConfigError:
        main = host.main()
        return main.info.context_length if main is not None else _UNKNOWN_WINDOW


def redact_sensitive_text(text: str, **ignored: Any) -> str:
    """Return the text without keys, tokens and passwords."""
    del ignored
    return redact(text) if text else text


_SESSION_FACTS = {"SESSION_ID": "session_id", "SESSION_KEY": "conversation_id", "SESSION_PLATFORM": "platform"}


def get_session_env(name: str, default: str = "") -> str:
    """Return the value of a session variable; else the environment variable of that name."""
    fact = _SESSION_FACTS.get(name.removeprefix("HERMES_").removeprefix("AIGENLABS_"), "")
    return current_host().session.get(fact, "") or os.environ.get(name, default)


def tool_error(message: object, **more: Any) -> str:
    """Return a failure as JSON for the model."""
    return json.dumps({"error": str(message), **more}, ensure_ascii=False, default=str)


def tool_result(data: Any = None, **more: Any) -> str:
    """Return a result as JSON for the model."""
    return json.dumps(more if data is None else data, ensure_ascii=False, default=str)


# -- hermes_constants --------------------------------------------------------------------------------------------------

_override: ContextVar[str | None] = ContextVar("everlong_foreign_home", default=None)


def get_hermes_home() -> Path:
    """Return the folder for plugins' files: ``HERMES_HOME`` where it is set, else Everlong's data folder."""
    chosen = _override.get()
    return Path(chosen) if chosen else home()


def set_hermes_home_override(path: str | Path | None) -> Token[str | None]:
    """Use another folder in this context, until `reset_hermes_home_override`."""
    return _override.set(str(path) if path is not None else None)


def reset_hermes_home_override(token: Token[str | None]) -> None:
    """Undo `set_hermes_home_override`."""
    _override.reset(token)


def hermes_home_key(path: str | Path | None = None) -> str:
    """Return one text for one folder, however it is spelled."""
    return os.path.normcase(str((Path(path) if path is not None else get_hermes_home()).expanduser().resolve()))


def get_hermes_dir(new_subpath: str, old_name: str) -> Path:
    """Return a folder below the home: the old one where it has files, else the new one."""
    old = get_hermes_home() / old_name
    return old if old.is_dir() and any(old.iterdir()) else get_hermes_home() / new_subpath


def get_env_path() -> Path:
    """Return the path of a file of environment variables, which Everlong does not read."""
    return get_hermes_home() / ".env"


def display_hermes_home() -> str:
    """Return the folder for plugins' files, as shown to people."""
    path = str(get_hermes_home())
    user = str(Path.home())
    return "~" + path.removeprefix(user) if path.startswith(user) else path


# -- hermes_cli --------------------------------------------------------------------------------------------------------


def cfg_get(config: Any, *keys: str, default: Any = None) -> Any:
    """Return a value in nested sections; the default where a section is missing."""
    for key in keys:
        if not isinstance(config, Mapping) or key not in config:
            return default
        config = config[key]
    return default if config is None else config


def save_config(*ignored: Any, **also_ignored: Any) -> None:
    """Raise a `PluginError`: plugins must not write the configuration."""
    del ignored, also_ignored
    raise PluginError("a plugin wanted to write the configuration; do it yourself with `everlong config set KEY VALUE`")


def save_env_value(name: str, value: str) -> None:
    """Raise a `PluginError`: users set variables themselves."""
    del value
    raise PluginError(f"a plugin wanted to keep the variable {name}; set it in your environment yourself")


def load_env() -> dict[str, str]:
    """Return the environment variables."""
    return dict(os.environ)


def ensure_hermes_home() -> Path:
    """Make the plugins' home folder if it is missing, and return it."""
    get_hermes_home().mkdir(parents=True, exist_ok=True)
    return get_hermes_home()


def _get_named_custom_provider(name: str) -> dict[str, Any] | None:
    """Return an endpoint of the user's own (``providers.NAME``), if there is one of that name."""
    found = current_host().settings.providers.get(name)
    return {"name": name, "base_url": found.base_url or ""} if found is not None else None


# -- the modules -------------------------------------------------------------------------------------------------------


def _named(*things: Any) -> dict[str, Any]:
    return {thing.__name__: thing for thing in things}


_HOMES = _named(get_hermes_home) | {"get_aigenlabs_home": get_hermes_home, "get_config_path": user_config_path}
_CONSTANTS = (
    _HOMES
    | {"OPENROUTER_BASE_URL": ENDPOINTS["openrouter"].base_url}
    | {"get_process_hermes_home": home, "get_default_hermes_root": home}  # there are no profiles
    | {"get_hermes_home_override": _override.get, "get_subprocess_home": lambda: None}
    | _named(set_hermes_home_override, reset_hermes_home_override, hermes_home_key, get_hermes_dir)
    | _named(get_env_path, display_hermes_home)
)
_COMMAND: dict[str, dict[str, Any]] = {
    "": {},
    ".auth": {"PROVIDER_REGISTRY": ENDPOINTS},
    ".config": _HOMES
    | {"load_config": as_config, "load_config_readonly": as_config, "read_raw_config": as_config}
    | {"get_env_value": os.environ.get}
    | _named(cfg_get, save_config, save_env_value, load_env, ensure_hermes_home),
    ".runtime_provider": _named(_get_named_custom_provider),
}
_MODULES: dict[str, dict[str, Any]] = {
    "agent": {},
    "agent.auxiliary_client": _named(call_llm, async_call_llm, extract_content_or_reasoning)
    | _named(get_text_auxiliary_client, get_async_text_auxiliary_client, resolve_provider_client)
    | _named(aux_interrupt_protection),
    "agent.context_compressor": _named(ContextCompressor, resolve_model_threshold, call_llm)
    | _named(estimate_messages_tokens_rough, get_model_context_length)
    | {"SUMMARY_PREFIX": SUMMARY_PREFIX, "LEGACY_SUMMARY_PREFIX": SUMMARY_STARTS[-1]}
    | {"_PRUNED_TOOL_PLACEHOLDER": CLEARED_RESULT},
    "agent.context_engine": _named(ContextEngine, automatic_compaction_status_message, sanitize_memory_context)
    | {"MEMORY_CONTEXT_MAX_CHARS": _MEMORY_CONTEXT_CHARS},
    "agent.model_metadata": _named(estimate_tokens_rough, estimate_messages_tokens_rough)
    | _named(estimate_request_tokens_rough, get_model_context_length)
    | {"CHARS_PER_TOKEN": CHARS_PER_TOKEN, "MINIMUM_CONTEXT_LENGTH": 64_000}
    | {"DEFAULT_FALLBACK_CONTEXT": _UNKNOWN_WINDOW},
    "agent.prompt_caching": _named(apply_anthropic_cache_control),
    "agent.redact": _named(redact_sensitive_text),
    "gateway": {},
    "gateway.session_context": _named(get_session_env),
    "tools": {},
    "tools.registry": _named(tool_error, tool_result),
    **{f"{host}_constants": _CONSTANTS for host in ("hermes", "aigenlabs")},
    **{f"{host}_cli{name}": held for host in ("hermes", "aigenlabs") for name, held in _COMMAND.items()},
}
"""The names in each module. The same host goes by two names."""


def import_module(name: str, fromlist: Sequence[str] | None = ("*",)) -> ModuleType:
    """Return a module of the other host, as ``import`` does: without a ``fromlist``, the package that it is in.

    Raises:
        ModuleNotFoundError: the other host may have such a module, and there is none here.
    """
    modules = _modules()
    if name not in modules:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return modules[name if fromlist else name.partition(".")[0]]


@functools.cache
def _modules() -> dict[str, ModuleType]:
    """Return all modules by name, each with its sub-modules as attributes."""
    made: dict[str, ModuleType] = {}
    for name, held in _MODULES.items():
        module = made[name] = ModuleType(name, "A module of another host, as Everlong has it.")
        module.__dict__.update(held)
        package, _, last = name.rpartition(".")
        if package:
            made[package].__path__ = []
            setattr(made[package], last, module)
    return made


def run(program: str, *arguments: str) -> None:
    """Run a Python module as a program that sees the modules of the other host."""
    sys.modules.update(_modules())
    sys.argv = [program, *arguments]
    runpy.run_module(program, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    from everlong.plugins import foreign  # noqa: PLW0406 - plugins see its modules, not those of ``__main__``

    foreign.run(*sys.argv[1:])
