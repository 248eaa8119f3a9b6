"""The clipboard's picture, as a file that a prompt can name: terminals themselves paste only text."""

from __future__ import annotations

import secrets
import shutil
import subprocess
from pathlib import Path

__all__ = ["save_clipboard_image"]

_PROGRAMS = (
    ("wl-paste", "--no-newline", "--type", "image/png"),
    ("xclip", "-selection", "clipboard", "-target", "image/png", "-out"),
    ("pngpaste", "-"),
)
"""The programs that print the clipboard's picture: of Wayland, of X11, and of macOS."""
_SECONDS = 2.0
_PNG = b"\x89PNG\r\n\x1a\n"


def save_clipboard_image(folder: Path) -> Path | None:
    """Write the picture in the clipboard to a private file in a folder and return its path; None without a picture."""
    for program, *arguments in _PROGRAMS:
        path = shutil.which(program)
        if path is None:
            continue
        try:
            done = subprocess.run([path, *arguments], capture_output=True, check=False, timeout=_SECONDS)  # noqa: S603 - one of the above
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.stdout.startswith(_PNG):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            saved = folder / f"pasted-{secrets.token_hex(4)}.png"
            saved.touch(mode=0o600)
            saved.write_bytes(done.stdout)
            return saved
    return None
