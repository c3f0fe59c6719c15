"""What a request says in any dialect, and what the vendor's model makes of it.

The model repeats what it heard as JSON, so that whoever reads the answer sees the request as it
arrived. It does something else where it is asked to:

- it calls the tools whose names the last words of the user hold, or the one it has to call, with
  arguments after the tool's schema, until their results are there;
- it answers after a schema where it is given one;
- it stops where it would say one of its stop sequences;
- `run out of tokens`, `refuse`, `fail with STATUS`, `pause midway`, `fail midway` and `break off
  midway` do so.
"""

import json
import re
from dataclasses import dataclass, field

# What every answer counts; the cached tokens are among those of the input.
INPUT, CACHED, OUTPUT = 21, 5, 9
# How long the pieces of a streamed text are. It cuts words, not characters.
PIECE = 24
SAMPLES = {"city": "Zürich", "zone": "Europe/Zurich", "degrees": 18, "sunny": True}


@dataclass
class Heard:
    """A request."""

    vendor: str
    model: str
    system: str
    # [user|assistant, text], [image, type or link], [call, name, arguments], [result, name, text]
    said: list
    # The tools' descriptions and parameters, by name.
    tools: dict
    # auto, none, any, or the name of the tool that has to be called.
    choice: str
    schema: dict | None
    settings: dict
    stream: bool
    include_usage: bool = True

    def told(self):
        """What the model repeats."""
        tools = {
            name: [description, sorted(parameters.get("properties", {}))]
            for name, (description, parameters) in self.tools.items()
        }
        told = {"vendor": self.vendor, "model": self.model, "system": self.system}
        return {**told, "said": self.said, "tools": tools, "settings": self.settings}


@dataclass
class Answer:
    text: str = ""
    # Name and arguments of each.
    calls: list = field(default_factory=list)
    # stop, sequence, length, tools or refusal.
    stop: str = "stop"
    # The stop sequence that it would have said next.
    sequence: str | None = None
    # What happens in the middle of a stream: pause, fail or break off.
    midway: str | None = None

    def pieces(self):
        return [self.text[at : at + PIECE] for at in range(0, len(self.text), PIECE)]


class Refused(Exception):
    """The vendor answers with an error."""

    def __init__(self, status, message):
        super().__init__(message)
        self.status = status
        self.message = message


def answer(heard):
    kind, *rest = heard.said[-1]
    words = rest[0] if kind == "user" else ""
    if failure := re.search(r"fail with (\d+)", words):
        raise Refused(int(failure[1]), f"The vendor says {failure[1]}.")
    told = json.dumps(heard.told(), ensure_ascii=False)
    if calls := wanted_calls(heard, words):
        return Answer(calls=calls, stop="tools")
    if heard.schema is not None:
        return Answer(json.dumps(instance(heard.schema), ensure_ascii=False))
    for asked, stop in (("run out of tokens", "length"), ("refuse", "refusal")):
        if asked in words:
            return Answer(told, stop=stop)
    for sequence in heard.settings.get("stop", []):
        if sequence in told:
            return Answer(told.partition(sequence)[0], stop="sequence", sequence=sequence)
    midway = re.search(r"(pause|fail|break off) midway", words)
    return Answer(told, midway=midway and midway[1])


def wanted_calls(heard, words):
    if heard.choice in heard.tools:
        names = [heard.choice]
    elif heard.choice == "none" or heard.said[-1][0] == "result":
        names = []
    else:
        names = [name for name in heard.tools if name in words]
        if heard.choice == "any":
            names = names or list(heard.tools)[:1]
    return [(name, instance(heard.tools[name][1])) for name in names]


def instance(schema, name="", root=None):
    """A value that a schema accepts."""
    root = root or schema
    if "$ref" in schema:
        place = root
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        return instance(place, name, root)
    if "anyOf" in schema:
        return instance(schema["anyOf"][0], name, root)
    if name in SAMPLES:
        return SAMPLES[name]
    kind = schema.get("type", "object")
    match kind.lower():
        case "object":
            properties = schema.get("properties", {}).items()
            return {key: instance(value, key, root) for key, value in properties}
        case "array":
            return [instance(schema["items"], name, root)]
        case "string":
            return schema.get("enum", ["text"])[0]
        case _:
            raise Refused(400, f"no sample for {name}, a {kind}")
