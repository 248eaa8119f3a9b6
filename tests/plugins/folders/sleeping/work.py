import threading


def work(messages):
    threading.Event().wait()  # for ever
