"""Secrets are taken out of what goes to another model, and what merely looks like one stays."""

from __future__ import annotations

import pytest

from everlong.context.summary.redaction import _API_STARTS, _CLOUD_STARTS, redact


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("export OPENAI_API_KEY=sk-proj-abcDEF1234567890abcdEFGH", "export OPENAI_API_KEY=[redacted:api_key]"),
        ("use sk-ant-api03-abcDEF1234567890abcd now", "use [redacted:api_key] now"),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", "[redacted:api_key]"),
        ("xoxb-1234567890-abcdefghij", "[redacted:api_key]"),
        ("hf_abcdefghijklmnopqrstuvwxyz012345", "[redacted:api_key]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted:cloud_key]"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY", "aws_secret_access_key = [redacted:secret]"),
        ("Authorization: Bearer abcdef1234567890abcd", "Authorization: Bearer [redacted:bearer_token]"),
        ("-H 'Authorization: Basic dXNlcjpwYXNz'", "-H 'Authorization: Basic [redacted:bearer_token]'"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3", "[redacted:jwt]"),
        ("postgres://admin:hunter2@db:5432/x", "postgres://admin:[redacted:password]@db:5432/x"),
        ("DB_PASSWORD=correcthorse", "DB_PASSWORD=[redacted:password]"),
        ('{"password": "hunter22"}', '{"password": "[redacted:password]"}'),
        ('{\\"api_key\\": \\"abc123def456\\"}', '{\\"api_key\\": \\"[redacted:secret]\\"}'),
        ("?access_token=abc123def456&x=1", "?access_token=[redacted:secret]&x=1"),
        ("deploy --token abcd1234", "deploy --token [redacted:secret]"),
        ("AccountKey=abcd1234ABCDabcd1234ABCD==;Endpoint", "AccountKey=[redacted:secret];Endpoint"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nend",
            "[redacted:private_key]\nend",
        ),
        ("-----BEGIN PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAABG5v", "[redacted:private_key]"),
    ],
)
def test_a_secret_is_replaced_by_its_kind(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens=4096",
        "token = get_token()",
        "def login(password: str = None)",
        "self.secret = config.secret",
        "api_key=settings.API_KEY",
        "password=$DB_PASSWORD",
        "password = os.environ['DB_PASSWORD1']",
        "primary_key=user_id1",
        "token_count = 12345678",
        "src/auth/token.py:45",
        "if token == expected_token1:",
        "commit 3f2a9c1d2e4b5a6978f0c1d2e3a4b5c6d7e8f901",
        "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "550e8400-e29b-41d4-a716-446655440000",
        "task-runner-abc-def-1234567890",
        "git@github.com:org/repo.git",
        "http://localhost:8080/a@b",
        "The password is required.",
        "tokenizer=cl100k_base1",
    ],
)
def test_what_later_work_needs_is_left_alone(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize("word", ["changeme", "redacted", "required", "undefined"])
def test_a_placeholder_is_no_password(word: str) -> None:
    assert redact(f"password: {word}") == f"password: {word}"


@pytest.mark.parametrize("name", ["api_key", "API-KEY", "access_key", "signingkey"])
def test_the_word_before_a_key_tells_whether_it_is_a_secret(name: str) -> None:
    assert redact(f"{name}=abcd1234efgh") == f"{name}=[redacted:secret]"
    assert redact("sort(key=abcd1234efgh), key: abcd1234efgh") == "sort(key=abcd1234efgh), key: abcd1234efgh"


def test_what_is_searched_for_first_is_part_of_each_word_behind_it() -> None:
    for shared, words in (*_CLOUD_STARTS, *_API_STARTS):
        assert all(shared in word for word in words)
