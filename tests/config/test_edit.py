from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from everlong.config import set_value
from everlong.config.yaml_file import read_document
from everlong.errors import ConfigError


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
        ("plugins.paths", "[clock, tide]", ["clock", "tide"]),
        ("plugins.paths", "clock", ["clock"]),
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
            "compression: {enabled: true} # one line\n",
            "compression.threshold",
            "0.6",
            "compression: {enabled: true, threshold: 0.6} # one line\n",
            id="a new key inside a flow mapping",
        ),
        pytest.param(
            "\ufeffcompression:\r\n  enabled: true # on\r\nmemory:\r\n",
            "compression.threshold",
            "0.6",
            "\ufeffcompression:\r\n  enabled: true # on\r\n  threshold: 0.6\r\nmemory:\r\n",
            id="byte order mark and Windows line ends",
        ),
        pytest.param(
            "plugins:\n  paths:\n    - clock # ticks\n    - tide\n",
            "plugins.paths",
            "[clock, moon]",
            "plugins:\n  paths:\n    - clock # ticks\n    - moon\n",
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
        ("# c\n", "", "1", "is not a setting"),
        ("memory: [\n", "compression.threshold", "0.5", "not valid YAML"),
        ("memory: 5\n", "compression.threshold", "0.5", "memory"),
        ("memory: 5\n", "memory.provider", "notes", "remove memory from the file first"),
        ("plugins: {a: 1}\n", "plugins.a.b", "2", "plugins.a"),
        ("nonsense: 1\n", "compression.threshold", "0.5", "nonsense"),
        ("plugins:\n  a: &x {n: 1}\n  b: *x\n", "plugins.b.n", "2", "edit the file by hand"),
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
