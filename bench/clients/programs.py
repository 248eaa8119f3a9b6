"""The set-up of each client for runs without a person: its configuration, its command line and its tools."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.clients.install import FOLDER, command_of, node
from bench.clients.script import Step
from everlong.testing import Ask

__all__ = ["PROGRAMS", "Place", "Program"]

_KEY = "key-of-nobody"


@dataclass(frozen=True)
class Place:
    """Surroundings of a client: a home and a folder of its own, the address it talks to, the model and its window."""

    home: Path
    folder: Path
    url: str
    model: str
    window: int
    answer: int | None = None
    """The most tokens of an answer that the client may ask for; None is the client's own choice."""

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
    small_model: str | None = None
    """The client's model for small things, if it is another one."""
    has_tools = True
    resumes = True
    """Goes on with an earlier session without a terminal."""
    has_agents = False
    awaits_agents = False
    """Goes on while a sub-agent works, and waits for it with another call."""

    names_agents = True
    """Tells for which conversation a sub-agent works."""
    takes_lines = False
    """Takes one line after the other in one process without a terminal, commands such as ``/clear`` too."""

    def prepare(self, place: Place) -> None:
        """Write the client's configuration."""

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Return the command for one prompt, in a new session or in the last one."""
        raise NotImplementedError

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002 - subclasses need it
        """Return the environment variables that the client needs."""
        return {}

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:
        """Return the tool and the arguments that do a step."""
        raise NotImplementedError

    def environment(self, place: Place) -> dict[str, str]:
        """Return the whole environment: nothing of the person's own, and no way to the outside but to loopback."""
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

    def talk(self, place: Place, prompts: Sequence[str], timeout: float = 300) -> list[str]:
        """Say everything in one session; returns what the client printed, prompt by prompt where it can be told."""
        return [self.run(place, prompt, resumes=at > 0, timeout=timeout) for at, prompt in enumerate(prompts)]

    def type_in(self, place: Place, lines: Sequence[str], timeout: float = 300) -> list[str]:
        """Type lines in one process, each after the answer to the one before; returns what the client said to each."""
        raise NotImplementedError(f"{self.name} takes lines in a terminal only")

    def start(self, place: Place, prompt: str, *, resumes: bool = False) -> subprocess.Popen[str]:
        """Start the client on a prompt."""
        return self._started(place, self.command(place, prompt, resumes=resumes), subprocess.DEVNULL)

    def _started(self, place: Place, command: Sequence[str], stdin: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=place.folder,
            env=self.environment(place),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if stdin == subprocess.DEVNULL else subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
        )

    def _exchange(
        self, place: Place, command: Sequence[str], lines: Sequence[Mapping[str, object]], ends: str, timeout: float
    ) -> list[dict[str, Any]]:
        """Write objects to a client, a line each, and read up to the end of each answer; returns those ends.

        Args:
            place: where it runs.
            command: what to run.
            lines: what to write; an object without a message is answered with a ``response``.
            ends: the type of the object that ends the answer to a message.
            timeout: seconds for all of it.
        """
        found: list[dict[str, Any]] = []
        with self._started(place, command, subprocess.PIPE) as process:
            timer = threading.Timer(timeout, process.kill)
            timer.start()
            try:
                assert process.stdin is not None  # noqa: S101 - they are pipes
                assert process.stdout is not None  # noqa: S101 - as above
                for line in lines:
                    process.stdin.write(json.dumps(line) + "\n")
                    process.stdin.flush()
                    end = ends if "message" in line else "response"
                    told = (json.loads(one) for one in process.stdout if one.startswith("{"))
                    last = next((one for one in told if one.get("type") == end), None)
                    if last is None:
                        raise RuntimeError(f"{self.name} ended before it had answered {str(line)[:200]}")
                    found.append(last)
                process.stdin.close()
                process.stdout.read()
            finally:
                timer.cancel()
                process.kill()
        return found


class ClaudeCode(Program):
    """Claude Code."""

    name, api, model = "claude-code", "anthropic", "claude-sonnet-4-5"
    has_agents = takes_lines = True

    def variables(self, place: Place) -> dict[str, str]:
        """Return address and key; forbid other traffic."""
        limited = {"CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(place.answer)} if place.answer else {}
        return {
            **limited,
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

    def type_in(self, place: Place, lines: Sequence[str], timeout: float = 300) -> list[str]:
        """Send lines as messages of a stream, as programs that drive Claude Code send them."""
        streaming = ["--input-format", "stream-json", "--output-format", "stream-json", "--verbose"]
        plain = [word for word in self.command(place, "", resumes=False) if word]
        given = [{"type": "user", "message": {"role": "user", "content": line}} for line in lines]
        ends = self._exchange(place, [*plain, *streaming], given, "result", timeout)
        return [str(end.get("result")) for end in ends]

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
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
    takes_lines = True

    def prepare(self, place: Place) -> None:
        """Write its list of models, and switch off what it asks the network for."""
        model = {
            "id": place.model,
            "name": place.model,
            "reasoning": False,
            "input": ["text"],
            "cost": {"input": 3, "output": 15, "cacheRead": 0.3, "cacheWrite": 3.75},
            "contextWindow": place.window,
            "maxTokens": place.answer or 16_000,
        }
        api = {"anthropic": "anthropic-messages", "openai": "openai-completions"}[self.api]
        url = place.url if self.api == "anthropic" else f"{place.url}/v1"
        provider = {"baseUrl": url, "api": api, "apiKey": _KEY, "models": [model]}
        place.write(".pi/agent/models.json", json.dumps({"providers": {"harbour": provider}}))

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """Return variables that forbid other network traffic."""
        return {"PI_OFFLINE": "1", "PI_SKIP_VERSION_CHECK": "1", "PI_TELEMETRY": "0"}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Print mode."""
        resuming = ["--continue"] if resumes else []
        return [*command_of(self.name), "-p", *resuming, "--provider", "harbour", "--model", place.model, prompt]

    def type_in(self, place: Place, lines: Sequence[str], timeout: float = 300) -> list[str]:
        """Send prompts in the mode for other programs, in which ``/clear`` is a separate command."""
        command = [*command_of(self.name), "--mode", "rpc", "--provider", "harbour", "--model", place.model]
        given = [{"type": "new_session"} if line == "/clear" else {"type": "prompt", "message": line} for line in lines]
        return [json.dumps(end) for end in self._exchange(place, command, given, "agent_end", timeout)]

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Return a call of its tools read, bash and write; it has no sub-agents."""
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
    has_agents = True

    def prepare(self, place: Place) -> None:
        """Write its configuration: a provider of its own with one model."""
        package = {"anthropic": "@ai-sdk/anthropic", "openai": "@ai-sdk/openai-compatible"}[self.api]
        model = {"name": place.model, "limit": {"context": place.window, "output": place.answer or 32_000}}
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
            "snapshot": False,
            "lsp": False,
            "formatter": False,
            "provider": {"harbour": provider},
        }
        place.write(".config/opencode/opencode.json", json.dumps(config))

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """Return variables that forbid downloads."""
        names = ("AUTOUPDATE", "MODELS_FETCH", "LSP_DOWNLOAD", "DEFAULT_PLUGINS")
        return {f"OPENCODE_DISABLE_{name}": "1" for name in names}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Run mode."""
        resuming = ["--continue"] if resumes else []
        return [*command_of(self.name), "run", *resuming, "--model", f"harbour/{place.model}", prompt]

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:
        """Return a call of its tools read, bash, task, and write or apply_patch, whichever the model is offered."""
        if step.kind == "read":
            return "read", {"filePath": str(folder / step.path)}
        if step.kind == "agent":
            return "task", {"description": "A look", "prompt": step.text, "subagent_type": "general"}
        if step.kind == "write" and "write" in ask.tools:
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
    has_agents = awaits_agents = True

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
        """Return its home and a key."""
        return {"CODEX_HOME": str(place.home / ".codex"), "HARBOUR_KEY": _KEY}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:  # noqa: ARG002
        """Return exec mode without a sandbox, which needs rights that a test machine may not give."""
        resuming = ["resume", "--last"] if resumes else []
        free = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return [*command_of(self.name), "exec", *resuming, *free, prompt]

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Return commands for everything, as Codex does it; sub-agents are begun and waited for."""
        if step.kind == "agent":
            return "spawn_agent", {"message": step.text}
        if step.kind == "wait":
            begun = re.search(r"agent_id\W+([\w-]+)", ask.results[-1][1])
            return "wait_agent", {"targets": [begun[1] if begun else ""], "timeout_ms": 120_000}
        return "exec_command", {"cmd": _command(step)}


class Cline(Program):
    """Cline's command line, in OpenAI's format; it resumes sessions in a terminal only."""

    name, api, model = "cline", "openai", "gpt-5"
    resumes = names_agents = False
    has_agents = True

    def prepare(self, place: Place) -> None:
        """Have it note the address and the key."""
        place.write(
            ".cline/data/settings/global-settings.json",
            json.dumps({"telemetryOptOut": True, "autoUpdateEnabled": False}),
        )
        asked = ["auth", "-p", "openai", "-k", _KEY, "-m", place.model, "-b", f"{place.url}/v1"]
        command = [*command_of(self.name), *asked]
        environment = self.environment(place)
        subprocess.run(command, cwd=place.folder, env=environment, capture_output=True, check=True, timeout=60)

    def variables(self, place: Place) -> dict[str, str]:  # noqa: ARG002
        """Return variables that forbid a background process."""
        return {"CLINE_SESSION_BACKEND_MODE": "local"}

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:  # noqa: ARG002
        """Return the command for one prompt in a new session."""
        if resumes:
            raise ValueError("Cline resumes a session only in a terminal; give it one prompt")
        return [*command_of(self.name), prompt]

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:  # noqa: ARG002
        """Return a call of its tools read_files, run_commands, apply_patch and spawn_agent."""
        if step.kind == "read":
            return "read_files", {"files": [{"path": str(folder / step.path)}]}
        if step.kind == "agent":
            return "spawn_agent", {"systemPrompt": "You help with a look around.", "task": step.text}
        return "run_commands", {"commands": [_command(step)]}


class Aider(Program):
    """aider, which has no tools: files change by what the model says."""

    name, api, model, small_model = "aider", "openai", "openai/gpt-4o", "gpt-4o-mini"
    has_tools = False
    takes_lines = True

    def prepare(self, place: Place) -> None:
        """Give it the list of prices that it would load, from its own packages."""
        prices = next((FOLDER / self.name).glob("lib/python*/site-packages/litellm/model_prices*_backup.json"))
        place.write(".aider/caches/model_prices_and_context_window.json", prices.read_text(encoding="utf-8"))

    def variables(self, place: Place) -> dict[str, str]:
        """Return address and key; forbid analytics, updates and lists of prices from elsewhere."""
        return {
            "OPENAI_API_BASE": f"{place.url}/v1",
            "OPENAI_API_KEY": _KEY,
            "AIDER_ANALYTICS": "false",
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        }

    def command(self, place: Place, prompt: str, *, resumes: bool) -> list[str]:
        """Return the command for one message; an earlier chat is restored from its file."""
        resuming = ["--restore-chat-history"] if resumes else []
        return [*self._interactive(place), *resuming, *(["--message", prompt] if prompt else [])]

    def _interactive(self, place: Place) -> list[str]:
        options = ["--no-show-model-warnings", "--no-check-update", "--no-pretty", "--yes-always", "--no-gitignore"]
        options += ["--no-git", "--map-tokens", "0", "--no-detect-urls", "--no-suggest-shell-commands"]
        if place.answer:  # a small window, of which its own summarizer knows nothing
            options += ["--max-chat-history-tokens", str(place.window)]
        return [*command_of(self.name), "--model", place.model, *options]

    def talk(self, place: Place, prompts: Sequence[str], timeout: float = 300) -> list[str]:
        """Send all prompts to one process, a line each."""
        ran = subprocess.run(
            self._interactive(place),
            input="\n".join([*prompts, "/exit", ""]),
            cwd=place.folder,
            env=self.environment(place),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
        return [ran.stdout]

    def type_in(self, place: Place, lines: Sequence[str], timeout: float = 300) -> list[str]:
        """Send all lines through a pipe; its answers cannot be told apart."""
        return self.talk(place, lines, timeout)

    def call(self, step: Step, ask: Ask, folder: Path) -> tuple[str, Mapping[str, object]]:
        """Say that it has none."""
        raise NotImplementedError("aider has no tools")


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
