"""`anthropic`."""

import anthropic

from . import counted, listed, parameters, seen
from .forecast import Forecast


class Messages:
    def __init__(self, url, key):
        self.client = anthropic.Anthropic(base_url=url, api_key=key, max_retries=0)

    def request(self, job):
        content = job["prompt"]
        if image := job.get("image"):
            content = [
                {"type": "text", "text": content},
                {"type": "image", "source": source(image)},
            ]
        history = [{"role": role, "content": text} for role, text in job.get("history", [])]
        settings = dict(job["settings"])
        if "stop" in settings:
            settings["stop_sequences"] = settings.pop("stop")
        if "system" in job:
            settings["system"] = job["system"]
        messages = [*history, {"role": "user", "content": content}]
        return {"model": job["model"], "messages": messages, **settings, **job.get("own", {})}

    def send(self, request, stream):
        if not stream:
            raw = self.client.messages.with_raw_response.create(**request)
            return raw.parse(), raw.headers
        with self.client.messages.stream(**request) as stream:
            return stream.get_final_message(), None

    def seen(self, message, headers=None):
        text = "".join(block.text for block in message.content if block.type == "text")
        calls = [[block.name, block.input] for block in message.content if block.type == "tool_use"]
        usage = message.usage
        cached = usage.cache_read_input_tokens or 0
        read = usage.input_tokens + cached + (usage.cache_creation_input_tokens or 0)
        return seen(text, calls, message.stop_reason, [read, cached, usage.output_tokens], headers)

    def ask(self, job):
        return self.seen(*self.send(self.request(job), job["stream"]))

    def use_tools(self, job):
        request = self.request(job)
        request["tools"] = [
            {
                "name": tool["name"],
                "description": tool["description"],
                "input_schema": parameters(tool),
            }
            for tool in job["tools"]
        ]
        first, _ = self.send(request, job["stream"])
        results = [
            {
                "type": "tool_result",
                "tool_use_id": block.id,
                "content": job["results"][block.name],
            }
            for block in first.content
            if block.type == "tool_use"
        ]
        request["messages"] += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": results},
        ]
        last, _ = self.send(request, job["stream"])
        return {"calls": self.seen(first), "end": self.seen(last)}

    def structured(self, job):
        done = self.client.messages.parse(**self.request(job), output_format=Forecast)
        return done.parsed_output.model_dump()

    def count(self, job):
        request = self.request(job)
        del request["max_tokens"]
        raw = self.client.messages.with_raw_response.count_tokens(**request)
        return counted(raw.parse().input_tokens, raw.headers)

    def models(self, job):
        return listed(self.client.models, job["model"])


def source(image):
    if "link" in image:
        return {"type": "url", "url": image["link"]}
    return {"type": "base64", "media_type": image["type"], "data": image["data"]}
