from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings, strategies as st
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from everlong.config import set_value
from everlong.config.yaml_file import read_document
from everlong.errors import ConfigError
from tests.examples import examples


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("compression.threshold", "0.6", 0.6),
        ("compression.threshold", "auto", "auto"),
        ("compression.enabled", "false", False),
        ("compression.enabled", "no", False),
        ("compression.protect_last_n", "7", 7),
        ("prompt_caching.cache_ttl", "1h", "1h"),
        ("prompt_caching.strategy", "off", "off"),
        ("auxiliary.compression.model", "null", None),
        ("auxiliary.compression.model", "4", "4"),
        ("auxiliary.compression.model", "family: large", "family: large"),
        ("auxiliary.compression.model", "@odd", "@odd"),
        ("auxiliary.compression.base_url", "http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("plugins.enabled", "[clock, tide]", ["clock", "tide"]),
        ("plugins.enabled", "clock", ["clock"]),
        ("plugins.lcm.depth", "3", 3),
        ("plugins.lcm.names", '["a", {"b": null}]', ["a", {"b": None}]),
        ("plugins.lcm", '{"x": 1}', {"x": 1}),
    ],
)
def test_a_text_is_understood_as_the_setting_wants_it(tmp_path: Path, key: str, text: str, value: object) -> None:
    path = tmp_path / "config.yaml"
    assert set_value(path, key, text) == value
    document = read_document(path)
    assert document is not None
    found: object = document.values
    for name in key.split("."):
        assert isinstance(found, dict)
        found = found[name]
    assert found == value


@pytest.mark.parametrize(
    ("before", "key", "value", "after"),
    [
        pytest.param(
            "# my settings\ncompression:\n  threshold: 0.5   # half\n\n  # keep it on\n  enabled: true\n",
            "compression.threshold",
            "0.75",
            "# my settings\ncompression:\n  threshold: 0.75   # half\n\n  # keep it on\n  enabled: true\n",
            id="a value is replaced and nothing else moves",
        ),
        pytest.param(
            "compression:\n    enabled: true # on\n\n# engines\ncontext:\n    engine: lcm\n",
            "compression.threshold",
            "0.6",
            "compression:\n    enabled: true # on\n    threshold: 0.6\n\n# engines\ncontext:\n    engine: lcm\n",
            id="a new key joins its section with the section's indent",
        ),
        pytest.param(
            "context:\n  engine: lcm\n",
            "auxiliary.compression.model",
            "small",
            "context:\n  engine: lcm\nauxiliary:\n  compression:\n    model: small\n",
            id="a new section goes to the end",
        ),
        pytest.param(
            "# nothing yet",
            "context.engine",
            "lcm",
            "# nothing yet\ncontext:\n  engine: lcm\n",
            id="a file of comments keeps them",
        ),
        pytest.param(
            "compression:\n  # threshold: 0.5\nmemory: {}\n",
            "compression.threshold",
            "0.6",
            "compression:\n  threshold: 0.6\n  # threshold: 0.5\nmemory: {}\n",
            id="a section whose lines are all commented out gets its first",
        ),
        pytest.param(
            "compression: {enabled: true} # one line\n",
            "compression.threshold",
            "0.6",
            "compression: {enabled: true, threshold: 0.6} # one line\n",
            id="a new key inside a flow mapping",
        ),
        pytest.param(
            "plugins: {a: 1, # one\n  b: 2}\n",
            "plugins.c",
            "3",
            "plugins: {a: 1, # one\n  b: 2, c: 3}\n",
            id="a comment inside a flow mapping",
        ),
        pytest.param(
            "compression: {}\n",
            "compression.threshold",
            "0.6",
            "compression:\n  threshold: 0.6\n",
            id="a new key inside an empty flow mapping",
        ),
        pytest.param(
            "\ufeffcompression:\r\n  enabled: true # on\r\nmemory:\r\n",
            "compression.threshold",
            "0.6",
            "\ufeffcompression:\r\n  enabled: true # on\r\n  threshold: 0.6\r\nmemory:\r\n",
            id="byte order mark and Windows line ends",
        ),
        pytest.param(
            "---\n# top\nplugins:\n  x:\n    note: |\n      long\n      text\n",
            "plugins.x.n",
            "1",
            "---\n# top\nplugins:\n  x:\n    note: |\n      long\n      text\n    n: 1\n",
            id="a section that ends in a block of text",
        ),
        pytest.param(
            "compression:\n  threshold: 0.5\n...\n",
            "context.engine",
            "lcm",
            "compression:\n  threshold: 0.5\ncontext:\n  engine: lcm\n...\n",
            id="a document with an end mark",
        ),
        pytest.param(
            "# mine\n---\nmemory: {}\n",
            "context.engine",
            "lcm",
            "# mine\n---\nmemory: {}\ncontext:\n  engine: lcm\n",
            id="a comment above the start of the document",
        ),
        pytest.param(
            "plugins:\n  enabled:\n    - clock # ticks\n  # own\n  x: {n: 1}\n\n# e\ncontext:\n  engine: l",
            "plugins.x.m",
            "2",
            "plugins:\n  enabled:\n    - clock # ticks\n  # own\n  x: {n: 1, m: 2}\n\n# e\ncontext:\n  engine: l",
            id="lists and mappings keep their own indents",
        ),
        pytest.param(
            "plugins:\n  enabled:\n    - clock # ticks\n    - tide\n",
            "plugins.enabled",
            "[clock, moon]",
            "plugins:\n  enabled:\n    - clock # ticks\n    - moon\n",
            id="items that a list keeps keep their comments",
        ),
    ],
)
def test_a_change_moves_nothing_else(tmp_path: Path, before: str, key: str, value: str, after: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes(before.encode())
    set_value(path, key, value)
    assert path.read_bytes().decode() == after


@pytest.mark.parametrize(
    ("before", "key", "value", "part"),
    [
        ("# c\n", "compression.threshold", "1.5", "compression.threshold (command line) is 1.5, but must be"),
        ("# c\n", "compression.threshold", "null", "is null"),
        ("# c\n", "compression.treshold", "0.5", "did you mean compression.threshold?"),
        ("# c\n", "compression", "0.5", "compression is a section, not a setting; set one of compression.enabled"),
        ("# c\n", "plugins", "{}", "plugins.NAME.KEY"),
        ("# c\n", "plugins..x", "1", "is not a setting"),
        ("# c\n", "", "1", "is not a setting"),
        ("memory: [\n", "compression.threshold", "0.5", "not valid YAML"),
        ("- 1\n", "compression.threshold", "0.5", "holds a list"),
        ("memory: 5\n", "compression.threshold", "0.5", "memory"),
        ("memory: 5\n", "memory.provider", "notes", "remove memory from the file first"),
        ("plugins: {a: 1}\n", "plugins.a.b", "2", "plugins.a"),
        ("nonsense: 1\n", "compression.threshold", "0.5", "nonsense"),
        ("plugins:\n  a: &x {n: 1}\n  b: *x\n", "plugins.b.n", "2", "edit the file by hand"),
        ("memory: {}\nmemory: {}\n", "context.engine", "lcm", 'duplicate key "memory"'),
        ("memory:\t{}\n", "context.engine", "lcm", "not valid YAML at line 1"),
        ("memory: {}\n---\ncontext: {}\n", "context.engine", "lcm", "not valid YAML"),
    ],
)
def test_a_refused_change_leaves_the_file_untouched(
    user_file: Path, before: str, key: str, value: str, part: str
) -> None:
    user_file.write_text(before)
    with pytest.raises(ConfigError) as caught:
        set_value(user_file, key, value)
    assert part in str(caught.value)
    assert user_file.read_text() == before
    assert list(user_file.parent.iterdir()) == [user_file]


@pytest.mark.skipif(os.name != "posix", reason="file modes and links of POSIX")
def test_the_files_mode_is_kept_and_a_link_stays_a_link(tmp_path: Path) -> None:
    target = tmp_path / "dotfiles.yaml"
    target.write_text("memory: {}\n")
    target.chmod(0o644)
    link = tmp_path / "config.yaml"
    link.symlink_to(target)
    set_value(link, "context.engine", "lcm")
    assert link.is_symlink()
    assert "engine: lcm" in target.read_text()
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_folder_that_cannot_be_made_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be"):
        set_value(tmp_path / "file" / "config.yaml", "context.engine", "lcm")


NAMES = st.text("abcxyz", min_size=1, max_size=3)
VALUES = st.integers(-9, 9) | st.booleans() | st.none() | st.text("ab: #'\"\\é\n", max_size=6)
TREES = st.recursive(VALUES, lambda inner: st.dictionaries(NAMES, inner, max_size=3), max_leaves=6)


def _can_be_read_back(text: str) -> bool:
    """Return whether the YAML library can read its own text; a few odd texts in flow style it cannot."""
    try:
        YAML(typ="safe", pure=True).load(text)
    except YAMLError:
        return False
    return True


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
@given(tree=st.dictionaries(NAMES, TREES, max_size=3), name=NAMES, value=st.integers(0, 99), flow=st.booleans())
def test_setting_a_key_changes_that_key_and_no_other(
    tmp_path: Path, tree: dict[str, object], name: str, value: int, flow: bool
) -> None:
    path = tmp_path / "config.yaml"
    yaml = YAML()
    yaml.default_flow_style = flow
    with path.open("w", encoding="utf-8") as file:
        yaml.dump({"plugins": {"p": tree}, "context": {"engine": "lcm"}}, file)
    assume(_can_be_read_back(path.read_text(encoding="utf-8")))
    set_value(path, f"plugins.p.{name}", str(value))
    document = read_document(path)
    assert document is not None
    assert document.values == {"plugins": {"p": {**tree, name: value}}, "context": {"engine": "lcm"}}
