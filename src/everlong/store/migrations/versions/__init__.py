"""One file per revision. A revision says what it changed in its own words and imports nothing of the package."""
