"""`openai`: Chat Completions and Responses."""

import json

import openai

from . import counted, listed, parameters, seen
from .forecast import Forecast


def data_url(image):
    return image.get("link") or f"data:{image['type']};base64,{image['data']}"


class Chat:
    def __init__(self, url, key):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    def request(self, job):
        content = job["prompt"]
        if image := job.get("image"):
            picture = {"type": "image_url", "image_url": {"url": data_url(image)}}
            content = [{"type": "text", "text": content}, picture]
        history = [{"role": role, "content": text} for role, text in job.get("history", [])]
        system = [{"role": "system", "content": job["system"]}] if "system" in job else []
        settings = dict(job["settings"])
        settings["max_completion_tokens"] = settings.pop("max_tokens")
        messages = [*system, *history, {"role": "user", "content": content}]
        return {"model": job["model"], "messages": messages, **settings, **job.get("own", {})}

    def embed(self, job):
        found = self.client.embeddings.create(model=job["model"], input=job["texts"])
        return {"vectors": [one.embedding for one in found.data]}

    def batch(self, job):
        """Uploads a file, has it worked on, and reads what came of it."""
        files, batches = self.client.files, self.client.batches
        sent = files.create(file=("lines.jsonl", job["lines"].encode()), purpose="batch")
        begun = batches.create(
            input_file_id=sent.id, endpoint="/v1/chat/completions", completion_window="24h"
        )
        done = batches.retrieve(begun.id)
        output = files.content(done.output_file_id).read().decode()
        return {"status": done.status, "output": output, "deleted": files.delete(sent.id).deleted}

    def send(self, request, stream):
        if not stream:
            raw = self.client.chat.completions.with_raw_response.create(**request)
            return raw.parse(), raw.headers
        usage = {"stream_options": {"include_usage": True}}
        with self.client.chat.completions.stream(**request, **usage) as stream:
            # `get_final_completion` raises where the answer is not complete.
            return stream.until_done().current_completion_snapshot, None

    def seen(self, completion, headers=None):
        (choice,) = completion.choices
        calls = [
            [call.function.name, json.loads(call.function.arguments)]
            for call in choice.message.tool_calls or []
        ]
        usage = completion.usage
        counts = [
            usage.prompt_tokens,
            usage.prompt_tokens_details.cached_tokens,
            usage.completion_tokens,
        ]
        return seen(choice.message.content or "", calls, choice.finish_reason, counts, headers)

    def ask(self, job):
        return self.seen(*self.send(self.request(job), job["stream"]))

    def use_tools(self, job):
        request = self.request(job)
        request["tools"] = [
            {
                "type": "function",
                "function": {
                    "name": tool["name"],
                    "description": tool["description"],
                    "parameters": parameters(tool),
                    "strict": True,
                },
            }
            for tool in job["tools"]
        ]
        first, _ = self.send(request, job["stream"])
        calls = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in first.choices[0].message.tool_calls
        ]
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": job["results"][call["function"]["name"]],
            }
            for call in calls
        ]
        request["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": calls},
            *results,
        ]
        last, _ = self.send(request, job["stream"])
        return {"calls": self.seen(first), "end": self.seen(last)}

    def structured(self, job):
        request = self.request(job)
        done = self.client.chat.completions.parse(**request, response_format=Forecast)
        return done.choices[0].message.parsed.model_dump()

    def models(self, job):
        return listed(self.client.models, job["model"])


class ResponseFailed(Exception):
    """The event of that name, which the SDK hands out like any other."""


class Responses:
    def __init__(self, url, key):
        self.client = openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)

    def request(self, job):
        content = job["prompt"]
        if image := job.get("image"):
            picture = {"type": "input_image", "image_url": data_url(image), "detail": "auto"}
            content = [{"type": "input_text", "text": content}, picture]
        history = [{"role": role, "content": text} for role, text in job.get("history", [])]
        settings = dict(job["settings"])
        settings["max_output_tokens"] = settings.pop("max_tokens")
        if "system" in job:
            settings["instructions"] = job["system"]
        input = [*history, {"role": "user", "content": content}]
        return {"model": job["model"], "input": input, **settings, **job.get("own", {})}

    def send(self, request, stream):
        if not stream:
            raw = self.client.responses.with_raw_response.create(**request)
            return raw.parse(), raw.headers
        end = None
        with self.client.responses.stream(**request) as stream:
            for event in stream:
                if event.type == "response.failed":
                    raise ResponseFailed(event.response.error.message)
                if event.type in ("response.completed", "response.incomplete"):
                    end = event.response
            # Raises where the answer has no end.
            return end or stream.get_final_response(), None

    def seen(self, response, headers=None):
        calls = [
            [item.name, json.loads(item.arguments)]
            for item in response.output
            if item.type == "function_call"
        ]
        details = response.incomplete_details
        stop = details.reason if details else response.status
        parts = [
            part for item in response.output if item.type == "message" for part in item.content
        ]
        if any(part.type == "refusal" for part in parts):
            stop = "refusal"
        usage = response.usage
        counts = [usage.input_tokens, usage.input_tokens_details.cached_tokens, usage.output_tokens]
        return seen(response.output_text, calls, stop, counts, headers)

    def ask(self, job):
        return self.seen(*self.send(self.request(job), job["stream"]))

    def use_tools(self, job):
        request = self.request(job)
        request["tools"] = [
            {
                "type": "function",
                "name": tool["name"],
                "description": tool["description"],
                "parameters": parameters(tool),
                "strict": True,
            }
            for tool in job["tools"]
        ]
        first, _ = self.send(request, job["stream"])
        request["input"] += [*first.output, *self.results(job, first)]
        last, _ = self.send(request, job["stream"])
        return {"calls": self.seen(first), "end": self.seen(last)}

    def results(self, job, response):
        return [
            {
                "type": "function_call_output",
                "call_id": item.call_id,
                "output": job["results"][item.name],
            }
            for item in response.output
            if item.type == "function_call"
        ]

    def structured(self, job):
        done = self.client.responses.parse(**self.request(job), text_format=Forecast)
        return done.output_parsed.model_dump()

    def count(self, job):
        request = self.request(job)
        del request["max_output_tokens"]
        raw = self.client.responses.input_tokens.with_raw_response.count(**request)
        return counted(raw.parse().input_tokens, raw.headers)

    def store(self, job):
        """Goes on from a kept answer, looks at it, and deletes it."""
        request = self.request(job)
        first, _ = self.send(request, job["stream"])
        request.update(input=job["next"], previous_response_id=first.id)
        second, _ = self.send(request, job["stream"])
        kept = self.client.responses.retrieve(second.id)
        items = list(self.client.responses.input_items.list(second.id, order="asc"))
        self.client.responses.delete(second.id)
        try:
            gone = self.client.responses.retrieve(second.id).status
        except openai.NotFoundError:
            gone = "NotFoundError"
        return {
            "end": self.seen(second),
            "kept": self.seen(kept)["text"] == self.seen(second)["text"],
            "input": [[item.role, item.content[0].text] for item in items],
            "gone": gone,
        }

    models = Chat.models
