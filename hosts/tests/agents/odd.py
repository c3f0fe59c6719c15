"""An agent that does what agents should not: the task names what."""

import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import abp_sidecar

SECRET = "sk-abcdefghijklmnopqrstuvwxyz"


def throw(ctx):
    raise ValueError("no good: " + SECRET)


def leave(ctx):
    sys.exit(3)


def print_noise(ctx):
    print("noise from print")
    sys.stdout.write("noise from write\n")
    subprocess.run(["echo", "noise from a child"], check=True)


def busy(ctx):
    end = time.monotonic() + 0.4
    while time.monotonic() < end:
        pass


def flood(ctx):
    while True:
        ctx.emit("assistant_delta", text="x" * 1024)


def huge(ctx):
    ctx.emit("assistant_delta", text="x" * abp_sidecar.MAX_LINE_BYTES)


def half_pair(ctx):
    ctx.emit("assistant_delta", text="a\ud800b \\ud800 \U0001f600")


def leak(ctx):
    output = {"log": ["key " + SECRET], "api_key": "short1", "count": 1}
    ctx.emit("tool_result", tool_name="Read", tool_use_id="1", output=output, is_error=False)


def servers(ctx):
    ctx.emit("assistant_message", text=str(ctx.mcp and ctx.mcp["url"]))


def ask(ctx):
    for name in ("Write", "Bash"):
        approved, reason = ctx.request_permission(name, {"path": "a"}, f"call-{name}")
        ctx.emit("assistant_delta", text=f"{name} {str(approved).lower()} {reason}")


def speak_for_host(ctx):
    for kind in abp_sidecar.HOST_ONLY_KINDS:
        try:
            ctx.emit(kind, message="x")
            ctx.emit("warning", message=kind + " was sent")
        except ValueError as error:
            ctx.emit("assistant_delta", text=str(error))


def instructed(ctx):
    ctx.emit("assistant_message", text=ctx.task)
    ctx.emit("assistant_message", text="|".join(ctx.instructions))


def late(ctx):
    def go_on():
        for _ in range(50):
            ctx.emit("warning", message="late")
            time.sleep(0.005)

    threading.Thread(target=go_on, daemon=True).start()
    time.sleep(0.05)


def swallow(ctx):
    try:
        ctx.cancel.wait(60)
    except Exception:
        pass


def stubborn(ctx):
    while True:
        time.sleep(1)


def run(order, ctx):
    globals()[ctx.own_task](ctx)


raise SystemExit(abp_sidecar.hello({"id": "odd"}, {"streaming": "native"}).serve(run))
