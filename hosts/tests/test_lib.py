"""The library's pure parts, against the tables that the JavaScript library is held to as well."""

import json
import os
import sys
import tempfile
import unittest

from peer import HOSTS, TESTS

sys.path.insert(0, os.path.join(HOSTS, "python"))

from abp_guard import Guard, Refused
from abp_sidecar import redact

with open(os.path.join(TESTS, "tables.json"), encoding="utf-8") as file:
    TABLES = json.load(file)


class Tables(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = directory.name

    def test_secrets_are_removed(self):
        for text, expected in TABLES["redaction"]:
            self.assertEqual(redact(text), expected)

    def test_patterns_mean_what_they_mean_to_the_host(self):
        for glob, path, denied in TABLES["paths"]:
            guard = Guard(self.root, {"deny_write": [glob]})
            with self.subTest(glob=glob, path=path):
                if denied:
                    self.assertRaises(Refused, guard.writable, path)
                else:
                    self.assertEqual(guard.writable(path), path)

    def test_a_malformed_pattern_is_an_error(self):
        for glob in TABLES["malformed"]:
            with self.subTest(glob=glob), self.assertRaisesRegex(ValueError, "malformed"):
                Guard(self.root, {"deny_write": [glob]})


if __name__ == "__main__":
    unittest.main()
