def work(messages):
    """Results without their calls, and calls without their results."""
    users = [message for message in messages if message["role"] == "user"]
    call = {"id": "gone", "type": "function", "function": {"name": "lost", "arguments": "{}"}}
    return [
        messages[0],
        {"role": "tool", "tool_call_id": "never", "content": "an answer to nobody"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        users[-1],
    ]
