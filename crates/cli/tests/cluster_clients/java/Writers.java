import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Collectors;

/** Writes for some time by any client, and checks that what was acknowledged is there. */
final class Writers {
    /** A client in cluster mode; its calls may throw. */
    interface Client {
        void set(String key, String value);

        void incr(String key);

        String get(String key);
    }

    private static final int WRITERS = 4;

    private Writers() {}

    static void run(Client client, int seconds) throws InterruptedException {
        long until = System.currentTimeMillis() + seconds * 1000L;
        String run = UUID.randomUUID().toString().substring(0, 8);
        List<String> keys = new java.util.ArrayList<>();
        int[] counters = new int[WRITERS];
        Map<String, Integer> errors = new ConcurrentHashMap<>();
        Thread[] threads = new Thread[WRITERS];
        for (int writer = 0; writer < WRITERS; writer++) {
            int own = writer;
            threads[writer] = new Thread(() -> {
                for (int number = 0; System.currentTimeMillis() < until; number++) {
                    String key = run + ":" + own + ":" + number;
                    try {
                        client.set(key, key);
                        synchronized (keys) {
                            keys.add(key);
                        }
                        client.incr("counter:" + run + ":" + own);
                        counters[own]++;
                    } catch (RuntimeException error) {
                        String text = error.getClass().getSimpleName() + ": " + error.getMessage();
                        text = text.replaceAll("\\d+", "N").replaceAll("[\"\\\\\\p{Cntrl}]", " ");
                        errors.merge(text.substring(0, Math.min(160, text.length())), 1, Integer::sum);
                    }
                    pause(2);
                }
            });
            threads[writer].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
        long lost = 0;
        long acknowledged = keys.size();
        for (String key : keys) {
            lost += key.equals(read(client, key)) ? 0 : 1;
        }
        for (int writer = 0; writer < WRITERS; writer++) {
            acknowledged += counters[writer];
            String value = read(client, "counter:" + run + ":" + writer);
            lost += Math.max(0, counters[writer] - (value == null ? 0 : Long.parseLong(value)));
        }
        String listed = errors.entrySet().stream()
            .map(entry -> '"' + entry.getKey() + "\": " + entry.getValue())
            .collect(Collectors.joining(", "));
        System.out.println("{\"acknowledged\": " + acknowledged + ", \"lost\": " + lost
            + ", \"errors\": {" + listed + "}}");
        System.exit(0);
    }

    private static String read(Client client, String key) {
        for (int attempt = 0;; attempt++) {
            try {
                return client.get(key);
            } catch (RuntimeException error) {
                if (attempt == 600) {
                    throw error;
                }
                pause(50);
            }
        }
    }

    private static void pause(long milliseconds) {
        try {
            Thread.sleep(milliseconds);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }
}
