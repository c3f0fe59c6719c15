"""Reads answers with the vendors' Python SDKs, pointed at another address and otherwise as they are.

One job per line of standard input, one result per line of standard output, in the same order:

    {"dialect": "claude", "kind": "stream", "url": "http://127.0.0.1:1/7"}
    {"answer": {...}, "invalid": []}    what the SDK made of it, in the vendor's own form
    {"failure": "..."}                  the vendor's error, as the SDK raised it
    {"unreadable": "..."}               what else the SDK raised

`invalid` lists what the SDK's own model rejects: the SDKs of OpenAI and Anthropic build their
objects without validation, and the user is the one who finds out.
"""

import json
import sys

import anthropic
import openai
import pydantic
from google import genai

MODEL = "model"
PROMPT = "Hi"
TURN = [{"role": "user", "content": PROMPT}]


def chat_response(url):
    client = openai.OpenAI(base_url=url, api_key="none")
    return client.chat.completions.create(model=MODEL, messages=TURN)


def chat_stream(url):
    client = openai.OpenAI(base_url=url, api_key="none")
    with client.chat.completions.stream(model=MODEL, messages=TURN) as stream:
        # `get_final_completion` raises at the finish reasons `length` and `content_filter`.
        return stream.until_done().current_completion_snapshot


def responses_response(url):
    client = openai.OpenAI(base_url=url, api_key="none")
    return client.responses.create(model=MODEL, input=PROMPT)


def responses_stream(url):
    client = openai.OpenAI(base_url=url, api_key="none")
    with client.responses.stream(model=MODEL, input=PROMPT) as stream:
        end = None
        for event in stream:
            if event.type in ("response.completed", "response.incomplete", "response.failed"):
                end = event.response
        # `get_final_response` knows completed responses only.
        return stream.get_final_response() if end is None else end


def messages_response(url):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    return client.messages.create(model=MODEL, max_tokens=9, messages=TURN)


def messages_stream(url):
    client = anthropic.Anthropic(base_url=url, api_key="none")
    with client.messages.stream(model=MODEL, max_tokens=9, messages=TURN) as stream:
        return stream.get_final_message()


def gemini_client(url):
    return genai.Client(api_key="none", http_options={"base_url": url})


def gemini_response(url):
    with gemini_client(url) as client:
        return client.models.generate_content(model=MODEL, contents=PROMPT)


def gemini_stream(url):
    with gemini_client(url) as client:
        # Has no accumulator: its users get the pieces.
        return list(client.models.generate_content_stream(model=MODEL, contents=PROMPT))


READERS = {
    ("openai", "response"): chat_response,
    ("openai", "stream"): chat_stream,
    ("codex", "response"): responses_response,
    ("codex", "stream"): responses_stream,
    ("claude", "response"): messages_response,
    ("claude", "stream"): messages_stream,
    ("gemini", "response"): gemini_response,
    ("gemini", "stream"): gemini_stream,
}


def wire_form(answer):
    if isinstance(answer, list):
        return [wire_form(piece) for piece in answer]
    return answer.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)


def invalid(answer, wire):
    """What the model of the answer's class says against it."""
    if isinstance(answer, list):
        return [problem for pair in zip(answer, wire) for problem in invalid(*pair)]
    try:
        type(answer).model_validate(wire)
    except pydantic.ValidationError as error:
        problems = [(".".join(map(str, e["loc"])), e["msg"]) for e in error.errors()]
        return [f"{place}: {what}" for place, what in problems if not unknown_count(place, what)]
    return []


def unknown_count(place, what):
    """A count the source does not have. The model asks for it, the vendor's own servers leave it out,
    and a zero would be a count that nobody made."""
    return "_tokens" in place and what == "Field required"


def read(job):
    try:
        answer = READERS[job["dialect"], job["kind"]](job["url"])
        wire = wire_form(answer)
        return {"answer": wire, "invalid": invalid(answer, wire)}
    except (openai.APIError, anthropic.APIError, genai.errors.APIError) as error:
        return {"failure": str(error)}
    except Exception as error:  # Whatever an SDK raises is a result.
        return {"unreadable": repr(error)}


for line in sys.stdin:
    print(json.dumps(read(json.loads(line))), flush=True)
