def work(messages):
    return None
