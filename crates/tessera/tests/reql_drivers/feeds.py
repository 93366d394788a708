"""The Python driver of RethinkDB reads changefeeds of every kind from one node while another one writes. Arguments: ports, a password."""

import sys

from checks import equal, fails
from rethinkdb import errors, r

ports, password = [int(port) for port in sys.argv[1:-1]], sys.argv[-1]
PATIENCE = 30


def connect(at):
    return r.connect(port=ports[at], user="admin", password=password)


def take(feed, count):
    return [feed.next(wait=PATIENCE) for _ in range(count)]


reader, writer = connect(0), connect(1)
r.table_create("feeds", shards=4, replicas=3).run(writer)
t = r.table("feeds")
t.index_create("n").run(writer)
t.index_wait().run(writer)
t.wait(wait_for="all_replicas_ready", timeout=60).run(writer)
t.insert([{"id": at, "n": at} for at in range(5)]).run(writer)

whole = t.changes().run(reader)
point = t.get(1).changes(include_initial=True).run(reader)
few = t.filter(r.row["n"] > 100)["id"].changes(include_types=True).run(reader)
top = t.order_by(index=r.desc("n")).limit(2).changes(include_offsets=True, include_initial=True).run(reader)
states = t.between(0, 2).changes(include_initial=True, include_states=True).run(reader)
both = r.union(t.get_all(1), t.get_all(4)).changes().run(reader)
later = t.changes()["new_val"].filter(lambda row: row["n"] == 200)["id"].limit(1).run(reader)
equal("the kinds of cursors", [type(feed).__name__ for feed in (whole, point, top)], ["DefaultCursor"] * 3)

equal("the point begins", take(point, 1), [{"new_val": {"id": 1, "n": 1}}])
equal("the top begins", take(top, 2), [
    {"new_val": {"id": 4, "n": 4}, "new_offset": 0},
    {"new_val": {"id": 3, "n": 3}, "new_offset": 1},
])
equal("initializing", take(states, 1), [{"state": "initializing"}])
equal("the range begins", sorted(row["new_val"]["id"] for row in take(states, 2)), [0, 1])
equal("ready", take(states, 1), [{"state": "ready"}])
fails("nothing new", errors.ReqlTimeoutError, lambda: whole.next(wait=False), "")

t.get(1).update({"n": 200}).run(writer)
change = {"old_val": {"id": 1, "n": 1}, "new_val": {"id": 1, "n": 200}}
equal("the whole table", take(whole, 1), [change])
equal("the document", take(point, 1), [change])
equal("the filter", take(few, 1), [{"old_val": None, "new_val": 1, "type": "add"}])
equal("the top", take(top, 1), [{
    "old_val": {"id": 3, "n": 3}, "old_offset": 1, "new_val": {"id": 1, "n": 200}, "new_offset": 0,
}])
equal("the range", take(states, 1), [change])
equal("the union", take(both, 1), [change])
equal("what is made of changes, and its end", list(later), [1])

t.get(1).delete().run(writer)
equal("gone", take(whole, 1), [{"old_val": {"id": 1, "n": 200}, "new_val": None}])
equal("no longer there", take(few, 1), [{"old_val": 1, "new_val": None, "type": "remove"}])
for feed in (point, few, top, states, both):
    feed.close()

# Another node goes on after a token.
tokens = t.changes(include_resume_token=True).run(reader)
t.insert([{"id": "a", "n": 1}, {"id": "b", "n": 2}]).run(writer)
first, second = take(tokens, 2)
tokens.close()
resumed = t.changes(resume=first["resume_token"]).run(connect(2))
equal("the next one", take(resumed, 1)[0]["new_val"], second["new_val"])

squashed = t.get("a").changes(squash=1).run(reader)
for n in range(10, 20):
    t.get("a").update({"n": n}).run(writer)
told = take(squashed, 1)
while told[-1]["new_val"]["n"] < 19:
    told += take(squashed, 1)
equal("joined changes", (len(told) < 10, told[0]["old_val"]["n"]), (True, 1))

fails("a terminal", errors.ReqlQueryLogicError, lambda: t.changes().count().run(reader), "infinite stream")
fails("no order", errors.ReqlQueryLogicError, lambda: t.limit(1).changes().run(reader), "unordered stream")
r.table_drop("feeds").run(writer)


def read_on():
    for _ in range(1000):
        take(whole, 1)


fails("the end of the table", errors.ReqlOpFailedError, read_on, "Changefeed aborted (unavailable)")
