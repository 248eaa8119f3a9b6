"""Partitions by tenant: the large tables of a PostgreSQL store, each divided by the hash of the tenant.

All rows of a tenant stand in the same partition of each table, so a gateway with many keys works on indexes of an
eighth of the size, and PostgreSQL can vacuum, back up and rebuild the parts one by one. The schema is the same
otherwise. A key that has to be unique carries the tenant too, as PostgreSQL asks; since every hash is keyed by tenant
and every number is drawn from one sequence, it is unique without the tenant all the same.
"""

from __future__ import annotations

from sqlalchemy import Column, Connection, Index, MetaData, Table, UniqueConstraint, text

from everlong.errors import StoreError
from everlong.store.schema import annex, content, node, turn

LARGE: tuple[Table, ...] = (content, node, annex, turn)
"""The tables that grow with every message."""

MOST = 256
"""The most partitions: each costs time whenever a statement names no tenant."""


def check_count(count: int, backend: str) -> None:
    """Raise an error if a store of this kind cannot have so many partitions."""
    if count and backend != "postgresql":
        raise StoreError(f"store.partitions: only a PostgreSQL store has partitions, and store.url names {backend}")
    if not 0 <= count <= MOST:
        raise StoreError(f"store.partitions: {count} is no whole number from 0 to {MOST}")


def create_partitions(connection: Connection, count: int) -> None:
    """Create the large tables in so many partitions each."""
    found = MetaData()
    for table in LARGE:
        _twin(table, found)
    found.create_all(connection, checkfirst=False)
    for table in LARGE:
        for number in range(count):
            connection.execute(
                text(
                    f"CREATE TABLE {table.name}_p{number} PARTITION OF {table.name}"
                    f" FOR VALUES WITH (MODULUS {count}, REMAINDER {number})"
                )
            )


def _twin(table: Table, metadata: MetaData) -> Table:
    """Return a table with the same columns and indexes that is divided by the hash of the tenant."""
    columns = [
        Column(
            one.name,
            one.type,
            primary_key=one.primary_key or one.name == "tenant",
            autoincrement=one.primary_key,
            nullable=one.nullable,
        )
        for one in table.columns
    ]
    # The tenant comes last, so that the index also serves those who do not name it.
    keys = [[one.name for one in key.columns] for key in table.constraints if isinstance(key, UniqueConstraint)]
    unique = [UniqueConstraint(*names, "tenant") for names in keys]
    twin = Table(table.name, metadata, *columns, *unique, postgresql_partition_by="HASH (tenant)")
    for index in table.indexes:
        limit = index.dialect_options["postgresql"]["where"]
        Index(index.name, *(twin.c[one.name] for one in index.columns), postgresql_where=limit)
    return twin
