def work(messages):
    """Next to nothing: the longest answer loses its last words."""
    answers = [place for place, one in enumerate(messages) if one["role"] == "assistant" and one["content"]]
    longest = max(answers, key=lambda place: len(messages[place]["content"]))
    shorter = {**messages[longest], "content": messages[longest]["content"][:-40]}
    return [*messages[:longest], shorter, *messages[longest + 1 :]]
