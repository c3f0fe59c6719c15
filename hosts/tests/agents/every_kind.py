"""Emits one event of every kind that a sidecar may send."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))

import abp_sidecar


def run(order, ctx):
    ctx.emit("session_started", session_id="vendor-session-7")
    ctx.emit("plan_updated", entries=[{"content": "run the tests", "status": "in_progress"}])
    ctx.emit("thinking_delta", text="The test fails because")
    ctx.emit("assistant_delta", text="Let me ")
    ctx.emit("assistant_message", text="Let me run the tests.")
    call = {"tool_name": "Bash", "tool_use_id": "call-1"}
    ctx.emit("tool_call", **call, parent_tool_use_id=None, input={"command": "make test"})
    ctx.emit("command_executed", command="make test", exit_code=0, output_preview="ok")
    ctx.emit("tool_result", **call, output={"stdout": "ok"}, is_error=False)
    ctx.emit("file_changed", path="src/main.c", summary="replaced (12 bytes)")
    ctx.emit("content_block", block_type="CITATION_BLOCK", data={"source": "README.md"})
    ctx.emit("warning", message="one test was slow")
    ctx.emit("error", message="the linter crashed", error_code="EXECUTION_TOOL_FAILED")
    ctx.report_usage(input_tokens=812, output_tokens=96, raw={"prompt": 812, "completion": 96})
    ctx.emit("vendor_heartbeat", ext={"raw_message": {"seq": 4}}, load=0.5)


sidecar = abp_sidecar.hello({"id": "every-kind", "adapter_version": "0.1.0"}, {}, "mapped")
raise SystemExit(sidecar.serve(run))
