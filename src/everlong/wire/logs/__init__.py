"""Logs of other clients: what each format says, as messages in the OpenAI format with facts and figures."""
