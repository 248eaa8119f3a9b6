"""Upgrades of stores that older releases wrote; run by `everlong.store.upgrade`."""
