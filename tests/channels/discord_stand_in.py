"""A stand-in for Discord on loopback: its gateway and the part of its REST API that a bot uses.

It runs in a thread of its own, so that a test and a killed program can both use it. Tests speak as people
(`DiscordStandIn.say`, `press`, `run_command`) and read what the bot did (`posted`, `requests`).
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import BodyPartReader, web

from tests.channels import discord_shapes as shapes
from tests.channels.discord_gateway_stand_in import GatewayStandIn
from tests.channels.discord_shapes import DM, TEXT, THREAD, Json, next_id
from tests.waiting import PATIENCE

T = TypeVar("T")
TOKEN = "MTIz.made-up.token"  # noqa: S105 - made up
LOADING, EPHEMERAL = 1 << 7, 1 << 6
CONTENT_INTENT = 1 << 18
"""The application's flag for the message content intent of a small bot: GATEWAY_MESSAGE_CONTENT."""


@dataclass(frozen=True, slots=True)
class Request:
    """A REST request of the bot."""

    method: str
    path: str


@dataclass(slots=True)
class Fault:
    """A late answer to the next request that matches."""

    method: str
    path: str
    delay: float
    """Seconds to wait after what was asked is done; the answer comes then."""


@dataclass(slots=True)
class Interaction:
    """A command or a pressed button that waits for the bot's answer."""

    id: str
    token: str
    channel: str
    person: Json
    message: str = ""
    """The message of the button, or of the reply."""
    is_answered: bool = False
    is_expired: bool = False
    shown: list[Json] = field(default_factory=list)
    """What only the person sees."""


class Refusal(Exception):  # noqa: N818 - an answer, not a failure
    """Discord's answer to a request that it does not carry out."""

    def __init__(self, status: int, code: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = {"message": message, "code": code, **more}


class DiscordStandIn:
    """Discord with one bot, one server and as many people as a test wants."""

    def __init__(self) -> None:
        self.token = TOKEN
        self.bot = shapes.user("900000000000000001", "everlong", is_bot=True)
        self.application = shapes.application(self.bot["id"], "everlong", CONTENT_INTENT << 1)
        self.allows_content = True
        self.people: dict[str, Json] = {}
        self.guilds: dict[str, str] = {}
        self.roles: dict[str, list[Json]] = {}
        self.channels: dict[str, Json] = {}
        self.messages: dict[str, dict[str, Json]] = {}
        self.files: dict[str, tuple[str, bytes]] = {}
        self.commands: list[Json] = []
        self.interactions: dict[str, Interaction] = {}
        self.nonces: dict[str, tuple[str, str]] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.gateway = GatewayStandIn(self)
        self._loop = asyncio.new_event_loop()
        self._port = 0

    # -- the server ------------------------------------------------------------------------------------------------
    @property
    def api(self) -> str:
        """The base address for `DiscordPlatform`."""
        return f"http://127.0.0.1:{self._port}/api/v10"

    @property
    def socket(self) -> str:
        """The address of the gateway."""
        return f"ws://127.0.0.1:{self._port}/gateway"

    async def start(self) -> None:
        app = web.Application(client_max_size=64 * 1024**2)
        app.router.add_get("/gateway", self.gateway.serve)
        app.router.add_get("/files/{id}/{name}", self._file)
        app.router.add_route("*", "/api/v10/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self._port)
        await site.start()
        server: Any = site._server
        self._port = server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        await self.gateway.close()
        await self._runner.cleanup()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)

    def call(self, do: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something in the server's thread, and return what came of it."""
        return asyncio.run_coroutine_threadsafe(do(), self._loop).result(PATIENCE)

    # -- what people do --------------------------------------------------------------------------------------------
    def add_person(self, name: str) -> str:
        number = next_id()
        self.people[number] = shapes.user(number, name)
        return number

    def add_guild(self, name: str = "lab") -> str:
        number = next_id()
        self.guilds[number] = name
        self.roles[number] = [shapes.role(next_id(), "everlong", self.bot["id"])]
        return number

    def add_channel(self, guild: str, name: str = "general", kind: int = TEXT) -> str:
        return self._add_channel(shapes.channel(next_id(), kind, name, guild_id=guild))

    def add_private_chat(self, person: str) -> str:
        for number, known in self.channels.items():
            if known["type"] == DM and known["recipients"][0]["id"] == person:
                return number
        return self._add_channel(shapes.channel(next_id(), DM, recipients=[self.people[person]]))

    def add_thread(self, parent: str) -> str:
        """Add a thread that the bot does not hear of, as one that was archived."""
        guild = self.channels[parent]["guild_id"]
        number = next_id()
        return self._add_channel(shapes.channel(number, THREAD, "a thread", guild_id=guild, parent_id=parent))

    def say(self, person: str, channel: str, text: str, *, mentions: bool = False, **more: Any) -> str:
        """Say something, with a mention of the bot if wanted; return the id of the message."""
        if mentions:
            text = f"<@{self.bot['id']}> {text}"
        content = shapes.message(next_id(), channel, self.people[person], text, **more)
        content["mentions"] = [who for who in (self.bot, *self.people.values()) if f"<@{who['id']}>" in text]
        answered = (content.get("message_reference") or {}).get("message_id")
        if answered and content["type"] == 0 and "message_snapshots" not in content:
            content |= {"type": 19, "referenced_message": self.messages[channel].get(answered)}
        self.call(lambda: self._publish(content))
        return str(content["id"])

    def add_file(self, name: str, media_type: str, data: bytes, size: int | None = None) -> Json:
        """Return an attachment for `say`; ``size`` is what Discord states, if it differs."""
        number = next_id()
        self.files[number] = (media_type, data)
        url = f"http://127.0.0.1:{self._port}/files/{number}/{name}"
        return shapes.attachment(number, name, media_type, len(data) if size is None else size, url)

    def press(self, person: str, message: str, label: str) -> Interaction:
        """Press the button with a label under a message of the bot."""
        content = self._message(message)
        found = [
            button for row in content["components"] for button in row["components"] if button.get("label") == label
        ]
        data = {"custom_id": found[0]["custom_id"], "component_type": 2}
        return self._interact(3, person, content["channel_id"], data, message=content)

    def run_command(self, person: str, channel: str, name: str, **options: str) -> Interaction:
        """Use a slash command."""
        values = [{"name": key, "type": 3, "value": value} for key, value in options.items()]
        data = {"id": "1", "name": name, "type": 1, "options": values}
        return self._interact(2, person, channel, data)

    def _interact(self, kind: int, person: str, channel: str, data: Json, message: Json | None = None) -> Interaction:
        number, token = next_id(), f"token-{next_id()}"
        made = Interaction(number, token, channel, self.people[person], message=message["id"] if message else "")
        self.interactions[number] = made
        event = shapes.interaction(
            number, token, self.bot["id"], kind, self.people[person], self.channels[channel], data
        )
        if message is not None:
            event["message"] = message
        self.call(lambda: self.gateway.dispatch("INTERACTION_CREATE", event))
        return made

    # -- what the bot did ------------------------------------------------------------------------------------------
    def posted(self, channel: str) -> list[str]:
        """Return the bot's messages of a channel, as they stand now."""
        return [content["content"] for content in self.posted_messages(channel)]

    def posted_messages(self, channel: str) -> list[Json]:
        found = list(self.messages.get(channel, {}).values())
        return [content for content in found if content["author"]["id"] == self.bot["id"]]

    def forget_nonces(self) -> None:
        """Let the minutes pass for which Discord remembers nonces."""
        self.nonces.clear()

    # -- state -----------------------------------------------------------------------------------------------------
    def _add_channel(self, content: Json) -> str:
        self.channels[content["id"]] = content
        self.messages[content["id"]] = {}
        return str(content["id"])

    def _message(self, number: str) -> Json:
        return next(known[number] for known in self.messages.values() if number in known)

    def _guild_of(self, channel: str) -> Json:
        guild = self.channels[channel].get("guild_id")
        return {"guild_id": guild} if guild else {}

    def _event(self, content: Json) -> Json:
        """Return a message as the gateway sends it: with the server, and the author's membership."""
        where = self._guild_of(content["channel_id"])
        return {**content, **where, **({"member": shapes.member()} if where else {})}

    async def _publish(self, content: Json) -> None:
        channel = content["channel_id"]
        self.messages[channel][content["id"]] = content
        self.channels[channel]["last_message_id"] = content["id"]
        await self.gateway.dispatch("MESSAGE_CREATE", self._event(content))

    def guild_payloads(self) -> list[Json]:
        """Return each server as GUILD_CREATE shows it: without archived threads."""
        made = []
        for number, name in self.guilds.items():
            own = [known for known in self.channels.values() if known.get("guild_id") == number]
            plain = [known for known in own if known["type"] == TEXT]
            made.append(shapes.guild(number, name, plain, self.roles[number]))
        return made

    # -- REST ------------------------------------------------------------------------------------------------------
    async def _answer(self, request: web.Request) -> web.StreamResponse:
        path = "/" + request.match_info["path"]
        body = await _read_body(request)
        fault = self._fault(request.method, path)
        try:
            self._check_login(request, path)
            status, answer = await self._route(request, path, body)
        except Refusal as refusal:
            status, answer = refusal.status, refusal.body
        self.requests.append(Request(request.method, path))
        if fault is not None:
            await asyncio.sleep(fault.delay)
        if answer is None:
            return web.Response(status=204)
        # Discord names no charset; its library looks for exactly this type.
        headers = {"Content-Type": "application/json"}
        return web.Response(status=status, body=json.dumps(answer).encode(), headers=headers)

    def _fault(self, method: str, path: str) -> Fault | None:
        for fault in self.faults:
            if fault.method == method and re.search(fault.path, path):
                self.faults.remove(fault)
                return fault
        return None

    def _check_login(self, request: web.Request, path: str) -> None:
        if path.startswith(("/interactions/", "/webhooks/")):
            return
        if request.headers.get("Authorization") != f"Bot {self.token}":
            raise Refusal(401, 0, "401: Unauthorized")

    async def _route(self, request: web.Request, path: str, body: Json) -> tuple[int, Any]:
        handlers: dict[str, Callable[..., Any]] = {
            r"GET /users/@me": lambda: self.bot,
            r"GET /(?:oauth2/)?applications/@me": self._application,
            r"GET /gateway/bot": self._gateway_bot,
            r"PUT /applications/\d+/commands": self._put_commands,
            r"GET /channels/(\d+)": self._seen_channel,
            r"POST /channels/(\d+)/messages": self._post_message,
            r"PATCH /channels/(\d+)/messages/(\d+)": self._patch_message,
            r"POST /channels/(\d+)/typing": self._type,
            r"POST /interactions/(\d+)/([^/]+)/callback": self._answer_interaction,
            r"PATCH /webhooks/\d+/([^/]+)/messages/@original": self._patch_reply,
        }
        for pattern, handler in handlers.items():
            found = re.fullmatch(pattern, f"{request.method} {path}")
            if found is None:
                continue
            if request.method in {"POST", "PATCH", "PUT"}:
                made = handler(*found.groups(), body)
            else:
                made = handler(*found.groups())
            answer = await made if isinstance(made, Awaitable) else made
            return (204, None) if answer is None else (200, answer)
        raise Refusal(404, 0, "404: Not Found")

    def _application(self) -> Json:
        return {**self.application, "flags": CONTENT_INTENT << 1 if self.allows_content else 0}

    def _gateway_bot(self) -> Json:
        limit = {"total": 1000, "remaining": 999, "reset_after": 14_400_000, "max_concurrency": 1}
        return {"url": self.socket, "shards": 1, "session_start_limit": limit}

    def _put_commands(self, body: Any) -> list[Json]:
        for command in body:
            if not re.fullmatch(r"[-_\w]{1,32}", command["name"]) or not 1 <= len(command["description"]) <= 100:
                raise Refusal(400, 50035, "Invalid Form Body")
        self.commands = [{"id": next_id(), "version": next_id(), **command} for command in body]
        return self.commands

    def _seen_channel(self, channel: str) -> Json:
        if channel not in self.channels:
            raise Refusal(404, 10003, "Unknown Channel")
        return self.channels[channel]

    def _get_message(self, channel: str, message: str) -> Json:
        self._seen_channel(channel)
        if message not in self.messages[channel]:
            raise Refusal(404, 10008, "Unknown Message")
        return self.messages[channel][message]

    async def _post_message(self, channel: str, body: Json) -> Json:
        self._seen_channel(channel)
        self._check_content(body)
        nonce = str(body.get("nonce", ""))
        if len(nonce) > 25:
            raise Refusal(400, 50035, "Invalid Form Body")
        if body.get("enforce_nonce") and nonce in self.nonces:
            known_channel, known = self.nonces[nonce]
            return self.messages[known_channel][known]
        number = next_id()
        content = shapes.message(number, channel, self.bot, (body.get("content") or "").strip())
        content |= {"components": body.get("components") or [], "attachments": self._uploads(body)}
        content["flags"] = body.get("flags") or 0
        reference = body.get("message_reference")
        if reference and str(reference["message_id"]) in self.messages[channel]:
            content |= {"type": 19, "message_reference": {**reference, "message_id": str(reference["message_id"])}}
        elif reference and reference.get("fail_if_not_exists", True):
            raise Refusal(400, 50035, "Invalid Form Body")
        if nonce:
            content["nonce"] = nonce
            self.nonces[nonce] = (channel, number)
        await self._publish(content)
        return content

    def _check_content(self, body: Json) -> None:
        content = body.get("content") or ""
        if len(content) > 2000:
            raise Refusal(400, 50035, "Invalid Form Body")
        if not content.strip() and not body.get("files"):
            raise Refusal(400, 50006, "Cannot send an empty message")
        if sum(len(data) for _, data in body.get("files", ())) > 10 * 1024**2:
            raise Refusal(413, 40005, "Request entity too large")
        buttons = [button for row in body.get("components") or [] for button in row["components"]]
        if any(len(button["custom_id"]) > 100 or len(button["label"]) > 80 for button in buttons):
            raise Refusal(400, 50035, "Invalid Form Body")

    def _uploads(self, body: Json) -> list[Json]:
        return [self.add_file(name, "application/octet-stream", data) for name, data in body.get("files", ())]

    async def _patch_message(self, channel: str, message: str, body: Json) -> Json:
        content = self._get_message(channel, message)
        if content["author"]["id"] != self.bot["id"]:
            raise Refusal(403, 50005, "Cannot edit a message authored by another user")
        self._check_content(body)
        await self._change(content, body)
        return content

    async def _change(self, content: Json, body: Json) -> None:
        flags = int(body.get("flags", content["flags"]) or 0) & ~LOADING
        content |= {"content": body["content"].strip(), "flags": flags}
        content["components"] = body.get("components", content["components"])
        content["edited_timestamp"] = shapes.time_of(next_id())
        await self.gateway.dispatch("MESSAGE_UPDATE", self._event(content))

    def _type(self, channel: str, body: Json) -> None:  # noqa: ARG002 - as every POST
        self._seen_channel(channel)

    async def _answer_interaction(self, number: str, token: str, body: Json) -> None:
        made = self.interactions.get(number)
        if made is None or made.token != token or made.is_expired:
            raise Refusal(404, 10062, "Unknown interaction")
        if made.is_answered:
            raise Refusal(400, 40060, "Interaction has already been acknowledged.")
        made.is_answered = True
        data = body.get("data") or {}
        if data.get("flags", 0) & EPHEMERAL:
            made.shown.append(data)
        elif body["type"] in {4, 5}:
            content = shapes.message(next_id(), made.channel, self.bot, data.get("content", ""), type=20)
            content["flags"] = LOADING if body["type"] == 5 else 0
            cause = {"id": number, "type": 2, "user": made.person, "authorizing_integration_owners": {}}
            content["interaction_metadata"] = cause
            made.message = content["id"]
            await self._publish(content)

    def _reply(self, token: str) -> Json:
        for made in self.interactions.values():
            if made.token == token and made.is_answered and not made.is_expired and made.message:
                return self._message(made.message)
        raise Refusal(404, 10015, "Unknown Webhook")

    async def _patch_reply(self, token: str, body: Json) -> Json:
        content = self._reply(token)
        self._check_content(body)
        await self._change(content, body)
        return content

    async def _file(self, request: web.Request) -> web.Response:
        number = request.match_info["id"]
        if number not in self.files:
            return web.Response(status=404, text="This content is no longer available.")
        media_type, data = self.files[number]
        return web.Response(body=data, content_type=media_type)


async def _read_body(request: web.Request) -> Any:
    if request.content_type.startswith("multipart/"):
        body: Json = {}
        files: list[tuple[str, bytes]] = []
        async for part in await request.multipart():
            assert isinstance(part, BodyPartReader)
            data = bytes(await part.read())
            if part.name == "payload_json":
                body |= json.loads(data)
            else:
                files.append((part.filename or "", data))
        return {**body, "files": files}
    text = await request.text()
    return json.loads(text) if text else {}


@contextmanager
def discord_stand_in() -> Iterator[DiscordStandIn]:
    """Run a stand-in for Discord in a thread."""
    made = DiscordStandIn()
    loop = made._loop
    thread = threading.Thread(target=loop.run_forever, name="discord-stand-in", daemon=True)
    thread.start()
    try:
        made.call(made.start)
        yield made
        made.call(made.stop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()
