// The official client library of the Agent Client Protocol drives `abp acp`. The library checks every update and
// request against the protocol's schema; what it hands out is held against the scripts and the receipts.
//
//   node harness.mjs --abp target/debug/abp --node-modules target/sdk/acp/node_modules

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { Readable, Writable } from "node:stream";
import { pathToFileURL } from "node:url";
import { parseArgs } from "node:util";

const { values: told } = parseArgs({
  options: { abp: { type: "string" }, "node-modules": { type: "string" } },
});
const library = join(resolve(told["node-modules"]), "@agentclientprotocol/sdk");
const { main } = JSON.parse(readFileSync(join(library, "package.json"), "utf8"));
const acp = await import(pathToFileURL(join(library, main)).href);
const { session } = acp.methods.agent;

const plan = [{ content: "greet", status: "in_progress" }];
const STEPS = {
  story: [
    { do: "think", text: "Hm." },
    { do: "emit", event: { type: "plan_updated", entries: plan } },
    { do: "write", path: "new.txt", content: "written\n" },
    { do: "say", text: "Done." },
  ],
  failing: [{ do: "fail", code: "BACKEND_UNAVAILABLE", message: "gone" }],
  sleeping: [
    { do: "say", text: "Hm." },
    { do: "sleep", ms: 60000 },
  ],
};

/** A project and a state directory of its own. */
function newDesk() {
  const directory = mkdtempSync(join(tmpdir(), "abp-acp-"));
  const project = join(directory, "project");
  mkdirSync(project);
  const backends = Object.entries(STEPS).map(([name, steps]) => {
    const script = join(directory, `${name}.json`);
    writeFileSync(script, JSON.stringify({ name, steps }));
    return `[backends.${name}]\ntype = "mock"\nscript = ${JSON.stringify(script)}\n`;
  });
  const config = join(directory, "config.toml");
  writeFileSync(config, backends.join("\n"));
  writeFileSync(join(directory, "ask.json"), '{"require_approval_for": ["Write"]}');
  return { directory, project, config };
}

/** Lets a client do something with `abp acp`; returns what the client saw. */
async function drive(desk, backend, answer, work, more = []) {
  const seen = { updates: [], questions: [] };
  const agent = spawn(
    resolve(told.abp),
    ["acp", "--backend", backend, "--config", desk.config, "--state-dir", join(desk.directory, "state"), ...more],
    { cwd: desk.directory, stdio: ["pipe", "pipe", "inherit"] },
  );
  const stream = acp.ndJsonStream(Writable.toWeb(agent.stdin), Readable.toWeb(agent.stdout));
  const app = acp
    .client({ name: "harness" })
    .onNotification(acp.methods.client.session.update, ({ params }) => {
      seen.updates.push(params);
    })
    .onRequest(acp.methods.client.session.requestPermission, ({ params }) => {
      seen.questions.push(params);
      const kind = answer(params);
      const { optionId } = params.options.find((option) => option.kind === kind);
      return { outcome: { outcome: "selected", optionId } };
    });
  await app.connectWith(stream, async (context) => {
    const hello = { protocolVersion: acp.PROTOCOL_VERSION, clientCapabilities: {} };
    seen.hello = await context.request(acp.methods.agent.initialize, hello);
    await work(context, seen);
  });
  agent.stdin.end();
  if (agent.exitCode === null) await once(agent, "exit");
  seen.exitCode = agent.exitCode;
  return seen;
}

const text = (words) => [{ type: "text", text: words }];
const kinds = (updates) =>
  updates.map(({ update }) => update.sessionUpdate).filter((kind, at, all) => kind !== all[at - 1]);
const allow = () => "allow_once";

async function until(isTrue) {
  for (let patience = 400; patience > 0; patience -= 1) {
    if (isTrue()) return;
    await new Promise((done) => setTimeout(done, 25));
  }
  throw new Error("it did not happen");
}

const TESTS = {
  async "a prompt is a run, its events come in order, and its changes are applied"(desk) {
    let result;
    const seen = await drive(desk, "story", allow, async (context) => {
      const opened = await context.request(session.new, { cwd: desk.project, mcpServers: [] });
      assert.deepEqual(
        opened.modes.availableModes.map((mode) => mode.id),
        ["patch-first", "workspace-first"],
      );
      const { sessionId } = opened;
      result = await context.request(session.prompt, { sessionId, prompt: text("say hello") });
    });
    assert.equal(seen.hello.protocolVersion, 1);
    assert.equal(result.stopReason, "end_turn");
    assert.equal(result._meta.abp.outcome, "complete");
    assert.equal(result._meta.abp.changes, "applied");
    const { run_id: run, receipt_sha256: hash } = result._meta.abp;
    const receipt = readFileSync(join(desk.directory, "state/receipts", `${run}.json`), "utf8");
    assert.equal(JSON.parse(receipt).receipt_sha256, hash);
    assert.equal(readFileSync(join(desk.project, "new.txt"), "utf8"), "written\n");
    assert.deepEqual(kinds(seen.updates), [
      "agent_thought_chunk",
      "plan",
      "tool_call",
      "tool_call_update",
      "agent_message_chunk",
      "tool_call",
      "tool_call_update",
    ]);
    const numbers = seen.updates.map((one) => one._meta?.abp?.seq).filter((seq) => seq !== undefined);
    assert.deepEqual(numbers, numbers.toSorted((one, other) => one - other));
    assert.equal(seen.exitCode, 0);
  },
  async "a question of the gate is answered by the client"(desk) {
    for (const [kind, isWritten] of [["reject_once", false], ["allow_once", true]]) {
      const seen = await drive(
        desk,
        "story",
        () => kind,
        async (context) => {
          const { sessionId } = await context.request(session.new, { cwd: desk.project, mcpServers: [] });
          await context.request(session.prompt, { sessionId, prompt: text("write") });
        },
        ["--policy", join(desk.directory, "ask.json")],
      );
      assert.match(seen.questions[0].toolCall.title, /new\.txt/);
      assert.equal(existsSync(join(desk.project, "new.txt")), isWritten);
    }
  },
  async "a prompt is cancelled within two seconds"(desk) {
    await drive(desk, "sleeping", allow, async (context, seen) => {
      const { sessionId } = await context.request(session.new, { cwd: desk.project, mcpServers: [] });
      const answer = context.request(session.prompt, { sessionId, prompt: text("work") });
      await until(() => seen.updates.some(({ update }) => update.sessionUpdate === "agent_message_chunk"));
      const asked = Date.now();
      await context.notify(session.cancel, { sessionId });
      assert.equal((await answer).stopReason, "cancelled");
      assert.ok(Date.now() - asked < 2000, `${Date.now() - asked} ms`);
    });
  },
  async "another process lists, loads and goes on with a session"(desk) {
    let id;
    await drive(desk, "story", allow, async (context) => {
      const { sessionId } = await context.request(session.new, { cwd: desk.project, mcpServers: [] });
      id = sessionId;
      await context.request(session.prompt, { sessionId, prompt: text("the first task") });
    });
    await drive(desk, "story", allow, async (context, seen) => {
      const { sessions } = await context.request(session.list, { cwd: desk.project });
      assert.deepEqual(
        sessions.map(({ sessionId, title }) => [sessionId, title]),
        [[id, "the first task"]],
      );
      await context.request(session.load, { sessionId: id, cwd: desk.project, mcpServers: [] });
      assert.deepEqual(kinds(seen.updates), [
        "user_message_chunk",
        "agent_thought_chunk",
        "plan",
        "tool_call",
        "tool_call_update",
        "agent_message_chunk",
      ]);
      const prompt = text("the second task");
      const { stopReason } = await context.request(session.prompt, { sessionId: id, prompt });
      assert.equal(stopReason, "end_turn");
    });
  },
  async "a failed run and an unknown session are errors with their codes"(desk) {
    await drive(desk, "failing", allow, async (context) => {
      const { sessionId } = await context.request(session.new, { cwd: desk.project, mcpServers: [] });
      await assert.rejects(context.request(session.prompt, { sessionId, prompt: text("fail") }), (error) => {
        assert.equal(error.data.code, "BACKEND_UNAVAILABLE");
        return true;
      });
      const unknown = { sessionId: "nobody's", prompt: text("hello") };
      await assert.rejects(context.request(session.prompt, unknown), { code: -32002 });
    });
  },
};

let failed = 0;
for (const [name, test] of Object.entries(TESTS)) {
  const desk = newDesk();
  try {
    await test(desk);
    console.log(`ok    ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAIL  ${name}\n${error.stack}`);
  } finally {
    rmSync(desk.directory, { recursive: true });
  }
}
console.log(`${Object.keys(TESTS).length - failed} passed, ${failed} failed, 0 skipped`);
process.exit(failed ? 1 : 0);
