"""Plugins as their authors would write them; none of them imports more of Everlong than everybody can."""
