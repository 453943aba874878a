// ioredis or node-redis in cluster mode.

import { randomUUID } from "node:crypto";

const [client, seconds, ...ports] = process.argv.slice(2);
const WRITERS = 4;
const run = randomUUID().slice(0, 8);
const until = Date.now() + seconds * 1000;
const keys = [], counters = Array(WRITERS).fill(0), errors = {};

function fail(error) {
  const text = `${error.name}: ${error.message}`.replace(/\d+/g, "N").slice(0, 160);
  errors[text] = (errors[text] ?? 0) + 1;
}

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

async function connect() {
  if (client === "ioredis") {
    const { Cluster } = await import("ioredis");
    const nodes = ports.map((port) => ({ host: "127.0.0.1", port: Number(port) }));
    const redisOptions = { username: "app", password: "secret", commandTimeout: 5000 };
    const cluster = new Cluster(nodes, { redisOptions });
    cluster.on("error", fail);
    return cluster;
  }
  const { createCluster } = await import("redis");
  const rootNodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const cluster = createCluster({ rootNodes, defaults: { username: "app", password: "secret" } });
  cluster.on("error", fail);
  await cluster.connect();
  return cluster;
}

const cluster = await connect();

// A promise that is never settled must not end the program.
const limited = (promise) => {
  const late = sleep(8000).then(() => { throw new Error("no answer within 8 s"); });
  return Promise.race([promise, late]);
};

async function write(writer) {
  for (let number = 1; Date.now() < until; number++) {
    const key = `${run}:${writer}:${number}`;
    try {
      await limited(cluster.set(key, key));
      keys.push(key);
      await limited(cluster.incr(`counter:${run}:${writer}`));
      counters[writer]++;
    } catch (error) {
      fail(error);
    }
    await sleep(2);
  }
}

const deadline = Date.now() + (Number(seconds) + 60) * 1000;
async function read(key) {
  for (;;) {
    try {
      return await limited(cluster.get(key));
    } catch (error) {
      if (Date.now() > deadline) throw error;
      await sleep(50);
    }
  }
}

await Promise.all(counters.map((_, writer) => write(writer)));
let lost = 0;
for (const key of keys) lost += (await read(key)) !== key;
for (const [writer, count] of counters.entries()) {
  lost += Math.max(0, count - Number(await read(`counter:${run}:${writer}`)));
}
const acknowledged = keys.length + counters.reduce((sum, count) => sum + count, 0);
console.log(JSON.stringify({ acknowledged, lost, errors }));
process.exit(0);
