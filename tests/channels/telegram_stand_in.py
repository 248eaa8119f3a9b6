"""A stand-in of Telegram's Bot API on loopback: the methods that the adapter uses, with their limits and errors.

It runs in a thread of its own. `TelegramStandIn.say` is what people do in their app; what they would see there is
in `shown`. The shapes of updates and the words of errors are those of the Bot API's
documentation and of its server.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Literal

from aiohttp import web

from tests.waiting import PATIENCE

TOKEN = "700000001:made-up-token-of-the-stand-in_0001"  # noqa: S105 - opens nothing but this stand-in
BOT_ID, BOT_NAME = 700000001, "everlong_test_bot"
MOST_TEXT = 4096
_JSON_FIELDS = {"entities", "caption_entities", "reply_markup", "reply_parameters", "commands", "allowed_updates"}
_NOT_MODIFIED = (
    "Bad Request: message is not modified: specified new message content and reply markup are exactly the same as a "
    "current content and reply markup of the message"
)
_CONFLICT = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
_COMMAND = re.compile(r"[a-z0-9_]{1,32}")

Fault = Literal["busy", "error", "before", "after"]
"""What goes wrong with a call: 429; 500; the connection ends before the call is done, or after it."""


class Refusal(Exception):  # noqa: N818 - what the server answers
    """An answer with ``ok: false``."""

    def __init__(self, code: int, description: str, **parameters: int) -> None:
        super().__init__(description)
        self.code, self.description, self.parameters = code, description, parameters


@dataclass
class Call:
    """A call of the bot."""

    method: str
    parameters: dict[str, Any]


@dataclass
class Shown:
    """A message of a chat as people see it now."""

    id: int
    chat: int
    topic: int | None
    text: str
    by_bot: bool
    person: dict[str, Any]
    reply_to: int | None = None
    html: str = ""
    """The text as the bot sent it."""
    markup: dict[str, Any] | None = None
    date: int = 0


@dataclass
class Chat:
    """A chat that the bot is in."""

    id: int
    type: Literal["private", "group", "supergroup"]
    title: str = ""
    is_forum: bool = False
    topics: dict[int, str] = field(default_factory=dict)
    closed: set[int] = field(default_factory=set)
    messages: dict[int, Shown] = field(default_factory=dict)
    next_id: int = 1

    def as_json(self) -> dict[str, Any]:
        named = {"first_name": self.title} if self.type == "private" else {"title": self.title}
        return {"id": self.id, "type": self.type, **named, **({"is_forum": True} if self.is_forum else {})}


class TelegramStandIn:
    """The server, and the people who write to the bot."""

    def __init__(self, faults: Callable[[Call], Fault | None] = lambda _: None, clock: Callable[[], float] = time.time):
        self.address = ""
        self.faults = faults
        self.clock = clock
        self.keeps_calls = True
        self.calls: list[Call] = []
        self.counts: Counter[str] = Counter()
        self.on_words: Callable[[Shown], None] = lambda _: None
        """Called with each message of the bot whose words are new; keep it quick."""
        self.chats: dict[int, Chat] = {}
        self._updates: deque[dict[str, Any]] = deque()
        self._next_update = 5000
        self._poll: asyncio.Future[None] | None = None
        self._came: asyncio.Event
        self._lock = threading.RLock()
        self._loop: asyncio.AbstractEventLoop
        self._leaving: asyncio.Event

    # -- what people do ------------------------------------------------------------------------------------------------
    def private_chat(self, person: int, name: str = "") -> Chat:
        """Return the chat of a person with the bot."""
        with self._lock:
            return self.chats.setdefault(person, Chat(person, "private", name or f"Person {person}"))

    def group(self, number: int, *, topics: tuple[int, ...] = ()) -> Chat:
        """Return a group that the bot is in; with topics, a forum."""
        with self._lock:
            names = {topic: f"Topic {topic}" for topic in topics}
            chat = Chat(number, "supergroup", "A group", is_forum=bool(topics), topics=names, next_id=1000)
            return self.chats.setdefault(number, chat)

    def say(
        self,
        chat: int,
        person: int,
        text: str = "",
        *,
        topic: int | None = None,
        reply_to: int | None = None,
        **fields: Any,
    ) -> int:
        """Write a message; return its id.

        Args:
            chat: where.
            person: who.
            text: the words.
            topic: the forum topic.
            reply_to: the message that is answered.
            fields: further fields of the message: ``photo``, ``document``, ``forward_origin``, ``caption``.
        """
        with self._lock:
            where = self.chats.get(chat) or self.private_chat(chat)
            author = {"id": person, "is_bot": False, "first_name": f"Person {person}"}
            shown = self._keep(where, text, topic, author, by_bot=False, reply_to=reply_to)
            message = self._as_message(shown) | fields
            if not text:
                message.pop("text", None)
            if topic is not None and reply_to is None:  # a message of a topic answers the one that opened it
                opening = {"name": where.topics.get(topic, ""), "icon_color": 7322096}
                message["reply_to_message"] = {
                    "message_id": topic,
                    "date": shown.date,
                    "chat": where.as_json(),
                    "from": {"id": BOT_ID, "is_bot": True, "first_name": "Everlong", "username": BOT_NAME},
                    "forum_topic_created": opening,
                    "is_topic_message": True,
                    "message_thread_id": topic,
                }
            message["entities"] = _found_entities(text) if text else []
            if not message["entities"]:
                del message["entities"]
            self._push({"message": message})
            return shown.id

    # -- what they see -------------------------------------------------------------------------------------------------
    def shown(self, chat: int, topic: int | None = None, *, by_bot: bool = True) -> list[Shown]:
        """Return the messages of the bot in a chat or topic, in order."""
        with self._lock:
            found = self.chats[chat].messages.values() if chat in self.chats else []
            return [one for one in found if one.topic == topic and one.by_bot == by_bot]

    def all_shown(self) -> list[Shown]:
        """Return every message of the bot."""
        with self._lock:
            return [one for chat in self.chats.values() for one in chat.messages.values() if one.by_bot]

    def waiting(self) -> int:
        """Return how many updates are not acknowledged."""
        with self._lock:
            return len(self._updates)

    def called(self, method: str) -> list[dict[str, Any]]:
        """Return the parameters of each call of a method."""
        with self._lock:
            return [call.parameters for call in self.calls if call.method == method]

    # -- messages ------------------------------------------------------------------------------------------------------
    def _keep(
        self,
        chat: Chat,
        text: str,
        topic: int | None,
        person: dict[str, Any],
        *,
        by_bot: bool,
        reply_to: int | None = None,
    ) -> Shown:
        shown = Shown(chat.next_id, chat.id, topic, text, by_bot, person, reply_to, date=int(self.clock()))
        chat.messages[shown.id] = shown
        chat.next_id += 1
        return shown

    def _as_message(self, shown: Shown, *, with_reply: bool = True) -> dict[str, Any]:
        chat = self.chats[shown.chat]
        message: dict[str, Any] = {
            "message_id": shown.id,
            "date": shown.date,
            "chat": chat.as_json(),
            "from": shown.person,
            "text": shown.text,
        }
        if shown.topic is not None:
            message |= {"message_thread_id": shown.topic, "is_topic_message": True}
        if shown.markup:
            message["reply_markup"] = shown.markup
        if with_reply and shown.reply_to in chat.messages:
            message["reply_to_message"] = self._as_message(chat.messages[shown.reply_to], with_reply=False)
        return message

    def _push(self, fields: dict[str, Any]) -> None:
        self._updates.append({"update_id": self._next_update, **fields})
        self._next_update += 1
        self._loop.call_soon_threadsafe(self._came.set)

    # -- the server ----------------------------------------------------------------------------------------------------
    async def _answer(self, request: web.Request) -> web.StreamResponse:
        token, method = request.match_info["token"], request.match_info["method"]
        if token != TOKEN:
            known = re.fullmatch(r"[0-9]+:[\w-]+", token)
            return _refused(Refusal(401, "Unauthorized") if known else Refusal(404, "Not Found"))
        call = Call(method, await _parameters(request))
        with self._lock:
            self.counts[method] += 1
            if self.keeps_calls:
                self.calls.append(call)
        fault = self.faults(call)
        if fault == "error":
            return web.Response(status=502, text="<html><h1>502 Bad Gateway</h1></html>", content_type="text/html")
        if fault == "before":
            _hang_up(request)
            return web.Response()
        try:
            result = await self._do(call, is_busy=fault == "busy")
        except Refusal as refusal:
            return _refused(refusal)
        if fault == "after":
            _hang_up(request)
        return web.json_response({"ok": True, "result": result})

    async def _do(self, call: Call, *, is_busy: bool) -> Any:
        if is_busy:
            raise Refusal(429, "Too Many Requests: retry after 1", retry_after=1)
        if call.method == "getUpdates":
            return await self._get_updates(call.parameters)
        with self._lock:
            do = getattr(self, f"_do_{call.method}", None)
            if do is None:
                raise Refusal(404, "Not Found: method not found")
            return do(call.parameters)

    async def _get_updates(self, given: dict[str, Any]) -> list[dict[str, Any]]:
        self._end_poll()
        mine = self._poll = asyncio.get_running_loop().create_future()
        offset, limit = int(given.get("offset", 0)), min(100, int(given.get("limit", 100)))
        end = asyncio.get_running_loop().time() + float(given.get("timeout", 0))
        while True:
            with self._lock:
                while self._updates and self._updates[0]["update_id"] < offset:
                    self._updates.popleft()
                found = [self._updates[at] for at in range(min(limit, len(self._updates)))]
                self._came.clear()
            left = end - asyncio.get_running_loop().time()
            if found or left <= 0:
                return found
            came = asyncio.ensure_future(self._came.wait())
            await asyncio.wait({came, mine}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            came.cancel()
            if mine.done():
                raise Refusal(409, _CONFLICT)

    def _end_poll(self) -> None:
        if self._poll is not None and not self._poll.done():
            self._poll.set_result(None)

    # -- methods -------------------------------------------------------------------------------------------------------
    def _do_getMe(self, _: dict[str, Any]) -> Any:  # noqa: N802 - the API's name
        return {"id": BOT_ID, "is_bot": True, "first_name": "Everlong", "username": BOT_NAME}

    def _do_sendMessage(self, given: dict[str, Any]) -> Any:  # noqa: N802 - as above
        chat = self._writable(given)
        text = str(given.get("text", ""))
        shown = self._sent(chat, given, _checked_text(given))
        shown.html, shown.markup = text, _checked_markup(given.get("reply_markup"))
        self.on_words(shown)
        return self._as_message(shown)

    def _do_editMessageText(self, given: dict[str, Any]) -> Any:  # noqa: N802 - as above
        shown = self._own(given, "edit")
        text = str(given.get("text", ""))
        markup = given.get("reply_markup")
        if (text, markup) == (shown.html, shown.markup):
            raise Refusal(400, _NOT_MODIFIED)
        shown.text, shown.html, shown.markup = _checked_text(given), text, _checked_markup(markup)
        self.on_words(shown)
        return self._as_message(shown)

    def _do_sendChatAction(self, given: dict[str, Any]) -> Any:  # noqa: N802 - as above
        self._thread(self._writable(given), given)
        return True

    def _do_setMyCommands(self, given: dict[str, Any]) -> Any:  # noqa: N802 - as above
        for command in given["commands"]:
            if not _COMMAND.fullmatch(command["command"]) or not 1 <= len(command["description"]) <= 256:
                raise Refusal(400, "Bad Request: BOT_COMMAND_INVALID")
        return True

    def _do_deleteWebhook(self, _: dict[str, Any]) -> Any:  # noqa: N802 - as above
        return True

    # -- rules ---------------------------------------------------------------------------------------------------------
    def _writable(self, given: dict[str, Any]) -> Chat:
        chat = self.chats.get(int(given["chat_id"]))
        if chat is None:
            raise Refusal(400, "Bad Request: chat not found")
        return chat

    def _thread(self, chat: Chat, given: dict[str, Any]) -> int | None:
        topic = given.get("message_thread_id")
        if topic is None:
            return None
        if int(topic) not in chat.topics:
            raise Refusal(400, "Bad Request: message thread not found")
        if int(topic) in chat.closed:
            raise Refusal(400, "Bad Request: TOPIC_CLOSED")
        return int(topic)

    def _sent(self, chat: Chat, given: dict[str, Any], text: str) -> Shown:
        topic = self._thread(chat, given)
        reply = given.get("reply_parameters") or {}
        reply_to = reply.get("message_id")
        if reply_to is not None and reply_to not in chat.messages:
            if not reply.get("allow_sending_without_reply"):
                raise Refusal(400, "Bad Request: message to be replied not found")
            reply_to = None
        bot = {"id": BOT_ID, "is_bot": True, "first_name": "Everlong", "username": BOT_NAME}
        return self._keep(chat, text, topic, bot, by_bot=True, reply_to=reply_to)

    def _own(self, given: dict[str, Any], action: str) -> Shown:
        shown = self._writable(given).messages.get(int(given["message_id"]))
        if shown is None:
            raise Refusal(400, f"Bad Request: message to {action} not found")
        if not shown.by_bot:
            raise Refusal(400, f"Bad Request: message can't be {action.removesuffix('e')}ed")
        return shown

    # -- life ----------------------------------------------------------------------------------------------------------
    def _serve(self, ready: threading.Event) -> None:
        async def serve() -> None:
            self._loop, self._leaving, self._came = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
            app = web.Application(client_max_size=80_000_000)
            app.router.add_route("*", "/bot{token}/{method}", self._answer)
            runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.address = "http://127.0.0.1:{1}".format(*runner.addresses[0])
            ready.set()
            await self._leaving.wait()
            self._end_poll()
            await runner.cleanup()

        asyncio.run(serve())

    def start(self) -> threading.Thread:
        """Listen, in a thread of its own."""
        ready = threading.Event()
        thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        thread.start()
        assert ready.wait(PATIENCE)
        return thread

    def stop(self, thread: threading.Thread) -> None:
        """Stop listening."""
        self._loop.call_soon_threadsafe(self._leaving.set)
        thread.join(PATIENCE)
        assert not thread.is_alive()


@contextmanager
def stand_in(faults: Callable[[Call], Fault | None] = lambda _: None) -> Iterator[TelegramStandIn]:
    """Run a stand-in while the block runs."""
    server = TelegramStandIn(faults)
    thread = server.start()
    try:
        yield server
    finally:
        server.stop(thread)


async def _parameters(request: web.Request) -> dict[str, Any]:
    """Return the parameters of a call."""
    given = {name: str(value) for name, value in (await request.post()).items()}
    return {name: json.loads(value) if name in _JSON_FIELDS else value for name, value in given.items()}


def once(method: str, fault: Fault) -> Callable[[Call], Fault | None]:
    """Let the first call of a method fail."""
    left = [fault]
    return lambda call: left.pop() if call.method == method and left else None


def _refused(refusal: Refusal) -> web.Response:
    body: dict[str, Any] = {"ok": False, "error_code": refusal.code, "description": refusal.description}
    if refusal.parameters:
        body["parameters"] = refusal.parameters
    return web.json_response(body, status=refusal.code)


def _hang_up(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()


def _units(text: str) -> int:
    return len(text.encode("utf-16-le")) // 2


def _checked_text(given: dict[str, Any]) -> str:
    """Return the text that a message shows."""
    text = read_html(str(given.get("text", ""))) if given.get("parse_mode") == "HTML" else str(given.get("text", ""))
    if not text.strip():
        raise Refusal(400, "Bad Request: message text is empty")
    if _units(text) > MOST_TEXT:
        raise Refusal(400, "Bad Request: message is too long")
    return text


def read_html(text: str) -> str:
    """Return the text of a message in Telegram's HTML; refuse tags that it does not know, or that nothing ends."""
    opened: list[str] = []
    for end, name in re.findall(r"<(/?)([a-z]+)[^<>]*>", text):
        if not end:
            opened.append(name)
        elif not opened or opened.pop() != name:
            raise Refusal(400, f"Bad Request: can't parse entities: unexpected end tag {name}")
        if name not in {"a", "b", "blockquote", "code", "em", "pre", "s", "strong"}:
            raise Refusal(400, f"Bad Request: can't parse entities: unsupported start tag {name}")
    bare = re.sub(r"</?[a-z]+[^<>]*>", "", text)
    if opened or "<" in bare:
        raise Refusal(400, "Bad Request: can't parse entities: a tag is not closed")
    return unescape(bare)


def _checked_markup(markup: dict[str, Any] | None) -> dict[str, Any] | None:
    for row in (markup or {}).get("inline_keyboard", []):
        for button in row:
            if not 1 <= len(button["callback_data"].encode()) <= 64:
                raise Refusal(400, "Bad Request: BUTTON_DATA_INVALID")
    return markup


def _found_entities(text: str) -> list[dict[str, Any]]:
    """Return the commands and mentions that the server finds in what people write."""
    kinds = (("bot_command", r"(?<!\S)/[A-Za-z0-9_]+(?:@\w+)?"), ("mention", r"(?<!\w)@[A-Za-z0-9_]{4,}"))
    return [
        {"type": kind, "offset": _units(text[: found.start()]), "length": _units(found[0])}
        for kind, pattern in kinds
        for found in re.finditer(pattern, text)
    ]
