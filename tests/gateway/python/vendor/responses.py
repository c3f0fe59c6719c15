"""OpenAI Responses, with the answers it keeps."""

import copy
import json

from .chat import ERRORS, choice
from .model import CACHED, INPUT, OUTPUT, Heard, Refused
from .strict import check

LINE_END = "\n"
ENDS = {"length": "max_output_tokens", "refusal": "content_filter"}


class Kept:
    """The answers that are kept, and the items that can be referred to."""

    def __init__(self):
        self.answers = {}
        self.items = {}

    def keep(self, body, answer):
        self.answers[answer["id"]] = (self.input(body), answer)
        self.items.update({item["id"]: item for item in answer["output"]})

    def find(self, id):
        if id not in self.answers:
            raise Refused(404, f"Response with id '{id}' not found.")
        return self.answers[id]

    def input(self, body):
        """All items of a request, with those it only refers to."""
        before = []
        if previous := body.get("previous_response_id"):
            items, answer = self.find(previous)
            before = items + answer["output"]
        given = body["input"]
        if isinstance(given, str):
            given = [{"type": "message", "role": "user", "content": given}]
        refers = lambda item: item.get("type") == "item_reference"
        return before + [self.items[item["id"]] if refers(item) else item for item in given]


def hear(body, kept, kind="generate"):
    check("codex", kind, completed(body))
    if "model" not in body:
        raise Refused(400, "you must provide a model")
    names = {}
    system = [body["instructions"]] if body.get("instructions") else []
    said = []
    for item in kept.input(body):
        match item.get("type", "message"):
            case "message" if item["role"] in ("system", "developer"):
                system += [text for _, text in heard_parts(item)]
            case "message":
                said += heard_parts(item)
            case "function_call":
                names[item["call_id"]] = item["name"]
                said.append(["call", item["name"], json.loads(item["arguments"])])
            case "function_call_output":
                output = item["output"]
                text = (
                    output if isinstance(output, str) else "".join(part["text"] for part in output)
                )
                said.append(["result", names[item["call_id"]], text])
            case other:
                raise Refused(400, f"no idea of {other}")
    settings = {
        "max_tokens": body.get("max_output_tokens"),
        "temperature": body.get("temperature"),
        "own": body.get("prompt"),
    }
    tools = body.get("tools") or []
    return Heard(
        vendor="codex",
        model=body["model"],
        system="\n".join(system),
        said=said,
        tools={tool["name"]: (tool.get("description"), tool["parameters"]) for tool in tools},
        choice=choice(
            {"function": c} if isinstance(c := body.get("tool_choice", "auto"), dict) else c
        ),
        schema=(body.get("text") or {}).get("format", {}).get("schema"),
        settings={name: value for name, value in settings.items() if value is not None},
        stream=body.get("stream") or False,
    )


def completed(body):
    """The request with what the types ask for and the vendor does without."""
    body = copy.deepcopy(body)
    for tool in body.get("tools") or []:
        tool.setdefault("strict", None)
    items = body["input"] if isinstance(body["input"], list) else []
    for item in items:
        parts = item["content"] if isinstance(item.get("content"), list) else []
        for part in parts:
            if part["type"] == "input_image":
                part.setdefault("detail", "auto")
            if part["type"] == "output_text":
                part.setdefault("annotations", [])
                for key, value in (("id", "msg"), ("type", "message"), ("status", "completed")):
                    item.setdefault(key, value)
    return body


def listed(item, at):
    """An item as lists of a request's input have it."""
    if item.get("type", "message") == "message" and isinstance(item["content"], str):
        item = {**item, "content": [{"type": "input_text", "text": item["content"]}]}
    return {"id": f"item_{at}", "type": "message", "status": "completed", **item}


def heard_parts(item):
    content = item["content"]
    if isinstance(content, str):
        return [[item["role"], content]]
    images = ("input_image",)
    return [
        ["image", part["image_url"]] if part["type"] in images else [item["role"], part["text"]]
        for part in content
    ]


def output(answer, id, status="completed"):
    items = []
    if answer.text:
        part = {"type": "output_text", "text": answer.text, "annotations": [], "logprobs": []}
        message = {"id": f"msg_{id}", "type": "message", "role": "assistant", "content": [part]}
        items.append({**message, "status": status})
    for at, (name, arguments) in enumerate(answer.calls):
        call = {"id": f"fc_{id}_{at}", "type": "function_call", "call_id": f"call_{id}_{at}"}
        arguments = json.dumps(arguments)
        items.append({**call, "name": name, "arguments": arguments, "status": status})
    return items


def whole(answer, heard, id):
    reason = ENDS.get(answer.stop)
    status = "incomplete" if reason else "completed"
    return {
        **frame(heard, id, status),
        "incomplete_details": {"reason": reason} if reason else None,
        "output": output(answer, id, status),
        "usage": {
            "input_tokens": INPUT,
            "input_tokens_details": {"cached_tokens": CACHED, "cache_write_tokens": 0},
            "output_tokens": OUTPUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT + OUTPUT,
        },
    }


def frame(heard, id, status):
    return {
        "id": f"resp_{id}",
        "object": "response",
        "created_at": 1790000000,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "model": heard.model,
        "output": [],
        "parallel_tool_calls": True,
        "temperature": heard.settings.get("temperature", 1.0),
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": None,
    }


def events(answer, heard, id):
    number = -1

    def event(kind, **members):
        nonlocal number
        number += 1
        return kind, {"type": kind, "sequence_number": number, **members}

    begun = frame(heard, id, "in_progress")
    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    end = whole(answer, heard, id)
    for index, item in enumerate(end["output"]):
        at = {"item_id": item["id"], "output_index": index}
        opened = {**item, "status": "in_progress"}
        opened.update({"content": []} if item["type"] == "message" else {"arguments": ""})
        yield event("response.output_item.added", output_index=index, item=opened)
        if item["type"] == "message":
            at["content_index"] = 0
            (part,) = item["content"]
            yield event("response.content_part.added", **at, part={**part, "text": ""})
            for piece in answer.pieces():
                yield event("response.output_text.delta", **at, delta=piece, logprobs=[])
            yield event("response.output_text.done", **at, text=answer.text, logprobs=[])
            yield event("response.content_part.done", **at, part=part)
        else:
            arguments = item["arguments"]
            for piece in (arguments[:7], arguments[7:]):
                yield event("response.function_call_arguments.delta", **at, delta=piece)
            done = {"name": item["name"], "arguments": arguments}
            yield event("response.function_call_arguments.done", **at, **done)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{end['status']}", response=end)


def error(status, message):
    kind, code = ERRORS.get(status, ("invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def stream_error(message, heard, id):
    failed = frame(heard, id, "failed")
    failed["error"] = {"code": "server_error", "message": message}
    event = {"type": "response.failed", "sequence_number": 99, "response": failed}
    return event["type"], event
