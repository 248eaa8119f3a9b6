"""Files as parts of a prompt: images as models see them, texts in their own words."""

from __future__ import annotations

import base64
from typing import Any

from everlong.agent.text import outside_name

__all__ = ["MOST_BYTES", "MOST_IMAGE_BYTES", "file_part", "is_cut", "is_image"]

_MOST_CHARS = 200_000
"""Characters of a text file that go along; the model can read the rest with its tools."""

MOST_IMAGE_BYTES = 5_000_000
"""Bytes of the largest image that models take."""

MOST_BYTES = max(_MOST_CHARS * 4, MOST_IMAGE_BYTES)
"""Bytes of a file that `file_part` looks at."""

_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""The first bytes of the kinds of images that models see."""


def file_part(name: str, data: bytes, size: int | None = None) -> dict[str, Any] | None:
    """Return a file as a part of a prompt; None for a large image and for what is neither an image nor a text.

    Args:
        name: the name that the model is told.
        data: the bytes, or the first `MOST_BYTES` of them.
        size: how many bytes the file has, if ``data`` is not the whole.
    """
    size = len(data) if size is None else size
    kind = _image_kind(data)
    if kind is not None:
        if size > MOST_IMAGE_BYTES:
            return None
        return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}
    if b"\0" in data[:8_192]:
        return None
    left_out = "\n[… the rest of the file is left out …]" if is_cut(data, size) else ""
    words = data.decode("utf-8", "replace")[:_MOST_CHARS]
    return {"type": "text", "text": f'<file path="{outside_name(name, 400)}">\n{words}{left_out}\n</file>'}


def is_image(data: bytes) -> bool:
    """Return whether a file begins as one of the images that models see."""
    return _image_kind(data) is not None


def is_cut(data: bytes, size: int) -> bool:
    """Return whether a text is too long to go along whole."""
    return len(data) < size or len(data.decode("utf-8", "replace")) > _MOST_CHARS


def _image_kind(data: bytes) -> str | None:
    return next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
