"""Django's cache with its backend for Redis, which writes to the first node and reads from the others.

Arguments: the ports of all nodes.
"""

import sys

import django
from checks import equal, fails
from django.conf import settings

locations = [f"redis://127.0.0.1:{port}" for port in sys.argv[1:]]
backend = "django.core.cache.backends.redis.RedisCache"
settings.configure(
    CACHES={
        "default": {"BACKEND": backend, "LOCATION": locations},
        "forever": {"BACKEND": backend, "LOCATION": locations, "TIMEOUT": None, "KEY_PREFIX": "forever"},
    }
)
django.setup()

from django.core.cache import caches  # noqa: E402

# So many keys are in every partition.
ENTRIES = {f"entry{number}": {"number": number, "text": "x" * number} for number in range(60)}


def many(cache):
    equal("set_many", cache.set_many(ENTRIES), [])
    equal("get_many", cache.get_many(ENTRIES), ENTRIES)
    equal("get_many of some that are there", cache.get_many(["entry3", "none"]), {"entry3": ENTRIES["entry3"]})
    changed = {key: "changed" for key in list(ENTRIES)[:30]}
    equal("set_many with an end", cache.set_many(changed, timeout=1_000), [])
    equal("get_many of what has changed", cache.get_many(ENTRIES), ENTRIES | changed)
    cache.delete_many(changed)
    equal("delete_many", cache.get_many(ENTRIES), {key: ENTRIES[key] for key in list(ENTRIES)[30:]})
    cache.set_many({key: "over" for key in ENTRIES}, timeout=0)
    cache.delete_many(ENTRIES)
    equal("nothing is left", cache.get_many(ENTRIES), {})


def single(cache):
    equal("add", (cache.add("one", 1), cache.add("one", 2)), (True, False))
    equal("incr", cache.incr("one", 5), 6)
    equal("decr", cache.decr("one"), 5)
    fails("incr of nothing", ValueError, lambda: cache.incr("none"))
    equal("touch", (cache.touch("one", 100), cache.touch("none")), (True, False))
    equal("has_key", (cache.has_key("one"), "none" in cache), (True, False))
    equal("get_or_set", (cache.get_or_set("two", lambda: "made"), cache.get("two")), ("made", "made"))
    equal("incr_version", cache.incr_version("two"), 2)
    equal("the other version", (cache.get("two"), cache.get("two", version=2)), (None, "made"))
    equal("delete", (cache.delete("one"), cache.delete("one")), (True, False))


for name in ("default", "forever"):
    single(caches[name])
    many(caches[name])
caches["default"].set_many(ENTRIES)
caches["default"].clear()
equal("clear", caches["default"].get_many(ENTRIES), {})
