"""The agent's side of the sidecar protocol: one import turns a Python program into a backend.

    import abp_sidecar

    def run(order, ctx):
        ctx.emit("assistant_message", text="You asked: " + ctx.task)
        ctx.report_usage(input_tokens=3, output_tokens=4)

    sidecar = abp_sidecar.hello({"id": "my-agent"}, {"streaming": "native"})
    raise SystemExit(sidecar.serve(run))

Three threads share the work, so that the protocol is kept whatever the agent does: the main thread
runs the handler, one thread reads what the host sends (pings are answered and cancels seen while
the handler is busy), and one writes. Standard output belongs to the protocol alone: what the agent
or a program it starts prints goes to standard error.

Needs Python 3.9 and nothing else. The protocol is described in docs/sidecar_protocol.md.
"""

import json
import os
import re
import sys
import threading
import time
import traceback
from datetime import datetime, timedelta, timezone

CONTRACT_VERSION = "abp/v0.1"
#: The longest line either side accepts, without its line break.
MAX_LINE_BYTES = 16 * 1024 * 1024
#: How much of an error's text is sent.
MAX_ERROR_CHARS = 4096
#: How much may wait for the host before a handler that emits has to wait too.
OUTBOX_BYTES = 1024 * 1024
#: How long a handler may take to end after the host has gone; a host waits two seconds.
EXIT_GRACE_SECONDS = 1.0
#: Kinds of events that only the host sends; it ends a run in which a sidecar sends one.
HOST_ONLY_KINDS = frozenset(
    (
        "run_started",
        "run_resumed",
        "run_completed",
        "permission_requested",
        "permission_resolved",
        "adapted",
        "network_connection",
    )
)
#: The lines around the instructions that ABP puts at the end of a task.
INSTRUCTIONS_BEGIN, INSTRUCTIONS_END = "<abp-instructions>", "</abp-instructions>"


class Failure(Exception):
    """Raised by a handler that cannot do its work; the code is one of docs/error_codes.md."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


class Cancelled(BaseException):
    """Raised in a handler once its run is cancelled.

    Not an `Exception`, so that a handler's own `except Exception` does not swallow it.
    """


class ProtocolError(Exception):
    """The host sent something that is not a frame."""


class CancelSignal:
    """Tells a handler that its run is to end, and why."""

    def __init__(self):
        self.reason = None
        self._event = threading.Event()

    def is_set(self):
        return self._event.is_set()

    def wait(self, seconds):
        """Sleeps, but not beyond a cancel, which is raised as `Cancelled`."""
        self._event.wait(seconds)
        self.raise_if_set()

    def raise_if_set(self):
        if self.is_set():
            raise Cancelled(self.reason)

    def set(self, reason):
        """Asks for the end; the first reason given is the one that counts."""
        if not self.is_set():
            self.reason = reason
            self._event.set()


class RunContext:
    """What a handler is given besides the order: its way to the host."""

    def __init__(self, run_id, outbox, order):
        self.run_id = run_id
        #: The run's MCP servers as one, over Streamable HTTP: `{"url": …, "headers": {…}}`, to be sent
        #: with every request; `None` where the order asks for none. The key in it is a secret.
        self.mcp = _mcp(order)
        #: What is to be done, with ABP's instructions at its end. A model is given all of it.
        self.task = order.get("task", "")
        #: What ABP adds for capabilities that the sidecar does not have:
        #: `[{"capability": …, "strategy": {…}, "instruction": …}]`.
        self.emulation = _emulation(order)
        self.cancel = CancelSignal()
        self._outbox = outbox
        self._usage = {}
        self._usage_raw = None
        self._artifacts = []
        self._questions = {}  # Answers by the id of the question, `None` until they come.
        self._answered = threading.Condition()
        self._started_at = datetime.now(timezone.utc)
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._ended = False

    @property
    def instructions(self):
        """The texts that ABP adds to the task, for agents that want them apart from it."""
        return [entry["instruction"] for entry in self.emulation]

    @property
    def own_task(self):
        """The task without ABP's instructions."""
        before, begin, _ = self.task.rpartition("\n\n" + INSTRUCTIONS_BEGIN + "\n")
        is_added = self.emulation and begin and self.task.endswith("\n" + INSTRUCTIONS_END)
        return before if is_added else self.task

    def emit(self, kind, *, ext=None, **fields):
        """Sends an event; waits while the host is slow.

        Raises `Cancelled` once the run is cancelled, `RuntimeError` after its end, and `ValueError`
        for kinds that only the host sends.
        """
        if kind in HOST_ONLY_KINDS:
            raise ValueError(f"events of the kind {kind} are sent by the host alone")
        self.cancel.raise_if_set()
        event = {"ts": _timestamp(datetime.now(timezone.utc)), "type": kind}
        event.update(_without_secrets(kind, fields))
        if ext is not None:
            event["ext"] = ext
        line = _encode({"t": "event", "ref_id": self.run_id, "event": event})
        # Under the lock, so that no event of another thread can follow the run's end.
        with self._lock:
            if self._ended:
                raise RuntimeError("the run is over")
            self._outbox.put(line)

    def report_usage(self, *, raw=None, **totals):
        """Reports the totals so far; they are part of the receipt, however the run ends.

        Totals are `input_tokens`, `output_tokens`, `cache_read_tokens`, `cache_write_tokens`,
        `request_units`, `estimated_cost_usd`; `raw` is the usage in the vendor's own words.
        """
        self._usage.update(totals)
        if raw is not None:
            self._usage_raw = raw
        self.emit("usage_updated", usage=dict(self._usage))

    def request_permission(self, tool_name, input, tool_use_id=None):
        """Asks the host whether a tool may be used; returns whether, and the reason of a denial.

        Waits for the policy's or a person's answer. The `tool_call` that follows must have the same
        name, id and input. Raises `Cancelled` once the run is cancelled.
        """
        self.cancel.raise_if_set()
        with self._answered:
            question = f"permission-{len(self._questions) + 1}"
            self._questions[question] = None
        frame = {"t": "permission_request", "ref_id": self.run_id, "id": question, "tool_name": tool_name}
        if tool_use_id is not None:
            frame["tool_use_id"] = tool_use_id
        frame["input"] = input
        with self._lock:
            if self._ended:
                raise RuntimeError("the run is over")
            self._outbox.put(_encode(frame))
        with self._answered:
            self._answered.wait_for(lambda: self._questions[question] or self.cancel.is_set())
            self.cancel.raise_if_set()
            answer = self._questions[question]
        return answer.get("approved") is True, answer.get("reason") or ""

    def _answer(self, frame):
        with self._answered:
            if self._questions.get(frame.get("id"), frame) is None:
                self._questions[frame["id"]] = frame
            self._answered.notify_all()

    def _cancel(self, reason):
        self.cancel.set(reason)
        with self._answered:
            self._answered.notify_all()

    def add_artifact(self, kind, path):
        """Names something the run leaves behind besides changed files."""
        self._artifacts.append({"kind": kind, "path": path})

    def _end(self, line):
        """Sends the run's last line, unless one was sent before."""
        with self._lock:
            if not self._ended:
                self._ended = True
                self._outbox.put_now(line)

    def _receipt(self, order, identity):
        duration_ms = int((time.monotonic() - self._started) * 1000)
        finished_at = self._started_at + timedelta(milliseconds=duration_ms)
        return {
            "meta": {
                "run_id": self.run_id,
                "work_order_id": order.get("id", self.run_id),
                "contract_version": CONTRACT_VERSION,
                "started_at": _timestamp(self._started_at),
                "finished_at": _timestamp(finished_at),
                "duration_ms": duration_ms,
            },
            **identity,
            "usage_raw": self._usage_raw,
            "usage": self._usage,
            "artifacts": self._artifacts,
            # The host verifies the workspace; a sidecar has nothing to vouch for.
            "verification": {"harness_ok": False},
            "outcome": "partial" if self.cancel.is_set() else "complete",
            **self._acknowledged(),
        }

    def _acknowledged(self):
        """Names the capabilities whose instructions the handler was given."""
        if not self.emulation:
            return {}
        return {"emulation": [entry["capability"] for entry in self.emulation]}


def hello(backend, capabilities, mode="mapped"):
    """Says hello and starts to listen; call it before anything slow, such as importing an SDK.

    `backend` is `{"id": …}` with optional `backend_version` and `adapter_version`, `capabilities`
    maps names of docs/capabilities.md to support levels, `mode` is `mapped` or `passthrough`.
    """
    requests, answers = _claim_stdio()
    identity = {"backend": backend, "capabilities": capabilities, "mode": mode}
    return Sidecar(requests, answers, identity)


class Sidecar:
    """A sidecar that has said hello. Made by `hello`."""

    def __init__(self, requests, answers, identity):
        self._identity = identity
        self._changed = threading.Condition()
        self._work = None  # The run and its order, from the run frame to the run's last frame.
        self._closed = False
        self._exit_code = 0
        self._outbox = _Outbox(answers, self._close)
        self._outbox.put(_encode({"t": "hello", "contract_version": CONTRACT_VERSION, **identity}))
        self._outbox.flush()
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def serve(self, handler):
        """Calls `handler(order, ctx)` for one run after the other, until the host closes.

        A handler that returns has done its work; what it raises ends the run as `fatal`. Returns
        the code to exit with.
        """
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._work or self._closed)
                if self._work is None:
                    break
                run, order = self._work
            last = self._carry_out(handler, run, order)
            # Before the host can answer the last line with its next run.
            with self._changed:
                self._work = None
            run._end(last)
        self._outbox.flush()
        return self._exit_code

    def _carry_out(self, handler, run, order):
        """Runs the handler; returns the run's last line."""
        try:
            try:
                handler(order, run)
            except Cancelled:
                pass  # The receipt says so.
            receipt = run._receipt(order, self._identity)
            return _encode({"t": "final", "ref_id": run.run_id, "receipt": receipt})
        except Failure as failure:
            return _fatal(run.run_id, str(failure), failure.code)
        except (Exception, SystemExit) as error:
            traceback.print_exc()
            return _fatal(run.run_id, f"{type(error).__name__}: {error}", "BACKEND_CRASHED")

    def _read(self, requests):
        try:
            for line in _lines(requests):
                self._take(_decode(line))
        except ProtocolError as error:
            self._break_off(error)
        self._close()
        # The main thread ends the process as soon as its handler has ended; this is for one that
        # never does, because nobody may be left to kill it.
        time.sleep(EXIT_GRACE_SECONDS)
        os._exit(1)

    def _take(self, frame):
        kind = frame["t"]
        if kind == "ping":
            self._outbox.put_now(_encode({"t": "pong", "seq": frame.get("seq")}))
        elif kind == "run":
            self._accept(frame)
        elif kind == "cancel":
            work = self._work
            # A cancel that crossed the run's end is for nobody.
            if work is not None and work[0].run_id == frame.get("ref_id"):
                work[0]._cancel(frame.get("reason"))
        elif kind == "permission_response":
            work = self._work
            if work is not None and work[0].run_id == frame.get("ref_id"):
                work[0]._answer(frame)
        else:
            print(f"ignored a frame of the unknown kind {kind!r}", file=sys.stderr)

    def _accept(self, frame):
        run_id, order = frame.get("id"), frame.get("work_order")
        if not isinstance(run_id, str) or not isinstance(order, dict):
            raise ProtocolError("a run frame without an id or a work order")
        with self._changed:
            if self._work is None:
                self._work = RunContext(run_id, self._outbox, order), order
                self._changed.notify_all()
                return
            current = self._work[0].run_id
        error = f"one run at a time: {current} is under way"
        self._outbox.put_now(_fatal(run_id, error, "PROTOCOL_UNEXPECTED_MESSAGE"))

    def _break_off(self, error):
        """Ends with the run, if there is one: after a broken line nothing can be trusted."""
        self._exit_code = 1
        work = self._work
        line = _fatal(work and work[0].run_id, str(error), "PROTOCOL_INVALID_ENVELOPE")
        if work is None:
            self._outbox.put_now(line)
        else:
            work[0]._end(line)

    def _close(self):
        with self._changed:
            self._closed = True
            if self._work is not None:
                self._work[0]._cancel("the host has gone")
            self._changed.notify_all()


class _Outbox:
    """Lines on their way to the host, written by a thread of its own.

    `put` waits while too much is under way: that is the back-pressure on handlers. `put_now` does
    not, so that the reader goes on listening while the host is slow.
    """

    def __init__(self, fd, on_broken):
        self._fd = fd
        self._on_broken = on_broken
        self._changed = threading.Condition()
        self._lines = []
        self._bytes = 0  # Waiting or being written.
        self._broken = False
        threading.Thread(target=self._write, daemon=True).start()

    def put(self, line):
        with self._changed:
            self._changed.wait_for(lambda: self._bytes < OUTBOX_BYTES or self._broken)
            self._append(line)

    def put_now(self, line):
        with self._changed:
            self._append(line)

    def flush(self):
        with self._changed:
            self._changed.wait_for(lambda: self._bytes == 0 or self._broken)

    def _append(self, line):
        if not self._broken:
            self._lines.append(line)
            self._bytes += len(line)
            self._changed.notify_all()

    def _write(self):
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._lines)
                batch, self._lines = b"".join(self._lines), []
            rest = memoryview(batch)
            try:
                while rest:
                    rest = rest[os.write(self._fd, rest) :]
            except OSError:
                with self._changed:
                    self._broken = True
                    self._changed.notify_all()
                self._on_broken()
                return
            with self._changed:
                self._bytes -= len(batch)
                self._changed.notify_all()


def _mcp(order):
    """Where the run's MCP servers are; an order of an older host says only that it wants some."""
    found = _setting(order, "mcp")
    return found if isinstance(found, dict) else None


def _emulation(order):
    """What ABP adds to the task; nothing where the host does not say so in the form we know."""
    found = _setting(order, "emulation")
    if not isinstance(found, list):
        return []
    known = ("capability", "instruction")
    is_entry = lambda entry: isinstance(entry, dict) and all(
        isinstance(entry.get(member), str) for member in known
    )
    return [entry for entry in found if is_entry(entry)]


def _setting(order, name):
    """One of ABP's own settings."""
    vendor = (order.get("config") or {}).get("vendor") or {}
    settings = vendor.get("abp")
    nested = settings.get(name) if isinstance(settings, dict) else None
    return vendor.get("abp." + name) if nested is None else nested


def _claim_stdio():
    """Keeps both pipes to ourselves: prints go to standard error, and nobody else reads requests.

    Done to the descriptors, so that it holds for programs the agent starts as well.
    """
    sys.stdout.flush()
    requests, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return requests, answers


def _lines(fd):
    """The lines of a descriptor; blank ones are passed over. Never holds more than one."""
    with os.fdopen(fd, "rb", buffering=1 << 16) as stream:
        while True:
            line = stream.readline(MAX_LINE_BYTES + 1)
            if not line:
                return
            if not line.endswith(b"\n"):
                too_long = len(line) > MAX_LINE_BYTES
                raise ProtocolError(
                    f"a line longer than {MAX_LINE_BYTES} bytes"
                    if too_long
                    else "the last line is incomplete"
                )
            if line.strip():
                yield line


def _decode(line):
    try:
        frame = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a line that is not JSON: {error}") from error
    if not isinstance(frame, dict) or not isinstance(frame.get("t"), str):
        raise ProtocolError('a line that is not an object with a string "t"')
    return frame


def _encode(frame):
    text = json.dumps(frame, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    # Half a surrogate pair is no text; "replace" writes a question mark for it.
    line = text.encode("utf-8", "replace")
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a frame of {len(line)} bytes, more than {MAX_LINE_BYTES}")
    return line + b"\n"


def _fatal(run_id, error, code):
    error = redact(error[:MAX_ERROR_CHARS])
    return _encode({"t": "fatal", "ref_id": run_id, "error": error, "error_code": code})


def _timestamp(moment):
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


# What is obviously a secret, and what is written in its place: the same list as in lib/redact.js.
_REDACTED = "[redacted]"
_NAMES = r"(?:api[_-]?key|(?:access|auth|refresh)[_-]?token|secret|passw(?:or)?d)"
_SECRET_NAME = re.compile(_NAMES + r"$", re.IGNORECASE)
_SECRETS = [
    (re.compile(r"\bsk-[A-Za-z0-9_-]{16,}"), _REDACTED),
    (re.compile(r"\b(?:gh[pousr]_|github_pat_|xox[abprs]-|AKIA)[A-Za-z0-9_-]{16,}"), _REDACTED),
    (re.compile(r"\babp_(?:run_)?[0-9a-f]{48}\b"), _REDACTED),
    (re.compile(r"\b(bearer\s+)[\w.~+/=-]{8,}", re.IGNORECASE | re.ASCII), r"\1" + _REDACTED),
    (
        re.compile("(" + _NAMES + r"[\"']?\s*[:=]\s*[\"']?)[^\s\"',;&]{6,}", re.IGNORECASE),
        r"\1" + _REDACTED,
    ),
]


def redact(text):
    """The text without what is obviously a secret."""
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


def _without_secrets(kind, fields):
    """Redacts what tools gave back, which is where an agent's secrets come to light."""
    name = {"tool_result": "output", "command_executed": "output_preview"}.get(kind)
    if name is None or name not in fields:
        return fields
    return {**fields, name: _redact_all(fields[name])}


def _redact_all(value):
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, list):
        return [_redact_all(item) for item in value]
    if isinstance(value, dict):
        return {key: _redact_member(key, item) for key, item in value.items()}
    return value


def _redact_member(key, value):
    if isinstance(value, str) and _SECRET_NAME.search(key):
        return _REDACTED
    return _redact_all(value)
