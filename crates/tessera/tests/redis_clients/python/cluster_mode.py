"""redis-py in cluster mode: it asks where each slot is led, and sends commands there; a transaction must have keys of one slot.

Arguments: a user, whose default table has slots as partitions, the user's password, and the ports of all nodes.
"""

import sys

import redis
from checks import equal, fails
from redis.cluster import ClusterNode, RedisCluster

user, password, *ports = sys.argv[1:]
client = RedisCluster(
    startup_nodes=[ClusterNode("127.0.0.1", int(port)) for port in ports],
    username=user,
    password=password,
    decode_responses=True,
)

KEYS = [f"key{number}" for number in range(40)]


def pipelines():
    pipe = client.pipeline()
    for number, key in enumerate(KEYS):
        pipe.set(key, number)
    equal("set", pipe.execute(), [True] * 40)
    equal("get", [client.get(key) for key in KEYS], [str(number) for number in range(40)])


def transactions():
    for key in KEYS:
        first, second = f"{{{key}}}a", f"{{{key}}}b"
        equal("mset", client.mset({first: 1, second: 2}), True)
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(first, second)
            total = int(pipe.get(first)) + int(pipe.get(second))
            pipe.multi()
            pipe.set(first, total)
            pipe.incr(second)
            equal("nothing has changed", pipe.execute(), ["OK", 3])
        with client.pipeline(transaction=True) as pipe:
            pipe.watch(first, second)
            client.set(second, 10)
            pipe.multi()
            pipe.incr(first)
            fails("a watched key has changed", redis.WatchError, pipe.execute)
        equal("nothing was done", client.mget(first, second), ["3", "10"])
        equal("rename", client.rename(first, second), True)
        equal("delete", client.delete(first, second), 1)


def keys_after_subcommands():
    client.set(KEYS[0], "text")
    equal("object encoding", client.object("ENCODING", KEYS[0]), "embstr")
    equal("memory usage", client.memory_usage(KEYS[0]) > 0, True)


for part in (pipelines, transactions, keys_after_subcommands):
    part()
