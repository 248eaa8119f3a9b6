"""Clients as the world has them: each keeps its own history and sends all of it, never twice in the same words.

A history is a list of what was said; how it is put on the wire changes from request to request, as it does with real
clients. Knows all APIs and no gateway.
"""

from __future__ import annotations

import copy
import json
import random
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tests.api_rules.seals import seal

SYSTEM = "You are a careful assistant. Today you help with a long piece of work."
FIRST = "Let us begin with the work that we talked about."
REMINDER = "<system-reminder>\nThe list of things to do is empty ({}).\n</system-reminder>"
CLEARED = "[Old tool result content cleared]"

Api = Literal["anthropic", "openai", "responses"]
PATHS = {"anthropic": "/v1/messages?beta=true", "openai": "/v1/chat/completions", "responses": "/v1/responses"}


class Item(NamedTuple):
    """One thing that was said: by a user, by the model, a call, or the result of one."""

    kind: Literal["user", "assistant", "call", "result"]
    text: str
    """Words; the place that a call looks at."""
    ident: str = ""
    """The id of a call."""


class Sent(NamedTuple):
    """A request that was sent, and the number of the reply that it got."""

    client: str
    family: str
    tenant: str
    items: tuple[Item, ...]
    reply: str
    is_side: bool


@dataclass
class Client:
    """One conversation of one tenant."""

    name: str
    tenant: str
    api: Api
    rng: random.Random
    system: str = SYSTEM
    headers: dict[str, str] = field(default_factory=dict)
    history: list[Item] = field(default_factory=list)
    is_plain: bool = True
    """Whether it has only ever gone on."""
    turns: int = 0
    padding: str = ""
    """What makes its messages long."""
    family: str = ""
    """Forks have that of the conversation that they come from."""

    def __post_init__(self) -> None:
        self.family = self.family or self.name

    def fork(self, name: str) -> Client:
        """Another conversation that goes on from somewhere in this one; whoever speaks first there goes on with it."""
        places = [at for at, item in enumerate(self.history, 1) if item.kind == "assistant"]
        other = copy.deepcopy(self)
        other.name, other.rng = name, random.Random(f"{name} {self.rng.random()}")
        other.history = self.history[: self.rng.choice(places)]
        other.is_plain = self.is_plain = False
        return other

    # -- what a client does next ---------------------------------------------------------------------------------------

    def say(self) -> None:
        """Answer calls, or say something more."""
        if self.history and self.history[-1].kind == "call":
            calls = self._open_calls()
            self.history += [Item("result", f"{call.text} is fine, says {self.name}", call.ident) for call in calls]
        elif not self.history:
            self.history.append(Item("user", FIRST))
        else:
            self.history.append(Item("user", f"{self.name} goes on ({self.rng.randrange(10**9)})" + self.padding))

    def rewind(self) -> None:
        """Take back some turns and say something else."""
        places = [at for at, item in enumerate(self.history, 1) if item.kind == "assistant"]
        if places:
            self.is_plain = False
            self.history = self.history[: self.rng.choice(places)]
        self.say()

    def edit(self, *, keeps_the_rest: bool) -> None:
        """Change something that was said before."""
        places = [at for at, item in enumerate(self.history) if item.kind == "user"]
        at = self.rng.choice(places)
        self.is_plain = False
        rest = self.history[at + 1 :] if keeps_the_rest else []
        self.history = [*self.history[:at], Item("user", f"{self.name} says it anew {self.rng.random()}"), *rest]
        if rest:
            self.say()

    def clear(self) -> None:
        """Clear the results of all calls but the newest, as clients do to save room."""
        results = [at for at, item in enumerate(self.history) if item.kind == "result"][:-1]
        for at in results:
            if self.history[at].text != CLEARED:
                self.is_plain = False
                self.history[at] = self.history[at]._replace(text=CLEARED)
        self.say()

    def _open_calls(self) -> list[Item]:
        done = {item.ident for item in self.history if item.kind == "result"}
        return [item for item in self.history if item.kind == "call" and item.ident not in done]

    # -- on the wire ---------------------------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        """Where its requests go."""
        return PATHS[self.api]

    def body(self, *, streams: bool = False) -> bytes:
        """The whole history as this client would put it today."""
        made = {"anthropic": self._claude, "openai": self._gpt, "responses": self._codex}[self.api]()
        made |= {"stream": True} if streams else {}
        text = json.dumps(made, ensure_ascii=self.rng.random() < 0.5)
        return text.encode()

    def _claude(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = []
        for item in self.history:
            role, block = _block(item)
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"].append(block)
            else:
                messages.append({"role": role, "content": [block]})
        if self.rng.random() < 0.4:
            messages[-1]["content"].append({"type": "text", "text": REMINDER.format(self.rng.random())})
        for message in messages:
            content = message["content"]
            if len(content) == 1 and content[0]["type"] == "text" and self.rng.random() < 0.5:
                message["content"] = content[0]["text"]
        if self.rng.random() < 0.7 and isinstance(messages[-1]["content"], list):
            messages[-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        tools = [{"name": "look", "input_schema": {"type": "object", "properties": {"at": {"type": "string"}}}}]
        return {
            "model": "claude-sonnet-5",
            "max_tokens": 100,
            "system": [{"type": "text", "text": self.system}] if self.rng.random() < 0.5 else self.system,
            "tools": tools,
            "messages": messages,
        }

    def _gpt(self) -> dict[str, Any]:
        messages: list[dict[str, Any]] = [{"role": "system", "content": self.system}]
        for item in self.history:
            if item.kind == "call":
                function = {"name": "look", "arguments": json.dumps({"at": item.text})}
                call = {"id": item.ident, "type": "function", "function": function}
                if messages[-1]["role"] != "assistant":
                    messages.append({"role": "assistant", "content": None})
                messages[-1].setdefault("tool_calls", []).append(call)
            elif item.kind == "result":
                messages.append({"role": "tool", "tool_call_id": item.ident, "content": item.text})
            else:
                parts = [{"type": "text", "text": item.text}]
                content = parts if item.kind == "user" and self.rng.random() < 0.5 else item.text
                messages.append({"role": item.kind, "content": content})
        look: Any = {"name": "look", "parameters": {"type": "object", "properties": {"at": {"type": "string"}}}}
        return {"model": "gpt-test", "messages": messages, "tools": [{"type": "function", "function": look}]}

    def _codex(self) -> dict[str, Any]:
        items: list[dict[str, Any]] = [{"role": "developer", "content": self.system}]
        for number, item in enumerate(self.history):
            speaks = item.kind in {"assistant", "call"} and self.history[number - 1].kind in {"user", "result"}
            if speaks and self.rng.random() < 0.5:  # clients keep reasoning for a while, and leave it out later
                thought = {"type": "reasoning", "id": f"rs_{number}", "summary": []}
                items.append({**thought, "encrypted_content": seal("rs", f"What comes at {number}?")})
            items.append(self._item(item))
        look = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
        return {"model": "gpt-test", "input": items, "tools": [look], "store": False}

    def _item(self, item: Item) -> dict[str, Any]:
        named = {"id": f"item_{self.rng.random()}"} if self.rng.random() < 0.3 else {}
        if item.kind == "call":
            call = {"type": "function_call", "call_id": item.ident, "name": "look"}
            return {**call, "arguments": json.dumps({"at": item.text}), **named}
        if item.kind == "result":
            return {"type": "function_call_output", "call_id": item.ident, "output": item.text, **named}
        part = {"type": "output_text" if item.kind == "assistant" else "input_text", "text": item.text}
        content = [part] if self.rng.random() < 0.5 else item.text
        return {"type": "message", "role": item.kind, "content": content, **named}


def _block(item: Item) -> tuple[str, dict[str, Any]]:
    if item.kind == "call":
        return "assistant", {"type": "tool_use", "id": item.ident, "name": "look", "input": {"at": item.text}}
    if item.kind == "result":
        return "user", {"type": "tool_result", "tool_use_id": item.ident, "content": item.text}
    return item.kind, {"type": "text", "text": item.text}


def reply_items(message: dict[str, Any]) -> list[Item]:
    """A reply, in any format, as things that were said."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    items = [Item("assistant", block["text"]) for block in blocks if block["type"] == "text"]
    items += [Item("call", block["input"]["at"], block["id"]) for block in blocks if block["type"] == "tool_use"]
    for call in message.get("tool_calls") or []:
        items.append(Item("call", json.loads(call["function"]["arguments"])["at"], call["id"]))
    return items


def told(messages: list[dict[str, Any]]) -> tuple[Item, ...]:
    """Stored messages, which are in the OpenAI format, as things that were said; reminders are nothing."""
    items: list[Item] = []
    for message in messages:
        role = message["role"]
        if role == "tool":
            items.append(Item("result", _words(message["content"])[0], message["tool_call_id"]))
        elif role == "assistant":
            items += reply_items(message)
        elif role == "user":
            items += [Item("user", text) for text in _words(message["content"]) if "<system-reminder>" not in text]
    return tuple(items)


def _words(content: Any) -> list[str]:
    return [content] if isinstance(content, str) else [part["text"] for part in content]
