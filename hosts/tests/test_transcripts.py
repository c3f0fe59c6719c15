"""The recorded transcripts are what the hosts really say, and what the contract allows."""

import json
import os
import re
import shutil
import subprocess
import unittest
from concurrent.futures import ThreadPoolExecutor

import record

#: The binary that judges frames; without it that test says so and is skipped.
ABP = os.environ.get("ABP_BIN") or shutil.which("abp")


def frames(name, sender=None):
    entries = [json.loads(line) for line in record.read(record.path_of(name)).splitlines()]
    return [e["frame"] for e in entries if "frame" in e and sender in (None, e["from"])]


class Transcripts(unittest.TestCase):
    maxDiff = None

    def test_they_are_what_both_hosts_say(self):
        cases = [
            (name, language)
            for name, (commands, _) in record.SCENARIOS.items()
            for language in commands
        ]
        with ThreadPoolExecutor(4) as pool:
            recordings = list(pool.map(lambda case: record.record(*case), cases))
        for (name, language), said in zip(cases, recordings):
            with self.subTest(name=name, language=language):
                said = said.replace("example-node", "example-python")
                self.assertEqual(said, record.read(record.path_of(name)))

    def test_the_document_shows_them_all(self):
        document = record.read(record.DOCUMENT)
        self.assertEqual(record.embedded(document), document)
        shown = re.findall(r"<!-- transcript:(\w+) -->", document)
        self.assertEqual(sorted(shown), sorted(record.SCENARIOS))

    def test_every_kind_of_event_is_shown_or_the_hosts_own(self):
        with open(os.path.join(record.REPOSITORY, "schemas", "agent_event.json")) as file:
            schema = json.load(file)
        kinds = {variant["properties"]["type"]["const"] for variant in schema["oneOf"]}
        shown = {f["event"]["type"] for f in frames("events") if f["t"] == "event"}
        hosts_own = {
            "run_started",
            "run_resumed",
            "run_completed",
            "permission_requested",
            "permission_resolved",
            "adapted",
            "network_connection",
        }
        self.assertEqual(kinds, shown - {"vendor_heartbeat"} | hosts_own)
        self.assertFalse(shown & hosts_own)

    @unittest.skipUnless(ABP, "set ABP_BIN to the abp binary to check frames by the contract")
    def test_every_frame_is_valid(self):
        for name in record.SCENARIOS:
            lines = "".join(json.dumps(frame) + "\n" for frame in frames(name))
            command = [ABP, "validate", "--json", "--kind", "transcript", "-"]
            judged = subprocess.run(command, input=lines, capture_output=True, text=True)
            self.assertEqual(json.loads(judged.stdout)["problems"], [], name)


if __name__ == "__main__":
    unittest.main()
