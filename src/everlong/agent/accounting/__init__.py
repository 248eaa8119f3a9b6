"""Accounting: what models were paid for, what caching saved, and what compactions saved or cost on top.

    from everlong.agent.accounting import account

    books = account(store, settings)
    print(books.total.cost, books.total.uncached_cost)

Tokens are those that the providers reported; amounts are tokens times prices, in decimal arithmetic that rounds
nothing. Reads turns, receipts and the compaction history of a store; writes nothing and knows no terminal.
"""

from everlong.agent.accounting.books import Books, By, account
from everlong.agent.accounting.sums import Account, Tokens

__all__ = ["Account", "Books", "By", "Tokens", "account"]
