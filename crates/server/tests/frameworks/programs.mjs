// Programs of Node run against a server, unchanged: locks, rate limits, queues, sessions, sockets.
//
//     cd FOLDER_WITH_NODE_MODULES && node programs.mjs PORT [PROGRAM...]
//
// Prints a line per program: its name, the version of its package, and ok or the error. Programs
// whose package is missing are skipped. The exit status is 1 if one failed.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";

const port = Number(process.argv[2]);
const chosen = process.argv.slice(3);
// Packages are those of the current folder.
const require = createRequire(join(process.cwd(), "programs.mjs"));
const connection = { host: "127.0.0.1", port, maxRetriesPerRequest: null };
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition, what, seconds = 30) {
  const end = Date.now() + seconds * 1000;
  while (!(await condition())) {
    assert(Date.now() < end, `${what}: not within ${seconds} s`);
    await sleep(20);
  }
}

function ioredis() {
  const library = require("ioredis");
  return new (library.Redis ?? library)(connection);
}

async function redlock() {
  const library = require("redlock");
  const Redlock = library.default ?? library;
  const clients = [ioredis()];
  const locks = new Redlock(clients, { retryCount: 2, retryDelay: 50 });
  const acquire = (key, ms) => (locks.acquire ? locks.acquire([key], ms) : locks.lock(key, ms));
  const lock = await acquire("redlock:a", 5000);
  await assert.rejects(acquire("redlock:a", 5000));
  const longer = await lock.extend(6000);
  await (longer.release ? longer.release() : longer.unlock());
  const again = await acquire("redlock:a", 5000);
  await (again.release ? again.release() : again.unlock());
  clients.forEach((client) => client.disconnect());
}

async function rateLimiterFlexible() {
  const { RateLimiterRedis, BurstyRateLimiter } = require("rate-limiter-flexible");
  const storeClient = ioredis();
  const limiter = new RateLimiterRedis({ storeClient, keyPrefix: "rl", points: 3, duration: 60 });
  for (let at = 0; at < 3; at++) await limiter.consume("me");
  await assert.rejects(limiter.consume("me"), (reason) => reason.msBeforeNext > 0);
  await limiter.reward("me", 2);
  await limiter.consume("me");
  assert.equal((await limiter.get("me")).remainingPoints, 0);
  await limiter.block("you", 10);
  await assert.rejects(limiter.consume("you"));
  assert(await limiter.delete("me"));
  const burst = new RateLimiterRedis({ storeClient, keyPrefix: "burst", points: 2, duration: 60 });
  await new BurstyRateLimiter(limiter, burst).consume("me");
  storeClient.disconnect();
}

async function bullmq() {
  const { Queue, QueueEvents, Worker, FlowProducer } = require("bullmq");
  const queue = new Queue("jobs", { connection });
  const events = new QueueEvents("jobs", { connection });
  await events.waitUntilReady();
  let retries = 0;
  const work = async (job) => {
    if (job.name === "flaky" && retries++ < 1) throw new Error("as asked");
    await job.updateProgress(50);
    return job.name === "add" ? job.data.a + job.data.b : "done";
  };
  const worker = new Worker("jobs", work, { connection, concurrency: 4 });
  const jobs = await queue.addBulk(
    Array.from({ length: 50 }, (_, at) => ({ name: "add", data: { a: at, b: 1 } })),
  );
  const results = await Promise.all(jobs.map((job) => job.waitUntilFinished(events, 30_000)));
  assert.deepEqual(results, Array.from({ length: 50 }, (_, at) => at + 1));
  const flaky = await queue.add("flaky", {}, { attempts: 3, backoff: 50 });
  assert.equal(await flaky.waitUntilFinished(events, 30_000), "done");
  const late = await queue.add("late", {}, { delay: 500, priority: 2 });
  assert.equal(await late.waitUntilFinished(events, 30_000), "done");
  const flows = new FlowProducer({ connection });
  const flow = await flows.add({
    name: "parent",
    queueName: "jobs",
    children: [{ name: "add", data: { a: 1, b: 2 }, queueName: "jobs" }],
  });
  assert.equal(await flow.job.waitUntilFinished(events, 30_000), "done");
  await queue.upsertJobScheduler("often", { every: 200 }, { name: "tick" });
  await until(async () => (await queue.getCompletedCount()) > 54, "repeated job");
  await queue.removeJobScheduler("often");
  const counts = await queue.getJobCounts();
  assert.equal(counts.failed, 0);
  await worker.close();
  await queue.obliterate({ force: true });
  await Promise.all([queue, events, flows].map((part) => part.close()));
}

async function socketIo() {
  const { Server } = require("socket.io");
  const { io } = require("socket.io-client");
  const { createAdapter } = require("@socket.io/redis-adapter");
  const nodes = [];
  for (let at = 0; at < 2; at++) {
    const [pub, sub] = [ioredis(), ioredis()];
    const http = createServer();
    const server = new Server(http, { adapter: createAdapter(pub, sub) });
    server.on("connection", (socket) => socket.join("room"));
    await new Promise((resolve) => http.listen(0, "127.0.0.1", resolve));
    nodes.push({ pub, sub, http, server });
  }
  const sockets = nodes.map(({ http }) => io(`http://127.0.0.1:${http.address().port}`));
  await Promise.all(sockets.map((socket) => new Promise((done) => socket.on("connect", done))));
  await until(async () => (await nodes[0].server.in("room").fetchSockets()).length === 2, "join");
  const received = sockets.map((socket) => new Promise((done) => socket.on("news", done)));
  nodes[0].server.to("room").emit("news", "hello");
  assert.deepEqual(await Promise.all(received), ["hello", "hello"]);
  nodes[1].server.on("question", (answer) => answer("yes"));
  const answers = await nodes[0].server.serverSideEmitWithAck("question");
  assert.deepEqual(answers, ["yes"]);
  sockets.forEach((socket) => socket.close());
  for (const { pub, sub, server } of nodes) {
    await server.close();
    [pub, sub].forEach((client) => client.disconnect());
  }
}

async function nodeRedis() {
  const { createClient } = require("redis");
  for (const RESP of [2, 3]) {
    const client = await createClient({ url: `redis://127.0.0.1:${port}`, RESP }).connect();
    await client.set("k", "1");
    assert.deepEqual(await client.multi().incr("k").get("k").exec(), [2, "2"]);
    await client.hSet("h", { a: "1" });
    assert.equal((await client.hGetAll("h")).a, "1");
    await client.del("h");
    client.destroy();
  }
}

async function connectRedis() {
  const { createClient } = require("redis");
  const session = require("express-session");
  const express = require("express");
  const library = require("connect-redis");
  const client = await createClient({ url: `redis://127.0.0.1:${port}` }).connect();
  const store = new (library.RedisStore ?? library.default)({ client });
  const app = express();
  app.use(session({ store, secret: "s", resave: false, saveUninitialized: false }));
  app.get("/", (request, response) => {
    request.session.views = (request.session.views ?? 0) + 1;
    response.send(String(request.session.views));
  });
  const server = await new Promise((done) => {
    const listening = app.listen(0, "127.0.0.1", () => done(listening));
  });
  const url = `http://127.0.0.1:${server.address().port}/`;
  const first = await fetch(url);
  assert.equal(await first.text(), "1");
  const cookie = first.headers.get("set-cookie").split(";")[0];
  assert.equal(await (await fetch(url, { headers: { cookie } })).text(), "2");
  assert.equal(await store.length(), 1);
  assert.equal((await store.all()).length, 1);
  await store.clear();
  assert.equal(await (await fetch(url, { headers: { cookie } })).text(), "1");
  server.closeAllConnections();
  server.close();
  client.destroy();
}

const programs = {
  "redlock (node)": ["redlock", redlock],
  "rate-limiter-flexible": ["rate-limiter-flexible", rateLimiterFlexible],
  BullMQ: ["bullmq", bullmq],
  "socket.io adapter": ["@socket.io/redis-adapter", socketIo],
  "node-redis": ["redis", nodeRedis],
  "connect-redis": ["connect-redis", connectRedis],
};

let hasFailed = false;
for (const [name, [pack, program]] of Object.entries(programs)) {
  if (chosen.length > 0 && !chosen.includes(name)) continue;
  let version;
  try {
    const path = join(process.cwd(), "node_modules", pack, "package.json");
    version = JSON.parse(readFileSync(path, "utf8")).version;
  } catch {
    console.log(`${name}: skipped, ${pack} is not installed`);
    continue;
  }
  try {
    await program();
    console.log(`${name} ${version}: ok`);
  } catch (error) {
    hasFailed = true;
    console.log(`${name} ${version}: FAILED`, error);
  }
}
// Connections of a failed program may be open.
process.exit(hasFailed ? 1 : 0);
