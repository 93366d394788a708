"""The tools of the Python package make a round trip: what `rethinkdb-dump` and `rethinkdb-export` wrote, `rethinkdb-restore` and
`rethinkdb-import` make again, with the indexes. Arguments: ports, a password."""

import datetime
import os
import subprocess
import sys
import tempfile

from checks import equal
from rethinkdb import r

ports, password = [int(port) for port in sys.argv[1:-1]], sys.argv[-1]
tools = os.path.dirname(sys.executable)
directory = tempfile.mkdtemp()
secret = os.path.join(directory, "password")
with open(secret, "w", encoding="utf-8") as file:
    file.write(password)
# Any node serves, and each is asked for something.
connections = [r.connect(port=port, user="admin", password=password) for port in ports]
connection = connections[0]


def run(at, tool, *arguments):
    command = [os.path.join(tools, f"rethinkdb-{tool}"), "--connect", f"127.0.0.1:{ports[at]}", "--password-file", secret]
    done = subprocess.run([*command, *arguments], cwd=directory, capture_output=True, text=True, timeout=120)
    # Some failures are only told.
    if done.returncode or "rror" in done.stdout + done.stderr or "Warning" in done.stdout + done.stderr:
        raise AssertionError(f"{tool} {arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


def content():
    """All databases with their tables, documents and indexes."""
    found = {}
    for database in r.db_list().difference(["rethinkdb", "test"]).run(connection):
        for name in r.db(database).table_list().run(connection):
            table = r.db(database).table(name)
            primary_key = table.info()["primary_key"].run(connection)
            documents = list(table.order_by(index=primary_key).run(connection, time_format="raw", binary_format="raw"))
            indexes = table.index_wait().pluck("index", "multi", "geo", "function").run(connection)
            found[database, name] = (primary_key, documents, indexes)
    return found


def fill():
    r.expr(["one", "two"]).for_each(r.db_create(r.row)).run(connection)
    one, two = r.db("one"), r.db("two")
    one.table_create("things", shards=2).run(connection)
    one.table_create("named", primary_key="name").run(connection)
    two.table_create("empty").run(connection)
    documents = [
        {
            "id": n if n % 2 else f"text {n}",
            "n": n % 10,
            "tags": [f"t{n % 3}", "all"],
            "nested": {"deep": [None, True, {"x": n / 4}]},
            "text": 'äöü "quoted", ☃\n',
        }
        for n in range(700)
    ]
    one.table("things").insert(documents).run(connection)
    moment = datetime.datetime(2026, 11, 24, 12, 30, 15, 250000, tzinfo=r.make_timezone("+05:30"))
    one.table("named").insert({"name": "Ann", "born": moment, "bytes": b"\0\xff\n"}).run(connection)
    one.table("named").insert({"name": "Ben", "big": 2**53, "small": -0.1e-300}).run(connection)
    things = one.table("things")
    things.index_create("n").run(connection)
    things.index_create("tags", multi=True).run(connection)
    things.index_create("both", [r.row["n"], r.row["nested"]["deep"][2]["x"]]).run(connection)
    things.index_create("made", lambda row: r.branch(row["n"] > 5, row["n"] * 2, "few")).run(connection)
    things.index_create("words", lambda row: row["text"].split(" "), multi=True).run(connection)
    two.table("empty").index_create("nothing yet").run(connection)


def check(what, wanted):
    found = content()
    equal(f"tables after {what}", list(found), list(wanted))
    for name, (primary_key, documents, indexes) in wanted.items():
        equal(f"the primary key of {name} after {what}", found[name][0], primary_key)
        equal(f"documents of {name} after {what}", found[name][1], documents)
        equal(f"indexes of {name} after {what}", found[name][2], indexes)
    things = r.db("one").table("things")
    for at in connections:
        equal(f"reads by an index after {what}", things.get_all(4, index="n").count().run(at), 70)
        equal(f"a function after {what}", things.get_all("few", index="made").count().run(at), 420)
        equal(f"words after {what}", things.get_all("☃\n", index="words").count().run(at), 700)


def drop():
    r.expr(["one", "two"]).for_each(r.db_drop(r.row)).run(connection)
    equal("dropped", r.db_list().run(connection), ["rethinkdb", "test"])


fill()
before = content()
equal("tables", [len(table[1]) for table in before.values()], [2, 700, 0])
check("the beginning", before)

run(1 % len(ports), "dump", "--file", "dump.tar.gz")
drop()
run(2 % len(ports), "restore", "dump.tar.gz")
check("dump and restore", before)

# Into tables that are there, with documents that have changed since.
r.db("one").table("things").get(1).update({"n": 77}).run(connection)
r.db("one").table("things").get(3).delete().run(connection)
run(0, "restore", "--force", "dump.tar.gz")
check("a restore by force", before)

run(2 % len(ports), "export", "--directory", "exported")
drop()
run(1 % len(ports), "import", "--directory", "exported")
check("export and import", before)

run(0, "export", "--directory", "as_csv", "--format", "csv", "--fields", "id,n", "--export", "one.things")
run(1 % len(ports), "import", "--file", "as_csv/one/things.csv", "--format", "csv", "--table", "two.read", "--pkey", "id", "--shards", "2")
equal("documents by way of CSV", r.db("two").table("read").count().run(connection), 700)
run(2 % len(ports), "index-rebuild", "--rebuild", "one.things")
check("rebuilding indexes", {**before, ("two", "read"): content()["two", "read"]})
drop()
