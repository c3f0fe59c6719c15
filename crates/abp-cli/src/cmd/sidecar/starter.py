"""A sidecar to start from. It needs nothing but Python 3.9.

Say hello, wait for a run, send events, end it with `final`. Standard output is for messages only:
print to standard error.
"""

import json
import sys
import threading
from datetime import datetime, timezone

output = threading.Lock()
cancelled = threading.Event()


def say(message):
    with output:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()


def now():
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def work(order, emit):
    """Does the work. This is the place for your agent."""
    for word in ("You ", "asked: ", order["task"]):
        if cancelled.is_set():
            return "partial"
        emit({"type": "assistant_delta", "text": word})
    return "complete"


def run(message):
    run_id, order, started = message["id"], message["work_order"], now()
    emit = lambda event: say({"t": "event", "ref_id": run_id, "event": {"ts": now(), **event}})
    try:
        outcome = work(order, emit)
    except Exception as error:
        say({"t": "fatal", "ref_id": run_id, "error": str(error), "error_code": "BACKEND_CRASHED"})
        return
    meta = {
        "run_id": run_id,
        "work_order_id": order["id"],
        "contract_version": "abp/v0.1",
        "started_at": started,
        "finished_at": now(),
        "duration_ms": 0,
    }
    receipt = {
        "meta": meta,
        "backend": {"id": "my-agent"},
        "usage": {"input_tokens": len(order["task"].split())},
        "verification": {"harness_ok": False},
        "outcome": outcome,
    }
    say({"t": "final", "ref_id": run_id, "receipt": receipt})


say(
    {
        "t": "hello",
        "contract_version": "abp/v0.1",
        "backend": {"id": "my-agent", "backend_version": "0.1.0"},
        "capabilities": {"streaming": "native"},
    }
)
# The agent works in a thread of its own, so that pings are answered and cancels heard meanwhile.
# Reading ends when the host closes the input, and the process with it.
worker = None
for line in sys.stdin.buffer:
    message = json.loads(line)
    if message["t"] == "run":
        cancelled.clear()
        worker = threading.Thread(target=run, args=(message,))
        worker.start()
    elif message["t"] == "cancel":
        cancelled.set()
    elif message["t"] == "ping":
        say({"t": "pong", "seq": message["seq"]})
cancelled.set()
if worker:
    worker.join(timeout=1)
