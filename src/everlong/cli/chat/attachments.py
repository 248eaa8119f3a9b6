"""Files in a prompt: ``@path`` gives the model a file along with the words, and so does the path of an image.

Terminals paste the path of a file that is dropped on them, with quotes or backslashes around its spaces.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from everlong.cli.output import format_bytes

__all__ = ["attach_files"]

_MENTION = re.compile(r"(?<!\S)@(\"[^\"\n]+\"|\S+)")
_IMAGE_PATH = re.compile(
    r"(?<!\S)(?:file://)?(?P<bare>(?:~|\.{0,2})/(?:\\.|[^\s\\'\"])+\.(?:png|jpe?g|gif|webp))(?!\S)"
    r"|(?<!\S)'(?P<single>[^'\n]+\.(?:png|jpe?g|gif|webp))'(?!\S)"
    r"|(?<!\S)\"(?P<double>[^\"\n]+\.(?:png|jpe?g|gif|webp))\"(?!\S)",
    re.IGNORECASE,
)
_MOST_CHARS = 200_000
"""Characters of a text file that go along; the model can read the rest with its tools."""
_MOST_IMAGE_BYTES = 5_000_000
_IMAGES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"RIFF": "image/webp",
}
"""The first bytes of the kinds of images that models see."""


def attach_files(text: str, root: Path, note: Callable[[str], None]) -> str | list[dict[str, Any]]:
    """Return a prompt with the files and images that it names; what cannot be attached is noted and stays as words.

    Args:
        text: The prompt.
        root: The folder that relative paths start from.
        note: Told of each file that is attached, or why it is not.
    """
    parts: list[dict[str, Any]] = []
    for found in dict.fromkeys([*(match.strip('"') for match in _MENTION.findall(text)), *_image_paths(text)]):
        path = _find(found, root)
        if path is not None:
            part = _read(path, found, note)
            parts += [] if part is None else [part]
    return [{"type": "text", "text": text}, *parts] if parts else text


def _image_paths(text: str) -> Iterator[str]:
    """Yield the paths of images that stand in a prompt without an ``@``."""
    for match in _IMAGE_PATH.finditer(text):
        yield match["single"] or match["double"] or re.sub(r"\\(.)", r"\1", match["bare"])


def _find(name: str, root: Path) -> Path | None:
    """Return the file that a mention means; a sentence may go on right behind it."""
    for candidate in (name, name.rstrip(".,;:!?)")):
        path = root / Path(candidate).expanduser()
        try:
            if candidate and path.is_file():
                return path
        except (OSError, ValueError):  # a name that no file can have
            return None
    return None


def _read(path: Path, name: str, note: Callable[[str], None]) -> dict[str, Any] | None:
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(max(_MOST_CHARS * 4, _MOST_IMAGE_BYTES) + 1)
    except OSError as error:
        note(f"{name} cannot be read: {error.strerror or error}")
        return None
    kind = next((kind for start, kind in _IMAGES.items() if data.startswith(start)), None)
    if kind is not None:
        if size > _MOST_IMAGE_BYTES:
            note(f"{name} is an image of {format_bytes(size)}; models take {format_bytes(_MOST_IMAGE_BYTES)} at most")
            return None
        note(f"with the image {name}, {format_bytes(size)}")
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return {"type": "image_url", "image_url": {"url": url}}
    if b"\0" in data[:8_192]:
        note(f"{name} is neither a text nor an image; the model gets only its name")
        return None
    words = data.decode("utf-8", "replace")
    left_out = "" if len(words) <= _MOST_CHARS and len(data) == size else "\n[… the rest of the file is left out …]"
    note(f"with {name}, {format_bytes(size)}" + (", of which the beginning" if left_out else ""))
    return {"type": "text", "text": f'<file path="{name}">\n{words[:_MOST_CHARS]}{left_out}\n</file>'}
