"""The Python driver writes until its standard input ends while the test kills the node that it is connected to, and goes on with
another one. Says whether all is there that was acknowledged. Arguments: ports, a password."""

import sys
import threading

from rethinkdb import errors, r

ports, password = [int(port) for port in sys.argv[1:-1]], sys.argv[-1]
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()


def connect(first):
    """A connection to the first node that takes one."""
    for at in (first + offset for offset in range(10 * len(ports))):
        try:
            return at, r.connect(port=ports[at % len(ports)], user="admin", password=password, timeout=5)
        except errors.ReqlDriverError as error:
            refused = error
    raise refused


at, connection = connect(0)
r.table_create("failover", shards=2, replicas=3).run(connection)
r.table("failover").index_create("n").run(connection)
r.table("failover").index_wait().run(connection)
r.table("failover").wait(wait_for="all_replicas_ready", timeout=60).run(connection)
r.table("failover").insert({"id": "counter", "n": -1, "count": 0}).run(connection)
acknowledged, moves, unknown, counted = [], 0, 0, 0
print("writing", flush=True)
number = 0
while not is_over.is_set():
    number += 1
    try:
        written = r.table("failover").insert({"id": number, "n": number % 10}).run(connection)
        if written["inserted"] == 1:
            acknowledged.append((number, moves))
        if r.table("failover").get("counter").update({"count": r.row["count"] + 1}).run(connection)["replaced"] == 1:
            counted += 1
    except errors.ReqlDriverError:
        moves, unknown = moves + 1, unknown + 1
        at, connection = connect(at + 1)
    except errors.ReqlOpIndeterminateError:
        unknown += 1
    except errors.ReqlOpFailedError:
        pass
connection = connect(at)[1]
found = set(r.table("failover")["id"].coerce_to("array").run(connection))
lost = [number for number, _ in acknowledged if number not in found]
indexed = r.table("failover").between(0, 10, index="n").count().run(connection)
count = r.table("failover").get("counter")["count"].run(connection)
afterwards = sum(1 for _, its_moves in acknowledged if its_moves > 0)
print(f"{len(acknowledged)} acknowledged, {afterwards} of them by another node, {unknown} unknown")
if lost:
    sys.exit(f"acknowledged, and gone: {lost[:10]}")
if indexed != len(found) - 1:
    sys.exit(f"the index has {indexed} of {len(found) - 1} documents")
if not counted <= count <= counted + unknown:
    sys.exit(f"the counter is {count}, of {counted} updates and perhaps {unknown}")
if moves < 1 or afterwards < 20:
    sys.exit("the driver did not go on")
