"""The examples of docs/configuration.md are valid, and it has every variable that is no setting."""

from __future__ import annotations

import re
from pathlib import Path

from everlong.config.check import problems_in
from everlong.config.load import RESERVED
from everlong.config.yaml_file import parse_document

DOCS = (Path(__file__).parents[2] / "docs" / "configuration.md").read_text(encoding="utf-8")


def test_every_variable_that_is_no_setting_is_documented() -> None:
    assert [variable for variable in RESERVED if f"`{variable}`" not in DOCS] == []


def test_the_examples_are_valid_configurations() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", DOCS, re.DOTALL)
    assert examples
    for example in examples:
        assert problems_in(parse_document(example, "example").values, lambda key: key, "") == []
