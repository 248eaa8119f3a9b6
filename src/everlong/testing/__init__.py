"""Help for testing what is built on Everlong: Hypothesis strategies for conversations.

Nothing is imported here, because Hypothesis is an optional dependency: install ``everlong[testing]`` and import
`everlong.testing.strategies`.
"""
