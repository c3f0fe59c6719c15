"""Translates every answer under `fixtures/` and lets the vendors' SDKs say what they read.

Each source is read twice by each SDK language: as it is, with the SDK of its own dialect, and
translated, with the SDK of the target. Both must amount to the same (see normal.py), but for what
differences.toml explains.
"""

import argparse
import json
import os
import subprocess
import sys
import textwrap
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from normal import normal
from server import AnswerServer

HERE = Path(__file__).resolve().parent
# Every target, and the dialect whose SDK reads it. The last two are used with the SDK of OpenAI,
# which is not made for their own extensions; so they are no sources.
READ_AS = {
    "openai": "openai",
    "codex": "codex",
    "claude": "claude",
    "gemini": "gemini",
    "kimi": "openai",
    "copilot": "openai",
}
SOURCES = ("openai", "codex", "claude", "gemini")
# How much of a value is shown.
SHOWN = 300


@dataclass(frozen=True)
class Source:
    """One answer under `fixtures/`."""

    path: Path

    @property
    def dialect(self):
        return self.path.parent.name

    @property
    def kind(self):
        return self.path.name.split("_")[0]

    @property
    def name(self):
        return f"{self.dialect}/{self.path.name}"


class Differences:
    """The table of explained differences, which remembers what of it was needed."""

    def __init__(self, path):
        self.entries = tomllib.loads(path.read_text())["difference"]
        self.needed = set()

    def apply(self, answer, sdk, source, to=None):
        """The answer with every difference put in; without a target, those of the source."""
        for index, entry in enumerate(self.entries):
            applies = source.name in entry["files"] and to in entry.get("to", [None])
            if not applies or entry.get("sdk", sdk) != sdk:
                continue
            explained = entry.get("answer") or {**answer, **entry["change"]}
            if explained != answer:
                self.needed.add(index)
            answer = explained
        return answer

    def unneeded(self, sdks):
        return [
            entry["reason"]
            for index, entry in enumerate(self.entries)
            if index not in self.needed and entry.get("sdk") in (None, *sdks)
        ]


def sources(fixtures):
    found = []
    for dialect in SOURCES:
        for pattern in ("response_*.json", "stream_*.sse"):
            found += sorted((fixtures / dialect).glob(pattern))
    return [Source(path) for path in found]


def translate(abp, source, to):
    """The bytes a client of `to` would get, and what the translator complained about."""
    command = [abp, "translate", "--from", source.dialect, "--to", to]
    command += ["--kind", source.kind, source.path]
    done = subprocess.run(command, capture_output=True)
    complaint = done.stderr.decode(errors="replace").strip() if done.returncode else None
    return done.stdout, complaint or told_error(source, done.stdout)


def told_error(source, document):
    """The message of an error in the place of an answer: a client gets it with the status of an error."""
    if source.kind != "response":
        return None
    answer = json.loads(document)
    error = answer.get("error") if isinstance(answer, dict) else None
    is_answer = isinstance(answer, dict) and answer.get("object") == "response"
    return error["message"] if isinstance(error, dict) and not is_answer else None


def readers(node_modules):
    """The command of each SDK language."""
    commands = {"python": [sys.executable, HERE / "reader.py"]}
    if node_modules:
        commands["node"] = ["node", HERE.parent / "node" / "reader.cjs"]
    return commands


def read_all(command, jobs, node_modules):
    """Hands the jobs to a reader and returns its results, in the same order."""
    lines = "".join(json.dumps(job) + "\n" for job in jobs)
    # Nothing else of the environment: the SDKs take keys, proxies and addresses from it.
    environment = {"PATH": os.environ["PATH"], "NODE_PATH": str(node_modules)}
    done = subprocess.run(
        command, input=lines, stdout=subprocess.PIPE, text=True, env=environment
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    if done.returncode != 0 or len(results) != len(jobs):
        sys.exit(f"{command[-1]} ended after {len(results)} of {len(jobs)} jobs")
    return results


def same(expected, found):
    if "unreadable" in expected:
        return False
    # SDKs wrap the vendor's message into words of their own.
    if "failure" in expected and "failure" in found:
        return expected["failure"] in found["failure"]
    return expected == found


def difference(expected, found):
    shown = lambda value: textwrap.shorten(json.dumps(value, ensure_ascii=False), SHOWN)
    if expected.keys() != found.keys():
        return f"expected {shown(expected)}, got {shown(found)}"
    keys = [key for key in expected if expected[key] != found[key]]
    return "; ".join(f"{k}: expected {shown(expected[k])}, got {shown(found[k])}" for k in keys)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--abp", type=Path, required=True, help="the program under test")
    parser.add_argument("--fixtures", type=Path, required=True)
    parser.add_argument("--node-modules", type=Path, help="where the Node SDKs are, if they are")
    parser.add_argument("--skipped", type=int, default=0, help="what the caller left out already")
    return parser.parse_args()


def main():
    args = arguments()
    found = sources(args.fixtures)
    pairs = [(source, to) for source in found for to in READ_AS if to != source.dialect]
    print(f"translating {len(found)} answers into {len(pairs)}", flush=True)
    with ThreadPoolExecutor() as pool:
        translations = list(pool.map(lambda pair: translate(args.abp, *pair), pairs))

    server = AnswerServer()
    jobs = [server.job(source.dialect, source.kind, source.path.read_bytes()) for source in found]
    for (source, to), (body, _) in zip(pairs, translations):
        jobs.append(server.job(READ_AS[to], source.kind, body))

    differences = Differences(HERE.parent / "differences.toml")
    passed, failures = 0, []
    commands = readers(args.node_modules)
    for sdk, command in commands.items():
        print(f"reading {len(jobs)} answers with the {sdk} SDKs", flush=True)
        results = read_all(command, jobs, args.node_modules)
        own = {
            source: differences.apply(normal(source.dialect, result), sdk, source)
            for source, result in zip(found, results)
        }
        translated = zip(pairs, translations, results[len(found) :])
        for (source, to), (_, complaint), result in translated:
            expected = differences.apply({"invalid": [], **own[source]}, sdk, source, to)
            got = {"failure": complaint} if complaint else normal(READ_AS[to], result)
            got = {"invalid": [] if complaint else result.get("invalid", []), **got}
            if same(expected, got):
                passed += 1
            else:
                failures.append(f"{sdk} {source.name} -> {to}: {difference(expected, got)}")

    failures += [f'no use for the difference "{why}"' for why in differences.unneeded(commands)]
    for failure in failures:
        print(f"FAIL {failure}")
    print(f"{passed} passed, {len(failures)} failed, {args.skipped} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
