"""Attachments: images and documents of messages, fetched, stored and shown to the model; voice is left out politely."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import insert

from everlong.agent.attachments import file_part
from everlong.agent.text import outside_name
from everlong.agent.tools.files import save
from everlong.agent.tools.workspace import RealPath, Workspace
from everlong.channels.conversations import PromptFile
from everlong.channels.delivery import Delivery
from everlong.channels.platform import Attachment, Inbound, Place, Platform, PlatformError, PlatformRefused
from everlong.errors import ToolError
from everlong.store.schema import channel_file

if TYPE_CHECKING:
    from everlong.store import Store

__all__ = ["Attachments", "FetchedFiles"]

_log = logging.getLogger("everlong.channels")

FOLDER = "received"
"""The folder in a chat's workspace that files are put into."""

_MOST_BYTES = 20_000_000
"""The largest file that is taken from a chat: what Telegram gives to bots."""
_MOST_FILES = 10
"""Files of messages that are answered together."""
_VOICE = "I cannot listen to voice messages; please write it."


@dataclass(frozen=True, slots=True)
class FetchedFiles:
    """The files of some messages, or the one sentence that is all there is to say about them."""

    files: tuple[PromptFile, ...] = ()
    refusal: str = ""


class Attachments:
    """Fetches the files of one platform's messages."""

    def __init__(
        self,
        store: Store,
        platform: Platform,
        delivery: Delivery,
        folder: Callable[[Place], Path],
    ) -> None:
        self._database, self._tenant = store.database, store.tenant
        self._platform, self._delivery, self._folder = platform, delivery, folder
        self._most = min(_MOST_BYTES, platform.limits.download)
        self._stored: dict[Place, list[Path]] = {}

    async def fetch(self, events: Sequence[Inbound]) -> FetchedFiles:
        """Return the files of messages; a refusal if there are no words and no file that could be answered."""
        files: list[PromptFile] = []
        refusals: list[str] = []
        given = [(event, one) for event in events for one in event.attachments]
        for event, one in given[:_MOST_FILES]:
            file, refusal = await self._take(event, one)
            files.append(file)
            refusals += [refusal] if refusal else []
        if len(given) > _MOST_FILES:
            files.append(PromptFile(f"{len(given) - _MOST_FILES} further files were not taken"))
        has_words = any(event.text.strip() for event in events)
        if refusals and len(refusals) == len(given) and not has_words:
            return FetchedFiles(refusal="\n".join(dict.fromkeys(refusals)))
        return FetchedFiles(tuple(files))

    def assign(self, events: Sequence[Inbound], conversation: str) -> None:
        """Note to which conversation the stored files belong, so that they are forgotten with it."""
        paths = self._stored.pop(events[-1].place, [])
        if not paths:
            return
        about = {"tenant": self._tenant, "conversation": conversation, "ts": time.time()}
        rows = [{**about, "path": str(path)} for path in paths]
        self._database.write(lambda connection: connection.execute(insert(channel_file), rows))

    async def _take(self, event: Inbound, one: Attachment) -> tuple[PromptFile, str]:
        name = outside_name(one.name) or one.kind
        if one.kind == "voice":
            return PromptFile("a voice message came along, which you cannot hear"), _VOICE
        limit = f"{self._most // 1_000_000} MB"
        too_large = f"The file {name} is too large: I take up to {limit}."
        if one.size > self._most:
            return PromptFile(f"the file {name} was not taken: it has more than {limit}"), too_large
        try:
            data = await self._delivery.persist(lambda: self._platform.fetch(one, self._most), tries=4)
        except PlatformRefused as error:
            return PromptFile(f"the file {name} was not taken: {error}"), f"I could not take a file: {error}."
        except PlatformError:
            return PromptFile(f"the file {name} could not be fetched"), f"I could not fetch the file {name}."
        try:
            path = await asyncio.to_thread(self._store, event, one, data)
        except (OSError, ToolError) as error:
            _log.warning("a file of a message could not be stored: %s", error)
            return PromptFile(f"the file {name} could not be stored"), f"I could not store the file {name}."
        part = await asyncio.to_thread(file_part, name, data)
        what = "an image" if part is not None and part["type"] == "image_url" else "a file"
        note = f"{what} came along: {name}, {len(data):,} bytes, stored as {FOLDER}/{path.name}"
        return PromptFile(note, part), ""

    def _store(self, event: Inbound, one: Attachment, data: bytes) -> Path:
        """Put a file into the chat's folder; fetched again after a restart, it is the same file."""
        safe = re.sub(r"[^\w.-]", "_", Path(one.name).name).lstrip(".")[-80:] or one.kind
        name = f"{re.sub(r'[^0-9A-Za-z-]', '_', event.message)[-40:]}-{safe}"
        workspace = Workspace(self._folder(event.place))
        path = workspace.resolve(RealPath(f"{FOLDER}/{name}"))  # a command may have put links there, which lead out
        save(workspace, path, data, new_mode=0o600)
        self._stored.setdefault(event.place, []).append(path)
        return path
