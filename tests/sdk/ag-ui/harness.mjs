// AG-UI's own client follows runs of a live server; what it accumulates is held against the run's receipt.
//
//   node harness.mjs --abp target/debug/abp --node-modules target/sdk/ag-ui/node_modules

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { parseArgs } from "node:util";

const { values: told } = parseArgs({
  options: { abp: { type: "string" }, "node-modules": { type: "string" } },
});
const require = createRequire(join(resolve(told["node-modules"]), "harness.js"));
const { HttpAgent } = require("@ag-ui/client");

const block = (type, data) => ({
  do: "emit",
  event: { type: "content_block", block_type: type, data },
});
const source = { source_id: "s", uri: "https://example.org/s", title: "Sales" };
const STEPS = {
  story: [
    { do: "think", text: "The figures first. Then the rest." },
    block("PROGRESS_INDICATOR", { label: "Reading", status: "running", progress_percent: 0.5 }),
    block("PROGRESS_INDICATOR", { label: "Reading", status: "complete" }),
    { do: "say", text: "Let me **look**." },
    { do: "write", path: "notes.md", content: "north\n" },
    { do: "read", path: "notes.md" },
    block("citation_block", { citations: [source] }),
    { do: "say", text: "Sales **grew**, see [the report](https://example.org/r)." },
  ],
  failing: [
    { do: "say", text: "Hm." },
    { do: "fail", code: "BACKEND_UNAVAILABLE", message: "gone" },
  ],
  sleeping: [
    { do: "say", text: "Hm." },
    { do: "sleep", ms: 60000 },
  ],
};

/** Serves the scripts from a directory of its own. */
async function serve() {
  const directory = mkdtempSync(join(tmpdir(), "abp-ag-ui-"));
  const backends = Object.entries(STEPS).map(([name, steps]) => {
    const script = join(directory, `${name}.json`);
    writeFileSync(script, JSON.stringify({ name, steps }));
    return `[backends.${name}]\ntype = "mock"\nscript = ${JSON.stringify(script)}\n`;
  });
  const config = join(directory, "config.toml");
  // A client that left is waited for before its run ends; a test need not wait long.
  writeFileSync(config, ["[control]\nassist_reattach_secs = 1", ...backends].join("\n"));
  const state = join(directory, "state");
  const flags = ["--config", config, "--state-dir", state, "--json"];
  const server = spawn(
    resolve(told.abp),
    ["serve", "--listen", "127.0.0.1:0", ...flags],
    { cwd: directory, stdio: ["ignore", "pipe", "inherit"] },
  );
  let started = "";
  for await (const line of createInterface({ input: server.stdout })) {
    started += line;
    if (line === "}") break;
  }
  const { listening, key } = JSON.parse(started);
  const close = async () => {
    server.kill();
    await once(server, "exit");
    rmSync(directory, { recursive: true });
  };
  return { listening, key, close };
}

const server = await serve();
const headers = { authorization: `Bearer ${server.key}` };

function newAgent() {
  const agent = new HttpAgent({ url: `${server.listening}/v1/assist`, headers });
  agent.messages = [{ id: "1", role: "user", content: "How are sales?" }];
  return agent;
}

/** Runs an agent; returns what its user has at the end. */
async function run(forwardedProps) {
  const agent = newAgent();
  const seen = { custom: {}, error: undefined };
  const result = await agent
    .runAgent(
      { forwardedProps },
      {
        onCustomEvent: ({ event }) => {
          (seen.custom[event.name] ??= []).push(event.value);
        },
        onRunErrorEvent: ({ event }) => {
          seen.error = { code: event.code, message: event.message };
        },
      },
    )
    .catch((error) => ({ failure: error }));
  return { ...seen, failure: result.failure, messages: agent.messages.slice(1) };
}

async function receiptOf(runId) {
  for (let patience = 100; patience > 0; patience -= 1) {
    const answer = await fetch(`${server.listening}/v1/receipts/${runId}`, { headers });
    if (answer.status === 200) return answer.json();
    await new Promise((done) => setTimeout(done, 50));
  }
  throw new Error(`there is no receipt of ${runId}`);
}

/** What a client should have after these events of a run. */
function expected(trace) {
  const messages = [];
  let thought;
  for (const event of trace) {
    if (event.type === "thinking_delta") {
      if (thought === undefined) messages.push((thought = { role: "reasoning", content: "" }));
      thought.content += event.text;
      continue;
    }
    thought = undefined;
    const activity = (activityType, content) =>
      messages.push({ role: "activity", activityType, content });
    switch (event.type) {
      case "assistant_message":
        messages.push({ role: "assistant", content: event.text });
        break;
      case "tool_call":
        messages.push({ role: "assistant", calls: [[event.tool_name, event.input]] });
        break;
      case "tool_result": {
        // The client puts it beside the call, whatever happened in between.
        const call = messages.findLastIndex((one) => one.calls !== undefined);
        messages.splice(call + 1, 0, { role: "tool", content: event.output });
        break;
      }
      case "file_changed":
        activity("FILE_CHANGE", { path: event.path, summary: event.summary });
        break;
      case "content_block": {
        // What is told of the same thing again replaces what was told before.
        const last = messages.at(-1);
        const again = event.data.label && last?.content.label === event.data.label;
        if (again) last.content = event.data;
        else activity(event.block_type.toUpperCase(), event.data);
        break;
      }
    }
  }
  return messages;
}

/** Messages in a form that can be compared: without ids, with parsed arguments. */
function essence(messages) {
  const parsed = (text) => {
    try {
      return JSON.parse(text);
    } catch {
      return text;
    }
  };
  return messages.map(({ role, content, toolCalls, activityType }) => {
    if (role === "activity") return { role, activityType, content };
    if (role === "tool") return { role, content: parsed(content) };
    if (!toolCalls?.length) return { role, content };
    const calls = toolCalls.map((call) => [call.function.name, JSON.parse(call.function.arguments)]);
    return { role, calls };
  });
}

const answers = (messages) => messages.filter((one) => one.role === "assistant" && one.content);

const CASES = {
  async "a client that says nothing has the whole run"() {
    const { messages, custom, failure } = await run({ backend: "story" });
    assert.equal(failure, undefined);
    const receipt = await receiptOf(custom["abp.run"][0].run_id);
    assert.deepEqual(essence(messages), expected(receipt.trace));
    assert.ok(messages.length >= 8, `${messages.length} messages`);
    assert.equal(custom["abp.receipt"][0].receipt_sha256, receipt.receipt_sha256);
    assert.equal(custom["abp.adapted"], undefined);
    const ids = messages.filter((one) => one.role === "tool").map((one) => one.toolCallId);
    const calls = messages.flatMap((one) => one.toolCalls ?? []).map((call) => call.id);
    assert.deepEqual(ids, calls);
  },
  async "a client without markdown hears plain words, and what was changed"() {
    const capabilities = { supported_events: [], prefers_markdown: false };
    const { messages, custom } = await run({ backend: "story", capabilities });
    const receipt = await receiptOf(custom["abp.run"][0].run_id);
    assert.deepEqual(custom["abp.adapted"], receipt.adaptations);
    assert.equal(custom["abp.run"][0].client.origins.prefers_markdown, "body");
    assert.deepEqual(
      answers(messages).map((one) => one.content),
      [
        "Let me look.",
        "1. Sales (https://example.org/s)",
        "Sales grew, see the report (https://example.org/r).",
      ],
    );
    assert.ok(messages.every((one) => one.role !== "reasoning" && one.activityType !== "CITATION_BLOCK"));
  },
  async "a run that fails is an error with its code"() {
    const { messages, error } = await run({ backend: "failing" });
    assert.deepEqual(error, { code: "BACKEND_UNAVAILABLE", message: "gone" });
    assert.deepEqual(answers(messages).map((one) => one.content), ["Hm."]);
  },
  async "what is refused is an HTTP error with its place"() {
    const { failure } = await run({ capabilities: { prefers_markdown: "yes" } });
    assert.equal(failure.status, 400);
    assert.equal(failure.payload.error.code, "CONTRACT_SCHEMA_VIOLATION");
    assert.match(failure.payload.error.message, /forwardedProps\/capabilities\/prefers_markdown/);
  },
  async "a client that leaves and does not come back cancels the run"() {
    const agent = newAgent();
    let runId;
    await agent
      .runAgent(
        { forwardedProps: { backend: "sleeping" } },
        {
          onCustomEvent: ({ event }) => {
            if (event.name === "abp.run") runId = event.value.run_id;
          },
          onTextMessageContentEvent: () => agent.abortRun(),
        },
      )
      .catch(() => {});
    const receipt = await receiptOf(runId);
    assert.equal(receipt.outcome, "cancelled");
    assert.equal(receipt.cancel_reason, "disconnect");
  },
};

// The client writes there what it also raises.
console.error = () => {};
let failed = 0;
for (const [name, check] of Object.entries(CASES)) {
  try {
    await check();
    console.log(`ok    ${name}`);
  } catch (problem) {
    failed += 1;
    console.log(`FAIL  ${name}\n${problem.stack}`);
  }
}
await server.close();
console.log(`${Object.keys(CASES).length - failed} passed, ${failed} failed, 0 skipped`);
process.exitCode = failed === 0 ? 0 : 1;
