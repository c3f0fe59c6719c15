"""Google's `generateContent`."""

import json

from .model import CACHED, INPUT, OUTPUT, Heard, Refused
from .strict import check

LINE_END = "\r\n"
STOPS = {
    "stop": "STOP",
    "sequence": "STOP",
    "length": "MAX_TOKENS",
    "tools": "STOP",
    "refusal": "SAFETY",
}
ERRORS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
ROLES = {"user": "user", "model": "assistant"}
PLAIN_BASE64 = str.maketrans("-_", "+/")
CHOICES = {"AUTO": "auto", "NONE": "none", "ANY": "any"}


def hear(body, model, stream):
    body = check("gemini", "generate", body)
    said = []
    for content in body["contents"]:
        said += [heard_part(part, content.get("role", "user")) for part in content["parts"]]
    config = body.get("generationConfig", {})
    settings = {
        "max_tokens": config.get("maxOutputTokens"),
        "temperature": config.get("temperature"),
        "stop": config.get("stopSequences"),
        "own": body.get("cachedContent"),
    }
    declared = [f for tool in body.get("tools", []) for f in tool["functionDeclarations"]]
    schema = lambda given, name: given.get(f"{name}JsonSchema") or given.get(name)
    calling = body.get("toolConfig", {}).get("functionCallingConfig", {})
    allowed = calling.get("allowedFunctionNames", [])
    return Heard(
        vendor="gemini",
        model=model,
        system="\n".join(
            part["text"] for part in body.get("systemInstruction", {}).get("parts", [])
        ),
        said=said,
        tools={f["name"]: (f.get("description"), schema(f, "parameters") or {}) for f in declared},
        choice=allowed[0] if len(allowed) == 1 else CHOICES[calling.get("mode", "AUTO")],
        schema=config.get("responseJsonSchema") or config.get("responseSchema"),
        settings={name: value for name, value in settings.items() if value is not None},
        stream=stream,
    )


def heard_part(part, role):
    match part:
        case {"text": text}:
            return [ROLES[role], text]
        case {"inlineData": {"mimeType": kind, "data": data}}:
            # Base64 may be written in two ways as well.
            return ["image", f"data:{kind};base64,{data.translate(PLAIN_BASE64)}"]
        case {"fileData": {"fileUri": link}}:
            return ["image", link]
        case {"functionCall": {"name": name, **call}}:
            return ["call", name, call.get("args", {})]
        case {"functionResponse": {"name": name, "response": {**response}}}:
            return ["result", name, result(response)]
        case _:
            raise Refused(400, f"no idea of {list(part)}")


def result(response):
    """A result is an object; a text that is all of it is its own."""
    texts = list(response.values())
    return texts[0] if len(texts) == 1 else json.dumps(response, ensure_ascii=False)


def piece(heard, id, parts, **candidate):
    usage = {
        "promptTokenCount": INPUT,
        "cachedContentTokenCount": CACHED,
        "candidatesTokenCount": OUTPUT,
        "totalTokenCount": INPUT + OUTPUT,
    }
    content = {"role": "model", "parts": parts}
    candidates = [{"content": content, "index": 0, **candidate}]
    about = {"modelVersion": heard.model, "responseId": str(id)}
    return {"candidates": candidates, "usageMetadata": usage, **about}


def calls(answer):
    return [{"functionCall": {"name": name, "args": arguments}} for name, arguments in answer.calls]


def whole(answer, heard, id):
    parts = [{"text": answer.text}] if answer.text else []
    return piece(heard, id, parts + calls(answer), finishReason=STOPS[answer.stop])


def events(answer, heard, id):
    for text in answer.pieces():
        yield None, piece(heard, id, [{"text": text}])
    for call in calls(answer):
        yield None, piece(heard, id, [call])
    yield None, piece(heard, id, [{"text": ""}], finishReason=STOPS[answer.stop])


def error(status, message):
    return {"error": {"code": status, "message": message, "status": ERRORS[status]}}


def stream_error(message, heard, id):
    return None, {"error": {"code": 500, "message": message, "status": "INTERNAL"}}
