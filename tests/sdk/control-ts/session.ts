// A whole session with a client whose types were generated from /openapi.json: the compiler checks every
// path, parameter, body and answer that is used here against the document.
//
// Submits a run twice under one idempotency key, reads its events page by page, looks at its changes, has its
// receipt judged, discards and deletes it, and is refused what it may not have.

import createClient from "openapi-fetch";
import type { paths } from "./api.js";

declare const process: { argv: string[] };

const [base, key] = process.argv.slice(2);
const client = createClient<paths>({ baseUrl: base, headers: { authorization: `Bearer ${key}` } });

function check(holds: boolean, what: unknown): asserts holds {
  if (!holds) throw new Error(JSON.stringify(what));
}

async function main(): Promise<void> {
  const backends = await client.GET("/v1/backends");
  check(backends.data?.backends.some((backend) => backend.name === "mock") ?? false, backends);

  const submit = (task: string) =>
    client.POST("/v1/runs", {
      params: { header: { "Idempotency-Key": "typescript" } },
      body: { order: { task }, backend: "mock" },
    });
  const first = await submit("say hello");
  const again = await submit("say hello");
  check(first.data !== undefined && again.data !== undefined, [first.error, again.error]);
  check(first.data.run_id === again.data.run_id && again.data.is_replay, again.data);
  const refused = await submit("say more");
  check(refused.error?.error.code === "IDEMPOTENCY_KEY_REUSED", refused);

  const params = { path: { run_id: first.data.run_id } };
  const deadline = Date.now() + 60_000;
  for (;;) {
    const run = await client.GET("/v1/runs/{run_id}", { params });
    if (run.data?.state === "complete") break;
    check(Date.now() < deadline, run);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  const numbers: number[] = [];
  for (let after: number | undefined; ; ) {
    const query = { limit: 2, after_seq: after };
    const page = await client.GET("/v1/runs/{run_id}/events", { params: { ...params, query } });
    check(page.data !== undefined && typeof page.data !== "string", page.error);
    numbers.push(...page.data.events.map((event) => event.seq));
    after = page.data.next_after_seq ?? undefined;
    if (page.data.is_end) break;
  }
  check(numbers.length > 0 && numbers.every((seq, index) => seq === index), numbers);

  const changes = await client.GET("/v1/runs/{run_id}/diff", { params });
  check(typeof changes.data === "object" && changes.data.diff.includes("abp-hello.md"), changes);
  const receipt = await client.GET("/v1/runs/{run_id}/receipt", { params });
  check(receipt.data?.outcome === "complete", receipt);
  const judged = await client.POST("/v1/receipts/verify", { body: receipt.data as never });
  check(judged.data?.verdict === "proven", judged);
  const discarded = await client.POST("/v1/runs/{run_id}/discard", { params, body: {} });
  check(discarded.data?.is_changed === true, discarded);
  const deleted = await client.DELETE("/v1/runs/{run_id}", { params });
  check(deleted.data?.is_changed === true, deleted);
  const kept = await client.GET("/v1/runs/{run_id}/receipt", { params });
  check(kept.data?.receipt_sha256 === receipt.data.receipt_sha256, kept);

  const unknown = { path: { run_id: "00000000-0000-7000-8000-000000000000" } };
  const missing = await client.POST("/v1/runs/{run_id}/cancel", { params: unknown, body: {} });
  check(missing.error?.error.code === "NOT_FOUND", missing);
  const stranger = createClient<paths>({ baseUrl: base, headers: { authorization: "Bearer abp_nobody" } });
  const denied = await stranger.GET("/v1/runs");
  check(denied.error?.error.code === "UNAUTHENTICATED", denied);
}

await main();
