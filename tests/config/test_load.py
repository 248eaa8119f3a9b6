from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from everlong.config import (
    LoadedSettings,
    Origin,
    Settings,
    catalog,
    config_home,
    load_settings,
    project_config_path,
    set_value,
    user_config_path,
)
from everlong.errors import ConfigError
from tests.config.conftest import write_trusted
from tests.examples import examples

Load = Callable[..., LoadedSettings]
THRESHOLD = "EVERLONG_COMPRESSION__THRESHOLD"
LAYERS = ("user", "project", "env", "flag")
FLOOD = "\n".join(
    ["plugins:", "  x:", "    a0: &a0 [1, 2]", *(f"    a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 40))]
).encode()
MERGED = "\n".join(
    [
        "a0: &a0 {x: 1}",
        *(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}], k{n}: *a{n - 1}}}" for n in range(1, 25)),
    ]
).encode()
"""A file that takes hours to be loaded."""


def refusal(load: Load, overrides: dict[str, object] | None = None, **env: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load(overrides, **env)
    return caught.value


@pytest.mark.spec("3.1")
def test_without_any_source_everything_is_default(load: Load) -> None:
    loaded = load()
    assert loaded.settings == Settings()
    assert loaded.origins == {key: Origin("default") for key in catalog()}
    assert "threshold" not in loaded.settings.compression.model_fields_set


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(30))
@given(given_values=st.dictionaries(st.sampled_from(LAYERS), st.integers(1, 500)))
def test_the_highest_source_that_has_a_value_wins(
    load: Load, user_file: Path, project_file: Path, given_values: dict[str, int]
) -> None:
    for name, path in (("user", user_file), ("project", project_file)):
        text = f"compression: {{protect_last_n: {given_values[name]}}}" if name in given_values else ""
        (Path.write_text if name == "user" else write_trusted)(path, text)
    env = {"EVERLONG_COMPRESSION__PROTECT_LAST_N": str(given_values["env"])} if "env" in given_values else {}
    flags = {"compression.protect_last_n": given_values["flag"]} if "flag" in given_values else {}
    loaded = load(flags, **env)
    winner = next((name for name in reversed(LAYERS) if name in given_values), "default")
    assert loaded.settings.compression.protect_last_n == given_values.get(winner, 20)
    assert loaded.origins["compression.protect_last_n"].kind == winner


@pytest.mark.spec("3.2")
def test_a_bad_value_is_named_with_its_key_place_and_what_is_allowed(load: Load, user_file: Path) -> None:
    user_file.write_text("compression:\n  threshold: 1.5\n")
    error = refusal(load)
    assert error.key == "compression.threshold"
    assert str(error) == (
        f"compression.threshold ({user_file}, line 2) is 1.5, but must be a number from 0.0 to 1.0, or auto; "
        "correct the file"
    )


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("compression: {treshold: 0.5}", "compression.threshold"),
        ("compresion: {threshold: 0.5}", "compression"),
        ("threshold: 0.5", "compression.threshold"),
        ("context: {cache_ttl: 5m}", "prompt_caching.cache_ttl"),
    ],
)
def test_an_unknown_key_comes_with_the_name_that_was_meant(load: Load, user_file: Path, text: str, meant: str) -> None:
    user_file.write_text(text)
    assert f"did you mean {meant}?" in str(refusal(load))


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("variable", "hint"),
    [
        ("EVERLONG_COMPRESSION__TRESHOLD", f"did you mean {THRESHOLD}?"),
        ("EVERLONG_COMPRESSION_THRESHOLD", f"did you mean {THRESHOLD}?"),
        ("EVERLONG_HOMES", "did you mean EVERLONG_HOME?"),
        ("EVERLONG_COMPRESSION", "names a section"),
        ("EVERLONG_PLUGINS", "EVERLONG_PLUGINS__NAME__KEY"),
        ("EVERLONG_QQQQ", "not a setting"),
    ],
)
def test_an_unknown_variable_comes_with_the_name_that_was_meant(load: Load, variable: str, hint: str) -> None:
    message = str(refusal(load, None, **{variable: "1"}))
    assert variable in message
    assert hint in message


@pytest.mark.spec("3.2")
def test_all_problems_of_all_sources_are_told_at_once(load: Load, user_file: Path, project_file: Path) -> None:
    user_file.write_text("compression: {threshold: 2, protect_last_n: 0}\n")
    write_trusted(project_file, "contxt: {}\n")
    message = str(refusal(load, {"compression.enabled": 7}, **{THRESHOLD: "9"}))
    assert message.startswith("the configuration has 5 problems:\n")
    for part in ("enabled (flag)", f"env {THRESHOLD}", "contxt", "threshold", "protect_last_n"):
        assert part in message


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"compression: [\n", "not valid YAML at line 2, column 1"),
        (b"compression:\n\tthreshold: 1\n", "not valid YAML at line 2"),
        (b"just words\n", "holds text"),
        (b"memory: {}\ncontext: {}\nmemory: {}\n", 'duplicate key "memory" at line 3'),
        (b"a: \xff\n", "not UTF-8"),
        (b"a: \x00\n", "not valid YAML"),
        (b"a: !!python/object:os.system x\n", "not valid YAML at line 1"),
        (b"a: 1\n---\nb: 2\n", "another document"),
        (b"plugins: {x: 2024-99-99}\n", "cannot represent"),
        (b"plugins: {x: &a [*a]}\n", "contains itself"),
        (FLOOD, "at line 18 that expands to more than 100,000 values; remove aliases"),
        (MERGED, "expands to more than 100,000 values; remove aliases"),
        (b"[" * 20_000, "is nested more than 100 levels deep at line 1; flatten it"),
        (b"memory: {}\nplugins: " + b"[" * 100 + b"]" * 100, "nested more than 100 levels deep at line 2"),
        (b"- " * 200 + b"x", "nested more than 100 levels deep at line 1"),
        (b"".join(b" " * n + b"a:\n" for n in range(200)), "nested more than 100 levels deep at line 101"),
        (b"plugins: {1: {}}\n", "write the name as text"),
        (b"plugins: []\n", "must be a mapping of plugin names"),
        (b"1: 2\n", "1 ("),
    ],
)
def test_a_damaged_file_is_a_clear_error_that_names_it(load: Load, user_file: Path, content: bytes, part: str) -> None:
    user_file.write_bytes(content)
    message = str(refusal(load))
    assert str(user_file) in message
    assert part in message


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))
@given(content=st.text("abcompresin: {}[],-#&*!|>'\"\n%@`?~0123456789.\t\0", max_size=60).map(str.encode) | st.binary())
def test_whatever_a_file_holds_it_is_read_or_refused_in_words(load: Load, user_file: Path, content: bytes) -> None:
    user_file.write_bytes(content)
    with suppress(ConfigError):
        load()


@pytest.mark.spec("3.2")
def test_a_plugins_own_section_may_hold_anything(load: Load, user_file: Path) -> None:
    user_file.write_text("plugins:\n  lcm:\n    depth: 3\n    names: [a, b]\n    deep: {er: {x: 1}}\n")
    loaded = load(EVERLONG_PLUGINS__LCM__DEPTH="4", EVERLONG_PLUGINS__LCM__DEEP__ER__Y="[1, 2]")
    own = {"depth": 4, "names": ["a", "b"], "deep": {"er": {"x": 1, "y": [1, 2]}}}
    assert loaded.settings.plugins.sections == {"lcm": own}
    assert str(loaded.origins["plugins.lcm.names"]) == f"{user_file}:4"
    assert loaded.origins["plugins.lcm.depth"].kind == "env"
    assert "plugins" not in loaded.origins


@pytest.mark.spec("3.2")
def test_what_is_loaded_and_where_it_is_found_are_settings_beside_the_sections(load: Load, user_file: Path) -> None:
    user_file.write_text("plugins:\n  paths: ~/plugins\n  clock: {zone: CET}\n")
    plugins = load().settings.plugins
    assert plugins.paths == ["~/plugins"]
    assert plugins.sections == {"clock": {"zone": "CET"}}
    assert plugins.section("clock") == {"zone": "CET"}
    assert plugins.section("other") == {}
    assert load(EVERLONG_PLUGINS__PATHS="[tide, clock]").settings.plugins.paths == ["tide", "clock"]


def test_everlong_home_decides_where_the_users_file_is(home: Path) -> None:
    assert config_home() == home
    assert user_config_path() == home / "config.yaml"


@pytest.mark.parametrize("unset", ["", "  "])
def test_without_everlong_home_the_systems_usual_place_is_taken(home: Path, unset: str) -> None:
    assert config_home({"EVERLONG_HOME": unset}).name == "everlong"
    assert config_home({"EVERLONG_HOME": unset}) != home


def test_the_nearest_project_file_above_a_folder_is_found(project: Path, project_file: Path) -> None:
    project_file.touch()
    deep = project / "src" / "deep"
    deep.mkdir(parents=True)
    assert project_config_path(deep) == project_file
    (deep / ".everlong").mkdir()
    nearer = deep / ".everlong" / "config.yaml"
    nearer.touch()
    assert project_config_path(deep) == nearer


def written(text: str) -> Path:
    path = user_config_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.spec("9.4")
def test_a_model_and_a_provider_are_read_with_their_origins() -> None:
    path = written(
        "models:\n  gpt-4.1:\n    context_length: 9000\nproviders:\n  workshop:\n    base_url: http://localhost:1/v1\n"
    )
    loaded = load_settings()
    assert loaded.settings.models["gpt-4.1"].context_length == 9000
    assert loaded.settings.providers["workshop"].base_url == "http://localhost:1/v1"
    assert str(loaded.origins["models.gpt-4.1.context_length"]) == f"{path}:3"


@pytest.mark.spec("3.2")
@pytest.mark.parametrize(
    ("text", "key", "wording"),
    [
        ("models: {gpt-4.1: {context_length: 0}}", "models.gpt-4.1.context_length", "is 0, but must be a whole number"),
        ("models: {gpt-4.1: {context_lenght: 9}}", "models.gpt-4.1.context_lenght", "did you mean context_length?"),
        ("models: {m: {input_price: -1}}", "models.m.input_price", "is -1, but must be a number from 0, or null"),
        ("models: {m: 5}", "models.m", "is 5, but must be a section with settings of its own"),
        ("providers: {p: {api: soap}}", "providers.p.api", 'is "soap", but must be openai, anthropic or null'),
        ("providers: {p: {base_url: here}}", "providers.p.base_url", "must be an http:// or https:// address"),
        ("gateway: {keys: {ada: {sha256: x}}}", "gateway.keys.ada.sha256", "must be 64 hexadecimal digits, or null"),
        ("gateway: {keys: {ada: {key_varable: X}}}", "gateway.keys.ada.key_varable", "did you mean key_variable?"),
    ],
)
def test_a_wrong_value_is_named_with_its_key_and_what_is_allowed(text: str, key: str, wording: str) -> None:
    written(text)
    with pytest.raises(ConfigError) as raised:
        load_settings()
    assert raised.value.key == key
    assert wording in str(raised.value)


def test_a_named_section_inside_of_another_can_be_set_in_any_order() -> None:
    path = user_config_path()
    set_value(path, "gateway.keys.ada.requests_per_minute", "60")
    set_value(path, "gateway.keys.ada.key_variable", "ADA_KEY")
    set_value(path, "gateway.routes.claude-*.key_variable", "SHOP_KEY")
    settings = load_settings().settings.gateway
    assert (settings.keys["ada"].requests_per_minute, settings.keys["ada"].key_variable) == (60, "ADA_KEY")
    assert settings.routes["claude-*"].key_variable == "SHOP_KEY"
