// The WebSockets, as the contract's command line uses them.
import assert from "node:assert/strict";
import { test } from "node:test";
import WebSocket from "ws";
import { key, sharedSandbox, url } from "./server.mjs";

const shared = sharedSandbox("base");

/** Opens a socket and collects what comes until it closes. */
function open(path, options = { headers: { Authorization: `Bearer ${key}` } }) {
  const socket = new WebSocket(`${url.replace(/^http/, "ws")}/v1/sandboxes/${shared.sandbox.id}${path}`, options);
  const seen = { bytes: Buffer.alloc(0), messages: [] };
  socket.on("message", (data, binary) => {
    if (binary) seen.bytes = Buffer.concat([seen.bytes, data]);
    else seen.messages.push(JSON.parse(data.toString()));
  });
  const opened = new Promise((resolve, reject) => {
    socket.once("open", resolve);
    socket.once("error", reject);
  });
  const closed = new Promise((resolve) => socket.once("close", resolve));
  return { socket, seen, opened, closed };
}

for (const route of ["/ssh", "/exec/pty"]) {
  test(`${route} is a terminal that ends with its exit code`, async () => {
    const { socket, seen, opened, closed } = open(`${route}?rows=30&cols=100`);
    await opened;
    socket.send(JSON.stringify({ resize: { rows: 40, cols: 120 } }));
    socket.send(Buffer.from("stty size; echo term=$TERM; exit 5\n"));
    await closed;
    assert.match(seen.bytes.toString(), /40 120/);
    assert.match(seen.bytes.toString(), /term=xterm-256color/);
    assert.deepEqual(seen.messages.at(-1), { exit: 5 });
  });
}

test("a token in the address opens a socket, and none does not", async () => {
  const { socket, opened } = open(`/exec/pty?cmd=true&access_token=${key}`, {});
  await opened;
  socket.close();
  await assert.rejects(open("/exec/pty", {}).opened, /401/);
});

test("a wrong size is refused before the upgrade and told after it", async () => {
  await assert.rejects(open("/exec/pty?rows=0").opened, /400/);
  const { socket, seen, opened, closed } = open("/exec/pty?cmd=cat");
  await opened;
  socket.send(JSON.stringify({ resize: { rows: 0, cols: 0 } }));
  socket.send("no json");
  socket.send(Buffer.from("still here\n\u0004"));
  await closed;
  assert.equal(seen.messages.filter((message) => message.error).length, 2);
  assert.match(seen.bytes.toString(), /still here/);
  assert.deepEqual(seen.messages.at(-1), { exit: 0 });
});

test("many commands share one socket", async () => {
  const { socket, seen, opened, closed } = open("/exec/ws");
  await opened;
  const ended = (id) => seen.messages.find((message) => message.id === id && ("exit" in message || "error" in message));
  const all = new Promise((resolve) => {
    socket.on("message", () => {
      if ([1, "two", 3, 4].every(ended)) resolve();
    });
  });
  socket.send(JSON.stringify({ id: 1, cmd: "echo one; exit 7" }));
  socket.send(JSON.stringify({ id: "two", cmd: "sleep 60", timeout_seconds: 1 }));
  socket.send(JSON.stringify({ id: 3, cmd: "sleep 60" }));
  socket.send(JSON.stringify({ id: 3, cancel: true }));
  socket.send(JSON.stringify({ id: 4 }));
  await all;
  assert.equal(seen.messages.find((message) => message.id === 1 && message.stream === "stdout").data, "one\n");
  assert.equal(ended(1).exit, 7);
  assert.match(ended("two").error, /timeout/);
  assert.match(ended(3).error, /cancelled/);
  assert.match(ended(4).error, /cmd/);
  socket.close();
  await closed;
});
