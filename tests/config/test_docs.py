"""Settings that the pages name exist, their examples are valid, and every variable that is no setting is listed."""

from __future__ import annotations

import re
from pathlib import Path

from everlong.config import catalog
from everlong.config.listing import NAMED, problems_in
from everlong.config.load import RESERVED
from everlong.config.yaml_file import parse_document

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NAMES = tuple(f"{name}." for name in NAMED)
DOCS = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_no_page_names_a_setting_that_does_not_exist() -> None:
    sections = {key.partition(".")[0] for key in catalog()}
    groups = {key.rpartition(".")[0] for key in catalog()}
    gone = []
    for page in (one for one in PAGES if one.name != "foreign-engines.md"):  # which names modules of another host
        text = page.read_text(encoding="utf-8")
        told = re.findall(r"`([a-z_]+\.[a-z_.]+)(?:: [\w:.-]+)?`", text) + re.findall(r"config set ([a-z]+\.\S+)", text)
        settings = [key for key in told if key.partition(".")[0] in sections and not key.startswith(NAMES)]
        gone += [f"{page.name}: {key}" for key in settings if key not in catalog() and key not in groups]
    assert gone == []


def test_every_variable_that_is_no_setting_is_documented() -> None:
    assert [variable for variable in RESERVED if f"`{variable}`" not in DOCS] == []


def test_the_examples_are_valid_configurations() -> None:
    examples = [text for page in PAGES for text in re.findall(r"```yaml\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]
    files = [one for one in examples if re.match(r"(agent|compression|gateway|memory|providers|context|models):", one)]
    assert len(files) > 5
    for example in files:
        assert problems_in(parse_document(example, "example").values, lambda key: key, "") == []
