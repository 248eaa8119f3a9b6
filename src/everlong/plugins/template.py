"""The template of a new engine: a plugin folder with code, manifest, description and tests that pass as they stand.

The files are in `template_files/`, with ``{{name}}`` and ``{{Class}}`` where the engine's own names go.
"""

from __future__ import annotations

import keyword
import re
import sys
from pathlib import Path

from everlong.errors import PluginError

__all__ = ["write_plugin"]

_FILES = Path(__file__).parent / "template_files"
_SUFFIX = ".txt"
_TAKEN = frozenset({"compressor", "paths", "enabled", "everlong", "agent", "tests", "engine"})
"""The built-in engine, the two settings beside the plugins' sections, and packages that an import would find first."""


def write_plugin(folder: Path, name: str) -> list[Path]:
    """Write an engine called ``name`` into a new folder, and return the files that were written.

    Raises:
        PluginError: an engine cannot have that name, or the folder exists and is not empty.
    """
    _check_name(name)
    if folder.is_dir() and any(folder.iterdir()):
        raise PluginError(f"{folder} is there and not empty; nothing was written. Choose another name or folder.")
    if folder.exists() and not folder.is_dir():
        raise PluginError(f"{folder} is a file; nothing was written. Choose another name or folder.")
    written = []
    try:
        for source in sorted(_FILES.rglob(f"*{_SUFFIX}")):
            target = folder / source.relative_to(_FILES).with_suffix("")
            target.parent.mkdir(parents=True, exist_ok=True)
            text = source.read_text(encoding="utf-8")
            target.write_text(text.replace("{{name}}", name).replace("{{Class}}", class_name(name)), encoding="utf-8")
            written.append(target)
    except OSError as error:
        raise PluginError(f"{folder} cannot be written: {error}") from error
    return written


def class_name(name: str) -> str:
    """Return the name of the engine's class: ``short_term`` gives ``ShortTermEngine``."""
    words = [word for word in name.split("_") if word]
    return "".join(word[:1].upper() + word[1:] for word in words).removesuffix("Engine") + "Engine"


def _check_name(name: str) -> None:
    allowed = "small letters, digits and _, beginning with a letter, at most 40 of them, such as short_term"
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,39}", name):
        likely = re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_0123456789")[:40]
        hint = f" Try {likely}." if re.fullmatch(r"[a-z][a-z0-9_]*", likely) and likely not in _TAKEN else ""
        raise PluginError(f"{name!r} cannot be the name of an engine: it takes {allowed}.{hint}")
    if name in _TAKEN or keyword.iskeyword(name) or name in sys.stdlib_module_names:
        raise PluginError(f"{name!r} cannot be the name of an engine: it means something else already. Choose another.")
