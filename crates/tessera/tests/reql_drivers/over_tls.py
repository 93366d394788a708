"""The Python driver of RethinkDB against a node that speaks TLS. Arguments: the port, the node's certificate, another certificate, a
password."""

import socket
import struct
import sys

from checks import equal, fails
from rethinkdb import errors, r

port, certificate, other, password = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]


def connect(trusted=certificate, **options):
    options = {"user": "admin", "password": password, "ssl": {"ca_certs": trusted}, "timeout": 20, **options}
    return r.connect(port=port, **options)


# What is silent, or goes half the way, keeps nobody waiting.
silent = [socket.create_connection(("localhost", port)) for _ in range(50)]
for half in silent[:25]:
    half.sendall(b"\x16\x03\x01\x02\x00\x01")
connections = [connect() for _ in range(10)]
fails("a wrong password", errors.ReqlAuthError, lambda: connect(password="wrong"), "Wrong password")
fails("another certificate", errors.ReqlDriverError, lambda: connect(other), "CERTIFICATE_VERIFY_FAILED")

# In the clear nobody comes in, and nobody is let wait for it.
plain = socket.create_connection(("localhost", port))
plain.settimeout(20)
plain.sendall(struct.pack("<L", 0x34C2BDC3))
answer = b""
while True:
    try:
        part = plain.recv(1000)
    except ConnectionResetError:
        break
    if not part:
        break
    answer += part
equal("the answer in the clear is an alert of TLS", answer[:1], b"\x15")

c = connections[0]
r.table_create("things").run(c)
things = r.table("things")
rows = [{"id": n, "text": f"{n} " * 100} for n in range(5000)]
equal("a long query", things.insert(rows).run(c)["inserted"], 5000)
equal("a stream of many batches", sorted(row["id"] for row in things.run(c, max_batch_rows=100)), list(range(5000)))
long = "äöü" * 2_000_000
equal("a long answer", r.expr([long, 1]).run(c), [long, 1])
for at, other_connection in enumerate(connections):
    equal("a short query", things.get(at)["text"].run(other_connection), f"{at} " * 100)
things.get(1).update({"n": 1}).run(c, noreply=True)
c.noreply_wait()
equal("after noreply_wait", things.get(1)["n"].run(c), 1)
c.reconnect()
equal("after connecting again", things.count().run(c), 5000)
