// The server under test, and one sandbox for every test that leaves it as it was.
import { after, before } from "node:test";
import { Client } from "@pandastack/sdk";

export const url = process.env.ATOLL_URL.replace(/\/$/, "");
export const key = process.env.ATOLL_API_KEY;
export const client = new Client({ apiUrl: url, apiKey: key });

/** A sandbox that lives as long as the tests of one file. */
export function sharedSandbox(template = "code-interpreter") {
  const shared = {};
  before(async () => {
    shared.sandbox = await client.sandboxes.create({ template, ttlSeconds: 1800 });
  });
  after(() => shared.sandbox.kill());
  return shared;
}
