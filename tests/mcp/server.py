"""A scripted MCP server for tests of the gateway, over standard streams or HTTP.

    server.py NAME ERA [MISBEHAVIOUR [CONTROL [http]]]

ERA is `legacy` or `modern`. Its tools: `NAME_only`, which only this server has, `echo`, which every
such server has, `ask`, which asks the client for a form or for what its arguments say, and `slow`,
which tells progress. With CONTROL also `seen`, which says how often each method came and to which
process, `refuse`, which answers with the error in its arguments, and `with_X` for each capability X
that the client declares. CONTROL is a file that says what else there is, read anew
for every request: {"capabilities": {…}, "tools": {name: description}, "resources": {uri: text}}. Without
it the server does not start, nor does it go on. A server whose MISBEHAVIOUR is `tries` has the tool
`try`, which reads, writes or connects to what its arguments name, and says whether it could.
"""

import collections
import http.client
import json
import os
import socket
import sys
import time
import urllib.parse
import uuid

NAME, ERA = sys.argv[1:3]
MISBEHAVIOUR, CONTROL, WIRE = (sys.argv[3:] + ["", "", ""])[:3]
FORM = {
    "mode": "form",
    "message": "what colour?",
    "requestedSchema": {"type": "object", "properties": {"colour": {"type": "string"}}},
}
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
SEEN = collections.Counter()
PROCESS = uuid.uuid4().hex
declared = {}


class Refused(Exception):
    pass


def control():
    if not CONTROL:
        return {"capabilities": {"tools": {"listChanged": True}}}
    try:
        with open(CONTROL) as file:
            return json.load(file)
    except OSError:
        os._exit(4)


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


def tool(name, description=None):
    schema = {"type": "object", "properties": {"words": {"type": "string"}}}
    if MISBEHAVIOUR == "changes":
        schema["properties"][f"v{SEEN['tools/list']}"] = {"type": "string"}
    description = description or f"{name} of {NAME}"
    return {"name": name, "description": description, "inputSchema": schema}


def tools():
    if MISBEHAVIOUR == "lies":
        return {"tools": {"no": "list"}, "nextCursor": 7}
    if MISBEHAVIOUR == "loops":
        return {"tools": [tool("echo")], "nextCursor": "again"}
    usual = [tool(one) for one in (f"{NAME}_only", "echo", "ask", "slow")]
    if MISBEHAVIOUR == "tries":
        usual.append(tool("try"))
    if CONTROL:
        usual += [tool("seen"), tool("refuse"), *(tool(f"with_{one}") for one in sorted(declared))]
    return {"tools": usual + [tool(*one) for one in control().get("tools", {}).items()]}


def rounds(arguments):
    """What is asked: in several rounds where a test says so, else in one."""
    usual = [{"method": "elicitation/create", "params": FORM}]
    return arguments.get("rounds", [arguments.get("questions", usual)])


def heard(arguments, answers):
    """What came of the questions: all of it where a test says what to ask, else the colour."""
    if arguments.keys() & {"questions", "rounds"}:
        return {**text("asked"), "structuredContent": answers}
    given = answers["q0"].get("content", {}).get("colour", "nothing")
    return text(f"{NAME} heard {given}")


def ask_legacy(arguments):
    answers = {}
    for at, question in enumerate(sum(rounds(arguments), [])):
        key = f"q{at}"
        send({"id": key, **question})
        while key not in answers:
            answer = read()
            if answer.get("id") == key:
                answers[key] = answer.get("result", answer.get("error"))
    return heard(arguments, answers)


def ask_modern(params):
    """Nothing is remembered here: what was heard so far is in the state."""
    arguments = params.get("arguments", {})
    state = json.loads(params.get("requestState", "{}"))
    if state.get("server", NAME) != NAME:
        return text(f"{NAME} got the state of another server")
    answers = {**state.get("answers", {}), **params.get("inputResponses", {})}
    asked, left = state.get("asked", 0), rounds(arguments)[state.get("rounds", 0) :]
    if not left:
        return heard(arguments, answers)
    asks = {f"q{asked + at}": question for at, question in enumerate(left[0])}
    state = {
        "server": NAME,
        "answers": answers,
        "asked": asked + len(asks),
        "rounds": state.get("rounds", 0) + 1,
    }
    return {
        "resultType": "input_required",
        "inputRequests": asks,
        "requestState": json.dumps(state),
    }


def attempt(read=None, write=None, connect=None, fetch=None):
    """Does what a tool must not be a way around a policy for."""
    if read:
        with open(read, "rb") as file:
            file.read()
    if write:
        with open(write, "w") as file:
            file.write("written by a server")
    if connect:
        host, port = connect.rsplit(":", 1)
        socket.create_connection((host, int(port)), timeout=5).close()
    if fetch:
        # Always by the proxy, which libraries pass over for this machine.
        proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
        connection = http.client.HTTPConnection(proxy.hostname, proxy.port, timeout=5)
        connection.request("GET", fetch)
        answer = connection.getresponse()
        if answer.status != 200:
            raise OSError(answer.read().decode())


def tried(arguments):
    try:
        attempt(**arguments)
    except OSError as error:
        return text(f"{NAME} try: failed: {error.strerror or error}")
    return text(f"{NAME} try: done")


def call(params):
    name, arguments = params["name"], params.get("arguments", {})
    if name == "try":
        return tried(arguments)
    if name == "ask":
        return ask_legacy(arguments) if ERA == "legacy" else ask_modern(params)
    if name == "seen":
        return {**text("seen"), "structuredContent": {**SEEN, "process": PROCESS}}
    if name == "refuse":
        raise Refused(arguments["error"])
    if name == "slow":
        token = params.get("_meta", {}).get("progressToken")
        if token is not None:
            progress = {"progressToken": token, "progress": 1, "total": 2}
            send({"method": "notifications/progress", "params": progress})
        return text("done")
    if name == "echo" and MISBEHAVIOUR == "dies":
        os._exit(3)
    if name == "echo" and MISBEHAVIOUR == "hangs":
        time.sleep(60)
    return text(f"{NAME} {name}: {arguments.get('words', '')}")


def answer(request):
    global declared
    method, params = request["method"], request.get("params", {})
    SEEN[method] += 1
    declared = params.get("_meta", {}).get(CAPABILITIES, declared)
    now = control()
    if method == "initialize" and ERA == "legacy":
        declared = params["capabilities"]
        return {
            "protocolVersion": "2025-11-25" if CONTROL else "2025-06-18",
            "capabilities": now["capabilities"],
            "serverInfo": {"name": NAME, "version": "1"},
        }
    if method == "server/discover" and ERA == "modern":
        return {"supportedVersions": ["2026-07-28"], "capabilities": now["capabilities"]}
    if method == "tools/list":
        return tools()
    if method == "tools/call":
        return call(params)
    resources = now.get("resources")
    if resources is not None and method == "resources/list":
        return {"resources": [{"uri": uri, "name": uri} for uri in sorted(resources)]}
    if resources is not None and method == "resources/templates/list":
        return {"resourceTemplates": []}
    if resources and method == "resources/read" and params["uri"] in resources:
        return {"contents": [{"uri": params["uri"], "text": resources[params["uri"]]}]}
    return None


def response(request):
    error = {"code": -32601, "message": "there is no such method"}
    try:
        result = answer(request)
    except Refused as refused:
        result, error = None, refused.args[0]
    if result is None:
        return {"id": request["id"], "error": error}
    return {"id": request["id"], "result": result}


def serve_lines():
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
        send(response(request))


def serve_http():
    """Every request is answered by itself, so that only a modern server can ask."""
    import http.server

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            size = int(self.headers["content-length"])
            request = json.loads(self.rfile.read(size))
            body = b""
            if "id" in request:
                body = json.dumps({"jsonrpc": "2.0", **response(request)}).encode()
            self.send_response(200 if body else 202)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.send_error(405)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()


serve_http() if WIRE == "http" else serve_lines()
