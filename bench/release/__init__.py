"""A release: the files that go out, the notes that go with them, and the check on every Python with every extra.

``python -m bench.release build`` makes and checks the files, ``notes`` prints the changelog of a version, ``matrix``
installs the wheel everywhere and runs it.
"""
