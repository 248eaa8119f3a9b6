"""Redaction: secrets are taken out of a text before it leaves the process.

Keys, tokens and passwords are replaced by ``[redacted:kind]``. Hashes, ids, paths and code that mentions a password
stay, because later work needs them: a value goes only if its own shape or the name it is assigned to gives it away.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

REDACTED = re.compile(r"\[redacted:[a-z_]+\]")

_START = r"(?<![A-Za-z0-9])"

_PRIVATE_KEY = re.compile(
    r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
    r"(?:[^-]{0,12000}-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----|(?:\s|\\[nr]|[A-Za-z0-9+/=]{16,})*)"
)
_JWT = re.compile(_START + r"eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}")
_CLOUD_KEY = re.compile(
    _START + r"(?:(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{35}|ya29\.[\w-]{20,}|GOCSPX-[\w-]{20,}|dop_v1_[a-f0-9]{64}"
    r"|dapi[a-f0-9]{32}|AGE-SECRET-KEY-1[A-Z0-9]{50,})(?![A-Za-z0-9])"
)
_API_KEY = re.compile(
    _START + r"(?:sk-(?=[A-Za-z_-]*\d)[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{22,}"
    r"|glpat-[\w-]{20,}|xox[abeoprs]-[\w-]{10,}|xapp-[\w-]{20,}|[sr]k_(?:live|test)_[A-Za-z0-9]{16,}"
    r"|whsec_[A-Za-z0-9+/=]{20,}|hf_[A-Za-z0-9]{30,}|npm_[A-Za-z0-9]{36}|pypi-[\w-]{50,}"
    r"|SG\.[\w-]{16,}\.[\w-]{16,}|SK[0-9a-f]{32}|\d{8,10}:AA[\w-]{33}|gsk_[A-Za-z0-9]{30,}|xai-[A-Za-z0-9]{30,}"
    r"|r8_[A-Za-z0-9]{30,}|pplx-[A-Za-z0-9]{30,}|shp(?:at|ca|pa|ss)_[a-f0-9]{32}|lin_api_[A-Za-z0-9]{30,})"
)
_CLOUD_STARTS = (
    ("K", ("AKIA", "AGE-SECRET-KEY-1")),
    ("I", ("ASIA", "AIza")),
    ("X", ("GOCSPX-",)),
    ("9", ("ya29.",)),
    ("_", ("dop_v1_",)),
    ("d", ("dapi",)),
)
_API_STARTS = (
    ("-", ("sk-", "glpat-", "xapp-", "pypi-", "xai-", "pplx-")),
    ("_", ("whsec_", "hf_", "npm_", "r8_", "lin_api_")),
    ("gh", ("ghp_", "gho_", "ghu_", "ghs_", "ghr_")),
    ("_", ("github_pat_",)),
    ("k_", ("k_live_", "k_test_", "gsk_")),
    ("shp", ("shpat_", "shpca_", "shppa_", "shpss_")),
    ("x", ("xox",)),
    ("G", ("SG.",)),
    ("K", ("SK",)),
    ("A", (":AA",)),
)
"""Plain texts, one of which each key of `_CLOUD_KEY` and `_API_KEY` has; searching for it first spares most texts the
expressions. Those in one line have the first one in common, which is searched for before them: a character is found
far faster than a word."""
_WEBHOOK = re.compile(r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]{20,}")
_AUTHORIZATION = re.compile(
    r"((?:proxy-)?authorization\\?[\"']?\s*[:=]\s*\\?[\"']?(?:(?:bearer|basic|token)\s+)?)[\w.~+/=-]{8,}",
    re.IGNORECASE,
)
_BEARER = re.compile(r"(\bbearer\s+)(?=[A-Za-z._~+/=-]*\d)[A-Za-z0-9._~+/=-]{16,}", re.IGNORECASE)
_URL_PASSWORD = re.compile(r"(?<=://)([^\s/:@\"'<>]{0,80}:)[^\s/@\"'<>]{1,200}(?=@)")

# Only the end of a name is matched; the text before it stays.
_ASSIGNED = re.compile(
    r"(?P<name>key(?:[_-]?id)?|secret|token|credentials?|(?P<password>password|passwd|passphrase|pwd))"
    r"(?P<sign>\\?[\"']?(?:=|\s{0,3}:\s{0,3}|\s{1,3}=\s{1,3}|\s{0,3}=>\s{0,3}))"
    r"(?P<quote>\\?[\"'])?(?P<value>[^\s\"'`,;&\\(){}\[\]<>|]{4,500})(?P<after>[(\[]?)",
    re.IGNORECASE,
)
_ASSIGNED_STARTS = ("key", "secret", "token", "credential", "passw", "passphrase", "pwd")
_KEY_NAME = re.compile(
    r"(?:api|access|account|private|secret|auth|encryption|signing|master|service)[_-]?$", re.IGNORECASE
)
_FLAG = re.compile(
    r"(--(?:[a-z]+-)*(?:password|passwd|token|secret|api-?key|access-?key)[ =]\\?[\"']?)(?![$<\[{])[^\s\"'\\]{4,}",
    re.IGNORECASE,
)
_WORDS = frozenset(
    (
        *("none", "null", "true", "false", "string", "required", "optional", "undefined", "self", "this", "str"),
        *("bytes", "text", "value", "example", "changeme", "secret", "password", "token", "todo", "xxxx", "redacted"),
        *("hidden", "bool", "varchar"),
    )
)
"""Placeholders that stand where a password would."""


def redact(text: str) -> str:
    """Return the text with every secret replaced by a mark that says what it was."""
    if "K" in text and "PRIVATE KEY" in text:
        text = _PRIVATE_KEY.sub("[redacted:private_key]", text)
    if "J" in text and "eyJ" in text:
        text = _JWT.sub("[redacted:jwt]", text)
    if _has_any(text, _CLOUD_STARTS):
        text = _CLOUD_KEY.sub("[redacted:cloud_key]", text)
    if _has_any(text, _API_STARTS):
        text = _API_KEY.sub("[redacted:api_key]", text)
    if "/" in text and "://" in text:
        text = _URL_PASSWORD.sub(r"\1[redacted:password]", text)
        text = _WEBHOOK.sub(r"\1[redacted:webhook]", text)
    lowered = text.lower()
    if "authorization" in lowered or "bearer" in lowered:
        text = _BEARER.sub(r"\1[redacted:bearer_token]", _AUTHORIZATION.sub(r"\1[redacted:bearer_token]", text))
        lowered = text.lower()
    places = _find_all(lowered, _ASSIGNED_STARTS)
    if places:
        text = _redact_assignments(text, places)
        text = _FLAG.sub(r"\1[redacted:secret]", text) if "--" in text else text
    return text


def _has_any(text: str, starts: Iterable[tuple[str, Sequence[str]]]) -> bool:
    for shared, words in starts:  # noqa: SIM110 - a generator takes as long as most of the searches
        if shared in text and any(map(text.__contains__, words)):
            return True
    return False


def _find_all(text: str, words: Iterable[str]) -> list[int]:
    """Return all places of some words in a text."""
    places: list[int] = []
    for word in words:
        place = text.find(word)
        while place >= 0:
            places.append(place)
            place = text.find(word, place + 1)
    return places


def _redact_assignments(text: str, places: Iterable[int]) -> str:
    """Return a text without the secrets that are assigned to names, whose places in lower case are given."""
    if not text.isascii():  # some letters change their length in lower case
        return _ASSIGNED.sub(_redact_assigned, text)
    kept: list[str] = []
    done = copied = 0
    for place in sorted(places):
        if place >= done and (found := _ASSIGNED.match(text, place)):
            done = found.end()
            if (told := _redact_assigned(found)) != found[0]:
                kept += text[copied:place], told
                copied = done
    return "".join([*kept, text[copied:]]) if kept else text


def _redact_assigned(match: re.Match[str]) -> str:
    if match["name"][0].lower() == "k" and not _ends_key_name(match.string, match.start()):
        return match[0]  # a primary key, a key of a mapping
    value, quoted = match["value"], match["quote"] is not None
    kind = "password" if match["password"] else "secret"
    # A called or indexed value is code. An unquoted value after " = " or ": " in code is a name, no secret.
    looks_secret = _is_password if match["password"] else _is_token
    in_code = not quoted and match["sign"] != "=" and not _has_letter_and_digit(value)
    if match["after"] or in_code or not looks_secret(value):
        return match[0]
    return f"{match['name']}{match['sign']}{match['quote'] or ''}[redacted:{kind}]"


def _ends_key_name(text: str, place: int) -> bool:
    """Return whether the word before a place makes the word ``key`` behind it the name of a secret."""
    before = text[place - 1 : place]
    return (before.isalpha() or before in ("_", "-")) and bool(_KEY_NAME.search(text, max(0, place - 12), place))


def _is_password(value: str) -> bool:
    return value.lower().strip(".*-_") not in _WORDS and not _is_reference(value)


def _is_token(value: str) -> bool:
    return len(value) >= 8 and _has_letter_and_digit(value) and not _is_reference(value)


def _has_letter_and_digit(value: str) -> bool:
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value))


_REFERENCE: Callable[[str], re.Match[str] | None] = re.compile(
    r"[$%~/]|\.{1,2}/|https?:|(?:os|self|this|process|config|settings|env|args|request)\.|(?:[A-Za-z_]+\.)+[A-Za-z_]+$"
).match


def _is_reference(value: str) -> bool:
    """Return whether a value names where the secret is, rather than being it."""
    return bool(_REFERENCE(value))
