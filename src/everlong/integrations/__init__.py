"""Adapters that keep the agents of other frameworks inside their window; each is loaded only by those who import it.

`everlong.integrations.langchain` and `everlong.integrations.openai_agents`, over what they share in
`everlong.integrations.keeping`.
"""
