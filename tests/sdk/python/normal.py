"""What a program wants of an answer, whichever vendor's SDK it was read with.

    {"text": str, "tool_calls": [{"name", "arguments"}], "stop": ..., "usage": {"input", "output"}}

or `{"failure": message}` where the vendor reported one, or `{"unreadable": problem}` where the SDK or
a program that trusts its types would break. `stop` is stop, length, tool_use, refusal or other.
A refusal's words are text: they are what the user is shown. Tools that ran on the vendor's side
are no calls. Of several choices the first counts.
"""

import json

CHAT_STOPS = {
    "stop": "stop",
    "length": "length",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
INCOMPLETE_STOPS = {"max_output_tokens": "length", "content_filter": "refusal"}
CLAUDE_STOPS = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_use",
    "refusal": "refusal",
}
GEMINI_STOPS = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    "SAFETY": "refusal",
    "RECITATION": "refusal",
    "BLOCKLIST": "refusal",
    "PROHIBITED_CONTENT": "refusal",
    "SPII": "refusal",
}


def normal(dialect, result):
    """The normal form of what a reader handed back."""
    if "answer" not in result:
        return result
    try:
        return FORMS[dialect](result["answer"])
    except (KeyError, IndexError, TypeError) as missing:
        return {"unreadable": f"the answer lacks {missing}"}


def form(text, calls, stop, usage):
    return {"text": text, "tool_calls": calls, "stop": stop, "usage": usage}


def tokens(usage, read, written):
    """The sums of the named counts; nothing where the vendor told nothing."""
    if not usage:
        return {}
    count = lambda names: sum(usage.get(name) or 0 for name in names)
    return {"input": count(read), "output": count(written)}


def parsed(arguments):
    """Arguments that are no JSON are kept, so that the difference shows."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def chat(answer):
    choice = answer["choices"][0]
    message = choice["message"]
    refusal = message.get("refusal")
    calls = [chat_call(call) for call in message.get("tool_calls") or []]
    stop = "refusal" if refusal else CHAT_STOPS.get(choice.get("finish_reason"), "other")
    usage = tokens(answer.get("usage"), ["prompt_tokens"], ["completion_tokens"])
    return form((message.get("content") or "") + (refusal or ""), calls, stop, usage)


def chat_call(call):
    if call["type"] == "custom":
        return {"name": call["custom"]["name"], "arguments": call["custom"]["input"]}
    return {"name": call["function"]["name"], "arguments": parsed(call["function"]["arguments"])}


def responses(answer):
    if answer.get("error"):
        return {"failure": answer["error"]["message"]}
    parts = [part for item in answer["output"] for part in item.get("content") or []]
    refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
    texts = [part["text"] for part in parts if part["type"] == "output_text"]
    calls = [responses_call(item) for item in answer["output"] if item["type"] in CALLS]
    if answer["status"] == "incomplete":
        stop = INCOMPLETE_STOPS.get(answer["incomplete_details"]["reason"], "other")
    elif answer["status"] == "completed":
        stop = "refusal" if refusals else "tool_use" if calls else "stop"
    else:
        stop = "other"
    usage = tokens(answer.get("usage"), ["input_tokens"], ["output_tokens"])
    return form("".join(texts + refusals), calls, stop, usage)


CALLS = ("function_call", "custom_tool_call")


def responses_call(item):
    if item["type"] == "custom_tool_call":
        return {"name": item["name"], "arguments": item["input"]}
    return {"name": item["name"], "arguments": parsed(item["arguments"])}


def messages(answer):
    blocks = answer["content"]
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    calls = [
        {"name": block["name"], "arguments": block["input"]}
        for block in blocks
        if block["type"] == "tool_use"
    ]
    # Cached tokens are not among the input here, but for every other vendor.
    read = ["input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"]
    usage = tokens(answer["usage"], read, ["output_tokens"])
    return form("".join(texts), calls, CLAUDE_STOPS.get(answer["stop_reason"], "other"), usage)


def gemini(answer):
    """A whole answer, or the pieces of a stream."""
    pieces = answer if isinstance(answer, list) else [answer]
    candidates = [piece["candidates"][0] for piece in pieces if piece.get("candidates")]
    contents = [candidate.get("content") or {} for candidate in candidates]
    parts = [part for content in contents for part in content.get("parts") or []]
    texts = [part.get("text") or "" for part in parts if not part.get("thought")]
    calls = [
        {"name": call["name"], "arguments": call.get("args") or {}}
        for call in (part.get("functionCall") for part in parts)
        if call
    ]
    reasons = [candidate.get("finishReason") for candidate in candidates]
    stop = GEMINI_STOPS.get(next(filter(None, reversed(reasons)), None), "other")
    if stop == "stop" and calls:
        stop = "tool_use"
    if any((piece.get("promptFeedback") or {}).get("blockReason") for piece in pieces):
        stop = "refusal"
    counts = next(filter(None, (piece.get("usageMetadata") for piece in reversed(pieces))), None)
    # Thoughts are not among the candidates' tokens here, but among every other vendor's output.
    read = ["promptTokenCount", "toolUsePromptTokenCount"]
    usage = tokens(counts, read, ["candidatesTokenCount", "thoughtsTokenCount"])
    return form("".join(texts), calls, stop, usage)


FORMS = {"openai": chat, "codex": responses, "claude": messages, "gemini": gemini}
