// What runs inside: commands, files, code.
import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { BadRequestError, CommandError, NotFoundError, SandboxTimeout } from "@pandastack/sdk";
import { sharedSandbox } from "./server.mjs";

const shared = sharedSandbox();
const ODD = "é 日本語 😀 \u2028 \u0085 \u000b end";

test("a command gives output and exit code", async () => {
  const result = await shared.sandbox.exec("echo out; echo err >&2; exit 3");
  assert.deepEqual([result.stdout, result.stderr, result.exit_code, result.exitCode], ["out\n", "err\n", 3, 3]);
  assert.equal((await shared.sandbox.commands.run("printf hi")).stdout, "hi");
});

test("check turns a failure into an exception", async () => {
  await assert.rejects(shared.sandbox.exec("echo no >&2; exit 4", { check: true }), (error) => {
    assert.ok(error instanceof CommandError);
    assert.deepEqual([error.exitCode, error.stderr], [4, "no\n"]);
    return true;
  });
});

test("a command past its deadline is a timeout", async () => {
  await assert.rejects(shared.sandbox.exec("sleep 30", { timeoutSeconds: 1 }), SandboxTimeout);
  await assert.rejects(shared.sandbox.execStream("sleep 30", { timeoutSeconds: 1 }), SandboxTimeout);
  await assert.rejects(shared.sandbox.exec("true", { timeoutSeconds: -1 }), BadRequestError);
});

test("a stream calls back for each stream and returns the code", async () => {
  let out = "";
  let err = "";
  const code = await shared.sandbox.execStream(`printf '%s' '${ODD}'; echo b >&2; exit 5`, {
    onStdout: (chunk) => (out += chunk),
    onStderr: (chunk) => (err += chunk),
  });
  assert.deepEqual([code, out, err], [5, ODD, "b\n"]);
});

test("a large stream is complete", async () => {
  let out = "";
  const code = await shared.sandbox.execStream("seq 1 100000; exit 3", { onStdout: (chunk) => (out += chunk) });
  assert.equal(code, 3);
  assert.equal(out, Array.from({ length: 100_000 }, (_, n) => `${n + 1}\n`).join(""));
});

test("one-shot code runs in both languages", async () => {
  assert.equal((await shared.sandbox.runCode("print(6 * 7)", "python")).stdout, "42\n");
  assert.equal((await shared.sandbox.runCode("echo $((6 * 7))")).stdout, "42\n");
});

test("logs hold what was printed, and are followed", async () => {
  await shared.sandbox.exec("echo kept-é");
  const lines = [];
  for await (const line of shared.sandbox.logs()) lines.push(...line.split("\n"));
  assert.ok(lines.includes("kept-é"), lines.join("|"));
  const printing = setTimeout(() => shared.sandbox.exec("echo followed-line"), 500);
  for await (const line of shared.sandbox.logs({ follow: true })) {
    if (line.trim() === "followed-line") break;
  }
  clearTimeout(printing);
});

test("text files are written and read", async () => {
  const { filesystem } = shared.sandbox;
  assert.deepEqual(await filesystem.write("/work/ts/é.txt", "naïve €"), { path: "/work/ts/é.txt", bytes: 10 });
  assert.equal(await filesystem.read("/work/ts/é.txt"), "naïve €");
  await filesystem.write("/work/ts/empty", "");
  assert.equal(await filesystem.read("/work/ts/empty"), "");
});

test("bytes arrive inside as they were sent", async () => {
  const folder = await mkdtemp(join(tmpdir(), "atoll-recipes-"));
  try {
    const bytes = randomBytes(5 << 20);
    await writeFile(join(folder, "up"), bytes);
    await shared.sandbox.filesystem.upload(join(folder, "up"), "/work/ts/up.bin");
    const inside = (await shared.sandbox.exec("sha256sum /work/ts/up.bin")).stdout.split(" ")[0];
    const { createHash } = await import("node:crypto");
    assert.equal(inside, createHash("sha256").update(bytes).digest("hex"));
    await shared.sandbox.filesystem.write("/work/ts/text", "down");
    await shared.sandbox.filesystem.download("/work/ts/text", join(folder, "down"));
    assert.equal(await readFile(join(folder, "down"), "utf8"), "down");
  } finally {
    await rm(folder, { recursive: true });
  }
});

test("entries are listed, described and walked", async () => {
  const { filesystem } = shared.sandbox;
  await filesystem.write("/tmp/tree/a/inner", "x");
  await filesystem.write("/tmp/tree/b", "12345");
  const entries = await filesystem.list("/tmp/tree");
  assert.deepEqual(
    entries.map((entry) => [entry.name, entry.path, entry.is_dir]),
    [["a", "/tmp/tree/a", true], ["b", "/tmp/tree/b", false]],
  );
  const found = await filesystem.stat("/tmp/tree/b");
  assert.deepEqual([found.name, found.size, found.mode], ["b", 5, "f"]);
  assert.equal(await filesystem.exists("/tmp/tree/b"), true);
  assert.equal(await filesystem.exists("/tmp/tree/none"), false);
  const walked = [];
  for await (const { dir, files } of filesystem.walk("/tmp/tree")) walked.push([dir, files.map((file) => file.name)]);
  assert.deepEqual(walked, [["/tmp/tree", ["b"]], ["/tmp/tree/a", ["inner"]]]);
});

test("paths that name nothing are refused", async () => {
  const { filesystem } = shared.sandbox;
  await assert.rejects(filesystem.read("/work/ts/none"), NotFoundError);
  await assert.rejects(filesystem.stat("/work/ts/none"), NotFoundError);
  await assert.rejects(filesystem.read("relative"), BadRequestError);
  await assert.rejects(filesystem.read("/work"), BadRequestError);
});

test("a code context keeps its state and gives rich results", async () => {
  const context = await shared.sandbox.createCodeContext();
  assert.match(context.id, /^[0-9a-f]{16}$/);
  await context.runCode("x = 41");
  const ran = await context.runCode("print('out'); x + 1");
  assert.deepEqual([ran.stdout, ran.text, ran.exit_code, ran.error], ["out\n", "42", 0, undefined]);

  const frame = await context.runCode("import pandas as pd\npd.DataFrame({'a': [1]})");
  assert.match(frame.results[0].html, /<table/);
  const chart = await context.runCode("import matplotlib.pyplot as plt\nplt.plot([1, 2]); plt.show()");
  assert.equal(Buffer.from(chart.png, "base64").subarray(1, 4).toString(), "PNG");
  const json = await context.runCode("from IPython.display import JSON\nJSON({'a': [1, None]})");
  assert.deepEqual(json.results[0].json, { a: [1, null] });

  const raised = await context.runCode("1 / 0");
  assert.equal(raised.exit_code, 1);
  assert.match(raised.error, /ZeroDivisionError/);
  assert.match(raised.stderr, /ZeroDivisionError/);

  await assert.rejects(context.runCode("import time; time.sleep(9)", { timeoutSeconds: 1 }), SandboxTimeout);
  assert.equal((await context.runCode("x")).text, "41");
  await context.close();
  await assert.rejects(context.runCode("1"), NotFoundError);
  await assert.rejects(shared.sandbox.createCodeContext("cobol"), BadRequestError);
});
