def work(messages):
    return messages
