package tessera;

import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.Vector;
import java.util.concurrent.atomic.AtomicLongArray;
import site.ycsb.ByteIterator;
import site.ycsb.DB;
import site.ycsb.Status;
import site.ycsb.measurements.Measurements;
import site.ycsb.workloads.CoreWorkload;

/**
 * Prints how often YCSB's core workload reads each record, a line for each distribution: its name, then a count for each record.
 * Takes the number of records and that of draws.
 */
public final class Draws {
  private Draws() {
  }

  /** Counts reads of records, which are named by their numbers. */
  private static final class Counter extends DB {
    private final AtomicLongArray counts;

    Counter(int records) {
      counts = new AtomicLongArray(records);
    }

    @Override
    public Status read(String table, String key, Set<String> fields, Map<String, ByteIterator> result) {
      counts.incrementAndGet(Integer.parseInt(key.substring("user".length())));
      return Status.OK;
    }

    @Override
    public Status scan(String table, String start, int count, Set<String> fields,
        Vector<HashMap<String, ByteIterator>> result) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Status update(String table, String key, Map<String, ByteIterator> values) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Status insert(String table, String key, Map<String, ByteIterator> values) {
      throw new UnsupportedOperationException();
    }

    @Override
    public Status delete(String table, String key) {
      throw new UnsupportedOperationException();
    }
  }

  /** See the class. */
  public static void main(String[] arguments) throws Exception {
    int records = Integer.parseInt(arguments[0]);
    int draws = Integer.parseInt(arguments[1]);
    for (String distribution : new String[] {"zipfian", "uniform", "latest", "sequential", "hotspot", "exponential"}) {
      var properties = new Properties();
      properties.setProperty("recordcount", Integer.toString(records));
      properties.setProperty("operationcount", "1");
      properties.setProperty("insertorder", "ordered");
      properties.setProperty("readproportion", "1");
      properties.setProperty("updateproportion", "0");
      properties.setProperty("requestdistribution", distribution);
      Measurements.setProperties(properties);
      var workload = new CoreWorkload();
      workload.init(properties);
      var counter = new Counter(records);
      for (int draw = 0; draw < draws; draw++) {
        workload.doTransaction(counter, null);
      }
      var line = new StringBuilder(distribution);
      for (int record = 0; record < records; record++) {
        line.append(' ').append(counter.counts.get(record));
      }
      System.out.println(line);
    }
  }
}
