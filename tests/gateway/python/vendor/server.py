"""The vendor's addresses, keys, and the ways its answers go wrong."""

import itertools
import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote

from . import chat, gemini, messages, other, responses, strict
from .model import INPUT, Refused, answer

KEY = "the-vendors-own-key"
# What it says with a status that means `later`.
RETRY_AFTER = "7"
# How many seconds it says nothing where it pauses.
PAUSE = 1.5
# Cuts lines, events and characters of several bytes alike.
CHUNK = 61


class Vendor:
    """A vendor on a free port, until the process ends."""

    def __init__(self):
        self.http = QuietServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


class QuietServer(ThreadingHTTPServer):
    request_queue_size = 128

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kept = responses.Kept()
        self.files = other.Files()
        self.numbers = itertools.count(1)

    def handle_error(self, request, client_address):
        # Whoever hangs up has its reasons.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body are written apart; the second would wait for the first to be acknowledged.
    disable_nagle_algorithm = True

    def do_POST(self):
        raw = self.rfile.read(int(self.headers["content-length"]))
        if self.path == "/openai/v1/files":
            upload = lambda: self.server.files.upload(self.headers["content-type"], raw)
            return self.tell(chat, upload)
        body = json.loads(raw)
        path, _, query = self.path.partition("?")
        kept = self.server.kept
        match path.split("/")[1:]:
            case ["openai", "v1", "chat", "completions"]:
                self.generate(chat, lambda: chat.hear(body))
            case ["openai", "v1", "responses"]:
                self.generate(responses, lambda: responses.hear(body, kept), body)
            case ["openai", "v1", "responses", "input_tokens"]:
                count = {"object": "response.input_tokens", "input_tokens": INPUT}
                self.count(responses, lambda: responses.hear(body, kept, "count"), count)
            case ["openai", "v1", "embeddings"]:
                self.tell(chat, lambda: other.openai_embeddings(body))
            case ["openai", "v1", "batches"]:
                self.tell(chat, lambda: self.server.files.batch(body))
            case ["claude", "v1", "messages"]:
                version = self.headers["anthropic-version"]
                self.generate(messages, lambda: messages.hear(body, version))
            case ["claude", "v1", "messages", "count_tokens"]:
                version = self.headers["anthropic-version"]
                hear = lambda: messages.hear(body, version, "count")
                self.count(messages, hear, {"input_tokens": INPUT})
            case ["gemini", "v1" | "v1beta", "models", call]:
                model, _, operation = unquote(call).rpartition(":")
                if operation == "batchEmbedContents":
                    return self.tell(gemini, lambda: other.gemini_embeddings(body))
                if operation == "countTokens":
                    hear = lambda: strict.check("gemini", "count", body)
                    return self.count(gemini, hear, {"totalTokens": INPUT})
                stream = operation == "streamGenerateContent"
                if stream and "alt=sse" not in query.split("&"):
                    return self.send(400, gemini.error(400, "streams are asked for with alt=sse"))
                self.generate(gemini, lambda: gemini.hear(body, model, stream))
            case _:
                self.send(404, {"error": {"message": f"no {path} here"}})

    def do_GET(self):
        files = self.server.files
        match self.path.split("/")[1:]:
            case ["openai", "v1", "files", id, "content"]:
                return self.tell(chat, lambda: files.files[id])
            case ["openai", "v1", "batches", id]:
                return self.tell(chat, lambda: files.batches[id])
        self.stored(lambda items, kept: kept)

    def do_DELETE(self):
        files = self.server.files.files
        match self.path.split("/")[1:]:
            case ["openai", "v1", "files", id]:
                gone = lambda: {"id": id, "object": "file", "deleted": files.pop(id) is not None}
                return self.tell(chat, gone)
        self.stored(lambda _, kept: {"id": kept["id"], "object": "response", "deleted": True})

    def stored(self, say):
        """An answer that is kept, its input, or its end."""
        path = self.path.partition("?")[0]
        found = re.fullmatch(r"/openai/v1/responses/(\w+)(/input_items)?", path)
        try:
            self.check_key(responses)
            if found is None:
                raise Refused(404, f"no {self.path} here")
            items, kept = self.server.kept.find(found[1])
            if found[2]:
                named = [responses.listed(item, at) for at, item in enumerate(items)]
                ends = {"first_id": named[0]["id"], "last_id": named[-1]["id"]}
                self.send(200, {"object": "list", "data": named, **ends, "has_more": False})
            else:
                if self.command == "DELETE":
                    del self.server.kept.answers[kept["id"]]
                self.send(200, say(items, kept))
        except Refused as refused:
            self.send(refused.status, responses.error(refused.status, refused.message))

    def check_key(self, dialect):
        given = {
            messages: self.headers["x-api-key"],
            gemini: self.headers["x-goog-api-key"],
        }.get(dialect, (self.headers["authorization"] or "").removeprefix("Bearer "))
        if given != KEY:
            raise Refused(401, f"not a key of the vendor: {given}")

    def generate(self, dialect, hear, body=None):
        try:
            self.check_key(dialect)
            heard = hear()
            made = answer(heard)
        except Refused as refused:
            return self.refuse(dialect, refused)
        id = next(self.server.numbers)
        whole = dialect.whole(made, heard, id)
        if dialect is responses and body.get("store") is not False:
            self.server.kept.keep(body, whole)
        if heard.stream:
            self.send_events(dialect, made, heard, id)
        else:
            self.send(200, whole)

    def tell(self, dialect, say):
        """Whatever needs no model."""
        try:
            self.check_key(dialect)
        except Refused as refused:
            return self.refuse(dialect, refused)
        self.send(200, say())

    def count(self, dialect, hear, count):
        try:
            self.check_key(dialect)
            hear()
        except Refused as refused:
            return self.refuse(dialect, refused)
        self.send(200, count)

    def refuse(self, dialect, refused):
        status = refused.status
        later = {"retry-after": RETRY_AFTER} if status == 429 else {}
        self.send(status, dialect.error(status, refused.message), later)

    def send(self, status, document, headers={}):
        is_file = isinstance(document, bytes)
        body = document if is_file else json.dumps(document, ensure_ascii=False).encode()
        self.send_response(status)
        kind = "application/octet-stream" if is_file else "application/json"
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def send_events(self, dialect, made, heard, id):
        events = list(dialect.events(made, heard, id))
        if made.midway in ("fail", "break off"):
            del events[len(events) // 2 :]
        if made.midway == "fail":
            events.append(dialect.stream_error("The vendor fails midway.", heard, id))
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        stream = bytearray().join(written(*event, line_end=dialect.LINE_END) for event in events)
        if made.midway == "break off":
            # In the middle of an event.
            del stream[-20:]
        middle = len(stream) // CHUNK // 2 * CHUNK
        for start in range(0, len(stream), CHUNK):
            if made.midway == "pause" and start == middle:
                time.sleep(PAUSE)
            chunk = stream[start : start + CHUNK]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        if made.midway == "break off":
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_):
        pass


def written(name, data, line_end):
    data = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
    line = f"event: {name}{line_end}" if name else ""
    return f"{line}data: {data}{line_end}{line_end}".encode()
