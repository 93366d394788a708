"""The Python client of Apache Pegasus against a cluster: makes every call that it has. Arguments: the addresses to ask first."""

import os
import sys
import tempfile

metas = sys.argv[1:]
os.chdir(tempfile.mkdtemp())  # the client writes a log file where it is started

from pypegasus.pgclient import Pegasus  # noqa: E402
from pypegasus.base.ttypes import error_types  # noqa: E402
from pypegasus.rrdb.ttypes import filter_type  # noqa: E402
from pypegasus.utils.tools import MultiGetOptions, ScanOptions  # noqa: E402
from twisted.internet import reactor  # noqa: E402
from twisted.internet.defer import inlineCallbacks  # noqa: E402

OK = error_types.ERR_OK.value
NOT_FOUND = error_types.ERR_OBJECT_NOT_FOUND.value
failures = []


def equal(what, found, wanted):
    if found != wanted:
        raise AssertionError(f"{what}: found {found!r}, wanted {wanted!r}")


@inlineCallbacks
def single(client):
    equal("set", (yield client.set("h", "s", "v"))[0], OK)
    equal("get", (yield client.get("h", "s")), (OK, b"v"))
    equal("exist", (yield client.exist("h", "s"))[0], OK)
    equal("ttl", (yield client.ttl("h", "s")), (OK, -1))
    equal("set with ttl", (yield client.set("h", "s", "v", 100))[0], OK)
    code, seconds = yield client.ttl("h", "s")
    equal("ttl", (code, 95 <= seconds <= 100), (OK, True))
    equal("remove", (yield client.remove("h", "s"))[0], OK)
    equal("get of nothing", (yield client.get("h", "s"))[0], NOT_FOUND)
    equal("exist of nothing", (yield client.exist("h", "s"))[0], NOT_FOUND)
    equal("ttl of nothing", (yield client.ttl("h", "s"))[0], NOT_FOUND)
    equal("set without a hash key", (yield client.set("", "sort key alone", "v"))[0], OK)
    equal("get without a hash key", (yield client.get("", "sort key alone")), (OK, b"v"))


@inlineCallbacks
def several(client):
    records = {"k%d" % number: "v%d" % number for number in range(5)}
    equal("multi_set", (yield client.multi_set("m", records))[0], OK)
    code, found = yield client.multi_get("m", set(records))
    wanted = {key.encode(): value.encode() for key, value in records.items()}
    equal("multi_get", (code, found), (OK, wanted))
    equal("sort_key_count", (yield client.sort_key_count("m")), (OK, 5))
    code, keys = yield client.get_sort_keys("m")
    equal("get_sort_keys", (code, sorted(keys)), (OK, sorted(wanted)))
    options = MultiGetOptions()
    options.sortkey_filter_type = filter_type.FT_MATCH_POSTFIX
    options.sortkey_filter_pattern = "3"
    code, found = yield client.multi_get_opt("m", "", "", options)
    equal("multi_get_opt", (code, found), (OK, {b"k3": b"v3"}))
    equal("multi_del", (yield client.multi_del("m", {"k0", "k1"})), (OK, 2))
    equal("sort_key_count", (yield client.sort_key_count("m")), (OK, 3))


@inlineCallbacks
def scans(client):
    wanted = set()
    for number in range(20):
        records = {"s%02d" % sort: "v" for sort in range(7)}
        equal("multi_set", (yield client.multi_set("scan%d" % number, records))[0], OK)
        wanted |= {("scan%d" % number, sort) for sort in records}
    options = ScanOptions()
    options.batch_size = 5
    scanner = client.get_scanner("scan7", "s01", "s05", options)
    found = yield drain(scanner)
    equal("a scan of one hash key", found, [("scan7", "s%02d" % sort) for sort in range(1, 5)])
    found = []
    for scanner in client.get_unordered_scanners(3, options):
        found += yield drain(scanner)
    found = [key for key in found if key[0].startswith("scan")]
    equal("a scan of everything", (len(found), set(found)), (len(wanted), wanted))


@inlineCallbacks
def drain(scanner):
    found = []
    while True:
        record = yield scanner.get_next()
        if record is None:
            break
        found.append(record[0])
    scanner.close()
    return found


@inlineCallbacks
def main():
    client = Pegasus(metas, "python_acceptance")
    try:
        equal("init", (yield client.init()), True)
        yield single(client)
        yield several(client)
        yield scans(client)
    except Exception as error:
        failures.append(error)
    client.close()
    reactor.stop()


reactor.callWhenRunning(main)
reactor.run()
if failures:
    sys.exit(f"{type(failures[0]).__name__}: {failures[0]}")
print("every call of the Python client was answered as expected")
