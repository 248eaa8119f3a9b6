"""Files in a prompt: ``@path`` gives the model a file along with the words."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from everlong.agent.attachments import MOST_BYTES, MOST_IMAGE_BYTES, file_part, is_cut, is_image
from everlong.cli.output import format_bytes

_MENTION = re.compile(r"(?<!\S)@(\"[^\"\n]+\"|\S+)")


def attach_files(
    text: str, root: Path, note: Callable[[str], None], *, is_typed: bool = True
) -> str | list[dict[str, Any]]:
    """Return a prompt with the files and images that it names; what cannot be attached is noted and stays as words.

    Args:
        text: The prompt.
        root: The folder that relative paths start from.
        note: Told of each file that is attached, or why it is not.
        is_typed: False if others may have written the prompt: then only files in the folder go along.
    """
    parts: list[dict[str, Any]] = []
    for found in dict.fromkeys(match.strip('"') for match in _MENTION.findall(text)):
        path = _find(found, root)
        if path is None:
            if Path(found).suffix or "/" in found:  # others are names, as of people
                note(f"there is no file {found}; the model gets only these words")
        elif not is_typed and not path.resolve().is_relative_to(root.resolve()):
            note(f"{found} is outside of this folder; it goes along only if the command line names it")
        else:
            part = _read(path, found, root, note)
            parts += [] if part is None else [part]
    return [{"type": "text", "text": text}, *parts] if parts else text


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


def _read(path: Path, name: str, root: Path, note: Callable[[str], None]) -> dict[str, Any] | None:
    real = path.resolve()
    if Path(os.path.normpath(path)).is_relative_to(root) and not real.is_relative_to(root.resolve()):
        note(f"{name} leads out of the folder, to {real}; name that file itself to take it along")
        return None
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        note(f"{name} cannot be read: {error.strerror or error}")
        return None
    part = file_part(name, data, size)
    if part is None and is_image(data):
        note(f"{name} is an image of {format_bytes(size)}; models take {format_bytes(MOST_IMAGE_BYTES)} at most")
    elif part is None:
        note(f"{name} is neither a text nor an image; the model gets only its name")
    elif part["type"] == "image_url":
        note(f"with the image {name}, {format_bytes(size)}")
    else:
        note(f"with {name}, {format_bytes(size)}" + (", of which the beginning" if is_cut(data, size) else ""))
    return part
