"""A sidecar whose tools are those of its run's MCP servers. Each line of the task is one thing to do:

    list ERA            notes down the tools there are
    ERA TOOL WORDS      calls a tool, with these words or these arguments in JSON; ERA is `legacy` or
                        `modern`
    knock               notes down how strangers are answered
    leak                says the key wherever an agent can say something
    wait                does nothing until the run is cancelled

What came of it is a line in `notes.txt`. Where the servers are goes to the file that ACCESS names.
"""

import json
import os
import sys
import urllib.error
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hosts/python"))

import abp_sidecar

META = "io.modelcontextprotocol"
VERSIONS = {"legacy": "2025-06-18", "modern": "2026-07-28"}
CLIENT = {"name": "agent", "version": "1"}


class Client:
    """An MCP client over Streamable HTTP, of one era."""

    def __init__(self, access, era):
        self.access, self.era, self.session = access, era, None
        if era == "legacy":
            agreed = {"protocolVersion": VERSIONS[era], "capabilities": {}, "clientInfo": CLIENT}
            self.ask("initialize", agreed)
            self.post({"method": "notifications/initialized"}, {})

    def ask(self, method, params):
        headers = {}
        if self.era == "modern":
            meta = {"protocolVersion": VERSIONS["modern"], "clientCapabilities": {}}
            params = {**params, "_meta": {f"{META}/{key}": one for key, one in meta.items()}}
            headers = {"mcp-protocol-version": VERSIONS["modern"], "mcp-method": method}
            if "name" in params:
                headers["mcp-name"] = params["name"]
        body = self.post({"id": 1, "method": method, "params": params}, headers)
        # An answer alone is JSON, and the last event where something came before it.
        events = [line[6:] for line in body.splitlines() if line.startswith("data: ")]
        answer = json.loads(events[-1] if events else body)
        return answer.get("result", answer)

    def post(self, message, headers):
        kinds = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        headers = {**self.access["headers"], **kinds, **headers}
        if self.session:
            headers["mcp-session-id"] = self.session
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        request = urllib.request.Request(self.access["url"], body, headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            self.session = self.session or response.headers["mcp-session-id"]
            return response.read().decode()


def status(access, headers, url=None):
    given = {"content-type": "application/json", **access["headers"], **headers}
    given = {name: value for name, value in given.items() if value is not None}
    request = urllib.request.Request(url or access["url"], b"{}", given)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.status
    except urllib.error.HTTPError as error:
        return error.code


def knock(access):
    key = access["headers"]["authorization"]
    answers = {
        "wrong": status(access, {"authorization": key[:-1] + ("0" if key[-1] != "0" else "1")}),
        "none": status(access, {"authorization": None}),
        "host": status(access, {"host": "evil.example"}),
        "page": status(access, {"origin": "http://evil.example"}),
        "path": status(access, {}, access["url"] + "/other"),
        "known": status(access, {}),
    }
    return " ".join(f"{what}={code}" for what, code in answers.items())


def leak(ctx, key):
    print(key, file=sys.stderr)
    ctx.emit("assistant_message", text="the key is " + key)
    ctx.emit("warning", message=key, ext={"raw_message": {"authorization": "Bearer " + key}})
    ctx.report_usage(input_tokens=1, raw={"key": key})
    return "said"


def call(client, tool, words):
    arguments = json.loads(words) if words.startswith("{") else {"words": words}
    result = client.ask("tools/call", {"name": tool, "arguments": arguments})
    if "structuredContent" in result:
        return json.dumps(result["structuredContent"])
    content = result.get("content", [{"text": json.dumps(result)}])
    return ("error: " if result.get("isError") else "") + content[0]["text"]


def do(line, ctx, clients):
    ctx.emit("assistant_message", text="now: " + line)
    verb, _, rest = line.partition(" ")
    if verb == "knock":
        return knock(ctx.mcp)
    if verb == "leak":
        return leak(ctx, ctx.mcp["headers"]["authorization"].split()[1])
    if verb == "wait":
        return ctx.cancel.wait(60)
    era = rest if verb == "list" else verb
    client = clients.get(era) or clients.setdefault(era, Client(ctx.mcp, era))
    if verb == "list":
        return " ".join(sorted(tool["name"] for tool in client.ask("tools/list", {})["tools"]))
    return call(client, *rest.split(" ", 1))


def run(order, ctx):
    with open(os.environ["ACCESS"], "w", encoding="utf-8") as file:
        json.dump(ctx.mcp, file)
    clients = {}
    with open("notes.txt", "w", encoding="utf-8") as notes:
        for line in order["task"].splitlines():
            print(f"{line}: {do(line, ctx, clients)}", file=notes, flush=True)


capabilities = {"streaming": "native", "mcp_client": "native"}
raise SystemExit(abp_sidecar.hello({"id": "mcp-agent"}, capabilities).serve(run))
