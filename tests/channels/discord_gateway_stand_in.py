"""The gateway of the stand-in for Discord: sessions, sequence numbers, heartbeats, resumes and close codes."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import zstandard
from aiohttp import WSMsgType, web

from tests.channels.discord_shapes import Json, next_id

if TYPE_CHECKING:
    from tests.channels.discord_stand_in import DiscordStandIn

DISPATCH, HEARTBEAT, IDENTIFY, RESUME, RECONNECT, INVALID, HELLO, ACK = 0, 1, 2, 6, 7, 9, 10, 11
MESSAGE_CONTENT = 1 << 15
GUILD_MESSAGES = 1 << 9
DIRECT_MESSAGES = 1 << 12


@dataclass(slots=True)
class Session:
    """A session of the bot: what was sent in it, and its connection while there is one."""

    id: str
    intents: int
    sequence: int = 0
    sent: list[tuple[int, Json]] = field(default_factory=list)
    connection: Connection | None = None


class Connection:
    """One websocket, compressed as the client asked."""

    def __init__(self, socket: web.WebSocketResponse, compression: str) -> None:
        self.socket = socket
        assert compression == "zstd-stream"
        self._zstd = zstandard.ZstdCompressor().compressobj()

    async def send(self, payload: Json) -> None:
        data = json.dumps(payload).encode()
        try:
            packed = self._zstd.compress(data) + self._zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            await self.socket.send_bytes(packed)
        except (ConnectionError, RuntimeError):
            return  # the client has just left; a resume repeats the event


class GatewayStandIn:
    """Discord's gateway."""

    def __init__(self, world: DiscordStandIn) -> None:
        self._world = world
        self.sessions: dict[str, Session] = {}
        self.identified = 0
        self.is_silent = False
        """True to let new connections wait for their HELLO."""

    @property
    def is_connected(self) -> bool:
        """True while the bot has a session with a connection."""
        return any(session.connection is not None for session in self.sessions.values())

    async def close(self) -> None:
        for session in self.sessions.values():
            if session.connection is not None:
                await session.connection.socket.close(code=1001)

    # -- what goes wrong -------------------------------------------------------------------------------------------
    async def ask_to_reconnect(self) -> None:
        """Send RECONNECT, as Discord does before it restarts a node."""
        for session in self.sessions.values():
            connection, session.connection = session.connection, None
            if connection is not None:
                await connection.send({"op": RECONNECT, "d": None, "s": None, "t": None})

    # -- events ----------------------------------------------------------------------------------------------------
    async def dispatch(self, event: str, data: Json) -> None:
        """Send an event to every session that asked for its kind; keep it for those that have no connection."""
        for session in list(self.sessions.values()):
            if event.startswith("MESSAGE_"):
                needed = GUILD_MESSAGES if "guild_id" in data else DIRECT_MESSAGES
                if not session.intents & needed:
                    continue
            await self._dispatch_to(session, event, data)

    async def _dispatch_to(self, session: Session, event: str, data: Json) -> None:
        session.sequence += 1
        payload = {"op": DISPATCH, "t": event, "s": session.sequence, "d": json.loads(json.dumps(data))}
        session.sent.append((session.sequence, payload))
        if session.connection is not None:
            await session.connection.send(payload)

    # -- the protocol ----------------------------------------------------------------------------------------------
    async def serve(self, request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(heartbeat=None)
        await socket.prepare(request)
        connection = Connection(socket, request.query.get("compress", ""))
        while self.is_silent:
            await asyncio.sleep(0.01)
        await connection.send({"op": HELLO, "d": {"heartbeat_interval": 41_250}, "s": None, "t": None})
        session: Session | None = None
        async for received in socket:
            if received.type is not WSMsgType.TEXT:
                continue
            try:
                payload = json.loads(received.data)
            except ValueError:
                await socket.close(code=4002, message=b"Error while decoding payload.")
                break
            session = await self._take(connection, session, payload)
        if session is not None and session.connection is connection:
            session.connection = None
        return socket

    async def _take(self, connection: Connection, session: Session | None, payload: Json) -> Session | None:
        """Handle what the client sent; return the session of the connection."""
        match payload.get("op"):
            case int(op) if op == HEARTBEAT:
                await connection.send({"op": ACK, "d": None, "s": None, "t": None})
            case int(op) if op == IDENTIFY:
                if session is not None:
                    await connection.socket.close(code=4005, message=b"Already authenticated.")
                    return session
                return await self._identify(connection, payload["d"])
            case int(op) if op == RESUME:
                return await self._resume(connection, payload["d"])
            case int() if session is None:
                await connection.socket.close(code=4003, message=b"Not authenticated.")
            case 3 | 4 | 8:
                pass
            case _:
                await connection.socket.close(code=4001, message=b"Unknown opcode.")
        return session

    async def _identify(self, connection: Connection, data: Json) -> Session | None:
        world = self._world
        if data.get("token") != world.token:
            await connection.socket.close(code=4004, message=b"Authentication failed.")
            return None
        intents = int(data["intents"])
        if intents & MESSAGE_CONTENT and not world.allows_content:
            await connection.socket.close(code=4014, message=b"Disallowed intent(s).")
            return None
        self.identified += 1
        session = Session(next_id(), intents, connection=connection)
        self.sessions[session.id] = session
        ready: dict[str, Any] = {
            "v": 10,
            "user": world.bot,
            "guilds": [{"id": number, "unavailable": True} for number in world.guilds],
            "session_id": session.id,
            "resume_gateway_url": world.socket,
            "session_type": "normal",
            "private_channels": [],
            "relationships": [],
            "application": {"id": world.bot["id"], "flags": world.application["flags"]},
        }
        await self._dispatch_to(session, "READY", ready)
        for guild in world.guild_payloads():
            await self._dispatch_to(session, "GUILD_CREATE", guild)
        return session

    async def _resume(self, connection: Connection, data: Json) -> Session | None:
        session = self.sessions.get(str(data.get("session_id")))
        if data.get("token") != self._world.token:
            await connection.socket.close(code=4004, message=b"Authentication failed.")
            return None
        if session is None:
            await connection.send({"op": INVALID, "d": False, "s": None, "t": None})
            return None
        if int(data["seq"] or 0) > session.sequence:
            await connection.socket.close(code=4007, message=b"Invalid seq.")
            return None
        session.connection = connection
        for sequence, payload in list(session.sent):
            if sequence > int(data["seq"] or 0):
                await connection.send(payload)
        await self._dispatch_to(session, "RESUMED", {"_trace": []})
        return session
