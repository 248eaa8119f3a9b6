"""Checks of ``everlong doctor``: Python and packages, the configuration, the context engine, the terminal."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

from everlong.cli.doctor_common import Finding, Situation, fail, ok, warn

__all__ = [
    "EXTRAS",
    "check_config",
    "check_engine",
    "check_folder",
    "check_packages",
    "check_plugins",
    "check_python",
    "check_sandbox",
    "check_terminal",
]

EXTRAS = {
    "anthropic": ("anthropic", "genai-prices", "keyring"),
    "openai": ("openai", "genai-prices", "keyring"),
    "gateway": ("aiohttp", "brotli", "tomlkit"),
    "otel": ("opentelemetry-sdk", "opentelemetry-exporter-otlp-proto-http"),
    "local": ("openai", "xllamacpp"),
    "postgres": ("psycopg",),
    "png": ("cairosvg",),
    "testing": ("hypothesis",),
    "langchain": ("langchain",),
    "openai-agents": ("openai-agents",),
}
"""What each extra of the package brings."""

_LEAST_PYTHON = (3, 11)
_LEAST_COLUMNS = 60


def check_python(_: Situation) -> Iterator[Finding]:
    """Which Python runs which Everlong."""
    found = f"Everlong {metadata.version('everlong')}, Python {platform.python_version()} on {platform.system()}"
    if sys.version_info < _LEAST_PYTHON:
        yield fail("python", f"{found} is too old", "install Python 3.11 or newer, and Everlong with it")
    else:
        yield ok("python", found)


def check_packages(_: Situation) -> Iterator[Finding]:
    """Which extras are there."""
    missing = {extra: [name for name in names if not _version(name)] for extra, names in EXTRAS.items()}
    there = [extra for extra, names in missing.items() if not names]
    absent = [extra for extra, names in missing.items() if names]
    text = f"extras: {', '.join(there) or 'none'}; not installed: {', '.join(absent) or 'none'}"
    if not {"anthropic", "openai"} & set(there):
        lacking = sorted({*missing["anthropic"], *missing["openai"]})
        advice = "pip install 'everlong[anthropic]' or 'everlong[openai]'"
        yield warn("packages", f"no extra for models is complete (missing: {', '.join(lacking)})", advice)
    else:
        yield ok("packages", text)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def check_config(_: Situation) -> Iterator[Finding]:
    """The configuration files, and every problem in them."""
    from everlong.config import load_settings, project_config_path, user_config_path  # noqa: PLC0415 - quick --help
    from everlong.errors import ConfigError  # noqa: PLC0415 - as above

    try:
        loaded = load_settings()
    except ConfigError as error:
        listed = [line.removeprefix("  - ") for line in str(error).splitlines() if line.startswith("  - ")]
        for sentence in listed or [str(error)]:
            yield fail("config", sentence, "correct it; the checks below look at the default settings")
        return
    except OSError as error:  # the working directory is gone, for one
        yield fail("config", f"no configuration can be read: {error.strerror or error}", "go to a folder that is there")
        return
    files = [path for path in (user_config_path(), project_config_path()) if path is not None and path.is_file()]
    changed = sum(origin.kind != "default" for origin in loaded.origins.values())
    names = " and ".join(map(str, files)) or f"no file ({user_config_path()} is not there)"
    yield ok("config", f"{names}; settings that are not the default: {changed}")


def check_folder(_: Situation) -> Iterator[Finding]:
    """Whether what this folder brings along counts."""
    from everlong.config import load_settings  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.config.trust import folder_wishes, folders_at, is_folder_trusted  # noqa: PLC0415 - as above
    from everlong.errors import ConfigError  # noqa: PLC0415 - as above

    folder = folders_at()[0]
    try:
        notices = load_settings().notices
    except ConfigError:  # a finding of its own
        notices = ()
    for notice in notices:
        yield warn("folder", notice, "look at the file; everlong trust list shows what you have trusted")
    if is_folder_trusted():
        yield ok("folder", f"{folder} is trusted: its instructions count, and the settings that a folder may make")
    elif folder_wishes(folder).instructions:
        advice = "everlong trust add shows what it wants and trusts it"
        yield warn("folder", f"{folder} is not trusted: its instructions do not count", advice)
    elif not notices:
        yield ok("folder", f"{folder} brings nothing along that would need trust")


def check_sandbox(situation: Situation) -> Iterator[Finding]:
    """What confines the commands of the agent."""
    from everlong.agent.tools.sandbox import Confinement, find_sandbox  # noqa: PLC0415 - keeps `everlong --help` quick

    mode = situation.settings.agent.sandbox
    confinement = Confinement(mode)
    if mode == "off":
        advice = "everlong config set agent.sandbox auto"
        yield warn("sandbox", "agent.sandbox is off: commands can do whatever you can", advice)
    elif confinement.sandbox is not None:
        yield ok("sandbox", f"agent.sandbox is {mode}; commands run {confinement.describe()}")
    elif confinement.is_missing:
        yield fail("sandbox", f"agent.sandbox is on, and {find_sandbox()[1]}: no command can run", "install bubblewrap")
    else:
        advice = "install bubblewrap, or run where it is allowed; until then look closely at what you approve"
        yield warn("sandbox", f"commands run {confinement.describe()}", advice)


def check_engine(situation: Situation) -> Iterator[Finding]:
    """Whether the context engine that is named is there."""
    from everlong.agent.engines import resolve_engine  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - as above

    plugins = Plugins(situation.settings)
    plugins.load()  # what is wrong with other plugins is told by a check of its own
    failed = plugins.failed.get(situation.settings.context.engine)
    said = [] if failed is None else [str(failed)]
    plugins.warn = said.append
    engine = resolve_engine(situation.settings, 128_000, plugins=plugins, warn=said.append)
    for text in said:
        yield warn("engine", text, "everlong config set context.engine compressor")
    if not said:
        yield ok("engine", f"context.engine is {engine.name}")


def check_plugins(situation: Situation) -> Iterator[Finding]:
    """Which plugins are there, and whether those in use can be loaded."""
    from everlong.cli.plugins_common import Listed  # noqa: PLC0415 - keeps `everlong --help` quick
    from everlong.cli.plugins_doctor import looked_at, missing_plugins  # noqa: PLC0415 - as above
    from everlong.plugins.manager import Plugins  # noqa: PLC0415 - as above

    plugins = Plugins(situation.settings)
    listed = [one for one in Listed.of(plugins) if one.found.origin != "built-in"]
    wrong = 0
    for one in listed:
        problems = looked_at(one.found).problems if one.is_active else [one.problem] if one.problem else []
        for text in problems:
            wrong += 1
            make = fail if one.is_active else warn
            yield make("plugins", f"{one.found.name}: {text}", f"everlong plugins doctor {one.found.name} tells more")
    for text in missing_plugins(plugins, engine=False):
        wrong += 1
        yield fail("plugins", text, "everlong plugins list shows what is there")
    if not wrong:
        used = ", ".join(one.found.name for one in listed if one.is_active) or "none"
        yield ok("plugins", f"{len(listed)} {'is' if len(listed) == 1 else 'are'} there; in use: {used}")


def check_terminal(_: Situation) -> Iterator[Finding]:
    """What can be shown here."""
    encoding = (sys.stdout.encoding or "ascii").lower()
    if not sys.stdout.isatty():
        where = "standard output is no terminal"
    else:
        from rich.console import Console  # noqa: PLC0415 - keeps `everlong --help` quick

        columns = shutil.get_terminal_size().columns
        where = f"{columns} columns, colours: {Console().color_system or 'none'}"
        if columns < _LEAST_COLUMNS:
            yield warn("terminal", f"{where}: tables will be cut", f"make it at least {_LEAST_COLUMNS} columns wide")
            return
    try:
        "💾 → ↳ █ 中".encode(encoding)
    except (UnicodeError, LookupError):
        advice = "set PYTHONUTF8=1, or a locale with UTF-8 such as LANG=C.UTF-8"
        yield warn("terminal", f"{where}; its encoding {encoding} cannot show every character", advice)
        return
    yield ok("terminal", f"{where}; {encoding}")


def package_folder() -> Path:
    """Where this package is installed."""
    return Path(__file__).parent.parent
