package tessera;

import static tessera.Checks.equal;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.stream.IntStream;

/**
 * Two tellers on every node move small amounts between random accounts, so that amounts come back to what they were, while an auditor
 * on every node looks at all accounts.
 */
final class Bank {
  private static final String[] ACCOUNTS = IntStream.range(0, 12).mapToObj(number -> "account" + number).toArray(String[]::new);
  private static final int OPENING = 1000;
  private static final int TRANSFERS = 40;

  private Bank() {}

  /** One connection to a node. */
  interface Connection {
    void set(String account, int amount);

    /** Whether nobody changed the two accounts meanwhile, so that the amount was moved. */
    boolean tryTransfer(String from, String to, int amount);

    /** What all accounts hold at one instant. */
    List<String> read(String[] accounts);
  }

  interface Node {
    Connection connect();
  }

  static void run(List<Node> nodes) throws Exception {
    Connection first = nodes.get(0).connect();
    for (String account : ACCOUNTS) first.set(account, OPENING);
    ExecutorService threads = Executors.newCachedThreadPool();
    AtomicBoolean closed = new AtomicBoolean();
    List<Future<?>> tellers = new ArrayList<>(), auditors = new ArrayList<>();
    for (Node node : nodes) {
      tellers.add(threads.submit(() -> transfer(node.connect())));
      tellers.add(threads.submit(() -> transfer(node.connect())));
      auditors.add(threads.submit(() -> audit(node.connect(), closed)));
    }
    try {
      for (Future<?> teller : tellers) teller.get();
    } finally {
      closed.set(true);
      threads.shutdown();
    }
    for (Future<?> auditor : auditors) auditor.get();
    for (Node node : nodes) audit(node.connect(), closed);
  }

  private static void transfer(Connection connection) {
    Random random = new Random();
    for (int transfer = 0; transfer < TRANSFERS; transfer++) {
      int source = random.nextInt(ACCOUNTS.length);
      int target = (source + 1 + random.nextInt(ACCOUNTS.length - 1)) % ACCOUNTS.length;
      int amount = 1 + random.nextInt(3);
      while (!connection.tryTransfer(ACCOUNTS[source], ACCOUNTS[target], amount)) continue;
    }
  }

  private static void audit(Connection connection, AtomicBoolean closed) {
    do {
      int sum = connection.read(ACCOUNTS).stream().mapToInt(Integer::parseInt).sum();
      equal("the sum of all accounts", sum, ACCOUNTS.length * OPENING);
    } while (!closed.get());
  }
}
