"""Tokens of pictures, sound and files in a message.

Reads a picture's width and height from the first bytes of its payload and applies the provider's published rule;
everything else gets a default by size. Never counts base64 as text, decodes a whole payload or fetches a URL, so a
linked picture gets the default.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Mapping
from math import ceil
from typing import Any

from everlong.model.content import is_image
from everlong.tokens.estimate import CHARS_PER_TOKEN

LOW_DETAIL_TOKENS = 85
"""Tokens of a picture of any size at ``detail: low``."""

DEFAULT_SIZE = (1024, 1024)
"""The assumed width and height of a picture whose size cannot be read."""

AUDIO_TOKENS_PER_SECOND = 10
DEFAULT_AUDIO_TOKENS = 300
"""Tokens of sound of unknown length: half a minute."""

DEFAULT_FILE_TOKENS = 1500
"""Tokens of a file that is only named: a page or two."""

BYTES_PER_FILE_TOKEN = 25
"""Bytes per token of PDFs and the like, in which fonts and pictures outweigh the words."""

_TILE_TOKENS = 170
_HEADER_CHARS = 1 << 18  # base64; a photo's dimensions can stand behind a thumbnail and a colour profile
_AUDIO_BYTES_PER_SECOND = {"wav": 48_000, "pcm16": 48_000}
_COMPRESSED_BYTES_PER_SECOND = 16_000
_AUDIO_TYPES = frozenset({"input_audio", "audio", "audio_url"})
_FILE_TYPES = frozenset({"file", "input_file", "document", "video", "video_url", "input_video"})


def media_tokens(part: Mapping[str, Any]) -> int | None:
    """Return the tokens of a picture, sound or file part; None for a part of any other kind."""
    kind = part.get("type")
    if is_image(dict(part)):
        return _image_tokens(part)
    if kind in _AUDIO_TYPES:
        return _audio_tokens(part)
    if kind in _FILE_TYPES:
        return _file_tokens(part)
    return None


def payload_tokens(size: int) -> int:
    """Return the default for ``size`` characters of base64 of unknown kind."""
    return max(1, size * 3 // 4 // BYTES_PER_FILE_TOKEN)


def _image_tokens(part: Mapping[str, Any]) -> int:
    source = part.get("source")
    if isinstance(source, Mapping):
        return _area_tokens(*(image_size(_string(source.get("data"))) or DEFAULT_SIZE))
    holder = part.get("image_url", part.get("url"))
    detail = part.get("detail")
    if isinstance(holder, Mapping):
        detail = holder.get("detail", detail)
        holder = holder.get("url")
    if detail == "low":
        return LOW_DETAIL_TOKENS
    url = _string(holder)
    payload = url.partition(",")[2] if url.startswith("data:") else ""
    return _tile_tokens(*(image_size(payload) or DEFAULT_SIZE))


def _area_tokens(width: int, height: int) -> int:
    """Apply Anthropic's rule: a token for 750 pixels, after scaling the longer side down to 1568."""
    scale = min(1.0, 1568 / max(width, height))
    return min(1600, max(1, ceil(width * scale * height * scale / 750)))


def _tile_tokens(width: int, height: int) -> int:
    """Apply OpenAI's rule: fit into 2048 x 2048, shorter side down to 768, then count tiles of 512 x 512."""
    scale = min(1.0, 2048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    tiles = ceil(width * scale / 512) * ceil(height * scale / 512)
    return LOW_DETAIL_TOKENS + _TILE_TOKENS * tiles


def _audio_tokens(part: Mapping[str, Any]) -> int:
    body = part.get("input_audio", part.get("source", part.get("audio")))
    if not isinstance(body, Mapping):
        return DEFAULT_AUDIO_TOKENS
    size = len(_string(body.get("data"))) * 3 // 4
    if not size:
        return DEFAULT_AUDIO_TOKENS
    rate = _AUDIO_BYTES_PER_SECOND.get(_string(body.get("format")).lower(), _COMPRESSED_BYTES_PER_SECOND)
    return max(1, size * AUDIO_TOKENS_PER_SECOND // rate)


def _file_tokens(part: Mapping[str, Any]) -> int:
    body = part.get("file", part.get("source", part))
    if not isinstance(body, Mapping):
        return DEFAULT_FILE_TOKENS
    data = _string(body.get("file_data", body.get("data")))
    if not data:
        return DEFAULT_FILE_TOKENS
    if body.get("type") == "text":
        return max(1, len(data) // CHARS_PER_TOKEN)
    return payload_tokens(len(data))


def _string(value: object) -> str:
    return value if isinstance(value, str) else ""


def image_size(payload: str) -> tuple[int, int] | None:
    """Return width and height from the header of a base64 PNG, GIF, WebP or JPEG; None for anything else."""
    try:
        # Only whole groups of four decode; a header cut in the middle of a later field does not matter.
        head = base64.b64decode(payload[: min(len(payload), _HEADER_CHARS) // 4 * 4])
    except (binascii.Error, ValueError):
        return None
    try:
        size = _size_in(head)
    except (struct.error, IndexError):
        return None
    return size if size and min(size) > 0 else None


def _size_in(head: bytes) -> tuple[int, int] | None:
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return _pair(">II", head, 16)
    if head.startswith((b"GIF87a", b"GIF89a")):
        return _pair("<HH", head, 6)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return _webp_size(head)
    if head.startswith(b"\xff\xd8"):
        return _jpeg_size(head)
    return None


def _pair(layout: str, head: bytes, offset: int) -> tuple[int, int]:
    first, second = struct.unpack_from(layout, head, offset)
    return int(first), int(second)


def _webp_size(head: bytes) -> tuple[int, int] | None:
    kind = head[12:16]
    if kind == b"VP8 ":
        width, height = _pair("<HH", head, 26)
        return width & 0x3FFF, height & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(head[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8X" and len(head) >= 30:
        return int.from_bytes(head[24:27], "little") + 1, int.from_bytes(head[27:30], "little") + 1
    return None


def _jpeg_size(head: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 < len(head):
        if head[at] != 0xFF:
            return None
        marker = head[at + 1]
        # Start-of-frame segments hold the size; C4, C8 and CC share their range but are tables.
        if 0xC0 <= marker <= 0xCF and marker not in {0xC4, 0xC8, 0xCC}:
            height, width = _pair(">HH", head, at + 5)
            return width, height
        # A doubled FF is padding before a marker.
        at += 1 if marker == 0xFF else 2 + int.from_bytes(head[at + 2 : at + 4], "big")
    return None
