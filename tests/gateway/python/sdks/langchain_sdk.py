"""`langchain-openai` and `langchain-anthropic`."""

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI

from . import parameters, seen
from .forecast import Forecast

SPEAKERS = {"user": HumanMessage, "assistant": AIMessage}


class Chat:
    """What the models of LangChain have in common."""

    def __init__(self, url, key):
        self.url, self.key = url, key

    def messages(self, job):
        content = job["prompt"]
        if image := job.get("image"):
            given = {"url": image["link"]} if "link" in image else {"base64": image["data"]}
            picture = {"type": "image", "mime_type": image["type"], **given}
            content = [{"type": "text", "text": content}, picture]
        history = [SPEAKERS[role](text) for role, text in job.get("history", [])]
        system = [SystemMessage(job["system"])] if "system" in job else []
        return [*system, *history, HumanMessage(content)]

    def send(self, model, messages, stream):
        if not stream:
            return model.invoke(messages)
        first, *others = model.stream(messages)
        for other in others:
            first += other
        return first

    def seen(self, message):
        about = message.response_metadata
        calls = [[call["name"], call["args"]] for call in message.tool_calls]
        usage = message.usage_metadata
        cached = usage["input_token_details"]["cache_read"]
        counts = [usage["input_tokens"], cached, usage["output_tokens"]]
        return seen(str(message.text), calls, self.stop(about), counts, about.get("headers"))

    def ask(self, job):
        return self.seen(self.send(self.model(job), self.messages(job), job["stream"]))

    def use_tools(self, job):
        tools = [
            {
                "title": tool["name"],
                "description": tool["description"],
                **parameters(tool),
            }
            for tool in job["tools"]
        ]
        model = self.model(job).bind_tools(tools)
        messages = self.messages(job)
        first = self.send(model, messages, job["stream"])
        results = [
            ToolMessage(job["results"][call["name"]], tool_call_id=call["id"])
            for call in first.tool_calls
        ]
        last = self.send(model, [*messages, first, *results], job["stream"])
        return {"calls": self.seen(first), "end": self.seen(last)}

    def structured(self, job):
        model = self.model(job).with_structured_output(Forecast, method="json_schema")
        return model.invoke(self.messages(job)).model_dump()


class OpenAI(Chat):
    responses = False

    def model(self, job):
        return ChatOpenAI(
            model=job["model"],
            base_url=f"{self.url}/v1",
            api_key=self.key,
            max_retries=0,
            # Where the address is not its own, it does not ask for usage by itself.
            stream_usage=True,
            include_response_headers=job["do"] == "ask" and not job["stream"],
            use_responses_api=self.responses,
            **job["settings"],
        )

    def stop(self, about):
        return about["finish_reason"]


class OpenAIResponses(OpenAI):
    responses = True

    def stop(self, about):
        details = about.get("incomplete_details")
        return details["reason"] if details else about["status"]


class Anthropic(Chat):
    def model(self, job):
        return ChatAnthropic(
            model=job["model"],
            base_url=self.url,
            api_key=self.key,
            max_retries=0,
            **job["settings"],
        )

    def stop(self, about):
        return about["stop_reason"]

    def count(self, job):
        return {"tokens": self.model(job).get_num_tokens_from_messages(self.messages(job))}
