"""What mkdocs calls while it builds the site: it appends the reference, and turns links that lead out of docs/.

The pages in docs/ are written to be read in a checkout too. There they name files outside of docs/, such as the
changelog; in the site the same links lead to pages.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
for _place in (ROOT, ROOT / "src"):  # the site describes this checkout, whatever else is installed
    if str(_place) not in sys.path:
        sys.path.insert(0, str(_place))

from website.reference import PARTS  # noqa: E402 - after the path
from website.table_of_contents import llms_text  # noqa: E402 - as above

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

OUTSIDE = {"../CHANGELOG.md": "changelog.md"}
"""Links of pages to files outside of docs/, and the pages that stand for them in the site."""
_LINK = re.compile(r"\]\((\.\./[^)\s]+)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name the version of the code on every page."""
    from everlong import __version__  # noqa: PLC0415 - after the path

    config.extra["version_name"] = __version__
    config.copyright = f"Everlong {__version__} · {config.copyright}"
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the changelog and ``llms.txt``."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - so that tests can import this without mkdocs

    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    made = {"changelog.md": changelog.replace("](docs/", "](")}
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()} | made
    made["llms.txt"] = llms_text(config.nav or [], pages, config.site_description or "")
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, *, page: Page, **_: Any) -> str:
    """Append the reference that a page introduces, and turn its links that lead out of docs/."""
    part = PARTS.get(page.file.src_uri)
    return inside_links(markdown if part is None else f"{markdown}\n\n{part()}")


def inside_links(markdown: str) -> str:
    """Return a page whose links to files outside of docs/ lead to pages of the site."""
    return _LINK.sub(lambda link: f"]({OUTSIDE.get(link[1], link[1])})", markdown)
