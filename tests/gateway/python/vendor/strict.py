"""Holds requests against the vendors' own types, to the last member.

The types are those of the vendors' Python SDKs. A member that a type does not have is as wrong as
one that it has in another form: real vendors refuse both.
"""

import pydantic
from anthropic.types import message_count_tokens_params, message_create_params
from google.genai import types as google
from openai.types.chat import completion_create_params
from openai.types.responses import input_token_count_params, response_create_params
from pydantic.alias_generators import to_camel

from .model import Refused


class GenerateContent(pydantic.BaseModel):
    """The body of a request to Gemini; the SDK only has its parts."""

    model_config = {"extra": "forbid", "alias_generator": to_camel, "populate_by_name": True}

    contents: list[google.Content]
    system_instruction: google.Content | None = None
    tools: list[google.Tool] | None = None
    tool_config: google.ToolConfig | None = None
    generation_config: google.GenerationConfig | None = None
    safety_settings: list[google.SafetySetting] | None = None
    cached_content: str | None = None


class CountedContent(GenerateContent):
    model: str


class CountTokens(pydantic.BaseModel):
    model_config = {"extra": "forbid", "alias_generator": to_camel}

    contents: list[google.Content] | None = None
    generate_content_request: CountedContent | None = None


KINDS = {
    ("openai", "generate"): completion_create_params.CompletionCreateParams,
    ("codex", "generate"): response_create_params.ResponseCreateParams,
    ("codex", "count"): input_token_count_params.InputTokenCountParams,
    ("claude", "generate"): message_create_params.MessageCreateParams,
    ("claude", "count"): message_count_tokens_params.MessageCountTokensParams,
    ("gemini", "generate"): GenerateContent,
    ("gemini", "count"): CountTokens,
}
TYPES = {kind: pydantic.TypeAdapter(params) for kind, params in KINDS.items()}


def check(dialect, kind, body, besides=()):
    """Refuses a body that its vendor's type does not describe; `besides` are members it lacks.
    Returns what was read: names may be written in two ways."""
    body = {key: value for key, value in body.items() if key not in besides}
    try:
        read = forced(TYPES[dialect, kind].validate_python(body))
    except pydantic.ValidationError as error:
        raise Refused(400, f"not a request of {dialect}: {nearest(error)}") from None
    # Models refuse what they do not know; dictionaries drop it.
    if isinstance(read, pydantic.BaseModel):
        return read.model_dump(mode="json", by_alias=True, exclude_none=True)
    if unknown := left_over(body, read):
        raise Refused(400, f"unknown to {dialect}: {', '.join(unknown)}")
    return read


def nearest(error):
    """What is wrong with a value that fits none of several types: what the nearest one says."""
    by_type = {}
    for problem in error.errors():
        *place, member = problem["loc"]
        by_type.setdefault(tuple(place), []).append((member, problem["msg"]))
    # A type whose constants are others is another type; the deepest one has most in common.
    another = lambda what: any(message.startswith("Input should be '") for _, message in what)
    place, what = min(by_type.items(), key=lambda item: (another(item[1]), -len(item[0])))
    steps = [str(step) for step in place if not str(step).startswith("list[")]
    return f"{'/'.join(steps)} {'; '.join(f'{member}: {message}' for member, message in what)}"


def forced(value):
    """Lists are only checked while they are read."""
    if isinstance(value, dict):
        return {key: forced(inner) for key, inner in value.items()}
    if isinstance(value, (str, int, float, type(None), pydantic.BaseModel)):
        return value
    return [forced(inner) for inner in value]


def left_over(body, read, path=""):
    """Where the body says more than was read."""
    if isinstance(body, dict):
        unknown = [f"{path}/{key}" for key in body if key not in read]
        known = [left_over(body[key], read[key], f"{path}/{key}") for key in body if key in read]
        return unknown + [place for places in known for place in places]
    if isinstance(body, list):
        pairs = enumerate(zip(body, read))
        return [place for at, pair in pairs for place in left_over(*pair, f"{path}/{at}")]
    return []
