import java.util.HashSet;
import java.util.Set;
import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisCluster;

/** Jedis in cluster mode. */
public final class Jedis {
    private Jedis() {}

    public static void main(String[] args) throws InterruptedException {
        Set<HostAndPort> nodes = new HashSet<>();
        for (int at = 1; at < args.length; at++) {
            nodes.add(new HostAndPort("127.0.0.1", Integer.parseInt(args[at])));
        }
        JedisCluster cluster = new JedisCluster(nodes,
            DefaultJedisClientConfig.builder().user("app").password("secret").build());
        Writers.run(new Writers.Client() {
            @Override
            public void set(String key, String value) {
                cluster.set(key, value);
            }

            @Override
            public void incr(String key) {
                cluster.incr(key);
            }

            @Override
            public String get(String key) {
                return cluster.get(key);
            }
        }, Integer.parseInt(args[0]));
    }
}
