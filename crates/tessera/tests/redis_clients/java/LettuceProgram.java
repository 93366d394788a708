package tessera;

import static tessera.Checks.equal;
import static tessera.Checks.fails;
import static tessera.Checks.keys;
import static tessera.Checks.pairs;
import static tessera.Checks.replied;
import static tessera.Checks.with;

import io.lettuce.core.CopyArgs;
import io.lettuce.core.KeyValue;
import io.lettuce.core.RedisClient;
import io.lettuce.core.RedisFuture;
import io.lettuce.core.RedisURI;
import io.lettuce.core.TransactionResult;
import io.lettuce.core.api.StatefulRedisConnection;
import io.lettuce.core.api.async.RedisAsyncCommands;
import io.lettuce.core.api.sync.RedisCommands;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.SlotHash;
import io.lettuce.core.cluster.api.StatefulRedisClusterConnection;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import io.lettuce.core.cluster.models.partitions.RedisClusterNode;
import io.lettuce.core.codec.StringCodec;
import io.lettuce.core.output.StatusOutput;
import io.lettuce.core.protocol.CommandArgs;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;

/**
 * Lettuce on the default table of a cluster, whose keys are in many partitions. Arguments: the Redis ports of all nodes; or {@code
 * cluster USER PASSWORD PORT...} for cluster mode, on the default table of that user.
 */
public final class LettuceProgram {
  private final List<StatefulRedisConnection<String, String>> nodes = new ArrayList<>();
  private final RedisCommands<String, String> one;
  private final RedisCommands<String, String> other;

  public static void main(String[] arguments) throws Exception {
    if (arguments[0].equals("cluster")) {
      inClusterMode(arguments[1], arguments[2], Arrays.copyOfRange(arguments, 3, arguments.length));
    } else {
      onAnyNode(arguments);
    }
  }

  private static void onAnyNode(String[] ports) throws Exception {
    RedisClient client = RedisClient.create();
    LettuceProgram program = new LettuceProgram(client, ports);
    program.one.flushdb();
    program.transactions();
    program.commandsOfSeveralKeys();
    program.watched();
    program.discarded();
    program.errors();
    Bank.run(Arrays.stream(ports).<Bank.Node>map(port -> () -> new Account(client, port)).collect(Collectors.toList()));
    client.shutdown(0, 2, TimeUnit.SECONDS);
  }

  private LettuceProgram(RedisClient client, String[] ports) {
    for (String port : ports) nodes.add(connect(client, port));
    one = nodes.get(0).sync();
    other = nodes.get(nodes.size() - 1).sync();
  }

  private static StatefulRedisConnection<String, String> connect(RedisClient client, String port) {
    return client.connect(RedisURI.create("127.0.0.1", Integer.parseInt(port)));
  }

  /** All commands of a transaction are sent at once here; the other parts wait for each. */
  private void transactions() throws Exception {
    String[] names = keys("key");
    RedisAsyncCommands<String, String> commands = nodes.get(0).async();
    List<RedisFuture<Long>> sums = new ArrayList<>();
    List<String> wanted = new ArrayList<>();
    commands.multi();
    for (String name : names) {
      commands.set(name, String.valueOf(wanted.size()));
      sums.add(commands.incrby(name, 100));
      wanted.add(String.valueOf(100 + wanted.size()));
    }
    RedisFuture<Long> fields = commands.hset("hash", Map.of("a", "1", "b", "2"));
    RedisFuture<Map<String, String>> hash = commands.hgetall("hash");
    RedisFuture<List<KeyValue<String, String>>> all = commands.mget(names);
    RedisFuture<String> nothing = commands.get("none");
    TransactionResult replies = commands.exec().get();
    equal("the number of replies", replies.size(), 84);
    equal("it was carried out", replies.wasDiscarded(), false);
    for (int number = 0; number < 40; number++) equal("INCRBY", sums.get(number).get(), 100L + number);
    equal("HSET", fields.get(), 2L);
    equal("HGETALL", hash.get(), Map.of("a", "1", "b", "2"));
    equal("MGET in the transaction", values(all.get()), wanted);
    equal("GET of nothing", nothing.get(), null);
    for (StatefulRedisConnection<String, String> node : nodes) {
      equal("MGET", values(node.sync().mget(names)), wanted);
      RedisAsyncCommands<String, String> reads = node.async();
      reads.multi();
      for (String name : names) reads.get(name);
      replied("EXEC of reads", replies(reads.exec().get()), wanted.toArray());
    }
  }

  private void commandsOfSeveralKeys() {
    String[] names = keys("key");
    equal("MSET", one.mset(pairs(names)), "OK");
    equal("MGET", values(other.mget(names)), new ArrayList<>(pairs(names).values()));
    equal("MSETNX where a key is there", other.msetnx(Map.of("new0", "n", names[7], "n")), false);
    equal("EXISTS", one.exists(with(names, "new0")), 40L);
    equal("MSETNX", other.msetnx(pairs(keys("new"))), true);
    equal("DEL", one.del(keys("new")), 40L);
    for (String name : names) {
      String renamed = "renamed " + name, value = "value of " + name;
      equal("RENAME", other.rename(name, renamed), "OK");
      equal("COPY", one.copy(renamed, name), true);
      equal("COPY where a key is there", one.copy(name, renamed), false);
      equal("COPY over a key", one.copy(name, renamed, CopyArgs.Builder.replace(true)), true);
      equal("RENAMENX where a key is there", other.renamenx(name, renamed), false);
      equal("MGET of both", values(one.mget(name, renamed)), List.of(value, value));
      equal("UNLINK", other.unlink(renamed, "none"), 1L);
    }
    fails("RENAME of nothing", "no such key", () -> one.rename("none", names[0]));
  }

  /** Increments two keys, and has another connection write one of them meanwhile, or not. */
  private TransactionResult increment(Runnable meanwhile) {
    one.watch("a", "b", "missing");
    List<String> held = values(one.mget("a", "b"));
    meanwhile.run();
    one.multi();
    for (int at = 0; at < 2; at++) one.set(at == 0 ? "a" : "b", String.valueOf(Integer.parseInt(held.get(at)) + 1));
    return one.exec();
  }

  private void watched() {
    for (String key : List.of("a", "b", "missing")) {
      one.mset(Map.of("a", "1", "b", "2"));
      one.del("missing");
      replied("EXEC", replies(increment(() -> {})), "OK", "OK");
      equal("EXEC after a write to " + key, increment(() -> other.set(key, "10")).wasDiscarded(), true);
      replied("EXEC once more", replies(increment(() -> {})), "OK", "OK");
    }
    equal("MGET", values(other.mget("a", "b")), List.of("3", "4"));
    one.watch("a", "b");
    other.incr("b");
    equal("UNWATCH", one.unwatch(), "OK");
    one.multi();
    one.incr("a");
    one.incr("b");
    replied("EXEC after UNWATCH", replies(one.exec()), 4L, 6L);
  }

  private void discarded() {
    one.mset(Map.of("a", "1", "b", "2"));
    equal("MULTI", one.multi(), "OK");
    one.set("a", "10");
    one.incr("b");
    equal("DISCARD", one.discard(), "OK");
    equal("nothing was done", values(one.mget("a", "b")), List.of("1", "2"));
    fails("EXEC of nothing", "EXEC without MULTI", one::exec);
  }

  private void errors() {
    one.del("hash", "text", "first", "last");
    one.multi();
    one.set("first", "done");
    one.hset("hash", "field", "1");
    one.incr("hash");
    one.set("text", "text");
    one.incr("text");
    one.set("last", "done");
    replied("EXEC", replies(one.exec()), "OK", true, "WRONGTYPE", "OK", "not an integer", "OK");
    equal("the others were done", values(other.mget("first", "text", "last")), List.of("done", "text", "done"));
    one.del("first", "last");
    one.multi();
    one.set("first", "not done");
    one.dispatch(
        () -> "NOSUCH".getBytes(), new StatusOutput<>(StringCodec.UTF8), new CommandArgs<>(StringCodec.UTF8).addKey("text"));
    one.set("last", "not done");
    fails("EXEC after a command that there is not", "EXECABORT", one::exec);
    equal("nothing was done", values(other.mget("first", "last")), Arrays.asList(null, null));
    one.multi();
    one.set("last", "done");
    replied("the connection goes on", replies(one.exec()), "OK");
  }

  /** The client asks where each slot is led, and sends commands there. Transactions are those of a connection to one node. */
  private static void inClusterMode(String user, String password, String[] ports) {
    RedisURI.Builder address = RedisURI.builder().withHost("127.0.0.1").withPort(Integer.parseInt(ports[0]));
    RedisClusterClient client = RedisClusterClient.create(address.withAuthentication(user, password).build());
    try (StatefulRedisClusterConnection<String, String> connection = client.connect()) {
      RedisAdvancedClusterCommands<String, String> commands = connection.sync();
      equal("the number of nodes", client.getPartitions().size(), ports.length);
      String[] names = keys("key");
      equal("MSET", commands.mset(pairs(names)), "OK");
      equal("MGET", values(commands.mget(names)), new ArrayList<>(pairs(names).values()));
      equal("DEL", commands.del(names), 40L);
      for (String name : names) {
        String first = "{" + name + "}a", second = "{" + name + "}b";
        equal("MSET", commands.mset(Map.of(first, "1", second, "2")), "OK");
        RedisClusterNode leader = client.getPartitions().getPartitionBySlot(SlotHash.getSlot(first));
        RedisCommands<String, String> node = connection.getConnection(leader.getNodeId()).sync();
        node.watch(first, second);
        commands.incr(second);
        node.multi();
        node.incr(first);
        equal("EXEC after a write", node.exec().wasDiscarded(), true);
        node.multi();
        node.incr(first);
        node.incr(second);
        replied("EXEC", replies(node.exec()), 2L, 4L);
        equal("RENAME", commands.rename(first, second), "OK");
        equal("DEL", commands.del(first, second), 1L);
      }
    }
    client.shutdown(0, 2, TimeUnit.SECONDS);
  }

  private static List<String> values(List<KeyValue<String, String>> pairs) {
    return pairs.stream().map(pair -> pair.getValueOrElse(null)).collect(Collectors.toList());
  }

  private static List<Object> replies(TransactionResult result) {
    return result.stream().collect(Collectors.toList());
  }

  private static final class Account implements Bank.Connection {
    private final RedisCommands<String, String> commands;

    Account(RedisClient client, String port) {
      commands = connect(client, port).sync();
    }

    @Override
    public void set(String account, int amount) {
      commands.set(account, String.valueOf(amount));
    }

    @Override
    public boolean tryTransfer(String from, String to, int amount) {
      commands.watch(from, to);
      List<String> held = values(commands.mget(from, to));
      commands.multi();
      commands.set(from, String.valueOf(Integer.parseInt(held.get(0)) - amount));
      commands.set(to, String.valueOf(Integer.parseInt(held.get(1)) + amount));
      return !commands.exec().wasDiscarded();
    }

    @Override
    public List<String> read(String[] accounts) {
      commands.multi();
      for (String account : accounts) commands.get(account);
      return commands.exec().stream().map(String.class::cast).collect(Collectors.toList());
    }
  }
}
