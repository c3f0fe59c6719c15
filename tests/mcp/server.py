"""A scripted MCP server over standard streams, for tests of the gateway.

    server.py NAME ERA [MISBEHAVIOUR]

ERA is `legacy` or `modern`. Its tools: `NAME_only`, which only this server has, `echo`, which every
such server has, `ask`, which asks the client for a form, and `slow`, which tells progress.
"""

import json
import sys
import time

NAME, ERA = sys.argv[1:3]
MISBEHAVIOUR = sys.argv[3] if len(sys.argv) > 3 else ""
FORM = {
    "mode": "form",
    "message": "what colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
}


def send(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def read():
    line = sys.stdin.readline()
    if not line:
        sys.exit(0)
    return json.loads(line)


def text(words):
    return {"content": [{"type": "text", "text": words}]}


def tool(name):
    schema = {"type": "object", "properties": {"words": {"type": "string"}}}
    return {"name": name, "description": f"{name} of {NAME}", "inputSchema": schema}


def tools():
    if MISBEHAVIOUR == "lies":
        return {"tools": {"no": "list"}, "nextCursor": 7}
    if MISBEHAVIOUR == "loops":
        return {"tools": [tool("echo")], "nextCursor": "again"}
    return {"tools": [tool(one) for one in (f"{NAME}_only", "echo", "ask", "slow")]}


def ask_legacy():
    send({"id": "q1", "method": "elicitation/create", "params": FORM})
    while True:
        answer = read()
        if answer.get("id") == "q1":
            given = answer.get("result", {}).get("content", {}).get("colour", "nothing")
            return text(f"{NAME} heard {given}")


def ask_modern(params):
    given = params.get("inputResponses", {}).get("colour")
    if given is None:
        question = {"method": "elicitation/create", "params": FORM}
        return {
            "resultType": "input_required",
            "inputRequests": {"colour": question},
            "requestState": f"{NAME}-state",
        }
    if params.get("requestState") != f"{NAME}-state":
        return text(f"{NAME} got a strange state")
    return text(f"{NAME} heard {given['content']['colour']}")


def call(params):
    name = params["name"]
    if name == "ask":
        return ask_legacy() if ERA == "legacy" else ask_modern(params)
    if name == "slow":
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "total": 2}
            send({"method": "notifications/progress", "params": progress})
        return text("done")
    if name == "echo" and MISBEHAVIOUR == "dies":
        sys.exit(3)
    if name == "echo" and MISBEHAVIOUR == "hangs":
        time.sleep(60)
    return text(f"{NAME} {name}: {params.get('arguments', {}).get('words', '')}")


def answer(request):
    method, params = request["method"], request.get("params", {})
    capabilities = {"tools": {"listChanged": True}}
    if method == "initialize" and ERA == "legacy":
        return {
            "protocolVersion": "2025-06-18",
            "capabilities": capabilities,
            "serverInfo": {"name": NAME, "version": "1"},
        }
    if method == "server/discover" and ERA == "modern":
        return {"supportedVersions": ["2026-07-28"], "capabilities": capabilities}
    if method == "tools/list":
        return tools()
    if method == "tools/call":
        return call(params)
    return None


def main():
    if MISBEHAVIOUR == "silent":
        time.sleep(60)
    if MISBEHAVIOUR == "floods":
        for number in range(20_000):
            log = {"level": "info", "data": f"flood {number}"}
            send({"method": "notifications/message", "params": log})
    while True:
        request = read()
        if "id" not in request or "method" not in request:
            continue
        if request["method"] == "subscriptions/listen":
            filters = request["params"]["notifications"]
            told = {"notifications": filters}
            send({"method": "notifications/subscriptions/acknowledged", "params": told})
            continue
        result = answer(request)
        if result is None:
            error = {"code": -32601, "message": "there is no such method"}
            send({"id": request["id"], "error": error})
        else:
            send({"id": request["id"], "result": result})


main()
