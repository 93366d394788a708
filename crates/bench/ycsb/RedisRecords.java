package tessera;

import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.Vector;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.exceptions.JedisException;
import redis.clients.jedis.util.SafeEncoder;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.DBException;
import site.ycsb.Status;
import site.ycsb.StringByteIterator;

/**
 * Records as hashes, by the requests that {@code tessera bench run} sends for them. YCSB's own binding of Redis, which the
 * registries do not have, also keeps an index for scans, which is another load.
 */
public final class RedisRecords extends DB {
  private Jedis connection;

  @Override
  public void init() throws DBException {
    var properties = getProperties();
    connection = new Jedis(properties.getProperty("redis.host", "127.0.0.1"),
        Integer.parseInt(properties.getProperty("redis.port", "6379")));
    var table = properties.getProperty("redis.table");
    if (table != null) {
      connection.sendCommand(() -> SafeEncoder.encode("TABLE"), table);
    }
  }

  @Override
  public void cleanup() {
    connection.close();
  }

  @Override
  public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
    Map<String, String> found = new HashMap<>();
    try {
      if (fields == null) {
        found = connection.hgetAll(key);
      } else {
        for (String field : fields) {
          found.put(field, connection.hget(key, field));
        }
      }
    } catch (JedisException failure) {
      return Status.ERROR;
    }
    found.values().removeIf(value -> value == null);
    StringByteIterator.putAllAsByteIterators(result, found);
    return found.isEmpty() ? Status.NOT_FOUND : Status.OK;
  }

  @Override
  public Status update(String table, String key, Map<String, ByteIterator> values) {
    try {
      connection.hset(key, StringByteIterator.getStringMap(values));
      return Status.OK;
    } catch (JedisException failure) {
      return Status.ERROR;
    }
  }

  @Override
  public Status insert(String table, String key, Map<String, ByteIterator> values) {
    return update(table, key, values);
  }

  @Override
  public Status delete(String table, String key) {
    try {
      return connection.del(key) == 1 ? Status.OK : Status.NOT_FOUND;
    } catch (JedisException failure) {
      return Status.ERROR;
    }
  }

  @Override
  public Status scan(String table, String start, int count, Set<String> fields,
      Vector<HashMap<String, ByteIterator>> result) {
    return Status.NOT_IMPLEMENTED;
  }
}
