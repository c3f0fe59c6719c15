"""Drives both hosts as child processes through what a host may send and an agent may do."""

import json
import os
import queue
import tempfile
import time
import unittest

from peer import EXAMPLES, ODD, RUN_ID, Peer, run_frame

OTHER_ID = "00000000-0000-4000-8000-00000000000f"
MIB = 1024 * 1024


class Cases:
    """The tests; a subclass per language says which host."""

    language = None

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = os.path.join(directory.name, "workspace")
        os.mkdir(self.root)

    def start(self, commands=EXAMPLES):
        peer = Peer(commands[self.language], self.root)
        self.addCleanup(peer.stop)
        peer.expect("hello")
        return peer

    def do(self, peer, task, end="final", **order):
        peer.send(run_frame(task, **order))
        frames = peer.until(end)
        events = [frame["event"] for frame in frames if frame["t"] == "event"]
        return events, frames[-1]

    def odd(self, task, end="final"):
        return self.do(self.start(ODD), task, end)

    def read(self, name):
        with open(os.path.join(self.root, name), encoding="utf-8") as file:
            return file.read()

    def test_hello_comes_in_time(self):
        # By the processor's time: other work on the machine is not the host's fault.
        with open(f"/proc/{self.start().process.pid}/stat", encoding="ascii") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        self.assertLess((int(user) + int(system)) / os.sysconf("SC_CLK_TCK"), 0.3)

    def test_a_run_does_its_work_and_another_follows(self):
        peer = self.start()
        events, final = self.do(peer, "write a/b.txt: one\nappend a/b.txt: two")
        self.assertEqual(self.read("a/b.txt"), "one\ntwo\n")
        changed = [event for event in events if event["type"] == "file_changed"]
        self.assertEqual([event["path"] for event in changed], ["a/b.txt", "a/b.txt"])
        receipt = final["receipt"]
        self.assertEqual(receipt["outcome"], "complete")
        self.assertEqual(receipt["usage"], events[-1]["usage"])
        said = "".join(event["text"] for event in events if event["type"] == "assistant_delta")
        self.assertEqual(said, events[-2]["text"])
        peer.send(run_frame("please think about it", run_id=OTHER_ID))
        final = peer.until("final")[-1]
        self.assertEqual(final["ref_id"], OTHER_ID)
        self.assertEqual(final["receipt"]["artifacts"], [{"kind": "notes", "path": "NOTES.md"}])
        self.assertIn("please think about it", self.read("NOTES.md"))
        self.assertEqual(peer.close(), ([], 0))

    def test_the_policy_and_the_workspace_hold(self):
        with open(os.path.join(self.root, "..", "outside"), "w", encoding="utf-8"):
            pass
        os.symlink("..", os.path.join(self.root, "up"))
        os.symlink("../outside-too", os.path.join(self.root, "dangling"))
        policy = {"deny_write": ["**/secret*"], "deny_read": ["private"]}
        refused = ["secret.txt", "a/secrets/x", "../outside", "up/outside", "dangling", "/tmp/x"]
        peer = self.start()
        for path in refused:
            with self.subTest(path=path):
                events, _ = self.do(peer, f"write {path}: x", policy=policy)
                results = [event for event in events if event["type"] == "tool_result"]
                self.assertTrue(results[-1]["is_error"], results[-1])
                self.assertNotIn("file_changed", [event["type"] for event in events])
        self.assertEqual(sorted(os.listdir(self.root)), ["dangling", "up"])
        self.assertEqual(os.listdir(os.path.dirname(self.root)).count("outside-too"), 0)
        os.mkdir(os.path.join(self.root, "private"))
        events, _ = self.do(peer, "read private/x", policy=policy)
        self.assertIn("deny_read[0]", json.dumps(events))

    def test_a_denied_tool_is_not_called(self):
        peer = self.start()
        for policy in [
            {"disallowed_tools": ["Wri*"]},
            {"allowed_tools": ["Glob"]},
            {"require_approval_for": ["{Edit,Write}"]},
        ]:
            with self.subTest(policy=policy):
                events, _ = self.do(peer, "list\nwrite a.txt: x", policy=policy)
                called = [e["tool_name"] for e in events if e["type"] == "tool_call"]
                self.assertEqual(called, ["Glob"])
                self.assertIn("warning", [event["type"] for event in events])
        self.assertEqual(os.listdir(self.root), [])
        _, fatal = self.do(peer, "write a: x", "fatal", policy={"deny_write": ["a{b"]})
        self.assertEqual(fatal["error_code"], "POLICY_INVALID")

    def test_cancel_ends_in_a_partial_receipt(self):
        peer = self.start()
        peer.send(run_frame("wait 60"))
        while peer.receive()["event"]["type"] != "assistant_delta":
            pass
        peer.send({"t": "cancel", "ref_id": OTHER_ID, "reason": "not you"})
        with self.assertRaises(queue.Empty):
            peer.line(timeout=0.2)
        peer.send({"t": "cancel", "ref_id": RUN_ID, "reason": "user"})
        final = peer.until("final")[-1]
        self.assertEqual(final["receipt"]["outcome"], "partial")
        # A cancel that comes too late does no harm to the next run.
        peer.send({"t": "cancel", "ref_id": RUN_ID})
        _, final = self.do(peer, "count 1")
        self.assertEqual(final["receipt"]["outcome"], "complete")

    def test_an_agent_that_swallows_errors_still_ends_when_cancelled(self):
        peer = self.start(ODD)
        peer.send(run_frame("swallow"))
        peer.send({"t": "cancel", "ref_id": RUN_ID})
        self.assertEqual(peer.expect("final")["receipt"]["outcome"], "partial")

    def test_a_question_waits_for_its_answer(self):
        peer = self.start(ODD)
        peer.send(run_frame("ask"))
        asked = peer.expect("permission_request")
        self.assertEqual(
            {key: asked[key] for key in ("ref_id", "tool_name", "tool_use_id", "input")},
            {"ref_id": RUN_ID, "tool_name": "Write", "tool_use_id": "call-Write", "input": {"path": "a"}},
        )
        # Answers to another run or another question are for nobody.
        for ref_id, question in ((OTHER_ID, asked["id"]), (RUN_ID, "unknown")):
            peer.send({"t": "permission_response", "ref_id": ref_id, "id": question, "approved": True})
        with self.assertRaises(queue.Empty):
            peer.line(timeout=0.2)
        peer.send({"t": "permission_response", "ref_id": RUN_ID, "id": asked["id"], "approved": True})
        self.assertEqual(peer.expect("event")["event"]["text"], "Write true ")
        denied = peer.expect("permission_request")
        self.assertNotEqual(denied["id"], asked["id"])
        answer = {"t": "permission_response", "ref_id": RUN_ID, "id": denied["id"], "approved": False, "reason": "no"}
        peer.send(answer)
        self.assertEqual(peer.expect("event")["event"]["text"], "Bash false no")
        self.assertEqual(peer.expect("final")["receipt"]["outcome"], "complete")

    def test_a_cancel_ends_the_wait_for_an_answer(self):
        peer = self.start(ODD)
        peer.send(run_frame("ask"))
        peer.expect("permission_request")
        peer.send({"t": "cancel", "ref_id": RUN_ID, "reason": "user"})
        self.assertEqual(peer.expect("final")["receipt"]["outcome"], "partial")

    def test_pings_are_answered_under_load(self):
        peer = self.start()
        peer.send(run_frame("count 20000"))
        for seq in range(5):
            peer.send({"t": "ping", "seq": seq})
        frames = peer.until("final", timeout=10)
        pongs = [index for index, frame in enumerate(frames) if frame["t"] == "pong"]
        self.assertEqual([frames[index]["seq"] for index in pongs], [0, 1, 2, 3, 4])
        self.assertLess(pongs[-1], len(frames) / 2, "the answers waited for the load")

    def test_a_slow_host_slows_the_agent_and_can_still_cancel(self):
        peer = self.start(ODD)
        peer.pause()
        peer.send(run_frame("flood"))
        time.sleep(0.2)
        peer.send({"t": "cancel", "ref_id": RUN_ID})
        time.sleep(0.1)
        peer.resume()
        frames = peer.until("final", timeout=10)
        self.assertLess(len(frames) * 1024, 3 * MIB)

    def test_large_lines_pass_and_longer_ones_end_it(self):
        peer = self.start()
        _, final = self.do(peer, "write big: " + "x" * (15 * MIB))
        self.assertEqual(len(self.read("big")), 15 * MIB + 1)
        try:
            peer.send_bytes(b"x" * (17 * MIB))
        except BrokenPipeError:
            pass
        fatal = peer.expect("fatal")
        self.assertIsNone(fatal["ref_id"])
        self.assertEqual(fatal["error_code"], "PROTOCOL_INVALID_ENVELOPE")
        self.assertEqual(peer.process.wait(5), 1)
        _, fatal = self.odd("huge", "fatal")
        self.assertIn("more than 16777216", fatal["error"])

    def test_what_is_unknown_is_passed_over(self):
        peer = self.start()
        peer.send_bytes(b"\n\r\n")
        peer.send({"t": "from_the_future", "x": 1})
        peer.send_bytes(b'{"t":"ping","seq":7,"new":[{}]}\r\n')
        self.assertEqual(peer.expect("pong"), {"t": "pong", "seq": 7})
        _, final = self.do(peer, "count 1", priority="high", policy={"new_rule": 1})
        self.assertEqual(final["receipt"]["outcome"], "complete")
        self.assertIn("from_the_future", peer.stderr())

    def test_a_line_that_is_no_frame_ends_it(self):
        for line in [b"hello\n", b'{"t":1}\n', b"[]\n", b'\xef\xbb\xbf{"t":"ping"}\n', b'"\xff"\n']:
            with self.subTest(line=line):
                peer = self.start()
                peer.send_bytes(line)
                fatal = peer.expect("fatal")
                self.assertEqual(fatal["error_code"], "PROTOCOL_INVALID_ENVELOPE")
                self.assertIsNone(peer.line())
                self.assertEqual(peer.process.wait(5), 1)
        peer = self.start()
        peer.send(run_frame("wait 60"))
        peer.send_bytes(b"{\n")
        self.assertEqual(peer.until("fatal")[-1]["ref_id"], RUN_ID)
        self.assertIsNone(peer.line())

    def test_a_second_run_is_refused_and_the_first_goes_on(self):
        peer = self.start()
        peer.send(run_frame("wait 60"))
        peer.send(run_frame("write other: x", run_id=OTHER_ID))
        fatal = peer.until("fatal")[-1]
        self.assertEqual(fatal["ref_id"], OTHER_ID)
        self.assertEqual(fatal["error_code"], "PROTOCOL_UNEXPECTED_MESSAGE")
        peer.send({"t": "cancel", "ref_id": RUN_ID})
        self.assertEqual(peer.until("final")[-1]["ref_id"], RUN_ID)
        self.assertEqual(os.listdir(self.root), [])

    def test_the_end_of_input_ends_everything(self):
        peer = self.start()
        peer.send(run_frame("wait 60"))
        rest, code = peer.close()
        self.assertEqual((rest[-1]["receipt"]["outcome"], code), ("partial", 0))
        peer = self.start(ODD)
        peer.send(run_frame("stubborn"))
        began = time.monotonic()
        self.assertEqual(peer.close(), ([], 1))
        self.assertLess(time.monotonic() - began, 4)

    def test_what_a_handler_throws_is_fatal_and_without_secrets(self):
        peer = self.start(ODD)
        _, fatal = self.do(peer, "throw", "fatal")
        self.assertEqual((fatal["ref_id"], fatal["error_code"]), (RUN_ID, "BACKEND_CRASHED"))
        self.assertIn("no good: [redacted]", fatal["error"])
        self.do(peer, "half_pair")
        _, fatal = self.odd("leave", "fatal")
        self.assertEqual((fatal["ref_id"], fatal["error_code"]), (RUN_ID, "BACKEND_CRASHED"))
        _, fatal = self.do(self.start(), "fail the disk is full", "fatal")
        self.assertEqual(fatal["error"], "the disk is full")
        self.assertEqual(fatal["error_code"], "EXECUTION_TOOL_FAILED")

    def test_prints_stay_out_of_the_frames(self):
        peer = self.start(ODD)
        events, _ = self.do(peer, "print_noise")
        self.assertEqual(events, [])
        for noise in ["noise from print", "noise from write"]:
            self.assertIn(noise, peer.stderr())

    def test_half_a_surrogate_pair_does_not_leave_the_process(self):
        [event], _ = self.odd("half_pair")
        event["text"].encode("utf-8")
        self.assertTrue(event["text"].endswith("b \\ud800 \U0001f600"), event)

    def test_tool_output_is_redacted(self):
        [event], _ = self.odd("leak")
        expected = {"log": ["key [redacted]"], "api_key": "[redacted]", "count": 1}
        self.assertEqual(event["output"], expected)

    def test_a_handler_is_told_where_its_mcp_servers_are(self):
        peer = self.start(ODD)
        access = {"url": "http://127.0.0.1:1/mcp", "headers": {"authorization": "Bearer x"}}
        cases = [
            ({"abp": {"mcp": access}}, access["url"]),
            ({"abp": "odd", "abp.mcp": access}, access["url"]),
            ({"abp": {"mcp": True}}, "None"),
            ({"abp": {"mcp": ["files"]}}, "None"),
            ({}, "None"),
        ]
        for vendor, expected in cases:
            [event], _ = self.do(peer, "servers", config={"vendor": vendor})
            self.assertEqual(event["text"], expected, vendor)

    def test_a_handler_is_given_the_instructions_that_abp_adds(self):
        peer = self.start(ODD)
        block = "\n\n<abp-instructions>\n[a] One.\n[b] Two.\n</abp-instructions>"
        entries = [
            {"capability": "a", "strategy": {"type": "x"}, "instruction": "One."},
            {"capability": "b", "strategy": {"type": "y"}, "instruction": "Two."},
        ]
        for vendor in ({"abp": {"emulation": entries}}, {"abp": 1, "abp.emulation": entries}):
            events, final = self.do(peer, "instructed" + block, config={"vendor": vendor})
            texts = [event["text"] for event in events]
            self.assertEqual(texts, ["instructed" + block, "One.|Two."])
            self.assertEqual(final["receipt"]["emulation"], ["a", "b"])
        # Nothing was added, so nothing is taken away and nothing acknowledged.
        for vendor in ({}, {"abp": {"emulation": "odd"}}, {"abp": {"emulation": [1, {}]}}):
            events, final = self.do(peer, "instructed", config={"vendor": vendor})
            self.assertEqual([event["text"] for event in events], ["instructed", ""])
            self.assertNotIn("emulation", final["receipt"])

    def test_a_sidecar_does_not_speak_for_the_host(self):
        events, _ = self.do(self.start(ODD), "speak_for_host")
        self.assertEqual({event["type"] for event in events}, {"assistant_delta"})
        said = sorted(event["text"] for event in events)
        kinds = (
            "adapted network_connection permission_requested permission_resolved "
            "run_completed run_resumed run_started"
        )
        expected = [f"events of the kind {kind} are sent by the host alone" for kind in kinds.split()]
        self.assertEqual(said, expected)

    def test_nothing_follows_the_end(self):
        peer = self.start(ODD)
        self.do(peer, "late")
        with self.assertRaises(queue.Empty):
            peer.line(timeout=0.2)


class PythonHost(Cases, unittest.TestCase):
    language = "python"

    def test_pings_are_answered_while_the_handler_computes(self):
        peer = self.start(ODD)
        peer.send(run_frame("busy"))
        peer.send({"t": "ping", "seq": 1})
        peer.expect("pong")
        peer.expect("final")

    def test_prints_of_child_processes_stay_out_too(self):
        peer = self.start(ODD)
        self.do(peer, "print_noise")
        self.assertIn("noise from a child", peer.stderr())


class NodeHost(Cases, unittest.TestCase):
    language = "node"


if __name__ == "__main__":
    unittest.main()
