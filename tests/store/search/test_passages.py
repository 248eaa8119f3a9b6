"""Passages of a long text: the lines that a query is about, in their own words, within the room that there is."""

from __future__ import annotations

from hypothesis import given, strategies as st

from everlong.store.search.snippets import passages

LOG = "\n".join(f"step {number}: nothing to report from the quay" for number in range(500))


def test_of_a_long_text_the_lines_that_matter_come_with_their_neighbours() -> None:
    text = f"{LOG}\nsettings:\nharbour.port = 8437\nharbour.depth = 12\n{LOG}"
    assert passages(text, "which port does the harbour use?", 90) == (
        "…\nsettings:\nharbour.port = 8437\nharbour.depth = 12\n…"
    )


def test_a_long_line_is_cut_between_words_around_the_match() -> None:
    text = f"{'word ' * 2_000}the password of the vault is pelican {'word ' * 2_000}"
    found = passages(text, "vault", 1_000)
    assert "the password of the vault is pelican" in found
    assert len(found) <= 1_000


def test_paths_quotes_and_scripts_without_spaces_are_found() -> None:
    text = f"{LOG}\nsee src/quay/tide.py there\n{LOG}\n密码是鹈鹕\n{LOG}"
    assert "src/quay/tide.py" in passages(text, "src/quay/tide.py", 200)
    assert "密码是鹈鹕" in passages(text, "密码", 200)
    assert "密码是鹈鹕" in passages(text, '"是鹈鹕"', 200)


@given(st.text(st.sampled_from("ab port8 \n."), max_size=3_000), st.text(max_size=20), st.integers(50, 900))
def test_there_is_never_more_than_there_is_room_for(text: str, query: str, room: int) -> None:
    assert len(passages(text, query, room)) <= room + 4
