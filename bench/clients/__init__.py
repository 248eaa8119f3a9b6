"""The programs that people use with a gateway, in pinned versions, run headless on a scripted model."""
