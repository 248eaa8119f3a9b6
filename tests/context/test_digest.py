"""What a summarizing model reads of a long tool output has no secret in it, wherever the cut falls."""

from __future__ import annotations

import pytest

from everlong.context.digest import redacted_ends

KEEP = 1_500
TOKEN = f"eyJ{'a1B2' * 8}.eyJ{'c3D4' * 75}.{'e5F6' * 20}"
"""So much longer than its mark that hardly more than the ends of a text with many is left."""
SECRETS = {
    "json": '  "password": "{secret}",\n',
    "escaped": '  \\"password\\": \\"{secret}\\",\\n ',
    "yaml": "password: {secret}\r\n",
    "argument": "deploy --password {secret} --now\n",
    "bearer": "Authorization: Bearer {secret}\n",
    "url": "see postgres://fog:{secret}@lamp/db\n",
}


@pytest.mark.parametrize("shape", SECRETS)
def test_a_secret_does_not_pass_where_the_cut_parts_it_from_its_name(shape: str) -> None:
    lines = [
        f'  "jwt": "{TOKEN}",\n{SECRETS[shape].format(secret=f"hunter2X{number:02}foghorn9")}' for number in range(12)
    ]
    period = len(lines[0])
    for shift in range(period):
        assert "foghorn9" not in redacted_ends("".join(lines) + "x" * shift, KEEP)


@pytest.mark.parametrize("length", [40, 900])
def test_a_long_secret_does_not_pass_in_part(length: int) -> None:
    secret = ("k7Qz" * length)[:length]
    before = "fog at nine\n" * 300 + f"Authorization: Bearer {secret}\n"
    for words in range(1_200):
        assert secret[-12:] not in redacted_ends(before + "y" * (words % 2) + " y" * (words // 2), KEEP)


def test_both_ends_stay_and_the_mark_tells_what_lies_between() -> None:
    text = "first lamp\n" + "fog at nine\n" * 1_000 + "last lamp\n"
    shown = redacted_ends(text, KEEP)
    assert shown.startswith("first lamp\n")
    assert shown.endswith("last lamp\n")
    assert len(shown) < KEEP + 50
