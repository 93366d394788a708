// What the programs check, whichever client they drive.

import { deepEqual, equal, rejects } from "node:assert/strict";

export { deepEqual, equal, rejects };

/** Names of so many keys that they are in every partition. */
export const keys = (name) => Array.from({ length: 40 }, (_, number) => `${name}${number}`);

export const pairs = (names) => Object.fromEntries(names.map((name) => [name, `value of ${name}`]));

const ACCOUNTS = Array.from({ length: 12 }, (_, number) => `account${number}`);
const OPENING = 1000;
const TRANSFERS = 40;

/**
 * Has two tellers on every node move small amounts between random accounts, so that amounts come back to what they were, while an
 * auditor on every node looks at all accounts.
 *
 * @param connections three for each node
 * @param set `(connection, amounts)` writes an object of amounts.
 * @param tryTransfer `(connection, from, to, amount)` resolves to whether nobody changed the two accounts meanwhile.
 * @param read `(connection, accounts)` resolves to what all of them held at one instant.
 */
export async function bank(connections, set, tryTransfer, read) {
  await set(connections[0], Object.fromEntries(ACCOUNTS.map((account) => [account, OPENING])));
  const ofEachNode = (at) => connections.filter((_, number) => number % 3 === at);
  let closed = false;
  const audit = async (connection) => {
    const held = await read(connection, ACCOUNTS);
    const sum = held.reduce((sum, amount) => sum + Number(amount), 0);
    equal(sum, ACCOUNTS.length * OPENING, "the sum of all accounts");
  };
  const auditors = ofEachNode(0).map(async (connection) => {
    while (!closed) await audit(connection);
  });
  const tellers = [...ofEachNode(1), ...ofEachNode(2)].map(async (connection) => {
    for (let transfer = 0; transfer < TRANSFERS; transfer++) {
      const source = random(ACCOUNTS.length);
      const target = (source + 1 + random(ACCOUNTS.length - 1)) % ACCOUNTS.length;
      const amount = 1 + random(3);
      while (!(await tryTransfer(connection, ACCOUNTS[source], ACCOUNTS[target], amount)));
    }
  });
  await Promise.all(tellers);
  closed = true;
  await Promise.all(auditors);
  for (const connection of connections) await audit(connection);
}

const random = (below) => Math.floor(Math.random() * below);
