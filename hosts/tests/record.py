"""Records the transcripts of fixtures/sidecar and puts them into docs/sidecar_protocol.md.

    python3 hosts/tests/record.py           says what is not up to date, and fails if anything is
    python3 hosts/tests/record.py --write   brings it up to date

Each transcript is a real conversation with a host of this directory. Only times are replaced, so
that a recording can be compared with the next one.
"""

import json
import os
import re
import sys
import tempfile

from peer import EXAMPLES, HOSTS, ODD, ORDER_ID, RUN_ID, TESTS, Peer, run_frame

REPOSITORY = os.path.dirname(HOSTS)
TRANSCRIPTS = os.path.join(REPOSITORY, "fixtures", "sidecar", "transcripts")
DOCUMENT = os.path.join(REPOSITORY, "docs", "sidecar_protocol.md")
EVERY_KIND = [sys.executable, os.path.join(TESTS, "agents", "every_kind.py")]
OTHER_ID = "00000000-0000-4000-8000-00000000000f"
TIMES = {"ts", "started_at", "finished_at"}

WHOLE_ORDER = {
    "id": ORDER_ID,
    "task": "list\nwrite hello.txt: hello",
    "lane": "patch_first",
    "workspace": {
        "root": ".",
        "mode": "staged",
        "include": [],
        "exclude": [],
        "respect_gitignore": True,
    },
    "context": {"files": [], "snippets": []},
    "policy": {
        "allowed_tools": [],
        "disallowed_tools": [],
        "deny_read": ["**/.env"],
        "deny_write": ["**/.git/**"],
        "allow_network": [],
        "deny_network": [],
        "require_approval_for": [],
    },
    "requirements": {"required": []},
    "config": {
        "model": None,
        "vendor": {},
        "env": {},
        "max_budget_usd": None,
        "max_turns": None,
    },
    "client": None,
}


def nothing(peer):
    pass


def complete(peer):
    peer.send({"t": "run", "id": RUN_ID, "work_order": WHOLE_ORDER})
    peer.until("final")


def tell(peer):
    peer.send(run_frame("show every kind of event"))
    peer.until("final")


def denied(peer):
    policy = {"deny_write": ["**/.git/**"], "require_approval_for": ["Edit"]}
    peer.send(run_frame("write .git/config: x\nappend a.txt: x", policy=policy))
    peer.until("final")


def permission(peer):
    peer.send(run_frame("ask", policy={"disallowed_tools": ["Bash"]}))
    answer(peer, approved=True)
    answer(peer, approved=False, reason='tool "Bash" is denied by disallowed_tools[0] "Bash"')
    peer.until("final")


def answer(peer, **decision):
    question = peer.until("permission_request")[-1]
    peer.send({"t": "permission_response", "ref_id": RUN_ID, "id": question["id"], **decision})


def emulated(peer):
    instruction = "Think step by step before answering."
    entry = {
        "capability": "extended_thinking",
        "strategy": {"type": "system_prompt_injection", "prompt": instruction},
        "instruction": instruction,
    }
    task = f"count 1\n\n<abp-instructions>\n[extended_thinking] {instruction}\n</abp-instructions>"
    peer.send(run_frame(task, config={"vendor": {"abp": {"emulation": [entry]}}}))
    peer.until("final")


def cancel(peer):
    peer.send(run_frame("wait 60"))
    wait_for_delta(peer, "I wait")
    end(peer)


def disconnect(peer):
    peer.send(run_frame("wait 60"))
    wait_for_delta(peer, "I wait")


def heartbeat(peer):
    peer.send(run_frame("wait 60"))
    wait_for_delta(peer, "I wait")
    peer.send({"t": "ping", "seq": 1})
    peer.expect("pong")
    end(peer)


def fatal(peer):
    peer.send(run_frame("fail the disk is full"))
    peer.until("fatal")


def busy(peer):
    peer.send(run_frame("wait 60"))
    wait_for_delta(peer, "I wait")
    peer.send(run_frame("count 1", run_id=OTHER_ID))
    peer.expect("fatal")
    end(peer)


def newer(peer):
    peer.send({"t": "from_a_newer_host", "detail": 1})
    peer.send(run_frame("count 1", from_a_newer_host=True))
    peer.until("final")


def end(peer):
    peer.send({"t": "cancel", "ref_id": RUN_ID, "reason": "user"})
    peer.until("final")


def wait_for_delta(peer, text):
    while text not in peer.receive()["event"].get("text", ""):
        pass


#: What is recorded: the agents and what the host says to them.
SCENARIOS = {
    "handshake": (EXAMPLES, nothing),
    "complete": (EXAMPLES, complete),
    "denied": (EXAMPLES, denied),
    "permission": (ODD, permission),
    "emulated": (EXAMPLES, emulated),
    "cancel": (EXAMPLES, cancel),
    "disconnect": (EXAMPLES, disconnect),
    "heartbeat": (EXAMPLES, heartbeat),
    "fatal": (EXAMPLES, fatal),
    "busy": (EXAMPLES, busy),
    "newer": (EXAMPLES, newer),
    "events": ({"python": EVERY_KIND}, tell),
}


def record(name, language="python"):
    commands, talk = SCENARIOS[name]
    with tempfile.TemporaryDirectory() as directory:
        peer = Peer(commands[language], directory)
        try:
            peer.expect("hello")
            talk(peer)
            peer.close()
        finally:
            peer.stop()
    return "".join(json.dumps(timeless(entry)) + "\n" for entry in peer.log)


def timeless(value):
    if isinstance(value, list):
        return [timeless(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: timeless_member(key, member) for key, member in value.items()}


def timeless_member(key, value):
    if key in TIMES:
        return "2026-01-01T00:00:00.000Z"
    return 0 if key == "duration_ms" else timeless(value)


def path_of(name):
    return os.path.join(TRANSCRIPTS, name + ".jsonl")


def read(path):
    if not os.path.exists(path):
        return ""
    with open(path, encoding="utf-8") as file:
        return file.read()


def rendered(name):
    """The transcript as the document shows it: who says what."""
    lines = []
    for line in read(path_of(name)).splitlines():
        entry = json.loads(line)
        said = entry.get("end") or json.dumps(entry["frame"], separators=(",", ":"))
        lines.append(f"{entry['from']:<7} {said}\n")
    return f"<!-- transcript:{name} -->\n\n```text\n{''.join(lines)}```\n\n<!-- end -->"


def embedded(document):
    """The document with every transcript brought up to date."""
    return re.sub(
        r"<!-- transcript:(\w+) -->.*?<!-- end -->",
        lambda block: rendered(block[1]),
        document,
        flags=re.DOTALL,
    )


def stale(write):
    """What is not up to date, after bringing it up to date if asked to."""
    wanted = ((path_of(name), lambda name=name: record(name)) for name in SCENARIOS)
    document = (DOCUMENT, lambda: embedded(read(DOCUMENT)))
    for path, make in [*wanted, document]:
        content = make()
        if content == read(path):
            continue
        yield os.path.relpath(path, REPOSITORY)
        if write:
            with open(path, "w", encoding="utf-8") as file:
                file.write(content)


if __name__ == "__main__":
    write = "--write" in sys.argv[1:]
    changed = list(stale(write))
    for path in changed:
        print(("written: " if write else "not up to date: ") + path)
    raise SystemExit(1 if changed and not write else 0)
