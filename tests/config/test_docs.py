from __future__ import annotations

import re
from pathlib import Path

import pytest

from everlong.config import catalog
from everlong.config.check import problems_in
from everlong.config.listing import NAMED, named_settings
from everlong.config.load import RESERVED
from everlong.config.yaml_file import parse_document, scalar_text

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("key", list(catalog()))
def test_every_setting_is_documented_with_its_default_and_limits(key: str) -> None:
    info = catalog()[key]
    row = re.search(rf"^\| `{re.escape(key)}` \|(.*)\|(.*)\|(.*)\|$", DOCS, re.MULTILINE)
    assert row is not None, f"docs/configuration.md has no row for {key}"
    assert row[1].strip() == f"`{scalar_text(info.default)}`"
    assert row[2].strip() == info.allowed


@pytest.mark.parametrize("section", list(NAMED))
def test_every_setting_of_a_named_section_is_documented_with_its_limits(section: str) -> None:
    for key, info in named_settings(section).items():
        row = re.search(rf"^\| `{section}\.<name>\.{key}` \|(.*)\|(.*)\|(.*)\|$", DOCS, re.MULTILINE)
        assert row is not None, f"docs/configuration.md has no row for {section}.<name>.{key}"
        assert row[2].strip() == info.allowed


def test_no_setting_is_documented_that_does_not_exist() -> None:
    documented = set(re.findall(r"^\| `([a-z_.0-9]+)` \|", DOCS, re.MULTILINE))
    assert documented == set(catalog())


@pytest.mark.parametrize("variable", sorted(RESERVED))
def test_every_variable_that_is_no_setting_is_documented(variable: str) -> None:
    assert f"`{variable}`" in DOCS


def test_the_examples_are_valid_configurations() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert examples
    for example in examples:
        assert problems_in(parse_document(example, "example").values, lambda key: key, "") == []
