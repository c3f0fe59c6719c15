"""The host's side of the protocol, as far as tests need it: a real child process and its frames."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import threading

TESTS = os.path.dirname(os.path.abspath(__file__))
HOSTS = os.path.dirname(TESTS)
RUN_ID = "00000000-0000-4000-8000-000000000001"
ORDER_ID = "00000000-0000-4000-8000-000000000002"

EXAMPLES = {
    "python": [sys.executable, os.path.join(HOSTS, "python", "host.py")],
    "node": ["node", os.path.join(HOSTS, "node", "host.js")],
}
#: Agents that do what agents should not; see the files.
ODD = {
    "python": [sys.executable, os.path.join(TESTS, "agents", "odd.py")],
    "node": ["node", os.path.join(TESTS, "agents", "odd.js")],
}


def run_frame(task, run_id=RUN_ID, **order):
    return {"t": "run", "id": run_id, "work_order": {"id": ORDER_ID, "task": task, **order}}


class Peer:
    """A sidecar's process. `log` is the transcript of what was said so far."""

    def __init__(self, command, cwd=None):
        self.log = []
        self._lines = queue.Queue()
        self._reading = threading.Event()
        self._reading.set()
        self._stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        threading.Thread(target=self._read, daemon=True).start()

    def stop(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self._stderr.close()

    def send(self, frame):
        self.send_bytes(json.dumps(frame, separators=(",", ":")).encode() + b"\n")
        self.log.append({"from": "host", "frame": frame})

    def send_bytes(self, data):
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def line(self, timeout=5):
        """The next line, or None at the end of the output."""
        return self._lines.get(timeout=timeout)

    def receive(self, timeout=5):
        line = self.line(timeout)
        if line is None:
            raise AssertionError(f"the output ended; standard error: {self.stderr()}")
        frame = json.loads(line)
        self.log.append({"from": "sidecar", "frame": frame})
        return frame

    def expect(self, kind, timeout=5):
        frame = self.receive(timeout)
        if frame["t"] != kind:
            raise AssertionError(f"expected {kind}: {frame}")
        return frame

    def until(self, kind, timeout=5):
        """The frames up to and including the first of that kind."""
        frames = [self.receive(timeout)]
        while frames[-1]["t"] != kind:
            frames.append(self.receive(timeout))
        return frames

    def pause(self):
        self._reading.clear()

    def resume(self):
        self._reading.set()

    def close(self, timeout=5):
        """Closes the sidecar's standard input; returns what it still said, and its exit code."""
        self.process.stdin.close()
        self.log.append({"from": "host", "end": "standard input closed"})
        rest = []
        while (line := self.line(timeout)) is not None:
            rest.append(json.loads(line))
            self.log.append({"from": "sidecar", "frame": rest[-1]})
        code = self.process.wait(timeout)
        self.log.append({"from": "sidecar", "end": f"exit {code}"})
        return rest, code

    def stderr(self):
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace")

    def _read(self):
        with self.process.stdout as output:
            for line in output:
                self._reading.wait()
                self._lines.put(line)
        self._lines.put(None)
