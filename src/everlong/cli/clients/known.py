"""The known clients, one class each; `CLIENTS` has them by name."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any

from everlong.cli.clients.client import (
    Client,
    ClientRun,
    ConfigurationFile,
    GatewayAddress,
    Setting,
    folder_of,
    insert_words,
    put_back,
)
from everlong.cli.clients.formats import JSON, TOML, YAML, value_at
from everlong.config.files import write_whole
from everlong.errors import ConfigError

__all__ = ["CHATGPT_UPSTREAM", "CLIENTS", "client_of_program"]

CHATGPT_UPSTREAM = "https://chatgpt.com/backend-api/codex"
"""The upstream of Codex if it is logged in with a ChatGPT account."""


class ClaudeCode(Client):
    """Claude Code: variables in ``settings.json``, which win over those of the shell."""

    name = "claude-code"
    title = "Claude Code"
    programs = ("claude",)
    format = JSON

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        return folder_of("CLAUDE_CONFIG_DIR", home / ".claude", env) / "settings.json"

    def settings(self, gateway: GatewayAddress, _values: Any) -> list[Setting]:
        variables = {"ANTHROPIC_BASE_URL": gateway.address, **self._variables(gateway, None)}
        return [
            Setting(("env", name), value, api="anthropic" if name == "ANTHROPIC_BASE_URL" else None)
            for name, value in variables.items()
        ]

    def notes(self, gateway: GatewayAddress, _env: Mapping[str, str], _home: Path) -> list[str]:
        if gateway.is_anthropic:
            return []
        return [
            "requests do not go on to Anthropic's own address, so Claude Code takes every window for 200,000 tokens "
            "and sends all of its tools each time"
        ]

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        env = {**run.env, **self._variables(gateway, self._model(run, home))}
        command = run.command
        if "--settings" not in command and any(self._base_urls(run.env, home)):
            # Claude Code prefers its settings file to the environment, and --settings to its settings file.
            variables = {"ANTHROPIC_BASE_URL": gateway.address}
            command = insert_words(command, "--settings", json.dumps({"env": variables}))
        yield ClientRun(command, env)

    def _variables(self, gateway: GatewayAddress, model: str | None) -> dict[str, str]:
        found = {}
        if gateway.is_anthropic:  # keeps a window of 1M and deferred tools, as without a gateway
            found["_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"] = "1"
        if model is not None and not _is_claude(model) and (window := gateway.context_length(model)):
            found["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(window)
        return found

    def _model(self, run: ClientRun, home: Path) -> str | None:
        named = _option(run.command, "--model") or run.env.get("ANTHROPIC_MODEL", "").strip()
        if named:
            return named
        values: Any = next(self._files(run.env, home), {})
        found = value_at(values, ("env", "ANTHROPIC_MODEL")) or value_at(values, ("model",))
        return found if isinstance(found, str) else None

    def _base_urls(self, env: Mapping[str, str], home: Path) -> Iterator[str]:
        for values in self._files(env, home):
            if url := value_at(values, ("env", "ANTHROPIC_BASE_URL")):
                yield url

    def _files(self, env: Mapping[str, str], home: Path) -> Iterator[Any]:
        """Yield the settings of the user and of the project, if they can be read."""
        here = Path.cwd() / ".claude"
        for path in (self.path(env, home), here / "settings.json", here / "settings.local.json"):
            with suppress(ConfigError):
                yield ConfigurationFile(path, JSON).values()


def _is_claude(model: str) -> bool:
    """Return whether Claude Code knows the window of a model: an id of Anthropic's, or an alias."""
    aliases = ("default", "best", "sonnet", "opus", "haiku", "opusplan")
    return model.removesuffix("[1m]").lower() in aliases or "claude-" in model.lower()


class Codex(Client):
    """Codex: ``config.toml``, or ``-c`` on the command line; it reads no variable for its base URL."""

    name = "codex"
    title = "Codex"
    programs = ("codex",)
    format = TOML

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        return self._folder(env, home) / "config.toml"

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        provider = value_at(values, ("model_provider",)) or "openai"
        if value_at(values, ("model_providers", str(provider), "base_url")) is None:
            return [Setting(("openai_base_url",), gateway.v1, api="openai")]
        return [Setting(("model_providers", str(provider), "base_url"), gateway.v1, api="openai")]

    def notes(self, _gateway: GatewayAddress, env: Mapping[str, str], home: Path) -> list[str]:
        if not self.login_upstream(env, home):
            return []
        return [f"Codex is logged in with ChatGPT: start the gateway with --upstream {CHATGPT_UPSTREAM}"]

    def login_upstream(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        if env.get("CODEX_API_KEY", "").strip():
            return {}
        try:
            login = json.loads((self._folder(env, home) / "auth.json").read_bytes())
        except (OSError, ValueError):
            return {}
        is_chatgpt = value_at(login, ("tokens",)) and not value_at(login, ("OPENAI_API_KEY",))
        return {"openai": CHATGPT_UPSTREAM} if is_chatgpt else {}

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        words = []
        for setting in self.settings(gateway, self.values(run.env, home)):
            words += ["-c", f"{'.'.join(map(_toml_key, setting.path))}={json.dumps(setting.value)}"]
        yield ClientRun(insert_words(run.command, *words), run.env)

    def _folder(self, env: Mapping[str, str], home: Path) -> Path:
        return folder_of("CODEX_HOME", home / ".codex", env)


def _toml_key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "").replace("_", "").isalnum()
    return name if is_bare else json.dumps(name)


class OpenCode(Client):
    """opencode: ``opencode.json``, or the same as JSON in a variable."""

    name = "opencode"
    title = "opencode"
    programs = ("opencode",)
    format = JSON

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        folder = folder_of("XDG_CONFIG_HOME", home / ".config", env) / "opencode"
        names = ("opencode.jsonc", "opencode.json")
        return next((folder / name for name in names if (folder / name).exists()), folder / names[-1])

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        apis = {"anthropic": "anthropic", "openai": "openai"}
        own = str(value_at(values, ("model",)) or "").partition("/")[0]
        if own not in apis and value_at(values, ("provider", own, "options", "baseURL")):
            package = str(value_at(values, ("provider", own, "npm")))
            apis[own] = "anthropic" if "anthropic" in package else "openai"
        return [Setting(("provider", name, "options", "baseURL"), gateway.v1, api=api) for name, api in apis.items()]

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        text = run.env.get("OPENCODE_CONFIG_CONTENT", "")
        with suppress(ValueError):  # opencode says best what is wrong with it
            for setting in self.settings(gateway, self.values(run.env, home)):
                text = JSON.put(text, setting.path, setting.value)
        yield ClientRun(run.command, {**run.env, "OPENCODE_CONFIG_CONTENT": text})


class Pi(Client):
    """pi: ``models.json``, or an extension for one run."""

    name = "pi"
    title = "pi"
    programs = ("pi",)
    format = JSON

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        return folder_of("PI_CODING_AGENT_DIR", home / ".pi" / "agent", env) / "models.json"

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        found = [
            Setting(("providers", "anthropic", "baseUrl"), gateway.address, api="anthropic"),
            Setting(("providers", "openai", "baseUrl"), gateway.v1, api="openai"),
        ]
        own = value_at(values, ("providers",))
        others = [name for name in own if name not in {"anthropic", "openai"}] if isinstance(own, dict) else []
        if len(others) == 1:  # of several, it is not known which one is meant
            kind = str(value_at(own, (others[0], "api")))
            api = "anthropic" if kind.startswith("anthropic") else "openai"
            if value_at(own, (others[0], "baseUrl")):
                found.append(Setting(("providers", others[0], "baseUrl"), gateway.base_url(api), api=api))
        return found

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        calls = [
            f"pi.registerProvider({json.dumps(one.path[1])}, {{baseUrl: {json.dumps(one.value)}}});"
            for one in self.settings(gateway, self.values(run.env, home))
        ]
        with tempfile.TemporaryDirectory(prefix="everlong-pi-") as folder:
            extension = Path(folder) / "everlong.mjs"
            extension.write_text(f"export default function (pi) {{ {' '.join(calls)} }}\n", encoding="utf-8")
            yield ClientRun(insert_words(run.command, "--extension", str(extension)), run.env)


class Aider(Client):
    """aider: ``.aider.conf.yml`` in the home folder, whose values win over the environment."""

    name = "aider"
    title = "aider"
    programs = ("aider",)
    format = YAML
    _ANTHROPIC = "ANTHROPIC_API_BASE="

    def path(self, _env: Mapping[str, str], home: Path) -> Path:
        return home / ".aider.conf.yml"

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        return [
            Setting(("openai-api-base",), gateway.v1, api="openai"),
            Setting(("set-env",), self._variables(gateway, values), is_ours=self._is_ours),
        ]

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        values = self.values(run.env, home)
        words = []
        if value_at(values, ("openai-api-base",)):
            words += ["--openai-api-base", gateway.v1]
        if any(map(self._is_ours, _items(value_at(values, ("set-env",))))):
            for variable in self._variables(gateway, values):
                words += ["--set-env", variable]
        yield ClientRun(insert_words(run.command, *words), run.env)

    def upstreams(self, env: Mapping[str, str], home: Path) -> dict[str, str]:
        found = super().upstreams(env, home)
        with suppress(ConfigError):
            for item in filter(self._is_ours, _items(value_at(self.file(env, home).original(), ("set-env",)))):
                found["anthropic"] = str(item).removeprefix(self._ANTHROPIC)
        return found

    def _variables(self, gateway: GatewayAddress, values: Any) -> list[Any]:
        kept = [item for item in _items(value_at(values, ("set-env",))) if not self._is_ours(item)]
        return [*kept, f"{self._ANTHROPIC}{gateway.address}"]

    def _is_ours(self, item: Any) -> bool:
        return str(item).startswith(self._ANTHROPIC)


def _items(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


class Cline(Client):
    """Cline's command line: ``providers.json``, of which one run gets a copy."""

    name = "cline"
    title = "Cline"
    programs = ("cline",)
    format = JSON
    _APIS = {"anthropic": "anthropic", "openai-native": "openai", "openai-compatible": "openai"}  # noqa: RUF012 - constant
    _ALWAYS = ("anthropic", "openai-native")

    def path(self, env: Mapping[str, str], home: Path) -> Path:
        named = env.get("CLINE_PROVIDER_SETTINGS_PATH", "").strip()
        if named:
            return Path(named).expanduser()
        return folder_of("CLINE_DATA_DIR", home / ".cline" / "data", env) / "settings" / "providers.json"

    def settings(self, gateway: GatewayAddress, values: Any) -> list[Setting]:
        found = []
        if value_at(values, ("version",)) is None:
            found += [Setting(("version",), 1, is_frame=True), Setting(("modes",), {}, is_frame=True)]
        for name, api in self._APIS.items():
            is_there = value_at(values, ("providers", name)) is not None
            if not is_there and name not in self._ALWAYS:
                continue
            at = ("providers", name)
            if not is_there:
                found.append(Setting((*at, "settings", "provider"), name, is_frame=True))
            found.append(Setting((*at, "settings", "baseUrl"), gateway.v1, api=api))
            if not is_there:
                found.append(Setting((*at, "updatedAt"), "2026-01-01T00:00:00.000Z", is_frame=True))
                found.append(Setting((*at, "tokenSource"), "manual", is_frame=True))
        return found

    @contextmanager
    def prepare_run(self, gateway: GatewayAddress, run: ClientRun, home: Path) -> Iterator[ClientRun]:
        file = self.file(run.env, home)
        try:
            values = file.values()
            settings = self.settings(gateway, values)
            text = file.changed(settings)
        except ConfigError:
            yield run
            return
        with tempfile.TemporaryDirectory(prefix="everlong-cline-") as folder:
            copy = ConfigurationFile(Path(folder) / "providers.json", JSON)
            copy.path.write_text(text, encoding="utf-8")
            copy.path.chmod(0o600)
            # Without its background process, which would keep the copy in use after this run.
            here = {"CLINE_PROVIDER_SETTINGS_PATH": str(copy.path), "CLINE_SESSION_BACKEND_MODE": "local"}
            try:
                yield ClientRun(run.command, {**run.env, **here})
            finally:
                _keep_changes(copy, file, text, values, settings)


def _keep_changes(
    copy: ConfigurationFile, file: ConfigurationFile, text: str, values: Any, settings: list[Setting]
) -> None:
    """Copy back what a client wrote into its copy, such as a new login, without our settings."""
    with suppress(ConfigError, ValueError, OSError):
        now = copy.text()
        if now is None or now == text:
            return
        left = put_back(JSON, now, values, [one for one in settings if not one.is_frame])
        if JSON.parse(left) != values:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file.path, left)


CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        ClaudeCode(),
        Codex(),
        OpenCode(),
        Pi(),
        Aider(),
        Cline(),
    )
}


def client_of_program(program: str) -> Client | None:
    """Return the client whose program a command runs; None for any other program."""
    name = PurePath(program.replace(os.sep, "/")).name.lower()
    for ending in (".exe", ".cmd", ".bat", ".ps1"):
        name = name.removesuffix(ending)
    return next((client for client in CLIENTS.values() if name in client.programs), None)


def _option(command: list[str], name: str) -> str | None:
    """Return the value of an option on a command line."""
    for word, following in zip(command, [*command[1:], ""], strict=True):
        if word == name:
            return following or None
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None
