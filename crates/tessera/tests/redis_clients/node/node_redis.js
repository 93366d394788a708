// node-redis on the default table of a cluster, whose keys are in many partitions: `node node_redis.js PORT...`, the Redis ports of all
// nodes; with `cluster USER PASSWORD PORT...` in cluster mode, on the default table of that user.

import { createClient, createCluster, MultiErrorReply, WatchError } from "redis";
import { bank, deepEqual, equal, keys, pairs, rejects } from "./checks.js";

const connect = (port) => createClient({ url: `redis://127.0.0.1:${port}` }).connect();

async function transactions(nodes) {
  const [one] = nodes;
  const names = keys("key");
  const transaction = one.multi();
  names.forEach((name, number) => transaction.set(name, number).incrBy(name, 100));
  const replies = await transaction.hSet("hash", { a: "1", b: "2" }).hGetAll("hash").mGet(names).get("none").exec();
  const wanted = names.map((_, number) => String(100 + number));
  deepEqual(replies.slice(0, 80), names.flatMap((_, number) => ["OK", 100 + number]));
  equal(replies[80], 2);
  deepEqual({ ...replies[81] }, { a: "1", b: "2" });
  deepEqual(replies.slice(82), [wanted, null]);
  for (const node of nodes) {
    deepEqual(await node.mGet(names), wanted);
    const reads = names.reduce((reads, name) => reads.get(name), node.multi());
    deepEqual(await reads.exec(), wanted);
  }
}

async function commandsOfSeveralKeys(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  const [names, others] = [keys("key"), keys("new")];
  equal(await one.mSet(pairs(names)), "OK");
  deepEqual(await other.mGet(names), Object.values(pairs(names)));
  equal(await other.mSetNX({ new0: "n", [names[7]]: "n" }), 0);
  equal(await one.exists([...names, "new0"]), 40);
  equal(await other.mSetNX(pairs(others)), 1);
  equal(await one.del(others), 40);
  for (const name of names) {
    const renamed = `renamed ${name}`;
    equal(await other.rename(name, renamed), "OK");
    equal(await one.copy(renamed, name), 1);
    equal(await one.copy(name, renamed), 0);
    equal(await one.copy(name, renamed, { REPLACE: true }), 1);
    equal(await other.renameNX(name, renamed), 0);
    deepEqual(await one.mGet([name, renamed]), [`value of ${name}`, `value of ${name}`]);
    equal(await other.unlink([renamed, "none"]), 1);
  }
  await rejects(one.rename("none", names[0]), /no such key/);
}

/** Increments two keys, and has another connection write one of them meanwhile, or not. */
async function watched(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  const increment = async (meanwhile) => {
    await one.watch(["a", "b", "missing"]);
    const [a, b] = (await one.mGet(["a", "b"])).map(Number);
    await meanwhile?.();
    return one.multi().set("a", a + 1).set("b", b + 1).exec();
  };
  for (const key of ["a", "b", "missing"]) {
    await one.mSet({ a: "1", b: "2" });
    await one.del("missing");
    deepEqual(await increment(), ["OK", "OK"]);
    await rejects(increment(() => other.set(key, "10")), WatchError);
    deepEqual(await increment(), ["OK", "OK"]);
  }
  deepEqual(await other.mGet(["a", "b"]), ["3", "4"]);
  await one.watch(["a", "b"]);
  await other.incr("b");
  equal(await one.unwatch(), "OK");
  deepEqual(await one.multi().incr("a").incr("b").exec(), [4, 6]);
}

/** Sends MULTI and DISCARD itself: of node-redis, a transaction that is not executed is never sent. */
async function discarded([one]) {
  await one.mSet({ a: "1", b: "2" });
  equal(await one.sendCommand(["MULTI"]), "OK");
  equal(await one.sendCommand(["SET", "a", "10"]), "QUEUED");
  equal(await one.sendCommand(["INCR", "b"]), "QUEUED");
  equal(await one.sendCommand(["DISCARD"]), "OK");
  deepEqual(await one.mGet(["a", "b"]), ["1", "2"]);
  await rejects(one.sendCommand(["EXEC"]), /EXEC without MULTI/);
}

async function errors(nodes) {
  const [one, other] = [nodes[0], nodes.at(-1)];
  await one.del(["hash", "text", "first", "last"]);
  const wrong = one.multi().set("first", "done").hSet("hash", "field", "1").incr("hash").set("text", "text").incr("text").set("last", "done");
  await rejects(wrong.exec(), (error) => {
    equal(error instanceof MultiErrorReply, true);
    deepEqual(error.errorIndexes, [2, 4]);
    equal(/^WRONGTYPE/.test(error.replies[2].message) && /not an integer/.test(error.replies[4].message), true);
    return true;
  });
  deepEqual(await other.mGet(["first", "text", "last"]), ["done", "text", "done"]);
  await one.del(["first", "last"]);
  const unknown = one.multi().set("first", "not done").sendCommand(["NOSUCH", "text"]).set("last", "not done");
  await rejects(unknown.exec(), /unknown command/);
  deepEqual(await other.mGet(["first", "last"]), [null, null]);
  deepEqual(await one.multi().set("last", "done").exec(), ["OK"]);
}

async function transfers(ports) {
  const connections = await Promise.all(ports.flatMap((port) => [connect(port), connect(port), connect(port)]));
  await bank(
    connections,
    (connection, amounts) => connection.mSet(Object.entries(amounts).map(([account, amount]) => [account, String(amount)])),
    async (connection, from, to, amount) => {
      await connection.watch([from, to]);
      const [source, target] = (await connection.mGet([from, to])).map(Number);
      const transaction = connection.multi().set(from, source - amount).set(to, target + amount);
      return transaction.exec().then(
        () => true,
        (error) => {
          if (error instanceof WatchError) return false;
          throw error;
        },
      );
    },
    (connection, accounts) => accounts.reduce((reads, account) => reads.get(account), connection.multi()).exec(),
  );
  connections.forEach((connection) => connection.destroy());
}

async function onAnyNode(ports) {
  const nodes = await Promise.all(ports.map(connect));
  await nodes[0].flushDb();
  for (const part of [transactions, commandsOfSeveralKeys, watched, discarded, errors]) await part(nodes);
  await transfers(ports);
  nodes.forEach((node) => node.destroy());
}

/** The client asks where each slot is led, and sends commands there. */
async function inClusterMode(username, password, ...ports) {
  const rootNodes = ports.map((port) => ({ url: `redis://127.0.0.1:${port}` }));
  const cluster = await createCluster({ rootNodes, defaults: { username, password } }).connect();
  equal(cluster.masters.length, ports.length);
  const names = keys("key");
  await Promise.all(names.map((name) => cluster.set(name, `value of ${name}`)));
  deepEqual(await Promise.all(names.map((name) => cluster.get(name))), Object.values(pairs(names)));
  for (const name of names) {
    const [first, second] = [`{${name}}a`, `{${name}}b`];
    equal(await cluster.mSet({ [first]: "1", [second]: "2" }), "OK");
    deepEqual(await cluster.multi().incr(first).incr(second).mGet([first, second]).exec(), [2, 3, ["2", "3"]]);
    equal(await cluster.rename(first, second), "OK");
    equal(await cluster.del([first, second]), 1);
  }
  cluster.destroy();
}

const [first, ...others] = process.argv.slice(2);
await (first === "cluster" ? inClusterMode(...others) : onAnyNode([first, ...others]));
