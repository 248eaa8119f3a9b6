"""Redaction: secrets are taken out of a text before it leaves the process or is stored.

Keys, tokens and passwords are replaced by ``[redacted:kind]``. Hashes, ids, paths and code that mentions a password
stay, because later work needs them: a value goes only if its own shape or the name it is assigned to gives it away.
The shapes are those that the issuers document.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["REDACTED", "hide_passwords", "redact", "redact_values"]

REDACTED = re.compile(r"\[redacted:[a-z_]+\]")

# -- secrets with a shape of their own ---------------------------------------------------------------------------------

_WORD = re.compile(r"\b[A-Za-z0-9_.-]{20,}", re.ASCII)
"""A word that is long enough for a token. Few are, which spares most of a text the search for tokens."""
_PREFIXES = """
    sk- csk- gsk_ xai- pplx- hf_ r8_ nvapi- tgp_v1_ lsv2_pt_ lsv2_sk_ pcsk_ tvly- fc-
    ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- glrt- gldt- glft- glcbt- glptt- glimt- glsoat- glagent- gloas-
    npm_ pypi- dckr_pat_ rubygems_ sgp_ lin_api_ figd_ ntn_ ATATT3 ATBB
    AIza ya29. GOCSPX- dop_v1_ doo_v1_ dor_v1_ hvs. hvb. pul- sbp_ HRKU- PMAK- dp.pt. dp.st. fm2_ ops_eyJ
    sntrys_ sntryu_ glsa_ glc_ NRAK- pscale_tkn_ pscale_pw_ pscale_oauth_
    xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs- xapp- sk_live_ sk_test_ rk_live_ rk_test_ whsec_ sq0atp- sq0csp-
    shpat_ shpca_ shppa_ shpss_ SG. xkeysib- xsmtpsib- CFPAT- AGE-SECRET-KEY-1
"""
"""What tokens begin with, by their issuers: model providers, code hosts, clouds, and services."""
_TOKEN = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:{'|'.join(map(re.escape, _PREFIXES.split()))})(?P<body>[\w.-]{{16,}})"
    r"|(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}|LTAI[A-Za-z0-9]{16,24}|dapi[a-f0-9]{32}|SK[a-f0-9]{32}"
    r"|[A-Za-z0-9]{14}\.atlasv1\.[\w-]{60,}|[a-f0-9]{32}-us\d{1,2}"
    # A word may begin with "eyJ" behind each of its dashes: only its first is looked at, or it takes a square of time.
    r"|[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,}|(?<![\w-])eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})(?![A-Za-z0-9])",
    re.ASCII,
)
_SHAPES = (
    (
        "PRIVATE KEY",
        re.compile(
            r"-----BEGIN (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            r"(?:(?:[^-]|-(?!----)){0,12000}-----END (?:[A-Z0-9]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"
            # The end may be cut off, headers may come first, and lines may be numbered.
            r"|(?:\s|\\[nr]|\d{1,5}[\t→|:]|[+>|]|(?:Proc-Type|DEK-Info): [^\n\\]*|[A-Za-z0-9+/=]{16,})*)"
        ),
        "[redacted:private_key]",
    ),
    (":AA", re.compile(r"(?<!\d)\d{8,10}:AA[\w-]{33}"), "[redacted:api_key]"),
    ("whsec_", re.compile(r"whsec_[A-Za-z0-9+/]{24,}=*"), "[redacted:api_key]"),
    ("://", re.compile(r"(?<=://)([^\s/:@\"'<>]{0,80}:)[^\s/@\"'<>]{1,200}(?=@)"), r"\1[redacted:password]"),
    (
        "hooks",
        re.compile(r"(hooks\.slack\.com/services/|discord(?:app)?\.com/api/webhooks/)[\w/-]{20,}"),
        r"\1[redacted:webhook]",
    ),
    ("sig=", re.compile(r"([?&]sig=)[\w%+/=-]{40,}"), r"\1[redacted:secret]"),
)
"""Secrets that are more than one word: a plain text that each has, its expression, and what replaces it."""

# -- secrets that a name gives away ------------------------------------------------------------------------------------

_STARTS = ("key", "secret", "token", "credential", "pass", "pwd", "auth")
_NAME = (
    r"(?P<name>key(?:[_-]?(?:id|data|base))?|secret(?:[_-]key[_-]base)?|token|credentials?|auth"
    r"|(?P<password>password|passwort|passwd|passphrase|passcode|pass|pwd))"
)
"""The end of a secret's name, which begins with one of `_STARTS`; `_is_whole_name` looks at what stands before it."""
_OWNERS = (
    "api",
    "access",
    "everlong",
    "account",
    "private",
    "secret",
    "auth",
    "encryption",
    "signing",
    "master",
    "service",
    "client",
    "subscription",
    "preshared",
    "pre-shared",
)
"""The words before a secret key: a primary key or a key of a mapping is no secret."""
_LONGEST_OWNER = 14
_NAMED = re.compile(rf"{_NAME}$", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"{_NAME}(?P<sign>\\{{0,7}}[\"'`]?(?:=|>|(?:\s?:\s?&?\w{{1,12}}(?= =))?[ \t]{{0,40}}"
    r"(?::?=>?(?!=)[ \t]{0,40}|:(?:\*\*)?(?:[ \t]{0,40}|\s{0,3}))|,?\s{0,20}\\?[\"']?\bvalue\\?[\"']?\s?[:=]\s?))"
    r"(?P<quote>\\{0,7}[\"'`])?(?P<value>(?(quote)[^\s\"'`\\]{4,500}|[^\s\"'`,;&\\(){}\[\]<>|]{4,500}))"
    r"(?P<after>[(\[]?)",
    re.IGNORECASE,
)
_HEADER = r"authorization\\?[\"']?\s*[:=]\s*\\?[\"']?"
_AUTHORIZATION = re.compile(
    rf"({_HEADER}(?:bearer|basic|token)\s+|(?:{_HEADER}|\bbearer\s+)(?=[a-z._~+/=-]*\d)(?=[^\s\"']{{16}}))[\w.~+/=-]{{8,}}",
    re.IGNORECASE,
)
_ARGUMENT = re.compile(
    r"(--(?:[a-z]+-)*(?:password|passwd|token|secret|api-?key|access-?key)[ =]\\?[\"']?)(?![$<\[{])[^\s\"'\\]{4,}",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(\blogin\s+\S{1,80}\s+password\s+)(?![$<\[{])[^\s\"'\\]{4,}", re.IGNORECASE)
_PLACEHOLDER = re.compile(
    r"[.*_-]*(?:none|null|true|false|string|required|optional|undefined|self|this|str|bytes|text|value|secret|password"
    r"|token|todo|redacted|hidden|bool|varchar)[.*_-]*$|.*(?:your|example|placeholder|changeme|dummy|x{4}|\.\.\.|\*{3})",
    re.IGNORECASE,
)
"""Words that stand where a secret would."""
_REFERENCE = re.compile(
    r"[$%~{(<\[]|\.{1,2}/|https?:|(?:os|self|this|process|config|settings|env|args|request)\.|(?:[A-Za-z_]+\.)+[A-Za-z_]+$"
)
"""Values that name where the secret is."""


_PASSWORD = re.compile(r"(?P<before>[A-Za-z][A-Za-z0-9+.-]*://[^/?#\s:@]*:)[^/?#\s]*(?=@)")
_IN_QUERY = re.compile(
    r"(?P<before>[?&;](?:password|passwd|pwd|token|key|api_key|secret|sslpassword)=)[^&#\s]*", re.IGNORECASE
)


def hide_passwords(address: str) -> str:
    """Return an address of a database or a service as people may see it."""
    return _IN_QUERY.sub(r"\g<before>***", _PASSWORD.sub(r"\g<before>***", address))


def redact(text: str) -> str:
    """Return the text with every secret replaced by a mark that says what it was."""
    for sign, shape, mark in _SHAPES:
        if sign in text:
            text = shape.sub(mark, text)
    text = _WORD.sub(_redact_word, text)
    lowered = _lower(text)
    if "bearer" in lowered or "authorization" in lowered:
        text = _AUTHORIZATION.sub(r"\1[redacted:bearer_token]", text)
        lowered = _lower(text)
    places = [place for start in _STARTS for place in _places(lowered, start)]
    if places:
        text = _redact_assignments(text, sorted(places))
        text = _ARGUMENT.sub(r"\1[redacted:secret]", text) if "--" in text else text
        if "login" in lowered and "password" in lowered:
            text = _LOGIN.sub(r"\1[redacted:secret]", text)
    return text


def _lower(text: str) -> str:
    """Return the text in small letters, each at its place: a few letters become two."""
    lowered = text.lower()
    return lowered if len(lowered) == len(text) else "".join(one.lower() if one.isascii() else one for one in text)


def _places(text: str, word: str) -> Iterator[int]:
    place = text.find(word)
    while place >= 0:
        yield place
        place = text.find(word, place + 1)


def redact_values(value: Any) -> Any:
    """Return JSON values with every secret in a text, or under the name of a secret, replaced by a mark."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {name: _redact_named(name, item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [redact_values(item) for item in value]
    return value


def _redact_named(name: Any, value: Any) -> Any:
    if not isinstance(value, str):
        return redact_values(value)
    found = _NAMED.search(name) if isinstance(name, str) else None
    if found is None or not _is_whole_name(found) or not value or any(map(str.isspace, value)):
        return redact(value)
    if _is_secret(value, found["password"]):
        return _mark(found)
    return redact(value)


def _redact_word(match: re.Match[str]) -> str:
    word, before = match[0], ""
    if word[0] in "nrt" and match.string[match.start() - 1 : match.start()] == "\\":  # a line break in JSON
        before, word = word[0], word[1:]
    return before + _TOKEN.sub(_redact_token, word)


def _redact_token(match: re.Match[str]) -> str:
    if match[0].startswith("eyJ"):
        return "[redacted:jwt]"
    body = match["body"]
    return "[redacted:api_key]" if body is None or _is_random(body) else match[0]


def _redact_assignments(text: str, places: Sequence[int]) -> str:
    """Return a text without the secrets that are assigned to names which begin at some places."""
    kept: list[str] = []
    done = copied = 0
    for place in places:
        found = _ASSIGNED.match(text, place) if place >= done else None
        if found is None:
            continue
        done = found.end("value")
        if _is_assigned_secret(found):
            kept += text[copied : found.start("value")], _mark(found)
            copied = done
    return "".join([*kept, text[copied:]]) if kept else text


def _is_assigned_secret(match: re.Match[str]) -> bool:
    value = match["value"]
    if match["after"] or not _is_whole_name(match):  # a called or indexed value is code
        return False
    # An unquoted value after " = " or ": " in code is a name, no secret.
    is_code = match["quote"] is None and match["sign"] != "=" and not _is_random(value)
    return not is_code and _is_secret(value, match["password"])


def _is_whole_name(match: re.Match[str]) -> bool:
    """Return whether what stands before the end of a name makes it the name of a secret."""
    name, place = match["name"].lower(), match.start()
    before = match.string[max(0, place - _LONGEST_OWNER) : place]
    if name[0] == "k":
        is_constant = before[-1:] == "_" and (before[-2:-1].isupper() or before[-2:-1].isdigit())  # MY_KEY
        return is_constant or before.lower().rstrip("_ -").endswith(_OWNERS)
    return name not in ("pass", "auth") or not (before[-1:].isascii() and before[-1:].isalpha())


def _mark(match: re.Match[str]) -> str:
    return "[redacted:password]" if match["password"] else "[redacted:secret]"


def _is_secret(value: str, password: str | None) -> bool:
    """Return whether a value under the name of a secret is one, rather than a placeholder or a reference."""
    if _PLACEHOLDER.match(value) or _REFERENCE.match(value) or (value[0] == "/" and not _is_mixed(value)):
        return False
    return len(value) >= 4 if password else len(value) >= 8 and _is_random(value)


def _is_random(value: str) -> bool:
    """Return whether letters and digits are mixed as they are in no word."""
    has_both = any(map(str.isdigit, value)) and any(map(str.isalpha, value))
    return has_both or (len(value) >= 16 and _is_mixed(value))


def _is_mixed(value: str) -> bool:
    """Return whether capitals and small letters are as frequent as chance makes them; few letters of a name are big."""
    return 6 * min(sum(map(str.isupper, value)), sum(map(str.islower, value))) >= len(value)
