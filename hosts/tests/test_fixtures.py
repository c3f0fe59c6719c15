"""The broken sidecars break the rule they say they break, and no rule before it."""

import json
import os
import queue
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

from peer import EXAMPLES, HOSTS, RUN_ID, Peer, run_frame

FIXTURES = os.path.join(os.path.dirname(HOSTS), "fixtures", "sidecar")
#: Seconds to wait for what should not come, and for what should.
SHORT, LONG = 0.3, 3

HOSTS_OWN = (
    "run_started",
    "run_resumed",
    "run_completed",
    "permission_requested",
    "permission_resolved",
    "adapted",
    "network_connection",
)


class Broken(Exception):
    """Says which rule was broken."""


def broken_rule(command, cwd):
    """Drives a sidecar through its rules; returns the first that it breaks."""
    peer = Peer(command, cwd)
    try:
        check_hello(peer)
        check_run(peer)
        check_ping(peer)
        check_cancel(peer)
        check_exit(peer)
    except Broken as broken:
        return str(broken)
    finally:
        peer.stop()
    return None


def check_hello(peer):
    # A sidecar that says nothing is told from a slow one by waiting; the slow ones are not here.
    hello = take(peer, LONG, "hello-first")
    if hello["t"] != "hello":
        raise Broken("hello-first")
    if not hello["contract_version"].startswith("abp/v0."):
        raise Broken("same-major")


def check_run(peer):
    peer.send(run_frame("count 1"))
    ended = False
    while True:
        try:
            frame = take(peer, SHORT if ended else LONG, "one-end")
        except queue.Empty:
            return
        if frame["t"] == "hello":
            raise Broken("one-hello")
        if frame.get("ref_id") != RUN_ID:
            raise Broken("ref-id")
        if ended:
            raise Broken("one-end" if frame["t"] == "final" else "end-is-last")
        ended = frame["t"] == "final"
        if frame["t"] == "event" and not is_complete(frame["event"]):
            raise Broken("valid-frames")
        if frame["t"] == "event" and frame["event"]["type"] in HOSTS_OWN:
            raise Broken("own-kinds")


def is_complete(event):
    return event["type"] != "assistant_delta" or "text" in event


def check_ping(peer):
    peer.send({"t": "ping", "seq": 1})
    if take(peer, LONG, "answers-ping") != {"t": "pong", "seq": 1}:
        raise Broken("answers-ping")


def check_cancel(peer):
    peer.send(run_frame("wait 60"))
    peer.send({"t": "cancel", "ref_id": RUN_ID, "reason": "user"})
    while take(peer, LONG, "answers-cancel")["t"] not in ("final", "fatal"):
        pass


def check_exit(peer):
    try:
        peer.close(timeout=LONG)
    except (queue.Empty, subprocess.TimeoutExpired):
        raise Broken("exits-at-end") from None


def take(peer, timeout, rule):
    """The next frame; where none comes, the rule is broken that says it should."""
    try:
        line = peer.line(timeout)
    except queue.Empty:
        if timeout == SHORT:
            raise
        raise Broken(rule) from None
    if line is None:
        raise Broken(rule)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError:
        raise Broken("utf-8") from None
    if not text.startswith("{"):
        raise Broken("frames-only")
    try:
        return json.loads(text)
    except ValueError:
        raise Broken("valid-frames") from None


class Fixtures(unittest.TestCase):
    def test_each_breaks_its_rule_and_the_examples_none(self):
        with open(os.path.join(FIXTURES, "expectations.json"), encoding="utf-8") as file:
            expected = {name: entry["rule"] for name, entry in json.load(file).items()}
        scripts = [name for name in os.listdir(FIXTURES) if name.endswith(".py")]
        self.assertEqual(sorted(scripts), sorted(expected))
        commands = {name: [sys.executable, os.path.join(FIXTURES, name)] for name in scripts}
        expected.update(dict.fromkeys(EXAMPLES))
        commands.update(EXAMPLES)
        with tempfile.TemporaryDirectory() as directory, ThreadPoolExecutor(8) as pool:
            rules = pool.map(lambda command: broken_rule(command, directory), commands.values())
            self.assertEqual(dict(zip(commands, rules)), expected)


if __name__ == "__main__":
    unittest.main()
