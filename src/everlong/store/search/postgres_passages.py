"""Lists of passages in PostgreSQL's index, and the numbers that stand for terms in its arrays.

The statistics of the server say how frequent a frequent term is; only rare ones are counted.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, CursorResult

from everlong.store.search.index import SearchScope, scope_of_messages, scope_of_summaries
from everlong.store.search.passage_scores import COUNTED, MANY, NAMED_ROWS, Passages, Spread, Wanted, passage_bounds
from everlong.store.search.text import PASSAGE_BITS

_FREQUENT = (
    "SELECT term, share FROM pg_stats, unnest(CAST(CAST(most_common_elems AS text) AS integer[]), "
    "most_common_elem_freqs) AS common(term, share) WHERE schemaname = ANY(current_schemas(false)) "
    "AND tablename = 'search_passage' AND attname = 'words' AND term = ANY(CAST(? AS integer[]))"
)
_MAX_KNOWN = 200_000


class _Codes(dict[str, int]):
    """Numbers of terms, computed once."""

    def __missing__(self, term: str) -> int:
        code = zlib.crc32(term.encode("utf-8", "surrogatepass")) - (1 << 31)
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[term] = code
        return code


code_of = _Codes().__getitem__
"""Return the number of a term; two terms seldom have the same."""


def start_code(character: str) -> int:
    """Return the number for terms that begin with a character of dense script."""
    return code_of(f"{character}*")


def edge_code(sign: str) -> int:
    """Return the number for a sign of two words in two passages."""
    return code_of(f"{sign}|")


SIGN_BITS = 512
"""The bits of a passage in which each sign of its neighbouring words sets one."""


def bits_of(signs: Iterable[str]) -> str:
    """Return the bits of some signs as PostgreSQL reads them; a passage with all signs has all of them."""
    bits = 0
    for sign in signs:
        bits |= 1 << ord(sign) % SIGN_BITS
    return f"x{bits:0{SIGN_BITS // 4}x}"


def with_signs(signs: Iterable[str], passage: str = "p") -> str:
    """Return a condition on a passage that may have all of some signs."""
    bits = f"'{bits_of(signs)}'::bit({SIGN_BITS})"
    return f"{passage}.signs & {bits} = {bits}"


def array(codes: Iterable[int]) -> str:
    """Return numbers as an array in SQL; not as a parameter, because the plan depends on them."""
    return f"'{{{','.join(map(str, codes))}}}'::integer[]"


class PostgresPassages:
    """See `everlong.store.search.passage_scores.PassageLists`."""

    def __init__(self, connection: Connection, scope: SearchScope, passages: int) -> None:
        self._connection = connection
        self._scope = scope
        self._passages = passages
        self._tags = [code_of(tag) for tag in scope.tags()]

    def spread(self, terms: Sequence[str]) -> dict[str, Spread]:
        """Return in how many passages each term stands, counted as far as it matters; terms in none are left out."""
        ends = run(self._connection, "SELECT max(passage), min(passage) FROM search_passage").one()
        last, first = ends[0] or 0, max(ends[1] or 0, 0)
        codes = {code_of(term): term for term in terms}
        found: dict[str, Spread] = {}
        for code, share in run(self._connection, _FREQUENT, (list(codes),)):
            holding = int(share * self._passages)
            if holding >= COUNTED:
                oldest = int(last - (last - first) * COUNTED / holding)
                found[codes[code]] = Spread(min(MANY, holding), last, oldest)
        rare = [code for code, term in codes.items() if term not in found]
        counted = [
            f"SELECT {code}, count(*) FROM (SELECT 1 FROM search_passage "  # noqa: S608 - numbers
            f"WHERE words @> {array([code])} LIMIT {MANY}) AS c{place}"
            for place, code in enumerate(rare)
        ]
        for code, count in run(self._connection, " UNION ALL ".join(counted)) if counted else ():
            if count >= COUNTED:
                found[codes[code]] = Spread(count, last, int(last - (last - first) * COUNTED / count))
            elif count:
                found[codes[code]] = Spread(count, last, first)
        return {term: found[term] for term in terms if term in found}

    def passages_with(self, wanted: Sequence[Wanted], limit: int, since: int | None = None) -> list[Passages]:
        """Return for each wish the newest passages that have it, those after ``since``."""
        conditions = [
            f"p.words @> {array([*(map(start_code if one.is_start else code_of, one.terms)), *self._tags])}"
            for one in wanted
        ]
        return self._newest(conditions, limit, since)

    def passages_named(self, terms: Sequence[str], signs: Sequence[str]) -> Passages:
        """Return the newest passages with some neighbouring words."""
        condition = f"p.words @> {array([*map(code_of, terms), *self._tags])}"
        if signs:
            condition += f" AND {with_signs(signs)}"
        return self._newest([condition], NAMED_ROWS, None)[0]

    def _newest(self, conditions: Sequence[str], limit: int, since: int | None) -> list[Passages]:
        found = [Passages([], []) for _ in conditions]
        low, high = passage_bounds(self._scope)
        low = low if since is None else max(low, since)
        sources = []
        if self._scope.has_messages:
            where, values = scope_of_messages(self._scope)
            rows = f"JOIN node n ON n.seq = p.passage >> {PASSAGE_BITS}"
            where = f"p.passage > {low:d} AND p.passage < {high:d} AND {where}"
            sources.append(("n.role = 'user'", rows, where, values))
        if self._scope.has_summaries:
            where, values = scope_of_summaries(self._scope)
            rows = f"JOIN view_item i ON i.seq = -(p.passage >> {PASSAGE_BITS}) JOIN view v ON v.id = i.view"
            sources.append(("false", rows, f"p.passage < 0 AND {where}", values))
        for is_person, rows, where, values in sources:
            parts = [
                f"(SELECT {place}, p.passage, {is_person} FROM search_passage p {rows} "  # noqa: S608 - our own
                f"WHERE {condition} AND {where} ORDER BY p.passage DESC LIMIT {limit})"
                for place, condition in enumerate(conditions)
            ]
            if parts:
                for place, passage, is_user in run(self._connection, " UNION ALL ".join(parts), values * len(parts)):
                    (found[place].persons if is_user else found[place].others).append(passage)
        return found

    def lengths(self, passages: Sequence[int]) -> list[tuple[int, int]]:
        """Return passages with the number of their terms."""
        statement = "SELECT passage, length FROM search_passage WHERE passage = ANY(?)"
        return [(row[0], row[1]) for row in run(self._connection, statement, (list(passages),))]


def run(connection: Connection, statement: str, values: Sequence[Any] = ()) -> CursorResult[*tuple[Any, ...]]:
    """Run a statement that is written with question marks."""
    return connection.exec_driver_sql(statement.replace("%", "%%").replace("?", "%s"), tuple(values))
