"""The Python driver of RethinkDB against a cluster: every kind of write, index, stream and error. Arguments: ports, a password."""

import datetime
import sys

from checks import equal, fails
from rethinkdb import errors, r

ports, password = [int(port) for port in sys.argv[1:-1]], sys.argv[-1]


def connect(at=0, **options):
    return r.connect(**{"port": ports[at], "user": "admin", "password": password, **options})


def logins():
    fails("a wrong password", errors.ReqlAuthError, lambda: connect(password="wrong"), "Wrong password")
    fails("no password", errors.ReqlAuthError, lambda: connect(password=""), "Wrong password")
    fails("an unknown user", errors.ReqlAuthError, lambda: connect(user="nobody"), "Unknown user")
    for at in range(len(ports)):
        connection = connect(at)
        equal("an expression", (r.expr(1) + 2).run(connection), 3)
        equal("the server", connection.server()["name"], f"node-{at + 1}")
        connection.reconnect(noreply_wait=False)
        equal("after connecting again", r.expr([1, 2]).run(connection), [1, 2])
        connection.close()


def tables(c):
    equal("db_create", r.db_create("shop").run(c)["dbs_created"], 1)
    equal("db_list", sorted(r.db_list().run(c)), ["rethinkdb", "shop", "test"])
    fails("a database twice", errors.ReqlOpFailedError, lambda: r.db_create("shop").run(c), "already exists")
    c.use("shop")
    made = r.table_create("orders", shards=2, replicas=3).run(c)
    equal("table_create", made["tables_created"], 1)
    equal("shards", len(made["config_changes"][0]["new_val"]["shards"]), 2)
    r.table_create("people", primary_key="name", durability="soft").run(c)
    equal("table_list", r.table_list().run(c), ["orders", "people"])
    equal("wait", r.db("shop").wait(wait_for="all_replicas_ready", timeout=60).run(c), {"ready": 2})
    equal("config", r.table("people").config()["durability"].run(c), "soft")
    equal("status", r.table("orders").status()["status"]["ready_for_writes"].run(c), True)
    equal("the primary key", r.table("people").info()["primary_key"].run(c), "name")
    fails("no table", errors.ReqlOpFailedError, lambda: r.table("nothing").run(c), "does not exist")


def writes(c):
    orders = r.table("orders")
    equal("insert", orders.insert({"id": 1, "n": 1}).run(c)["inserted"], 1)
    made = orders.insert([{"n": 2}, {"n": 3}]).run(c)
    equal("generated keys", (made["inserted"], len(made["generated_keys"])), (2, 2))
    equal("get_all", orders.get_all(*made["generated_keys"]).count().run(c), 2)
    twice = orders.insert({"id": 1, "n": 9}).run(c)
    equal("a key twice", (twice["errors"], "Duplicate primary key" in twice["first_error"]), (1, True))
    equal("conflict update", orders.insert({"id": 1, "m": 5}, conflict="update").run(c)["replaced"], 1)
    equal("both fields", orders.get(1).run(c), {"id": 1, "n": 1, "m": 5})
    equal("conflict replace", orders.insert({"id": 1, "n": 4}, conflict="replace").run(c)["replaced"], 1)
    summed = orders.insert({"id": 1, "n": 6}, conflict=lambda key, old, new: old.merge({"n": old["n"] + new["n"]}))
    equal("conflict by a function", summed.run(c)["replaced"], 1)
    equal("the sum", orders.get(1)["n"].run(c), 10)
    changed = orders.get(1).update({"n": r.row["n"] * 2}, return_changes=True).run(c)
    equal("update", changed["changes"], [{"old_val": {"id": 1, "n": 10}, "new_val": {"id": 1, "n": 20}}])
    equal("unchanged", orders.get(1).update({"n": 20}).run(c)["unchanged"], 1)
    equal("skipped", orders.get("none").update({"n": 1}).run(c)["skipped"], 1)
    equal("always", len(orders.get(1).update({"n": 20}, return_changes="always").run(c)["changes"]), 1)
    drawn = orders.get(1).update({"random": r.random(5)}, non_atomic=True).run(c)
    equal("not atomic", drawn["replaced"], 1)
    fails(
        "not deterministic",
        errors.ReqlQueryLogicError,
        lambda: orders.get(1).update({"random": r.random(5)}).run(c),
        "non_atomic",
    )
    nested = {"id": 1, "a": {"b": 1, "c": [1, {"d": None}]}}
    equal("replace", orders.get(1).replace(nested).run(c)["replaced"], 1)
    equal("literal", orders.get(1).update({"a": r.literal({"x": True})}).run(c)["replaced"], 1)
    equal("replaced whole", orders.get(1).run(c), {"id": 1, "a": {"x": True}})
    equal("without", orders.get(1).replace(r.row.without("a")).run(c)["replaced"], 1)
    wrong = orders.get(1).replace({"id": 2}).run(c)
    equal("another key", (wrong["errors"], "cannot be changed" in wrong["first_error"]), (1, True))
    equal("delete", orders.get(1).delete(durability="soft").run(c)["deleted"], 1)
    equal("gone", orders.get(1).run(c), None)
    equal("delete all", orders.delete().run(c)["deleted"], 2)
    many = [{"id": n, "n": n % 10, "tags": [f"t{n % 3}", f"u{n % 7}"], "at": {"x": n % 5, "y": n}} for n in range(3000)]
    for start in range(0, len(many), 1000):
        equal("a batch", orders.insert(many[start : start + 1000]).run(c)["inserted"], 1000)
    each = r.range(10).for_each(lambda n: orders.insert({"id": r.add("each-", n.coerce_to("string"))}))
    equal("for_each", each.run(c)["inserted"], 10)
    equal("a range deleted", orders.between("each-", "each-~").delete().run(c)["deleted"], 10)
    equal("updates of many", orders.filter({"n": 3}).update({"three": True}).run(c)["replaced"], 300)
    equal("by a filter", orders.has_fields("three").count().run(c), 300)
    people = r.table("people")
    equal("its own key", people.insert({"name": "Ann", "age": 31}).run(c)["inserted"], 1)
    lacking = people.insert({"age": 1}, return_changes=True).run(c)
    equal("its own generated key", len(lacking["changes"][0]["new_val"]["name"]), 36)
    equal("sync", orders.sync().run(c), {"synced": 1})
    times = {"name": "time", "at": datetime.datetime(2026, 11, 24, 12, 30, tzinfo=r.make_timezone("+01:00")), "b": b"\0\xff"}
    people.insert(times).run(c)
    equal("times and bytes", people.get("time").run(c), times)


def indexes(c):
    orders = r.table("orders")
    orders.index_create("n").run(c)
    orders.index_create("both", [r.row["n"], r.row["at"]["x"]]).run(c)
    orders.index_create("tags", multi=True).run(c)
    orders.index_create("y", lambda order: order["at"]["y"] * 2).run(c)
    equal("index_list", orders.index_list().run(c), ["both", "n", "tags", "y"])
    equal("index_wait", [index["ready"] for index in orders.index_wait().run(c)], [True] * 4)
    equal("simple", orders.get_all(3, 4, index="n").count().run(c), 600)
    equal("compound", orders.between([3, 0], [3, 3], index="both", right_bound="closed").count().run(c), 300)
    equal("multi", orders.get_all("t1", index="tags").count().run(c), 1000)
    equal("a function", list(orders.between(10, 20, index="y").order_by(index="y")["id"].run(c)), [5, 6, 7, 8, 9])
    descending = orders.order_by(index=r.desc("y")).limit(3)["id"].run(c)
    equal("descending", list(descending), [2999, 2998, 2997])
    equal("distinct", list(orders.distinct(index="n").run(c)), list(range(10)))
    equal("max", orders.max(index="y")["id"].run(c), 2999)
    orders.get(5).update({"at": {"y": 100000}}).run(c)
    equal("kept up to date", list(orders.get_all(200000, index="y")["id"].run(c)), [5])
    equal("index_rename", orders.index_rename("y", "z").run(c), {"renamed": 1})
    function = orders.index_status("z").run(c)[0]["function"]
    orders.index_create("again", function).run(c)
    orders.index_wait("again").run(c)
    equal("the same function", list(orders.get_all(200000, index="again")["id"].run(c)), [5])
    equal("index_drop", orders.index_drop("again").run(c), {"dropped": 1})
    fails("no index", errors.ReqlOpFailedError, lambda: orders.get_all(1, index="y").run(c), "was not found")


def reads(c):
    orders = r.table("orders")
    equal("group", orders.group("n").count().run(c), {n: 300 for n in range(10)})
    equal("sum", orders.filter(r.row["n"] > 7).sum("n").run(c), 300 * 17)
    joined = orders.between(0, 3).eq_join("n", orders).zip()["id"].run(c)
    equal("eq_join", sorted(joined), [0, 1, 2])
    equal("map and reduce", orders.map(lambda order: order["n"]).reduce(lambda a, b: a + b).run(c), 300 * 45)
    equal("merge", orders.get(7).merge({"m": 1}).pluck("id", "m").run(c), {"id": 7, "m": 1})
    equal("default", orders.get(7)["nothing"].default("none").run(c), "none")
    equal("grouped and sorted", orders.group("n").max("id")["id"].ungroup().nth(0)["reduction"].run(c), 2990)
    equal("outdated", r.table("orders", read_mode="outdated").get(8)["n"].run(c), 8)
    equal("majority", r.table("orders", read_mode="majority").get(8)["n"].run(c), 8)
    fails("no attribute", errors.ReqlNonExistenceError, lambda: orders.get(7)["nothing"].run(c), "No attribute")
    fails("a wrong type", errors.ReqlQueryLogicError, lambda: (r.expr(1) + "a").run(c), "Expected type NUMBER")
    fails("an error of its own", errors.ReqlUserError, lambda: r.error("mine").run(c), "mine")
    fails("too few arguments", errors.ReqlServerCompileError, lambda: r.expr(1).do(r.row).between(1).run(c))
    fails("too many elements", errors.ReqlResourceLimitError, lambda: r.range(200000).coerce_to("array").run(c))
    equal("more on demand", len(r.range(200000).coerce_to("array").run(c, array_limit=200000)), 200000)


def streams(c):
    orders = r.table("orders")
    cursor = orders.run(c, max_batch_rows=100)
    equal("all rows of a stream", sorted(row["id"] for row in cursor), list(range(3000)))
    cursor = orders.order_by(index="id").run(c, max_batch_rows=10)
    equal("the first rows", [cursor.next()["id"] for _ in range(25)], list(range(25)))
    other = orders.order_by(index="id").skip(100)["id"].run(c, max_batch_rows=50)
    equal("two streams at a time", [cursor.next()["id"], other.next(), cursor.next()["id"]], [25, 100, 26])
    cursor.close()
    other.close()
    equal("after streams are closed", orders.count().run(c), 3000)
    equal("an empty stream", list(orders.filter({"n": 77}).run(c)), [])


def without_answers(c):
    orders = r.table("orders")
    for n in range(50):
        orders.insert({"id": f"noreply-{n}"}).run(c, noreply=True)
    c.noreply_wait()
    equal("writes without answers", orders.between("noreply-", "noreply-~").count().run(c), 50)
    orders.between("noreply-", "noreply-~").delete().run(c, noreply=True)
    c.close(noreply_wait=True)


def seen_everywhere():
    for at in range(len(ports)):
        c = connect(at, db="shop")
        equal("as another node sees it", r.table("orders").count().run(c), 3000)
        equal("its index", r.table("orders").get_all(3, index="n").count().run(c), 300)
        r.table("orders").get("everywhere").replace({"id": "everywhere", "at": at}).run(c)
        for other in range(len(ports)):
            equal("a write, elsewhere", r.table("orders").get("everywhere")["at"].run(connect(other, db="shop")), at)
        r.table("orders").get("everywhere").delete().run(c)


logins()
connection = connect()
tables(connection)
writes(connection)
indexes(connection)
reads(connection)
streams(connection)
without_answers(connection)
seen_everywhere()
connection = connect(1)
equal("table_drop", r.db("shop").table_drop("people").run(connection)["tables_dropped"], 1)
equal("db_drop", r.db_drop("shop").run(connection)["tables_dropped"], 1)
