"""The example agent in Python: does what simple tasks say, without a model.

The forms of tasks it understands are in hosts/README.md; host.js does the same.
"""

import json
import os
import re

import abp_sidecar
from abp_guard import Guard, Refused

MAX_LISTED = 10_000
MAX_READ_BYTES = 64 * 1024

INSTRUCTIONS = [
    (re.compile(r"list"), "list"),
    (re.compile(r"write ([^:]+): (.*)"), "write"),
    (re.compile(r"append ([^:]+): (.*)"), "append"),
    (re.compile(r"read (.+)"), "read"),
    (re.compile(r"count (\d{1,7})"), "count"),
    (re.compile(r"wait (\d+(?:\.\d+)?)"), "wait"),
    (re.compile(r"fail (.+)"), "fail"),
]


def run(order, ctx):
    try:
        guard = Guard(os.getcwd(), order.get("policy", {}))
    except ValueError as problem:
        raise abp_sidecar.Failure("POLICY_INVALID", str(problem)) from problem
    agent = Agent(ctx, guard)
    task = ctx.own_task.strip()
    # A model would be given `ctx.task`, which has the instructions in it.
    for instruction in ctx.instructions:
        agent.say(f"I was told: {instruction}")
    for name, arguments in parse(task):
        getattr(agent, name)(*arguments)
    ctx.emit("assistant_message", text="".join(agent.said))
    words_in, words_out = len(task.split()), len("".join(agent.said).split())
    ctx.report_usage(
        input_tokens=words_in,
        output_tokens=words_out,
        raw={"words_in": words_in, "words_out": words_out},
    )


def parse(task):
    """The task's instructions, if every line is one; otherwise the task is noted down."""
    steps = []
    for line in task.splitlines():
        found = [(name, pattern.fullmatch(line.strip())) for pattern, name in INSTRUCTIONS]
        found = [(name, match.groups()) for name, match in found if match]
        if not found:
            return [("note", (task,))]
        steps += found
    return steps or [("note", (task,))]


class Agent:
    """The agent's hands and mouth. Every tool asks the policy before it is used."""

    def __init__(self, ctx, guard):
        self.ctx = ctx
        self.guard = guard
        self.said = []
        self.calls = 0

    def say(self, line):
        self.said.append(line + "\n")
        self.ctx.emit("assistant_delta", text=line + "\n")

    def list(self):
        listed = self.use("Glob", {"pattern": "**"}, lambda: {"files": self.count_files()})
        if listed is not None:
            self.say(f"Files in the workspace: {listed['files']}.")

    def write(self, path, text):
        self.change("Write", path, text, "w")

    def append(self, path, text):
        self.change("Edit", path, text, "a")

    def read(self, path):
        read = self.use("Read", {"path": path}, lambda: self.read_file(path))
        self.say(f"I read {path}." if read is not None else f"I could not read {path}.")

    def count(self, number):
        for value in range(1, int(number) + 1):
            self.say(str(value))

    def wait(self, seconds):
        self.say(f"I wait {seconds} s.")
        self.ctx.cancel.wait(float(seconds))

    def fail(self, message):
        raise abp_sidecar.Failure("EXECUTION_TOOL_FAILED", message)

    def note(self, task):
        self.list()
        self.change("Write", "NOTES.md", f"# Notes\n\nTask: {task}", "w")
        self.ctx.add_artifact("notes", "NOTES.md")

    def change(self, tool, path, text, mode):
        content = (text + "\n").encode()
        request = {"path": path, "bytes": len(content)}
        done = self.use(tool, request, lambda: self.write_file(path, content, mode))
        self.say(f"I changed {path}." if done is not None else f"I could not change {path}.")

    def use(self, tool, request, act):
        """Uses a tool and tells the host; returns nothing where it was refused or failed."""
        try:
            self.guard.check_tool(tool)
        except Refused as why:
            # The host ends a run that reports the call of a denied tool.
            self.ctx.emit("warning", message=f"{tool} was not used: {why}")
            return None
        self.calls += 1
        call = {"tool_name": tool, "tool_use_id": f"call-{self.calls}"}
        self.ctx.emit("tool_call", **call, parent_tool_use_id=None, input=request)
        try:
            output = act()
        except (Refused, OSError) as error:
            self.ctx.emit("tool_result", **call, output={"error": str(error)}, is_error=True)
            return None
        self.ctx.emit("tool_result", **call, output=output, is_error=False)
        return output

    def count_files(self):
        count, root = 0, self.guard.root
        for directory, subdirectories, names in os.walk(root):
            relative = os.path.relpath(directory, root)
            subdirectories[:] = sorted(n for n in subdirectories if self.is_visible(relative, n))
            count += sum(self.is_visible(relative, name) for name in names)
            if count >= MAX_LISTED:
                return MAX_LISTED
        return count

    def is_visible(self, directory, name):
        # The agent's own repository data is no content.
        if name == ".git":
            return False
        try:
            self.guard.readable(os.path.join(directory, name))
        except Refused:
            return False
        return True

    def read_file(self, path):
        relative = self.guard.readable(path)
        with open(os.path.join(self.guard.root, relative), "rb") as file:
            content = file.read(MAX_READ_BYTES)
        return {"path": relative, "content": content.decode("utf-8", "replace")}

    def write_file(self, path, content, mode):
        relative = self.guard.writable(path)
        full = os.path.join(self.guard.root, relative)
        existed = os.path.exists(full)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, mode + "b") as file:
            file.write(content)
        change = "created" if not existed else "replaced" if mode == "w" else "extended"
        summary = f"{change} ({len(content)} bytes)"
        self.ctx.emit("file_changed", path=relative, summary=summary)
        return {"path": relative, "bytes": len(content), "change": change}


if __name__ == "__main__":
    manifest = os.path.join(os.path.dirname(os.path.abspath(__file__)), "capabilities.json")
    with open(manifest, encoding="utf-8") as file:
        capabilities = json.load(file)
    identity = {"id": "example-python", "backend_version": "0.1.0"}
    raise SystemExit(abp_sidecar.hello(identity, capabilities).serve(run))
