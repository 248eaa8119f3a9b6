"""Writing a file as a whole or not at all: whoever reads it sees the old text or the new one."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path


def write_whole(path: Path, text: str, new_mode: int = 0o600, check: Callable[[], None] | None = None) -> None:
    """Replace a file's text; an existing file keeps its mode, and a symbolic link stays one.

    What ``check`` raises keeps the old file: it is called when nothing but the replacing itself is left to do.
    """
    target = path.resolve()
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".tmp", dir=target.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode("utf-8"))
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(stat.S_IMODE(target.stat().st_mode) if target.exists() else new_mode)
        if check is not None:
            check()
        temporary.replace(target)
    except BaseException:  # also an interrupt must not leave the half-written file behind; it goes on its way
        temporary.unlink(missing_ok=True)
        raise
