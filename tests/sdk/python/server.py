"""Serves prepared answers from this machine: `/<number>/...` is answered with answer `<number>`."""

import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

CONTENT_TYPES = {"response": "application/json", "stream": "text/event-stream"}

# Cuts lines, events and characters of several bytes alike.
PIECE = 61


class QuietServer(ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        # An SDK hangs up on an answer it does not like, and says so itself.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class AnswerServer:
    def __init__(self):
        self.answers = []
        self.http = QuietServer(("127.0.0.1", 0), self.handler())
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def job(self, dialect, kind, body):
        """Serves the answer from now on, and returns the job of reading it."""
        self.answers.append((kind, body))
        url = f"http://127.0.0.1:{self.http.server_port}/{len(self.answers) - 1}"
        return {"dialect": dialect, "kind": kind, "url": url}

    def handler(self):
        answers = self.answers

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                self.rfile.read(int(self.headers.get("content-length") or 0))
                kind, body = answers[int(self.path.split("/")[1])]
                self.send_response(200)
                self.send_header("content-type", CONTENT_TYPES[kind])
                if kind == "stream":
                    self.send_header("transfer-encoding", "chunked")
                    self.end_headers()
                    self.send_pieces(body)
                else:
                    self.send_header("content-length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def send_pieces(self, body):
                for start in range(0, len(body), PIECE):
                    piece = body[start : start + PIECE]
                    self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")

            def log_message(self, *_):
                pass

        return Handler
