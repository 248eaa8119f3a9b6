"""Upgrades of stores that older versions wrote; run by `everlong.store.upgrade`."""
