"""``everlong config``: shows the settings in effect and their files, and sets or removes one in a file.

`everlong.config` has the rules; this module prints.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from everlong import config
from everlong.cli.main import HintingGroup
from everlong.cli.output import json_option, print_values
from everlong.cli.trust import tell_notices
from everlong.errors import ConfigError
from everlong.redaction import hide_passwords

if TYPE_CHECKING:
    from everlong.config import LoadedSettings


_WIDEST = 40
"""The longest setting that moves the column of origins."""


@click.group("config", cls=HintingGroup)
def config_group() -> None:
    """Show or change settings."""


@config_group.command("show")
@click.argument("key", required=False)
@json_option
def show(key: str | None, as_json: bool) -> None:
    """Print the configuration files, and every setting with its value in effect and where that comes from.

    With KEY, a setting or a section, print what it means and what it may be.
    """
    if key is not None:
        click.echo("\n".join(_meanings(key)))
        return
    loaded = config.load_settings()
    tell_notices(loaded)
    if as_json:
        print_values(_hide_passwords(loaded.settings.model_dump()))
        return
    click.echo("\n".join([*_files(), *_listing(loaded)]))


def _files() -> Iterator[str]:
    """Yield the places of the configuration files, as comments of YAML."""
    user, project = config.user_config_path(), config.project_config_path()
    yield f"# your file: {user}{'' if user.is_file() else ' (does not exist)'}"
    if project is not None:
        yield f"# this folder's file: {project}"


def _meanings(key: str) -> list[str]:
    """Return what a setting, or each one of a section, means and may be."""
    from everlong.config import listing  # noqa: PLC0415 - keeps `--help` quick

    named = {f"{top}.NAME.{one.key}": one for top in listing.NAMED for one in listing.named_settings(top).values()}
    section = listing.named_section(key)
    meant = key if section in (None, key) else f"{section}.NAME.{key.rpartition('.')[2]}"
    known = {**listing.catalog(), **named}
    wanted = [name for name in known if f"{name}.".startswith(f"{meant}.")]
    if not wanted:
        raise ConfigError(listing.unknown_setting(key, "command line").sentence, key)
    return [f"{name}: {known[name].description} ({known[name].allowed})" for name in wanted]


@config_group.command("set")
@click.argument("key")
@click.argument("value", required=False)
def set_(key: str, value: str | None) -> None:
    """Set KEY (such as compression.threshold) to VALUE in your configuration file; comments in it are kept.

    Without VALUE, KEY is removed, so that its default holds again.
    """
    path = config.user_config_path()
    if value is None:
        if not config.unset_value(path, key):
            where = "`everlong config show` tells where its value comes from"
            raise ConfigError(f"{key} is not set in {path}; {where}", key)
        click.echo(f"{key} is no longer set in {path}", err=True)
        return
    understood = config.set_value(path, key, value)
    shown = json.dumps(_hide_passwords(understood), ensure_ascii=False, default=str)
    click.echo(f"{key} is now {shown} in {path}", err=True)
    for line in override_note(key, path):
        click.echo(line, err=True)


def override_note(key: str, path: Path) -> Iterator[str]:
    """Yield a note if the value just written to a file is not the one in effect."""
    try:
        where = config.load_settings().origins.get(key)
    except ConfigError as error:
        yield f"note: it has no effect yet, because {error}"
        return
    if where is not None and where.kind != "default" and where.name != str(path):
        yield f"note: {where} overrides it"


def _hide_passwords(value: Any) -> Any:
    """Return settings without the passwords in addresses, because people copy the output into reports."""
    if isinstance(value, dict):
        return {name: _hide_passwords(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_hide_passwords(one) for one in value]
    return hide_passwords(value) if isinstance(value, str) and "://" in value else value


def _leaves(values: dict[Any, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield every setting as a path and a value; the nested settings of a plugin stay one value."""
    for name, value in values.items():
        path = (*above, str(name))
        if isinstance(value, dict) and value and len(path) < 3:
            yield from _leaves(value, path)
        else:
            yield path, value


def _listing(loaded: LoadedSettings) -> list[str]:
    """Return the settings as lines of YAML, with their origins in a column of comments."""
    from everlong.config.yaml_file import scalar_text  # noqa: PLC0415 - keeps `--help` quick

    rows: list[tuple[str, str]] = []
    open_sections: tuple[str, ...] = ()
    for path, value in _leaves(_hide_passwords(loaded.settings.model_dump())):
        above = path[:-1]
        for depth, name in enumerate(above):
            if open_sections[: depth + 1] != above[: depth + 1]:
                rows.append((f"{'  ' * depth}{scalar_text(name)}:", ""))
        open_sections = above
        text = f"{'  ' * len(above)}{scalar_text(path[-1])}: {scalar_text(value)}"
        rows.append((text, str(loaded.origins[".".join(path)])))
    width = max(len(text) for text, where in rows if where and len(text) <= _WIDEST)
    return [f"{text:<{width}}  # {where}" if where else text for text, where in rows]
