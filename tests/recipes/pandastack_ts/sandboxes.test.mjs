// Sandboxes, their lease, and who may use them.
import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";
import {
  AuthError,
  BadRequestError,
  Client,
  NetworkError,
  NotFoundError,
  Sandbox,
  ServerError,
} from "@pandastack/sdk";
import { client, key, sharedSandbox, url } from "./server.mjs";

const shared = sharedSandbox("base");

test("a sandbox lives from create to kill", async () => {
  const sandbox = await Sandbox.create({ template: "base", metadata: { tool: "recipe" } }, client);
  try {
    assert.match(sandbox.id, /^[0-9a-f-]{36}$/);
    assert.deepEqual([sandbox.template, sandbox.status], ["base", "running"]);
    assert.equal(sandbox.info.metadata.tool, "recipe");
    assert.ok(sandbox.info.cpu >= 1 && sandbox.info.memory_mb >= 128);
    assert.ok(!Number.isNaN(Date.parse(sandbox.info.created_at)));
    assert.equal((await Sandbox.get(sandbox.id, client)).id, sandbox.id);
    assert.ok((await client.sandboxes.list()).some((found) => found.id === sandbox.id));
  } finally {
    await sandbox.kill();
  }
  await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
});

test("the client's default template is an alias", async () => {
  const sandbox = await Sandbox.create({}, client);
  await sandbox.kill();
  assert.equal(sandbox.template, "base");
});

test("leaving a scope ends the sandbox", async () => {
  const sandbox = await client.sandboxes.create({ template: "base", persistent: true });
  await sandbox[Symbol.asyncDispose]();
  await assert.rejects(client.sandboxes.get(sandbox.id), NotFoundError);
});

test("the lease is read and changed", async () => {
  const { sandbox } = shared;
  const before = await sandbox.lifecycle();
  assert.deepEqual(Object.keys(before).sort(), ["idle_seconds", "persistent", "ttl_seconds"]);
  assert.equal((await sandbox.setTtl(1234)).ttl_seconds, 1234);
  assert.equal((await sandbox.setPersistent(true)).persistent, true);
  await assert.rejects(sandbox.setTtl(-1), BadRequestError);
  await sandbox.setPersistent(false);
  await sandbox.setTtl(before.ttl_seconds);
});

test("waking what is awake changes nothing", async () => {
  await shared.sandbox.wake();
  await shared.sandbox.resume();
  assert.equal((await client.sandboxes.get(shared.sandbox.id)).status, "running");
});

test("what this release lacks is a clear server error", async () => {
  const { sandbox } = shared;
  const lacking = [
    () => sandbox.snapshot(),
    () => sandbox.pause(),
    () => sandbox.hibernate(),
    () => sandbox.fork(),
    () => sandbox.forkTree({ count: 2 }),
    () => sandbox.promote(),
    () => sandbox.previewUrls(),
    () => client.volumes.list(),
    () => client.snapshots.list(),
    () => client.functions.list(),
    () => client.schedules.list(),
    () => client.sandboxes.create({ template: "base", fromSnapshot: "x" }),
  ];
  for (const call of lacking) {
    await assert.rejects(call(), (error) => {
      assert.ok(error instanceof ServerError, `${call}: ${error}`);
      assert.equal(error.statusCode, 501);
      assert.match(error.message, /not supported/);
      return true;
    });
  }
});

test("refusals have the client's classes", async () => {
  await assert.rejects(client.sandboxes.create({ template: "no-such" }), (error) => {
    assert.ok(error instanceof BadRequestError);
    assert.match(error.message, /not in the template catalog/);
    return true;
  });
  for (const strange of [randomUUID(), "no-such", "../../keys", "a/b"]) {
    await assert.rejects(client.sandboxes.get(strange), NotFoundError, strange);
  }
  const stranger = new Client({ apiUrl: url, apiKey: `atl_${"0".repeat(40)}` });
  await assert.rejects(stranger.sandboxes.list(), AuthError);
  const nobody = new Client({ apiUrl: "http://127.0.0.1:9", apiKey: key });
  await assert.rejects(nobody.sandboxes.list(), NetworkError);
});

test("a key without the scope is an auth error", async () => {
  const made = await client.request("POST", "/me/tokens", { json: { label: "reader", scope: "read-only" } });
  const reader = new Client({ apiUrl: url, apiKey: made.token });
  assert.ok(Array.isArray(await reader.sandboxes.list()));
  await assert.rejects(reader.sandboxes.create({ template: "base" }), AuthError);
  await client.tokens.revoke(made.prefix);
});

test("the caller, its tokens and its templates", async () => {
  assert.ok((await client.me()).current_org);
  const token = await client.tokens.create("recipe");
  assert.ok(token.token.startsWith(token.prefix));
  const listed = await client.tokens.list();
  assert.ok(listed.some((found) => found.prefix === token.prefix && found.label === "recipe"));
  await client.tokens.revoke(token.prefix);
  await assert.rejects(client.tokens.revoke(token.prefix), NotFoundError);

  const templates = await client.templates.list();
  assert.ok(Array.isArray(templates) && templates.some((template) => template.name === "base"));
  assert.equal((await client.templates.get("base")).name, "base");
  // This client sees a 403 as a matter of authorisation.
  await assert.rejects(client.templates.delete("base"), AuthError);
  await assert.rejects(client.templates.get("no-such"), NotFoundError);
  assert.ok(Array.isArray(await client.templates.builds()));
  await assert.rejects(client.templates.buildStatus("0123456789abcdef"), NotFoundError);
  await assert.rejects(client.templates.register({ name: "mine", imageRef: "mine:1" }), ServerError);
  await assert.rejects(
    client.templates.buildFromDockerfile({ name: "mine", dockerfile: "FROM debian\n", context: { "a.txt": "a" } }),
    /not supported/,
  );
});
