"""What every SDK is to do with every upstream, and what it should see.

A job says what to do (`ask`, `use_tools`, `structured`, `count`, `store`, `models`, `embed`, `batch`), with which
`model`, and whether the answer is to be streamed. What is said is `system`, `history`, `prompt` and
`image`; the `settings` are max_tokens, temperature and stop, and `own` are settings that only the
SDK's own vendor has. `tools` have a name, a description and
the name of their only argument, `results` are the tools' texts by their names, and `next` is said
after an answer that is kept.
"""

import json
from copy import deepcopy
from dataclasses import dataclass

from matrix import DIALECTS, Sdk, Upstream, sdks, upstreams
from vendor.model import CACHED, INPUT, OUTPUT, SAMPLES
from vendor.other import vector
from vendor.server import RETRY_AFTER

USUAL = {"max_tokens": 200}
TALK = {
    "system": "Be brief.",
    "history": [["user", "Hello!"], ["assistant", "Good day."]],
    "prompt": "Where is “Zürich” 👋?",
}
WEATHER = {"name": "weather", "description": "Tells the weather.", "argument": "city"}
CLOCK = {"name": "clock", "description": "Tells the time.", "argument": "zone"}
END = "THE END"
# What each dialect alone has, and a request cannot do without.
OWN = {
    "openai": {"web_search_options": {}},
    "codex": {"prompt": {"id": "pmpt_1"}},
    "claude": {"container": "container_1"},
    "gemini": {"cachedContent": "cachedContents/1"},
}
RESULTS = {"weather": "18 °C", "clock": "noon"}
# One pixel. Its base64 holds a slash, which is another letter in addresses.
PIXEL = {"type": "image/gif", "data": "R0lGODlhAQABAIAAAP///wAAACwAAAAAAQABAAACAkQBADs="}
LINK = {"type": "image/png", "link": "https://example.com/pixel.png"}
# The status with which a vendor says that it has too much to do.
OVERLOADED = {"openai": 503, "codex": 503, "claude": 529, "gemini": 503}
# What the gateway lists; the embedded model is always there.
MODELS = sorted(["mock", *(f"{how}-{to}" for how in ("via", "renamed") for to in DIALECTS)])
WAYS = (("", False), (", streamed", True))


@dataclass
class Check:
    sdk: Sdk
    upstream: Upstream
    case: str
    job: dict
    expected: dict
    # Whether nobody else may share its upstream: one that fails is left alone for a while.
    alone: bool = False

    def __str__(self):
        return f"{self.sdk} -> {self.upstream}: {self.case}"


def checks():
    found = []
    for sdk in sdks():
        for upstream in upstreams(sdk):
            for case, job, expected in cases(sdk, upstream):
                job = {"sdk": sdk.name, "model": upstream.model, "settings": USUAL, **job}
                alone = case.startswith(("429", "overloaded"))
                found.append(Check(sdk, upstream, case, job, expected, alone))
    return found


def cases(sdk, upstream):
    """Name, job and expectation of each case."""
    yield "structured", {"do": "structured", "prompt": "A forecast, please."}, forecast()
    yield "count", {"do": "count", "prompt": "How long?"}, {"tokens": INPUT, "emulated": None}
    for way, stream in WAYS:
        for case in (*talks(sdk, upstream), *tools(sdk, upstream), *failures(sdk, upstream)):
            name, job, expected = deepcopy(case)
            if stream:
                # They are in headers, which the SDKs do not hand out with streams.
                expected = {k: v for k, v in expected.items() if k not in ("mode", "emulated")}
            yield name + way, {**job, "stream": stream}, expected
        name, job, expected = stored(sdk, upstream)
        yield name + way, {**job, "stream": stream}, expected
    for prompt, message in (
        ("fail midway", "The vendor fails midway."),
        ("break off midway", "the answer broke off"),
    ):
        job = {"do": "ask", "prompt": f"Please {prompt}.", "stream": True}
        yield prompt, job, {**sdk.broken, "message": message}
    if upstream.dialect == sdk.speaks and not upstream.is_native(sdk):
        # The gateway says something of its own meanwhile, in a way that depends on the SDK only.
        job = {"do": "ask", "prompt": "Please pause midway.", "stream": True}
        yield "pause midway", job, answer(sdk, told(upstream, job))
    if upstream.is_native(sdk):
        yield from own_answers(sdk, upstream)
    yield from others(sdk, upstream)


def talks(sdk, upstream):
    chat = {**TALK, "settings": {**USUAL, "temperature": 0.5} if sdk.sampling else USUAL}
    labels = {"mode": "passthrough" if upstream.is_native(sdk) else "mapped", "emulated": None}
    for name, job, stop in (
        ("chat", chat, "stop"),
        ("image", {"prompt": "What is this?", "image": PIXEL}, "stop"),
        ("image link", {"prompt": "What is this?", "image": LINK}, "stop"),
        ("length", {"prompt": "Please run out of tokens."}, "length"),
        ("refusal", {"prompt": "Please refuse."}, "refusal"),
        ("own setting", {"prompt": "Hello?", "own": OWN[sdk.speaks]}, "stop"),
    ):
        expected = answer(sdk, told(upstream, job), stop=stop)
        yield name, {"do": "ask", **job}, {**expected, **labels}
    if "sequence" in sdk.stops:
        job = {"prompt": f"Stop before {END}.", "settings": {**USUAL, "stop": [END, "never"]}}
        text = json.dumps(told(upstream, job)).partition(END)[0]
        expected = answer(sdk, text, stop="sequence")
        yield "stop sequences", {"do": "ask", **job}, {**expected, **labels}


def tools(sdk, upstream):
    for case, offered in (("tool", [WEATHER]), ("parallel tools", [WEATHER, CLOCK])):
        names = " and ".join(tool["name"] for tool in offered)
        job = {"prompt": f"Please tell {names}.", "tools": offered, "results": RESULTS}
        arguments = [tool["argument"] for tool in offered]
        calls = [[tool["name"], {a: SAMPLES[a]}] for tool, a in zip(offered, arguments)]
        end = told(upstream, job)
        end["said"] += [["call", *call] for call in calls]
        end["said"] += [["result", name, RESULTS[name]] for name, _ in calls]
        expected = {"calls": answer(sdk, calls=calls, stop="tools"), "end": answer(sdk, end)}
        yield case, {"do": "use_tools", **job}, expected


def failures(sdk, upstream):
    """The vendor's own errors. Their status stays the vendor's."""
    overloaded = OVERLOADED[upstream.dialect]
    later = {"retry_after": RETRY_AFTER}
    for case, status, more in (
        ("400", 400, {}),
        ("401", 401, {}),
        ("429", 429, later),
        ("overloaded", overloaded, {}),
    ):
        job = {"do": "ask", "prompt": f"Please fail with {status}."}
        yield case, job, {**sdk.error(status, f"The vendor says {status}."), **more}


def stored(sdk, upstream):
    job = {"do": "store", "prompt": "Remember me.", "next": "Who am I?"}
    first = told(upstream, job)
    end = answer(sdk, deepcopy(first))
    end["text"]["said"] += [["assistant", first], ["user", job["next"]]]
    after = {"kept": True, "input": end["text"]["said"], "gone": "NotFoundError"}
    return "store", job, {"end": end, **after}


def own_answers(sdk, upstream):
    """What the gateway answers itself, wherever a request would go."""
    job = {"do": "ask", "prompt": "Hello?", "stream": False}
    yield "wrong key", {**job, "key": "wrong"}, sdk.error(401, "key is not valid")
    yield "unknown model", {**job, "model": "nobodys"}, sdk.error(404, "nobodys")
    yield "models", {"do": "models"}, {"names": MODELS, "one": upstream.model}


def others(sdk, upstream):
    """What the vendors offer besides models that answer."""
    embeds = sdk.name in ("openai chat", "google-genai", "@google/genai")
    if embeds and upstream.dialect in ("openai", "gemini") and upstream.model == upstream.sent:
        texts = ["Zürich 👋", "noon"]
        yield "embeddings", {"do": "embed", "texts": texts}, {"vectors": [vector(t) for t in texts]}
    if sdk.name == "openai chat" and upstream.is_native(sdk):
        lines = "".join(f'{{"custom_id":"{n}","body":"ü"}}\n' for n in range(3))
        expected = {"status": "completed", "output": lines.upper(), "deleted": True}
        yield "files and batches", {"do": "batch", "lines": lines}, expected


def told(upstream, job):
    """What the vendor's model should have heard."""
    said = [*job.get("history", []), ["user", job["prompt"]]]
    if image := job.get("image"):
        said.append(["image", image.get("link") or f"data:{image['type']};base64,{image['data']}"])
    own = {"own": value for value in job.get("own", {}).values()}
    offered = {t["name"]: [t["description"], [t["argument"]]] for t in job.get("tools", [])}
    return {
        "vendor": upstream.dialect,
        "model": upstream.sent,
        "system": job.get("system", ""),
        "said": said,
        "tools": offered,
        "settings": {**job.get("settings", USUAL), **own},
    }


def answer(sdk, text="", calls=(), stop="stop"):
    usage = [INPUT, CACHED, OUTPUT]
    return {"text": text, "calls": list(calls), "stop": sdk.stops[stop], "usage": usage}


def forecast():
    value = lambda *names: {name: SAMPLES[name] for name in names}
    return {"place": value("city", "zone"), **value("degrees", "sunny")}
