"""How each client is set up and run without a person: its configuration, its command line and its tools."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clients.install import command_of, node
from bench.clients.script import Step

__all__ = ["PROGRAMS", "Place", "Program"]

_KEY = "key-of-nobody"


@dataclass(frozen=True)
class Place:
    """Where a client runs: a home and a folder of its own, the address it talks to, the model and its window."""

    home: Path
    folder: Path
    url: str
    model: str
    window: int

    def write(self, name: str, text: str) -> None:
        """Write a file in the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class Program:
    """A client. Subclasses say how it is configured, called, and what its tools are."""

    name = ""
    api = "openai"
    """The wire format: anthropic, openai or responses."""
    model = "gpt-5"
    """A model that the client and the list of prices know."""

    def prepare(self, place: Place) -> None:
        """Write the client's configuration."""

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """The command for one prompt, in a new session or in the last one."""
        raise NotImplementedError

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002 - subclasses need it
        """What the client needs in its environment."""
        return {}

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:
        """The tool and the arguments that do a step."""
        raise NotImplementedError

    def environment(self, place: Place) -> dict[str, str]:
        """The whole environment: nothing of the person's own, and no way to the outside but to loopback."""
        kept = {name: os.environ[name] for name in ("LANG", "LD_LIBRARY_PATH") if name in os.environ}
        scratch = place.home / "tmp"
        scratch.mkdir(parents=True, exist_ok=True)
        return {
            **kept,
            "HOME": str(place.home),
            "PATH": f"{node()}:{os.environ['PATH']}",
            "TMPDIR": str(scratch),
            "TERM": "dumb",
            "HTTPS_PROXY": "http://127.0.0.1:9",  # nobody listens there, so nothing is sent to the outside
            "NO_PROXY": "127.0.0.1,localhost",
            "DO_NOT_TRACK": "1",
            **self.variables(place),
        }

    def run(self, place: Place, prompt: str, *, resumes: bool = False, timeout: float = 300) -> str:
        """Run the client on a prompt; returns what it printed."""
        with self.start(place, prompt, resumes=resumes) as process:
            try:
                out, err = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                out, err = process.communicate()
                raise RuntimeError(f"{self.name} did not end in {timeout:.0f} s: {out[-1000:]} {err[-2000:]}") from None
        if process.returncode:
            raise RuntimeError(f"{self.name} ended with {process.returncode}: {out[-1000:]} {err[-2000:]}")
        return out

    def start(self, place: Place, prompt: str, *, resumes: bool = False) -> subprocess.Popen[str]:
        """Start the client on a prompt."""
        return subprocess.Popen(
            self.command(place, prompt, resumes=resumes),
            cwd=place.folder,
            env=self.environment(place),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )


class ClaudeCode(Program):
    """Claude Code."""

    name, api, model = "claude-code", "anthropic", "claude-sonnet-4-5"

    def variables(self, place: Place) -> dict[str, str]:
        """Address, key, and no traffic besides."""
        return {
            "ANTHROPIC_BASE_URL": place.url,
            "ANTHROPIC_API_KEY": _KEY,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "DISABLE_TELEMETRY": "1",
            "DISABLE_ERROR_REPORTING": "1",
        }

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Print mode, with the tools of the script allowed."""
        allowed = ["--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Write,Agent"]
        resuming = ["--continue"] if resumes else []
        return [*command_of(self.name), "-p", prompt, "--model", place.model, *allowed, *resuming]

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Read, Bash, Write and Agent."""
        if step.kind == "read":
            return "Read", {"file_path": str(folder / step.path)}
        if step.kind == "write":
            return "Write", {"file_path": str(folder / step.path), "content": step.text}
        if step.kind == "agent":
            return "Agent", {"description": "A look", "prompt": step.text, "subagent_type": "general-purpose"}
        return "Bash", {"command": step.text, "description": "Run it"}


class Pi(Program):
    """pi, in Anthropic's format."""

    name, api, model = "pi", "anthropic", "claude-sonnet-4-5"

    def prepare(self, place: Place) -> None:
        """Write its list of models, and switch off what it asks the network for."""
        model = {
            "id": place.model,
            "name": place.model,
            "reasoning": False,
            "input": ["text"],
            "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75},
            "contextWindow": place.window,
            "maxTokens": min(16_000, place.window // 8),
        }
        api = {"anthropic": "anthropic-messages", "openai": "openai-completions"}[self.api]
        url = place.url if self.api == "anthropic" else f"{place.url}/v1"
        provider = {"baseUrl": url, "api": api, "apiKey": _KEY, "models": [model]}
        place.write(".pi/agent/models.json", json.dumps({"providers": {"harbour": provider}}))

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """No network besides."""
        return {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Print mode."""
        resuming = ["--continue"] if resumes else []
        return [*command_of(self.name), "-p", *resuming, "--provider", "harbour", "--model", place.model, prompt]

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Its tools read, bash and write; it has no sub-agents."""
        if step.kind == "read":
            return "read", {"path": str(folder / step.path)}
        if step.kind == "write":
            return "write", {"path": str(folder / step.path), "content": step.text}
        return "bash", {"command": step.text}


class PiOpenAI(Pi):
    """pi, in OpenAI's format."""

    api, model = "openai", "gpt-5"


class OpenCode(Program):
    """opencode, in Anthropic's format."""

    name, api, model = "opencode", "anthropic", "claude-sonnet-4-5"

    def prepare(self, place: Place) -> None:
        """Write its configuration: a provider of its own with one model."""
        package = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai-compatible"}[self.api]
        model = {"name": place.model, "limit": {"context": place.window, "output": min(32_000, place.window // 8)}}
        name = f"harbour/{place.model}"
        provider = {
            "npm": package,
            "name": "harbour",
            "options": {"baseURL": f"{place.url}/v1", "apiKey": _KEY},
            "models": {place.model: model},
        }
        config = {
            "autoupdate": False,
            "share": "disabled",
            "model": name,
            "small_model": name,
            "permission": "allow",
            "provider": {"harbour": provider},
        }
        place.write(".config/opencode/opencode.json", json.dumps(config))

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """No downloads."""
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Run mode."""
        resuming = ["--continue"] if resumes else []
        return [*command_of(self.name), "run", *resuming, "--model", f"harbour/{place.model}", prompt]

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:
        """Its tools read, bash, task, and write or apply_patch, whichever this model is offered."""
        if step.kind == "read":
            return "read", {"filePath": str(folder / step.path)}
        if step.kind == "agent":
            return "task", {"description": "A look", "prompt": step.text, "subagent_type": "general"}
        if step.kind == "write" and "write" in tools:
            return "write", {"filePath": str(folder / step.path), "content": step.text}
        if step.kind == "write":
            return "apply_patch", {"patchText": _patch(step)}
        return "bash", {"command": step.text, "description": "Run it"}


class OpenCodeOpenAI(OpenCode):
    """opencode, in OpenAI's format; it sends `max_tokens`, which OpenAI's newer models refuse."""

    api, model = "openai", "gpt-4.1"


class Codex(Program):
    """Codex, which speaks the Responses API only."""

    name, api, model = "codex", "responses", "gpt-5"

    def prepare(self, place: Place) -> None:
        """Write its configuration: a provider of its own."""
        config = {
            "model": place.model,
            "model_provider": "harbour",
            "model_context_window": place.window,
            "check_for_update_on_startup": False,
        }
        provider = {"name": "harbour", "base_url": f"{place.url}/v1", "wire_api": "responses", "env_key": "HARBOUR_KEY"}
        lines = [f"{name} = {json.dumps(value)}" for name, value in config.items()]
        lines += ["[analytics]", "enabled = false", "[model_providers.harbour]"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in provider.items()]
        place.write(".codex/config.toml", "\n".join(lines) + "\n")

    def variables(self, place: Place) -> dict[str, str]:
        """Its home and a key."""
        return {"CODEX_HOME": str(place.home / ".codex"), "HARBOUR_KEY": _KEY}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:  # noqa: ARG002
        """Exec mode without a sandbox, which needs rights that a test machine may not give."""
        resuming = ["resume", "--last"] if resumes else []
        free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [*command_of(self.name), "exec", *resuming, *free, prompt]

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Everything by commands, as Codex does it."""
        return "exec_command", {"cmd": _command(step)}


class Cline(Program):
    """Cline's command line, in OpenAI's format."""

    name, api, model = "cline", "openai", "gpt-5"

    def prepare(self, place: Place) -> None:
        """Have it note the address and the key."""
        asked = ["auth", "-p", "openai", "-k", _KEY, "-m", place.model, "-b", f"{place.url}/v1"]
        command = [*command_of(self.name), *asked]
        environment = self.environment(place)
        subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, check=True, timeout=60)

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """No updates and no reports."""
        return {"CLINE_NO_AUTO_UPDATE": "1", "CLINE_TELEMETRY_DISABLED": "1"}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """One prompt; a session is resumed by its id."""
        resuming = ["--id", self._newest(place)] if resumes else []
        return [*command_of(self.name), *resuming, prompt]

    def _newest(self, place: Place) -> str:
        command = [*command_of(self.name), "history", "--json"]
        environment = self.environment(place)
        ran = subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, check=True, timeout=60)
        sessions: list[dict[str, Any]] = json.loads(ran.stdout)
        return str(sessions[0]["sessionId"])

    def call(self, step: Step, tools: Sequence[str], folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Its tools read_files, run_commands, apply_patch and spawn_agent."""
        if step.kind == "read":
            return "read_files", {"files": [{"path": str(folder / step.path)}]}
        if step.kind == "agent":
            return "spawn_agent", {"systemPrompt": "You help with a look around.", "task": step.text}
        return "run_commands", {"commands": [_command(step)]}


class Aider(Program):
    """aider, which has no tools: files change by what the model says."""

    name, api, model = "aider", "openai", "openai/gpt-4o"

    def variables(self, place: Place) -> dict[str, str]:
        """Address and key; no analytics, updates or lists of prices from elsewhere."""
        return {
            "OPENAI_API_BASE": f"{place.url}/v1",
            "OPENAI_API_KEY": _KEY,
            "AIDER_ANALYTICS": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """One message; an earlier chat is restored from its file."""
        options = ["--no-show-model-warnings", "--no-check-update", "--no-pretty", "--yes-always", "--no-gitignore"]
        options += ["--no-auto-commits", "--no-git", "--map-tokens", "0"]
        resuming = ["--restore-chat-history"] if resumes else []
        return [*command_of(self.name), "--model", place.model, *options, *resuming, "--message", prompt]


def _patch(step: Step) -> str:
    lines = "\n".join(f"+{line}" for line in step.text.splitlines())
    return f"*** Begin Patch\n*** Add File: {step.path}\n{lines}\n*** End Patch"


def _command(step: Step) -> str:
    if step.kind == "read":
        return f"cat {step.path}"
    if step.kind == "write":
        folder = Path(step.path).parent
        return f"mkdir -p {folder} && printf '%s\\n' {json.dumps(step.text.rstrip())} > {step.path}"
    return step.text


PROGRAMS: dict[str, Program] = {
    "claude-code": ClaudeCode(),
    "codex": Codex(),
    "opencode": OpenCode(),
    "opencode-openai": OpenCodeOpenAI(),
    "pi": Pi(),
    "pi-openai": PiOpenAI(),
    "cline": Cline(),
    "aider": Aider(),
}
"""Clients by name, some of them once for each format."""
