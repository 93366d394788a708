package tessera;

import static tessera.Checks.equal;
import static tessera.Checks.fails;
import static tessera.Checks.keys;
import static tessera.Checks.pairs;
import static tessera.Checks.replied;
import static tessera.Checks.with;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import redis.clients.jedis.AbstractTransaction;
import redis.clients.jedis.ClusterPipeline;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.Jedis;
import redis.clients.jedis.RedisClient;
import redis.clients.jedis.RedisClusterClient;
import redis.clients.jedis.Response;
import redis.clients.jedis.Transaction;

/**
 * Jedis on the default table of a cluster, whose keys are in many partitions. Arguments: the Redis ports of all nodes; or {@code cluster
 * USER PASSWORD PORT...} for cluster mode, on the default table of that user.
 */
public final class JedisProgram {
  private final List<RedisClient> nodes = new ArrayList<>();
  private final RedisClient one;
  private final RedisClient other;

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("cluster")) {
      inClusterMode(arguments[1], arguments[2], Arrays.copyOfRange(arguments, 3, arguments.length));
    } else {
      onAnyNode(arguments);
    }
  }

  private static void onAnyNode(String[] ports) throws Exception {
    JedisProgram program = new JedisProgram(ports);
    program.one.flushDB();
    program.transactions();
    program.commandsOfSeveralKeys();
    program.watched();
    program.discarded();
    program.errors();
    Bank.run(Arrays.stream(ports).<Bank.Node>map(port -> () -> new Account(port)).collect(Collectors.toList()));
    program.nodes.forEach(RedisClient::close);
  }

  private JedisProgram(String[] ports) {
    for (String port : ports) nodes.add(RedisClient.create("127.0.0.1", Integer.parseInt(port)));
    one = nodes.get(0);
    other = nodes.get(nodes.size() - 1);
  }

  private void transactions() {
    String[] names = keys("key");
    List<Response<Long>> sums = new ArrayList<>();
    List<String> wanted = new ArrayList<>();
    try (AbstractTransaction transaction = one.multi()) {
      for (String name : names) {
        transaction.set(name, String.valueOf(wanted.size()));
        sums.add(transaction.incrBy(name, 100));
        wanted.add(String.valueOf(100 + wanted.size()));
      }
      Response<Long> fields = transaction.hset("hash", Map.of("a", "1", "b", "2"));
      Response<Map<String, String>> hash = transaction.hgetAll("hash");
      Response<List<String>> all = transaction.mget(names);
      Response<String> nothing = transaction.get("none");
      equal("the number of replies", transaction.exec().size(), 84);
      for (int number = 0; number < 40; number++) equal("INCRBY", sums.get(number).get(), 100L + number);
      equal("HSET", fields.get(), 2L);
      equal("HGETALL", hash.get(), Map.of("a", "1", "b", "2"));
      equal("MGET in the transaction", all.get(), wanted);
      equal("GET of nothing", nothing.get(), null);
    }
    for (RedisClient node : nodes) {
      equal("MGET", node.mget(names), wanted);
      try (AbstractTransaction reads = node.multi()) {
        for (String name : names) reads.get(name);
        replied("EXEC of reads", reads.exec(), wanted.toArray());
      }
    }
  }

  private void commandsOfSeveralKeys() {
    String[] names = keys("key");
    equal("MSET", one.mset(flat(pairs(names))), "OK");
    equal("MGET", other.mget(names), new ArrayList<>(pairs(names).values()));
    equal("MSETNX where a key is there", other.msetnx("new0", "n", names[7], "n"), 0L);
    equal("EXISTS", one.exists(with(names, "new0")), 40L);
    equal("MSETNX", other.msetnx(flat(pairs(keys("new")))), 1L);
    equal("DEL", one.del(keys("new")), 40L);
    for (String name : names) {
      String renamed = "renamed " + name, value = "value of " + name;
      equal("RENAME", other.rename(name, renamed), "OK");
      equal("COPY", one.copy(renamed, name, false), true);
      equal("COPY where a key is there", one.copy(name, renamed, false), false);
      equal("COPY over a key", one.copy(name, renamed, true), true);
      equal("RENAMENX where a key is there", other.renamenx(name, renamed), 0L);
      equal("MGET of both", one.mget(name, renamed), List.of(value, value));
      equal("UNLINK", other.unlink(renamed, "none"), 1L);
    }
    fails("RENAME of nothing", "no such key", () -> one.rename("none", names[0]));
  }

  /** Increments two keys, and has another connection write one of them meanwhile, or not. */
  private List<Object> increment(Runnable meanwhile) {
    try (AbstractTransaction transaction = one.transaction(false)) {
      transaction.watch("a", "b", "missing");
      List<String> held = one.mget("a", "b");
      meanwhile.run();
      transaction.multi();
      for (int at = 0; at < 2; at++) transaction.set(at == 0 ? "a" : "b", String.valueOf(Integer.parseInt(held.get(at)) + 1));
      return transaction.exec();
    }
  }

  private void watched() {
    for (String key : List.of("a", "b", "missing")) {
      one.mset("a", "1", "b", "2");
      one.del("missing");
      equal("EXEC", increment(() -> {}), List.of("OK", "OK"));
      equal("EXEC after a write to " + key, increment(() -> other.set(key, "10")), null);
      equal("EXEC once more", increment(() -> {}), List.of("OK", "OK"));
    }
    equal("MGET", other.mget("a", "b"), List.of("3", "4"));
    try (AbstractTransaction transaction = one.transaction(false)) {
      transaction.watch("a", "b");
      other.incr("b");
      equal("UNWATCH", transaction.unwatch(), "OK");
      transaction.multi();
      transaction.incr("a");
      transaction.incr("b");
      equal("EXEC after UNWATCH", transaction.exec(), List.of(4L, 6L));
    }
  }

  private void discarded() {
    one.mset("a", "1", "b", "2");
    try (AbstractTransaction transaction = one.multi()) {
      transaction.set("a", "10");
      transaction.incr("b");
      equal("DISCARD", transaction.discard(), "OK");
    }
    equal("nothing was done", one.mget("a", "b"), List.of("1", "2"));
  }

  private void errors() {
    one.del("hash", "text", "first", "last");
    try (AbstractTransaction transaction = one.multi()) {
      transaction.set("first", "done");
      transaction.hset("hash", "field", "1");
      transaction.incr("hash");
      transaction.set("text", "text");
      transaction.incr("text");
      transaction.set("last", "done");
      replied("EXEC", transaction.exec(), "OK", 1L, "WRONGTYPE", "OK", "not an integer", "OK");
    }
    equal("the others were done", other.mget("first", "text", "last"), List.of("done", "text", "done"));
    one.del("first", "last");
    try (AbstractTransaction transaction = one.multi()) {
      transaction.set("first", "not done");
      transaction.sendCommand(() -> "NOSUCH".getBytes(), "text");
      transaction.set("last", "not done");
      fails("EXEC after a command that there is not", "EXECABORT", transaction::exec);
    }
    equal("nothing was done", other.mget("first", "last"), Arrays.asList(null, null));
    try (AbstractTransaction transaction = one.multi()) {
      transaction.set("last", "done");
      equal("the connection goes on", transaction.exec(), List.of("OK"));
    }
  }

  /** The client asks where each slot is led, and sends commands there. It has no transactions in this mode. */
  private static void inClusterMode(String user, String password, String[] ports) {
    Set<HostAndPort> addresses =
        Arrays.stream(ports).map(port -> new HostAndPort("127.0.0.1", Integer.parseInt(port))).collect(Collectors.toSet());
    try (RedisClusterClient client = RedisClusterClient.create(addresses, user, password)) {
      equal("the number of nodes", client.getClusterNodes().size(), ports.length);
      String[] names = keys("key");
      for (String name : names) equal("SET", client.set(name, "value of " + name), "OK");
      List<Response<String>> found = new ArrayList<>();
      try (ClusterPipeline pipeline = client.pipelined()) {
        for (String name : names) found.add(pipeline.get(name));
      }
      equal("GET", found.stream().map(Response::get).collect(Collectors.toList()), new ArrayList<>(pairs(names).values()));
      for (String name : names) {
        String first = "{" + name + "}a", second = "{" + name + "}b";
        equal("MSET", client.mset(first, "1", second, "2"), "OK");
        equal("MGET", client.mget(first, second), List.of("1", "2"));
        equal("RENAME", client.rename(first, second), "OK");
        equal("DEL", client.del(first, second), 1L);
      }
    }
  }

  private static String[] flat(Map<String, String> pairs) {
    return pairs.entrySet().stream().flatMap(pair -> Stream.of(pair.getKey(), pair.getValue())).toArray(String[]::new);
  }

  /** With the class of Jedis that is one connection. */
  private static final class Account implements Bank.Connection {
    private final Jedis connection;

    Account(String port) {
      connection = new Jedis("127.0.0.1", Integer.parseInt(port));
    }

    @Override
    public void set(String account, int amount) {
      connection.set(account, String.valueOf(amount));
    }

    @Override
    public boolean tryTransfer(String from, String to, int amount) {
      connection.watch(from, to);
      List<String> held = connection.mget(from, to);
      Transaction transaction = connection.multi();
      transaction.set(from, String.valueOf(Integer.parseInt(held.get(0)) - amount));
      transaction.set(to, String.valueOf(Integer.parseInt(held.get(1)) + amount));
      return transaction.exec() != null;
    }

    @Override
    public List<String> read(String[] accounts) {
      Transaction transaction = connection.multi();
      List<Response<String>> held = new ArrayList<>();
      for (String account : accounts) held.add(transaction.get(account));
      transaction.exec();
      return held.stream().map(Response::get).collect(Collectors.toList());
    }
  }
}
