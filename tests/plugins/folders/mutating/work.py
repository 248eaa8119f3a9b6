def work(messages):
    """Wrecks what it was given, and returns a proper list."""
    kept = [dict(messages[0]), dict([message for message in messages if message["role"] == "user"][-1])]
    for message in messages:
        message["content"] = "wrecked"
        message["role"] = "nobody"
    messages.clear()
    return kept
