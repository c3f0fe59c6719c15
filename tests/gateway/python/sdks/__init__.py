"""The vendors' Python SDKs, each used as its users do, all told the same and telling the same.

A job says what to do; see ../cases.py for its members. What an SDK hands out is brought into one
form:

    {"text": str, "calls": [[name, arguments]], "stop": word, "usage": [input, cached, output]}

The word is the SDK's own; the input counts what was cached. Nothing of an SDK is changed but the
address and the key, and that it does not try again by itself: what fails once should show.
"""


def seen(text, calls, stop, usage, headers):
    told = {"text": text, "calls": calls, "stop": stop, "usage": usage}
    if headers is None:
        return told
    return {**told, "mode": headers["x-abp-mode"], "emulated": headers.get("x-abp-emulated")}


def counted(tokens, headers):
    """The count, and whether the gateway says that it is an estimate."""
    return {"tokens": tokens, "emulated": headers.get("x-abp-emulated")}


def listed(models, name):
    """The models that the clients of OpenAI and Anthropic find, and one of them by its name."""
    return {"names": sorted(model.id for model in models.list()), "one": models.retrieve(name).id}


def parameters(tool):
    """The schema of a tool that takes one text."""
    argument = tool["argument"]
    return {
        "type": "object",
        "properties": {argument: {"type": "string"}},
        "required": [argument],
        "additionalProperties": False,
    }
