"""Pipelines of redis-py, which are transactions unless told otherwise, over keys of all partitions of the default table.

Arguments: the ports of all nodes.
"""

import random
import sys
import threading

import redis
from checks import equal, fails

nodes = [redis.Redis(port=int(port), decode_responses=True) for port in sys.argv[1:]]
one, other = nodes[0], nodes[-1]

# So many keys are in every partition.
KEYS = [f"key{number}" for number in range(40)]


def pipelines():
    pipe = one.pipeline()
    for number, key in enumerate(KEYS):
        pipe.set(key, number)
        pipe.incrby(key, 100)
    pipe.hset("hash", mapping={"a": 1, "b": 2})
    pipe.mget(KEYS)
    found = pipe.execute()
    equal("set and incrby", found[:80], [answer for number in range(40) for answer in (True, 100 + number)])
    equal("hset", found[80], 2)
    wanted = [str(100 + number) for number in range(40)]
    equal("mget in the transaction", found[81], wanted)
    for node in nodes:
        equal("mget", node.mget(KEYS), wanted)
        with node.pipeline() as reads:
            for key in KEYS:
                reads.get(key)
            equal("reads in a transaction", reads.execute(), wanted)
    pipe = other.pipeline(transaction=False)
    for key in KEYS:
        pipe.decr(key)
    equal("a pipeline that is none", pipe.execute(), [99 + number for number in range(40)])


def commands_of_several_keys():
    equal("mset", one.mset({key: "m" for key in KEYS}), True)
    equal("mget", other.mget(KEYS), ["m"] * len(KEYS))
    equal("exists", other.exists(*KEYS, "none"), len(KEYS))
    equal("touch", other.touch(*KEYS, "none"), len(KEYS))
    equal("msetnx where one is there", other.msetnx({"new": "n", KEYS[7]: "n"}), False)
    equal("msetnx changed nothing", one.exists("new"), 0)
    equal("msetnx", other.msetnx({f"new{number}": "n" for number in range(20)}), True)
    equal("delete", one.delete(*(f"new{number}" for number in range(20))), 20)
    for number, key in enumerate(KEYS):
        one.set(key, number)
        equal("rename", other.rename(key, f"renamed{number}"), True)
        equal("renamed", (one.get(key), one.get(f"renamed{number}")), (None, str(number)))
        equal("copy", other.copy(f"renamed{number}", key), True)
        equal("copied", (one.get(key), one.get(f"renamed{number}")), (str(number), str(number)))
        equal("copy where one is there", other.copy(key, f"renamed{number}"), False)
        equal("renamenx where one is there", other.renamenx(key, f"renamed{number}"), False)
    fails("rename of nothing", redis.ResponseError, lambda: one.rename("none", KEYS[0]), "no such key")
    equal("unlink", one.unlink(*(f"renamed{number}" for number in range(40))), 40)


def watched():
    one.mset({"a": 1, "b": 2, "c": 3})
    with one.pipeline() as pipe:
        pipe.watch("a", "b", "c")
        total = sum(int(amount) for amount in pipe.mget("a", "b", "c"))
        pipe.multi()
        pipe.set("sum", total)
        pipe.set("a", 10)
        equal("nothing has changed", pipe.execute(), [True, True])
    with one.pipeline() as pipe:
        pipe.watch("a", "b", "c")
        other.set("c", 4)
        pipe.multi()
        pipe.set("a", 11)
        pipe.set("sum", 0)
        fails("a watched key has changed", redis.WatchError, pipe.execute)
    equal("nothing was done", other.mget("a", "sum"), ["10", "6"])
    with one.pipeline() as pipe:
        pipe.watch("missing", "a")
        other.set("missing", "there")
        pipe.multi()
        pipe.set("a", 11)
        fails("a watched key has come", redis.WatchError, pipe.execute)
    with one.pipeline() as pipe:
        pipe.watch("a")
        other.set("a", 12)
        pipe.unwatch()
        pipe.multi()
        pipe.incr("a")
        pipe.incr("b")
        equal("it is watched no more", pipe.execute(), [13, 3])
    doubled = one.transaction(
        lambda pipe: (pipe.multi(), pipe.incrby("a", 1), pipe.incrby("b", 1), pipe.incrby("c", 1)), "a", "b", "c"
    )
    equal("transaction", doubled, [14, 4, 5])


def errors():
    one.delete("list", *KEYS)
    pipe = one.pipeline()
    pipe.set(KEYS[0], "text")
    pipe.incr(KEYS[0])
    pipe.hset(KEYS[1], "field", 1)
    pipe.get(KEYS[1])
    pipe.set(KEYS[2], "done")
    found = pipe.execute(raise_on_error=False)
    equal("what is done", (found[0], found[2], found[4]), (True, 1, True))
    for at, words in ((1, "not an integer"), (3, "wrong kind of value")):
        if not isinstance(found[at], redis.ResponseError) or words not in str(found[at]):
            raise AssertionError(f"{words}: {found[at]!r}")
    equal("the others were done", other.get(KEYS[2]), "done")
    pipe = one.pipeline()
    pipe.incr(KEYS[0])
    pipe.set(KEYS[3], "done too")
    fails("an error is raised", redis.ResponseError, pipe.execute, "not an integer")
    equal("the other one was done", other.get(KEYS[3]), "done too")
    pipe = one.pipeline()
    pipe.set(KEYS[4], "not done")
    pipe.set(KEYS[5], "not done")
    pipe.execute_command("NOSUCH", KEYS[6])
    fails("a command that there is not", redis.ResponseError, pipe.execute, "unknown command")
    equal("nothing was done", other.mget(KEYS[4:7]), [None] * 3)
    pipe = one.pipeline()
    pipe.set(KEYS[4], "done")
    pipe.execute()
    equal("it goes on", other.get(KEYS[4]), "done")


def transfers():
    """Threads on all nodes move small amounts between accounts, so that amounts come back to what they were, and look at all of them."""
    opening = 1000
    accounts = [f"account{number}" for number in range(8)]
    one.mset({account: opening for account in accounts})
    failed = []

    def move(node, seed):
        chosen = random.Random(seed)
        for _ in range(40):
            source, target = chosen.sample(accounts, 2)

            def change(pipe):
                held = int(pipe.get(source))
                amount = chosen.randint(1, 3)
                pipe.multi()
                pipe.set(source, held - amount)
                pipe.incrby(target, amount)

            node.transaction(change, source, target)
            total = sum(int(amount) for amount in node.mget(accounts))
            if total != 8 * opening:
                raise AssertionError(f"the accounts hold {total}")

    def guarded(*arguments):
        try:
            move(*arguments)
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(node, at)) for at, node in enumerate(nodes * 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]
    equal("the sum", sum(int(amount) for amount in other.mget(accounts)), 8 * opening)


for part in (pipelines, commands_of_several_keys, watched, errors, transfers):
    part()
