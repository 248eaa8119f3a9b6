"""Stand-in."""


class PostgresIndex: ...
