from __future__ import annotations

import re
from pathlib import Path

from everlong.config import catalog
from everlong.config.check import problems_in
from everlong.config.listing import NAMED, named_settings
from everlong.config.load import RESERVED
from everlong.config.yaml_file import parse_document, scalar_text

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_every_setting_is_documented_with_its_default_and_limits() -> None:
    for key, info in catalog().items():
        row = re.search(rf"^\| `{re.escape(key)}` \|(.*)\|(.*)\|(.*)\|$", DOCS, re.MULTILINE)
        assert row is not None, f"docs/configuration.md has no row for {key}"
        assert (key, row[1].strip(), row[2].strip()) == (key, f"`{scalar_text(info.default)}`", info.allowed)


def test_every_setting_of_a_named_section_is_documented_with_its_limits() -> None:
    for section, key, info in [(name, *one) for name in NAMED for one in named_settings(name).items()]:
        row = re.search(rf"^\| `{section}\.<name>\.{key}` \|(.*)\|(.*)\|(.*)\|$", DOCS, re.MULTILINE)
        assert row is not None, f"docs/configuration.md has no row for {section}.<name>.{key}"
        assert (key, row[2].strip()) == (key, info.allowed)


def test_no_setting_is_documented_that_does_not_exist() -> None:
    documented = set(re.findall(r"^\| `([a-z_.0-9]+)` \|", DOCS, re.MULTILINE))
    assert documented == set(catalog())


def test_every_variable_that_is_no_setting_is_documented() -> None:
    assert [variable for variable in RESERVED if f"`{variable}`" not in DOCS] == []


def test_the_examples_are_valid_configurations() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert examples
    for example in examples:
        assert problems_in(parse_document(example, "example").values, lambda key: key, "") == []
