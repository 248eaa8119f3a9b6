"""The notes of a release: the section of the changelog for its version, and the version itself."""

from __future__ import annotations

import re
from pathlib import Path

from bench.release.tools import ReleaseError

__all__ = ["project_version", "release_notes"]

_HEADING = re.compile(r"^## (?P<version>\d\S*)(?: \((?P<date>[^)]*)\))?[ \t]*$", re.MULTILINE)
_VERSION = re.compile(r"""^__version__ = ["']([^"']+)["']$""", re.MULTILINE)


def project_version(root: Path) -> str:
    """Return the version of the code; it stands in one place, and packages and documentation take it from there."""
    found = _VERSION.search((root / "src" / "everlong" / "__init__.py").read_text(encoding="utf-8"))
    if found is None:
        raise ReleaseError("src/everlong/__init__.py has no __version__")
    return found[1]


def release_notes(changelog: str, version: str) -> str:
    """Return what the changelog says of a version, with its heading.

    Raises:
        ReleaseError: the changelog has no section for the version, or an empty one.
    """
    headings = list(_HEADING.finditer(changelog))
    for place, heading in enumerate(headings):
        if heading["version"] == version:
            end = headings[place + 1].start() if place + 1 < len(headings) else len(changelog)
            text = changelog[heading.end() : end].strip()
            if not text:
                raise ReleaseError(f"CHANGELOG.md says nothing of {version}")
            dated = heading["date"] or "unreleased"
            title = f"Everlong {version}" if dated == "unreleased" else f"Everlong {version}, {dated}"
            return f"# {title}\n\n{text}"
    known = ", ".join(heading["version"] for heading in headings) or "none"
    raise ReleaseError(f"CHANGELOG.md has no section for {version}; it has: {known}")
