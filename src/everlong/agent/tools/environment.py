"""The environment of commands: what programs need to work, and nothing that lets anybody in.

Keys of providers, tokens and passwords are in the environment of whoever starts an agent. A command gets the variables
on a list, and those that the user names in ``agent.tools.pass_env``.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterable, Mapping

__all__ = ["command_environment"]

_PASSED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "HOSTNAME", "TMPDIR", "TMP", "TEMP", "TZ", "EDITOR"),
    *("LANG", "LANGUAGE", "LC_*", "CHARSET"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "FTP_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
    *("PIP_*", "UV_*", "NPM_CONFIG_*", "YARN_REGISTRY", "GOPROXY", "GONOPROXY", "GOPRIVATE", "GOSUMDB", "GOFLAGS"),
    *("GOPATH", "GOROOT", "GOCACHE", "CARGO_HOME", "CARGO_REGISTRIES_*", "RUSTUP_HOME", "JAVA_HOME", "MAVEN_OPTS"),
    *("VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYENV_ROOT", "PYTHON*", "NODE_PATH", "NVM_DIR", "GEM_*"),
    *("SSH_AUTH_SOCK", "SSH_AGENT_PID"),
    *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR", "XDG_DATA_DIRS"),
    *("CI", "DEBIAN_FRONTEND", "LD_LIBRARY_PATH", "PKG_CONFIG_PATH", "CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS"),
    # Windows starts hardly any program without these.
    *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "USERPROFILE", "HOMEDRIVE", "HOMEPATH"),
    *("APPDATA", "LOCALAPPDATA", "PROGRAMDATA", "PROGRAMFILES*", "COMMONPROGRAMFILES*", "PROCESSOR_*", "OS"),
    *("NUMBER_OF_PROCESSORS", "USERNAME", "USERDOMAIN", "COMPUTERNAME"),
)
"""Names that pass, in upper case; a star stands for any letters."""

_SECRET = re.compile(r"TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|API_?KEY|PRIVATE_KEY|_KEY$|_AUTH", re.IGNORECASE)
_NO_SECRET = frozenset({"SSH_AUTH_SOCK"})

_IN_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*://)[^/?#\s,|]*@")
"""The user name and password in the address of a proxy or a package index."""

_FIXED = {
    "PAGER": "cat",  # nobody turns the pages
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",  # nobody can answer
    "TERM": "dumb",
}


def command_environment(pass_env: Iterable[str] = (), env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The variables that a command sees.

    Args:
        pass_env: names of further variables that the user lets pass; a star stands for any letters.
        env: the environment that they are taken from; that of this process by default.
    """
    env = os.environ if env is None else env
    wanted = list(pass_env)
    named = {name: value for name, value in env.items() if _is_named(name, wanted)}
    usual = {name: _IN_ADDRESS.sub(r"\1", value) for name, value in env.items() if _passes(name)}
    return usual | named | _FIXED


def _is_named(name: str, wanted: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in wanted)


def _passes(name: str) -> bool:
    upper = name.upper()
    if _SECRET.search(upper) and upper not in _NO_SECRET:
        return False
    return any(fnmatch.fnmatchcase(upper, pattern) for pattern in _PASSED)
