package tessera;

import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.stream.IntStream;

/** What the programs check with, whichever client they drive. */
final class Checks {
  private Checks() {}

  /** Names of so many keys that they are in every partition. */
  static String[] keys(String name) {
    return IntStream.range(0, 40).mapToObj(number -> name + number).toArray(String[]::new);
  }

  static Map<String, String> pairs(String... names) {
    Map<String, String> pairs = new LinkedHashMap<>();
    Arrays.stream(names).forEach(name -> pairs.put(name, "value of " + name));
    return pairs;
  }

  static String[] with(String[] names, String more) {
    String[] all = Arrays.copyOf(names, names.length + 1);
    all[names.length] = more;
    return all;
  }

  static void equal(String what, Object found, Object wanted) {
    if (!Objects.equals(found, wanted)) throw new AssertionError(what + ": found " + found + ", wanted " + wanted);
  }

  /** Whether these are what a transaction replied, where an error is wanted as an excerpt from its message. */
  static void replied(String what, List<?> replies, Object... wanted) {
    equal(what + ", the number of replies", replies.size(), wanted.length);
    for (int at = 0; at < wanted.length; at++) {
      Object reply = replies.get(at);
      if (reply instanceof Exception) says(what, (Exception) reply, (String) wanted[at]);
      else equal(what + ", reply " + at, reply, wanted[at]);
    }
  }

  static void fails(String what, String words, Runnable call) {
    try {
      call.run();
    } catch (RuntimeException error) {
      says(what, error, words);
      return;
    }
    throw new AssertionError(what + " was to fail");
  }

  private static void says(String what, Exception error, String words) {
    if (!error.getMessage().contains(words)) throw new AssertionError(what + ": " + error, error);
  }
}
