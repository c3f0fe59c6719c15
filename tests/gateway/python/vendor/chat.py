"""OpenAI Chat Completions."""

import json

from .model import CACHED, INPUT, OUTPUT, Heard
from .strict import check

LINE_END = "\n"
STOPS = {
    "stop": "stop",
    "sequence": "stop",
    "length": "length",
    "tools": "tool_calls",
    "refusal": "content_filter",
}
ERRORS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("service_unavailable_error", None),
}


def hear(body):
    check("openai", "generate", body)
    names = {}
    system, said = [], []
    for message in body["messages"]:
        content = message.get("content") or []
        parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        match message["role"]:
            case "system" | "developer":
                system.append(text)
            case "tool":
                said.append(["result", names[message["tool_call_id"]], text])
            case role:
                said += [[role, text]] if text else []
                said += [
                    ["image", part["image_url"]["url"]]
                    for part in parts
                    if part["type"] == "image_url"
                ]
        for call in message.get("tool_calls", []):
            function = call["function"]
            names[call["id"]] = function["name"]
            said.append(["call", function["name"], json.loads(function["arguments"])])
    format = body.get("response_format", {})
    stop = body.get("stop")
    settings = {
        "max_tokens": body.get("max_completion_tokens") or body.get("max_tokens"),
        "temperature": body.get("temperature"),
        "stop": [stop] if isinstance(stop, str) else stop,
        "own": body.get("web_search_options"),
    }
    functions = [tool["function"] for tool in body.get("tools", [])]
    return Heard(
        vendor="openai",
        model=body["model"],
        system="\n".join(system),
        said=said,
        tools={f["name"]: (f.get("description"), f.get("parameters", {})) for f in functions},
        choice=choice(body.get("tool_choice", "auto")),
        schema=format.get("json_schema", {}).get("schema"),
        settings={name: value for name, value in settings.items() if value is not None},
        stream=body.get("stream") or False,
        include_usage=(body.get("stream_options") or {}).get("include_usage") or False,
    )


def choice(given):
    if isinstance(given, dict):
        return given["function"]["name"]
    return {"required": "any"}.get(given, given)


def usage():
    return {
        "prompt_tokens": INPUT,
        "completion_tokens": OUTPUT,
        "total_tokens": INPUT + OUTPUT,
        "prompt_tokens_details": {"cached_tokens": CACHED, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }


def calls(answer, id):
    return [
        {
            "id": f"call_{id}_{at}",
            "type": "function",
            "function": {"name": name, "arguments": json.dumps(arguments)},
        }
        for at, (name, arguments) in enumerate(answer.calls)
    ]


def head(heard, id, kind):
    return {"id": f"chatcmpl-{id}", "object": kind, "created": 1790000000, "model": heard.model}


def whole(answer, heard, id):
    message = {
        "role": "assistant",
        "content": answer.text or None,
        "refusal": None,
        "annotations": [],
    }
    if answer.calls:
        message["tool_calls"] = calls(answer, id)
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": STOPS[answer.stop]}
    return {**head(heard, id, "chat.completion"), "choices": [choice], "usage": usage()}


def events(answer, heard, id):
    def chunk(delta, finish=None):
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        more = {"usage": None} if heard.include_usage else {}
        return None, {**head(heard, id, "chat.completion.chunk"), "choices": [choice], **more}

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    for piece in answer.pieces():
        yield chunk({"content": piece})
    for index, call in enumerate(calls(answer, id)):
        arguments = call["function"].pop("arguments")
        call["function"]["arguments"] = ""
        yield chunk({"tool_calls": [{"index": index, **call}]})
        for piece in (arguments[:7], arguments[7:]):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
    yield chunk({}, STOPS[answer.stop])
    if heard.include_usage:
        yield None, {**head(heard, id, "chat.completion.chunk"), "choices": [], "usage": usage()}
    yield None, "[DONE]"


def error(status, message):
    kind, code = ERRORS[status]
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def stream_error(message, heard, id):
    return None, {
        "error": {"message": message, "type": "server_error", "param": None, "code": None}
    }
