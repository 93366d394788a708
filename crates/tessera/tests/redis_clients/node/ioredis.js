// ioredis on the default table of a cluster, whose keys are in many partitions: `node ioredis.js PORT...`, the Redis ports of all nodes;
// with `cluster USER PASSWORD PORT...` in cluster mode, on the default table of that user.

import { Cluster, Redis } from "ioredis";
import { bank, deepEqual, equal, keys, pairs, rejects } from "./checks.js";

const connect = (port) => new Redis(Number(port));

/** What ioredis resolves a transaction to if nothing failed: an error or null, and a reply, for each command. */
const allDone = (...replies) => replies.map((reply) => [null, reply]);

async function transactions(nodes) {
  const [one] = nodes;
  const names = keys("key");
  const transaction = one.multi();
  names.forEach((name, number) => transaction.set(name, number).incrby(name, 100));
  const replies = await transaction.hset("hash", { a: 1, b: 2 }).hgetall("hash").mget(names).get("none").exec();
  const wanted = names.map((_, number) => String(100 + number));
  deepEqual(replies.slice(0, 80), allDone(...names.flatMap((_, number) => ["OK", 100 + number])));
  deepEqual(replies.slice(80), allDone(2, { a: "1", b: "2" }, wanted, null));
  for (const node of nodes) {
    deepEqual(await node.mget(names), wanted);
    deepEqual(await node.multi(names.map((name) => ["get", name])).exec(), allDone(...wanted));
  }
}

async function commandsOfSeveralKeys(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  const [names, others] = [keys("key"), keys("new")];
  equal(await one.mset(pairs(names)), "OK");
  deepEqual(await other.mget(names), Object.values(pairs(names)));
  equal(await other.msetnx({ new0: "n", [names[7]]: "n" }), 0);
  equal(await one.exists(...names, "new0"), 40);
  equal(await other.msetnx(pairs(others)), 1);
  equal(await one.del(others), 40);
  for (const name of names) {
    const renamed = `renamed ${name}`;
    equal(await other.rename(name, renamed), "OK");
    equal(await one.copy(renamed, name), 1);
    equal(await one.copy(name, renamed), 0);
    equal(await one.copy(name, renamed, "REPLACE"), 1);
    equal(await other.renamenx(name, renamed), 0);
    deepEqual(await one.mget(name, renamed), [`value of ${name}`, `value of ${name}`]);
    equal(await other.unlink(renamed, "none"), 1);
  }
  await rejects(one.rename("none", names[0]), /no such key/);
}

/** Increments two keys, and has another connection write one of them meanwhile, or not. */
async function watched(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  const increment = async (meanwhile) => {
    await one.watch("a", "b", "missing");
    const [a, b] = (await one.mget("a", "b")).map(Number);
    await meanwhile?.();
    return one
      .multi()
      .set("a", a + 1)
      .set("b", b + 1)
      .exec();
  };
  for (const key of ["a", "b", "missing"]) {
    await one.mset({ a: 1, b: 2 });
    await one.del("missing");
    deepEqual(await increment(), allDone("OK", "OK"));
    equal(await increment(() => other.set(key, 10)), null);
    deepEqual(await increment(), allDone("OK", "OK"));
  }
  deepEqual(await other.mget("a", "b"), ["3", "4"]);
  await one.watch("a", "b");
  await other.incr("b");
  equal(await one.unwatch(), "OK");
  deepEqual(await one.multi().incr("a").incr("b").exec(), allDone(4, 6));
}

/** With transactions whose commands are sent one by one. */
async function discarded([one]) {
  await one.mset({ a: 1, b: 2 });
  equal(await one.multi({ pipeline: false }), "OK");
  deepEqual([await one.set("a", 10), await one.incr("b")], ["QUEUED", "QUEUED"]);
  equal(await one.discard(), "OK");
  deepEqual(await one.mget("a", "b"), ["1", "2"]);
  await rejects(one.exec(), /EXEC without MULTI/);
  equal(await one.multi({ pipeline: false }), "OK");
  deepEqual([await one.incr("a"), await one.incr("b")], ["QUEUED", "QUEUED"]);
  deepEqual(await one.exec(), allDone(2, 3));
}

async function errors(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  await one.del("hash", "text", "first", "last");
  const wrong = one.multi().set("first", "done").hset("hash", "field", 1).incr("hash").set("text", "text").incr("text").set("last", "done");
  const replies = await wrong.exec();
  deepEqual(replies.map(([error]) => error?.message.replace(/.*(WRONGTYPE|not an integer).*/, "$1")), [
    undefined,
    undefined,
    "WRONGTYPE",
    undefined,
    "not an integer",
    undefined,
  ]);
  deepEqual(await other.mget("first", "text", "last"), ["done", "text", "done"]);
  await one.del("first", "last");
  const unknown = one.multi().set("first", "not done").call("NOSUCH", "text").set("last", "not done");
  await rejects(unknown.exec(), (error) => {
    equal(/^EXECABORT/.test(error.message) && /unknown command/.test(error.previousErrors[0].message), true);
    return true;
  });
  deepEqual(await other.mget("first", "last"), [null, null]);
  deepEqual(await one.multi().set("last", "done").exec(), allDone("OK"));
}

async function transfers(ports) {
  const connections = ports.flatMap((port) => [connect(port), connect(port), connect(port)]);
  await bank(
    connections,
    (connection, amounts) => connection.mset(amounts),
    async (connection, from, to, amount) => {
      await connection.watch(from, to);
      const [source, target] = (await connection.mget(from, to)).map(Number);
      const replies = await connection
        .multi()
        .set(from, source - amount)
        .set(to, target + amount)
        .exec();
      if (replies) deepEqual(replies, allDone("OK", "OK"));
      return replies !== null;
    },
    async (connection, accounts) => {
      const replies = await connection.multi(accounts.map((account) => ["get", account])).exec();
      return replies.map(([error, amount]) => {
        equal(error, null);
        return amount;
      });
    },
  );
  connections.forEach((connection) => connection.disconnect());
}

async function onAnyNode(ports) {
  const nodes = ports.map(connect);
  await nodes[0].flushdb();
  for (const part of [transactions, commandsOfSeveralKeys, watched, discarded, errors]) await part(nodes);
  await transfers(ports);
  nodes.forEach((node) => node.disconnect());
}

/** The client asks where each slot is led, and sends commands there; a pipeline must have keys of one node, a transaction of one slot. */
async function inClusterMode(username, password, ...ports) {
  const hosts = ports.map((port) => ({ host: "127.0.0.1", port: Number(port) }));
  const cluster = new Cluster(hosts, { redisOptions: { username, password } });
  const names = keys("key");
  await Promise.all(names.map((name) => cluster.set(name, `value of ${name}`)));
  deepEqual(await Promise.all(names.map((name) => cluster.get(name))), Object.values(pairs(names)));
  equal(cluster.nodes("master").length, ports.length);
  for (const name of names) {
    const [first, second] = [`{${name}}a`, `{${name}}b`];
    equal(await cluster.mset({ [first]: 1, [second]: 2 }), "OK");
    const transaction = cluster.multi().incr(first).incr(second).mget(first, second);
    deepEqual(await transaction.exec(), allDone(2, 3, ["2", "3"]));
    equal(await cluster.rename(first, second), "OK");
    equal(await cluster.del(first, second), 1);
  }
  cluster.disconnect();
}

const [first, ...others] = process.argv.slice(2);
await (first === "cluster" ? inClusterMode(...others) : onAnyNode([first, ...others]));
