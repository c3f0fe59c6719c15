"""Runs a program on a terminal of its own and answers its questions.

usage: terminal.py ANSWERS PROGRAM [ARGUMENT...]

ANSWERS is a JSON list; each answer is given to one question, and null leaves it unanswered. Prints a JSON
object: the exit status, the whole output, and per question the output within half a second of it.
"""

import json
import os
import pty
import select
import sys
import time

answers = json.loads(sys.argv[1])
pid, terminal = pty.fork()
if pid == 0:
    os.execv(sys.argv[2], sys.argv[2:])

output, asked, silences = b"", 0, []


def read_until(deadline):
    """Reads until the deadline, or the end; whether there may be more."""
    global output
    while (left := deadline - time.monotonic()) > 0:
        if select.select([terminal], [], [], left)[0]:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:
                return False
            if not chunk:
                return False
            output += chunk
            if output.count(b"[y/N] ") > asked:
                return True
    return True


end = time.monotonic() + 30
while time.monotonic() < end and read_until(end):
    if output.count(b"[y/N] ") == asked:
        continue
    asked += 1
    before = len(output)
    read_until(time.monotonic() + 0.5)
    silences.append(output[before:].decode())
    if answers[asked - 1] is not None:
        os.write(terminal, answers[asked - 1].encode() + b"\n")
os.close(terminal)
_, status = os.waitpid(pid, 0)
result = {"status": os.waitstatus_to_exitcode(status), "output": output.decode(), "silences": silences}
print(json.dumps(result))
