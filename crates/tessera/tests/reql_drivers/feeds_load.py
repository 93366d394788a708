"""The Python driver writes until its standard input ends, and reads a feed of the table meanwhile, while the test kills a node that
neither is connected to, splits the table and moves it. Says whether the feed told each acknowledged write once and in order. Arguments:
ports, a password."""

import sys
import threading

from rethinkdb import errors, r

ports, password = [int(port) for port in sys.argv[1:-1]], sys.argv[-1]
is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()


def connect():
    return r.connect(port=ports[0], user="admin", password=password)


connection = connect()
r.table_create("feeds", shards=4, replicas=3).run(connection)
table = r.table("feeds")
table.wait(wait_for="all_replicas_ready", timeout=60).run(connection)
told, wrong, END = {}, [], 10**9


def read(feed):
    for change in feed:
        new, old = change["new_val"], change["old_val"]
        states = told.setdefault(new["id"], [])
        if (old["n"] if old else None) != (states[-1] if states else None):
            wrong.append((change, states[-1:]))
        states.append(new["n"])


threading.Thread(target=read, args=(table.changes().run(connect()),), daemon=True).start()
acknowledged, unknown, number = {}, 0, 0
print("writing", flush=True)
while not is_over.is_set():
    number += 1
    key = number % 10
    try:
        written = table.insert({"id": key, "n": number}, conflict="replace").run(connection)
        if written["inserted"] + written["replaced"] == 1:
            acknowledged.setdefault(key, []).append(number)
    except errors.ReqlOpIndeterminateError:
        unknown += 1
    except errors.ReqlOpFailedError:
        pass
# Of each partition something comes last; the feed has read all of it when it has the last write of each document.
# Leaders may just be changing.
pause = threading.Event()
for key in range(10):
    for _ in range(600):
        try:
            if table.insert({"id": key, "n": END}, conflict="replace").run(connection)["errors"] == 0:
                break
        except (errors.ReqlOpIndeterminateError, errors.ReqlOpFailedError):
            pass
        pause.wait(0.1)
for _ in range(600):
    if all(told.get(key, [None])[-1] == END for key in range(10)):
        break
    pause.wait(0.1)
print(f"{sum(map(len, acknowledged.values()))} acknowledged, {unknown} unknown, {sum(map(len, told.values()))} told")
if wrong:
    sys.exit(f"told twice, or out of order, or not: {wrong[:5]}")
for key, numbers in acknowledged.items():
    states = told.get(key, [])
    if states != sorted(set(states)):
        sys.exit(f"the states of {key} come in another order: {states}")
    lost = sorted(set(numbers) - set(states))
    if lost:
        sys.exit(f"acknowledged, and not told of {key}: {lost[:10]}")
    if states[-1] != END:
        sys.exit(f"the feed of {key} ends with {states[-1]}")
