"""The modules of another host, by its own names; put on ``PYTHONPATH`` this folder stands for that host in tests."""
