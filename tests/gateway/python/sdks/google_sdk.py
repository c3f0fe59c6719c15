"""`google-genai`."""

import base64

from google import genai
from google.genai import types

from . import counted, parameters, seen
from .forecast import Forecast

ROLES = {"user": "user", "assistant": "model"}


class GenerateContent:
    def __init__(self, url, key):
        self.client = genai.Client(api_key=key, http_options={"base_url": url})

    def request(self, job):
        parts = [types.Part(text=job["prompt"])]
        if image := job.get("image"):
            parts.append(part(image))
        history = [
            types.Content(role=ROLES[role], parts=[types.Part(text=text)])
            for role, text in job.get("history", [])
        ]
        settings = dict(job["settings"])
        config = types.GenerateContentConfig(
            system_instruction=job.get("system"),
            max_output_tokens=settings["max_tokens"],
            temperature=settings.get("temperature"),
            stop_sequences=settings.get("stop"),
            **job.get("own", {}),
        )
        contents = [*history, types.Content(role="user", parts=parts)]
        return {"model": job["model"], "contents": contents, "config": config}

    def embed(self, job):
        found = self.client.models.embed_content(model=job["model"], contents=job["texts"])
        return {"vectors": [one.values for one in found.embeddings]}

    def send(self, request, stream):
        if not stream:
            return [self.client.models.generate_content(**request)]
        return list(self.client.models.generate_content_stream(**request))

    def seen(self, pieces, headers=None):
        parts = [part for piece in pieces for part in piece.candidates[0].content.parts or []]
        calls = [
            [part.function_call.name, part.function_call.args]
            for part in parts
            if part.function_call
        ]
        stop = pieces[-1].candidates[0].finish_reason
        usage = pieces[-1].usage_metadata
        counts = [
            usage.prompt_token_count,
            usage.cached_content_token_count,
            usage.candidates_token_count,
        ]
        text = "".join(part.text or "" for part in parts)
        return seen(text, calls, stop and stop.value, counts, headers)

    def ask(self, job):
        pieces = self.send(self.request(job), job["stream"])
        headers = None if job["stream"] else pieces[0].sdk_http_response.headers
        return self.seen(pieces, headers)

    def use_tools(self, job):
        request = self.request(job)
        declared = [
            types.FunctionDeclaration(
                name=tool["name"],
                description=tool["description"],
                parameters_json_schema=parameters(tool),
            )
            for tool in job["tools"]
        ]
        request["config"].tools = [types.Tool(function_declarations=declared)]
        first = self.send(request, job["stream"])
        parts = [part for piece in first for part in piece.candidates[0].content.parts or []]
        calls = [part for part in parts if part.function_call]
        results = [
            types.Part(
                function_response=types.FunctionResponse(
                    id=part.function_call.id,
                    name=part.function_call.name,
                    response={"output": job["results"][part.function_call.name]},
                )
            )
            for part in calls
        ]
        request["contents"] += [
            types.Content(role="model", parts=calls),
            types.Content(role="user", parts=results),
        ]
        last = self.send(request, job["stream"])
        return {"calls": self.seen(first), "end": self.seen(last)}

    def structured(self, job):
        request = self.request(job)
        request["config"].response_mime_type = "application/json"
        request["config"].response_schema = Forecast
        return self.client.models.generate_content(**request).parsed.model_dump()

    def count(self, job):
        request = self.request(job)
        found = self.client.models.count_tokens(model=job["model"], contents=request["contents"])
        return counted(found.total_tokens, found.sdk_http_response.headers)

    def models(self, job):
        found = self.client.models.get(model=job["model"])
        names = [model.name for model in self.client.models.list()]
        bare = lambda name: name.removeprefix("models/")
        return {"names": sorted(map(bare, names)), "one": bare(found.name)}


def part(image):
    if "link" in image:
        return types.Part.from_uri(file_uri=image["link"], mime_type=image["type"])
    return types.Part.from_bytes(data=base64.b64decode(image["data"]), mime_type=image["type"])
