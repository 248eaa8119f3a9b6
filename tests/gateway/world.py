"""Many clients at once, and a look at everything that was stored of them.

Who said what is known from the clients alone; the stored turns are held against it one by one.
"""

from __future__ import annotations

import copy
import http.client
import itertools
import json
import random
import threading
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from sqlalchemy import select

from everlong.store import Store
from everlong.store.schema import session as sessions
from everlong.store.tree import Branch
from everlong.testing.server import Answer, Ask, Call, Fault
from tests.api_rules.seals import seal
from tests.gateway.running import TENANT
from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable

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


APIS: tuple[Api, ...] = ("openai", "anthropic", "responses")
TITLE = "Write a title of a few words for this conversation."


def answer_to(ask: Ask) -> Answer:
    """A model that never says the same thing twice."""
    calls = [Call("look", {"at": f"place {ask.number}"})] if ask.number % 3 == 1 else []
    return Answer(f"This is reply {ask.number}.", calls=calls)


def slowly(number: int) -> Fault | None:
    """Some answers take so long that the request is stored before them."""
    return Fault("slow", seconds=0.12) if number % 37 == 0 else None


@dataclass
class World:
    """Conversations of several tenants, all of which begin alike."""

    seed: int
    tenants: list[str]
    conversations: int
    padding: str = ""
    """What makes messages long, so that conversations are compacted."""
    clients: list[Client] = field(default_factory=list)
    sent: list[Sent] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self._lock = threading.Lock()
        self._local = threading.local()
        self._numbers = itertools.count()
        for _ in range(self.conversations):
            self._add()

    def _add(self, **about: Any) -> Client:
        number = next(self._numbers)
        tenant = self.tenants[number % len(self.tenants)]
        made = Client(
            f"client {number}",
            about.pop("tenant", tenant),
            APIS[number // len(self.tenants) % len(APIS)],
            random.Random(f"{self.seed} {number}"),
            padding=self.padding,
            **about,
        )
        if number % 5 == 0:
            made.headers.setdefault("x-everlong-session", f"session of {made.name}")
        self.clients.append(made)
        return made

    def go_on(self, steps: int, ports: Callable[[], list[int]], at_once: int = 8) -> None:
        """Let every client do so many things, many of them at the same time."""
        for _ in range(steps):
            self._grow()
            order = self.rng.sample(self.clients, len(self.clients))
            with ThreadPoolExecutor(at_once) as pool:
                for failed in pool.map(lambda client: self._step(client, ports), order):
                    self.failures += failed

    def _grow(self) -> None:
        """Some conversations are forked, and some have others do a part of the work."""
        for client in self.rng.sample(self.clients, max(1, len(self.clients) // 20)):
            if any(item.kind == "assistant" for item in client.history):
                number = next(self._numbers)
                self.clients.append(client.fork(f"client {number}"))
            agent = {"x-claude-code-session-id": "one", "x-claude-code-agent-id": f"agent-{len(self.clients)}"}
            self._add(tenant=client.tenant, system="You search files for others.", headers=agent)

    def _step(self, client: Client, ports: Callable[[], list[int]]) -> list[str]:
        port = client.rng.choice(ports())
        try:
            self._act(client, port)
        except (OSError, http.client.HTTPException, KeyError, ValueError) as error:
            return [f"{client.name}: {type(error).__name__}: {error}"]
        return []

    def _act(self, client: Client, port: int) -> None:
        chance = client.rng.random() if client.turns > 1 else 1.0
        if client.history and client.history[-1].kind == "call":
            chance = 1.0
        if chance < 0.06:
            client.rewind()
        elif chance < 0.10:
            client.edit(keeps_the_rest=False)
        elif chance < 0.13:
            client.edit(keeps_the_rest=True)
        elif chance < 0.20:
            client.clear()
        else:
            client.say()
        if client.rng.random() < 0.1:
            self._ask_aside(client, port)
        # Some ask again before they have the answer, and go on with the one that comes to the second.
        bodies = [client.body(streams=client.rng.random() < 0.3) for _ in range(2 if client.rng.random() < 0.1 else 1)]
        with ThreadPoolExecutor(len(bodies)) as pool:
            replies = list(pool.map(lambda body: self._ask(client, port, body, client.history), bodies))
        client.history += replies[-1]
        client.turns += 1

    def _ask_aside(self, client: Client, port: int) -> None:
        """A title for a conversation, or a look at the quota: requests that no conversation comes of."""
        aside = Client(client.name, client.tenant, client.api, client.rng, system=TITLE)
        aside.history = [Item("user", "quota" if client.rng.random() < 0.5 else f"Title {client.rng.random()}")]
        self._ask(aside, port, aside.body(), aside.history, is_side=True)

    def _ask(self, client: Client, port: int, body: bytes, history: list[Item], *, is_side: bool = False) -> list[Item]:
        items = tuple(history)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        headers = {
            "content-type": "application/json",
            "authorization": "Bearer k",
            "x-api-key": "k",
            "anthropic-version": "2023-06-01",
            TENANT: client.tenant,
            **client.headers,
        }
        try:
            connection.request("POST", client.path, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        if answer.status != 200 or answer.headers.get("x-everlong-warning"):
            raise ValueError(f"{answer.status} {answer.headers.get('x-everlong-warning')} {data[:300]!r}")
        reply = reply_items(_message(data, client.api, is_stream=b'"stream": true' in body))
        with self._lock:
            self.sent.append(Sent(client.name, client.family, client.tenant, items, reply[0].text, is_side))
        return reply


def _message(data: bytes, api: str, *, is_stream: bool) -> dict[str, Any]:
    if api == "responses":
        last = data.decode().splitlines()[-2].removeprefix("data: ") if is_stream else data
        told = json.loads(last)
        return _spoken(told["response"]["output"] if is_stream else told["output"])
    if not is_stream:
        answer = json.loads(data)
        found: dict[str, Any] = answer if api == "anthropic" else answer["choices"][0]["message"]
        return found
    events = [json.loads(line[5:]) for line in data.decode().splitlines() if line.startswith("data: {")]
    text, calls = "", {}
    for event in events:
        if api == "anthropic":
            block, delta = event.get("content_block") or {}, event.get("delta") or {}
            if block.get("type") == "tool_use":
                calls[event["index"]] = [block["id"], ""]
            text += delta.get("text", "")
            if "partial_json" in delta:
                calls[event["index"]][1] += delta["partial_json"]
        for choice in event.get("choices", []):
            text += choice["delta"].get("content") or ""
            for call in choice["delta"].get("tool_calls") or []:
                kept = calls.setdefault(call["index"], [call.get("id"), ""])
                kept[1] += call["function"].get("arguments") or ""
    functions = [{"id": ident, "function": {"arguments": said}} for ident, said in calls.values()]
    return {"content": text, "tool_calls": functions}


def _spoken(output: list[dict[str, Any]]) -> dict[str, Any]:
    text = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
    calls = [item for item in output if item["type"] == "function_call"]
    functions = [{"id": call["call_id"], "function": {"arguments": call["arguments"]}} for call in calls]
    return {"content": text, "tool_calls": functions}


# -- what was stored ---------------------------------------------------------------------------------------------------


def problems_in(world: World, store_of: Callable[[str], Store]) -> list[str]:
    """Everything in the stores that is not as the clients know it; nothing if all is well."""
    problems = list(world.failures)
    nodes: dict[bytes, str] = {}
    for tenant in world.tenants:
        store = store_of(tenant)
        expected = {sent.reply: sent for sent in world.sent if sent.tenant == tenant}
        problems += _turns(store, expected)
        problems += _sessions(store, expected, world)
        problems += [f"{tenant}: {problem}" for problem in store.verify().problems]
        for turn in store.turns.since():
            if nodes.setdefault(turn.node, tenant) != tenant:
                problems.append(f"{tenant} and {nodes[turn.node]} share a message")
        strangers = {sent.client for sent in world.sent if sent.tenant != tenant}
        for name in sorted(strangers)[:5]:
            if store.search(f'"{name} goes on"').hits:
                problems.append(f"{tenant} can find what {name} said")
    return problems


def _turns(store: Store, expected: dict[str, Sent]) -> list[str]:
    """Each request with the messages that it was sent with, and each reply where it was given."""
    problems: list[str] = []
    seen: set[str] = set()
    for turn in store.turns.since():
        message = store.turns.reply(turn.id)
        reply = reply_items(message)[0].text if message else ""
        if turn.status != "done" or reply not in expected:
            problems.append(f"{store.tenant}: turn {turn.id} is {turn.status} with {reply!r}")
            continue
        seen.add(reply)
        at = Branch(turn.branch, turn.node, turn.depth)
        entries = [entry for entry in store.entries(at) if entry.id is not None]
        if told([entry.message for entry in entries]) != expected[reply].items:
            problems.append(f"{store.tenant}: turn {turn.id} of {expected[reply].client} is in a wrong place")
        if turn.echo_node is not None and reply not in store.read(turn.echo_node).text:
            problems.append(f"{store.tenant}: turn {turn.id} is linked with another's reply")
    problems += [f"{store.tenant}: {reply!r} was not stored" for reply in expected.keys() - seen]
    return problems


def _sessions(store: Store, expected: dict[str, Sent], world: World) -> list[str]:
    """Every turn is in a conversation, each conversation holds one, and one that only goes on stays one."""
    problems: list[str] = []
    members: dict[str, list[Sent]] = defaultdict(list)
    of_client: dict[str, set[str]] = defaultdict(set)
    with store.database.read() as connection:
        rows = connection.execute(
            select(sessions.c.id, sessions.c.conversation).where(sessions.c.tenant == store.tenant)
        )
        conversations = {row.id: row.conversation for row in rows}
    for turn in store.turns.since():
        message = store.turns.reply(turn.id)
        sent = expected.get(reply_items(message)[0].text) if message else None
        if sent is None:
            continue
        if turn.session is None:
            problems.append(f"{store.tenant}: turn {turn.id} of {sent.client} has no session")
            continue
        ident = conversations[turn.session]
        members[ident].append(sent)
        if not sent.is_side:
            of_client[sent.client].add(ident)
    for ident, turns in members.items():
        names = {sent.family for sent in turns}
        longest = max(turns, key=lambda sent: len(sent.items)).items
        if len(names) > 1:
            problems.append(f"{store.tenant}: conversation {ident} holds turns of {sorted(names)}")
        if not all(_leads_to(sent.items, longest) for sent in turns):
            problems.append(f"{store.tenant}: conversation {ident} holds turns that do not follow each other")
    asked = Counter((sent.client, sent.items) for sent in world.sent if not sent.is_side)
    repeats = Counter(dict.fromkeys(of_client, 0))
    repeats.update({client: sum(n - 1 for (name, _), n in asked.items() if name == client) for client in of_client})
    problems += [
        f"{store.tenant}: {client.name} only went on and has {len(of_client[client.name])} conversations"
        for client in world.clients
        if client.tenant == store.tenant
        and client.is_plain
        and len(of_client[client.name]) > 1 + repeats[client.name]  # a request asked twice got two replies
    ]
    empty = set(conversations.values()) - members.keys()
    return problems + [f"{store.tenant}: conversation {ident} has no turn" for ident in sorted(empty)]


def _leads_to(items: tuple[Item, ...], longer: tuple[Item, ...]) -> bool:
    """Return whether a request is the beginning of a longer one, from which results may have been cleared."""
    return all(
        mine == its
        or (mine.kind == its.kind == "result" and mine.ident == its.ident and CLEARED in {mine.text, its.text})
        for mine, its in zip(items, longer, strict=False)
    )
