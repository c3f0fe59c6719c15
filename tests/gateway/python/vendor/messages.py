"""Anthropic Messages."""

import json

from .model import CACHED, INPUT, OUTPUT, Heard, Refused
from .strict import check

LINE_END = "\n"
STOPS = {
    "stop": "end_turn",
    "sequence": "stop_sequence",
    "length": "max_tokens",
    "tools": "tool_use",
    "refusal": "refusal",
}
ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}
# What the newest version of the API has given up, and its SDK's types with it.
SAMPLING = ("temperature", "top_p", "top_k")
NEWEST = "2026-10-21"


def hear(body, version, kind="generate"):
    given_up = [name for name in SAMPLING if name in body]
    if version == NEWEST and given_up:
        raise Refused(400, f"{given_up[0]}: not in {version}")
    check("claude", kind, body, besides=SAMPLING)
    names, said = {}, []
    for message in body["messages"]:
        for block in blocks(message["content"]):
            said.append(heard_block(block, message["role"], names))
    settings = {
        "max_tokens": body.get("max_tokens"),
        "temperature": body.get("temperature"),
        "stop": body.get("stop_sequences"),
        "own": body.get("container"),
    }
    format = body.get("output_config", {}).get("format") or {}
    choice = body.get("tool_choice", {"type": "auto"})
    return Heard(
        vendor="claude",
        model=body["model"],
        system="\n".join(block["text"] for block in blocks(body.get("system", []))),
        said=said,
        tools={t["name"]: (t.get("description"), t["input_schema"]) for t in body.get("tools", [])},
        choice=choice.get("name", choice["type"]),
        schema=format.get("schema"),
        settings={name: value for name, value in settings.items() if value is not None},
        stream=body.get("stream") or False,
    )


def blocks(content):
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def heard_block(block, role, names):
    match block["type"]:
        case "text":
            return [role, block["text"]]
        case "image" if block["source"]["type"] == "url":
            return ["image", block["source"]["url"]]
        case "image":
            source = block["source"]
            return ["image", f"data:{source['media_type']};base64,{source['data']}"]
        case "tool_use":
            names[block["id"]] = block["name"]
            return ["call", block["name"], block["input"]]
        case "tool_result":
            text = "".join(inner["text"] for inner in blocks(block["content"]))
            return ["result", names[block["tool_use_id"]], text]
        case kind:
            raise Refused(400, f"no idea of {kind}")


def usage(**more):
    counts = {"input_tokens": INPUT - CACHED, "output_tokens": OUTPUT}
    return {**counts, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0, **more}


def calls(answer, id):
    return [
        {"type": "tool_use", "id": f"toolu_{id}_{at}", "name": name, "input": arguments}
        for at, (name, arguments) in enumerate(answer.calls)
    ]


def whole(answer, heard, id):
    content = [{"type": "text", "text": answer.text, "citations": None}] if answer.text else []
    return {
        "id": f"msg_{id}",
        "type": "message",
        "role": "assistant",
        "model": heard.model,
        "content": content + calls(answer, id),
        "stop_reason": STOPS[answer.stop],
        "stop_sequence": answer.sequence,
        "usage": usage(),
    }


def events(answer, heard, id):
    def event(kind, **members):
        return kind, {"type": kind, **members}

    start = whole(answer, heard, id)
    begun = {"content": [], "stop_reason": None, "stop_sequence": None}
    start.update(begun, usage=usage(output_tokens=1))
    yield event("message_start", message=start)
    index = 0
    if answer.text:
        block = {"type": "text", "text": ""}
        yield event("content_block_start", index=0, content_block=block)
        yield event("ping")
        for piece in answer.pieces():
            delta = {"type": "text_delta", "text": piece}
            yield event("content_block_delta", index=0, delta=delta)
        yield event("content_block_stop", index=0)
        index = 1
    for call in calls(answer, id):
        arguments = json.dumps(call["input"])
        yield event("content_block_start", index=index, content_block={**call, "input": {}})
        for piece in ("", arguments[:7], arguments[7:]):
            delta = {"type": "input_json_delta", "partial_json": piece}
            yield event("content_block_delta", index=index, delta=delta)
        yield event("content_block_stop", index=index)
        index += 1
    delta = {"stop_reason": STOPS[answer.stop], "stop_sequence": answer.sequence}
    yield event("message_delta", delta=delta, usage=usage())
    yield event("message_stop")


def error(status, message):
    kind = ERRORS[status]
    return {"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_1"}


def stream_error(message, heard, id):
    return "error", {"type": "error", "error": {"type": "api_error", "message": message}}
