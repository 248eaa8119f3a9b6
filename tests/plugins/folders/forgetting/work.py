def work(messages):
    """Everything but what the user said."""
    return [messages[0], {"role": "assistant", "content": "Nobody asked for anything."}]
