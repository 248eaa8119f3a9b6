def work(messages):
    return [*messages, *[dict(message) for message in messages if message["role"] == "user"] * 2]
