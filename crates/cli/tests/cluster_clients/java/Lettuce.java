import io.lettuce.core.RedisURI;
import io.lettuce.core.cluster.ClusterClientOptions;
import io.lettuce.core.cluster.ClusterTopologyRefreshOptions;
import io.lettuce.core.cluster.RedisClusterClient;
import io.lettuce.core.cluster.api.sync.RedisAdvancedClusterCommands;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;

/** Lettuce in cluster mode, with the refreshes that its documentation recommends. */
public final class Lettuce {
    private Lettuce() {}

    public static void main(String[] args) throws InterruptedException {
        List<RedisURI> nodes = new ArrayList<>();
        for (int at = 1; at < args.length; at++) {
            nodes.add(RedisURI.builder().withHost("127.0.0.1").withPort(Integer.parseInt(args[at]))
                .withAuthentication("app", "secret").withTimeout(Duration.ofSeconds(3)).build());
        }
        RedisClusterClient client = RedisClusterClient.create(nodes);
        client.setOptions(ClusterClientOptions.builder()
            .topologyRefreshOptions(ClusterTopologyRefreshOptions.builder()
                .enablePeriodicRefresh(Duration.ofSeconds(1)).enableAllAdaptiveRefreshTriggers().build())
            .build());
        RedisAdvancedClusterCommands<String, String> commands = client.connect().sync();
        Writers.run(new Writers.Client() {
            @Override
            public void set(String key, String value) {
                commands.set(key, value);
            }

            @Override
            public void incr(String key) {
                commands.incr(key);
            }

            @Override
            public String get(String key) {
                return commands.get(key);
            }
        }, Integer.parseInt(args[0]));
    }
}
