"""redis-py in cluster mode."""

import sys
import threading
import time
import uuid

from redis.cluster import ClusterNode, RedisCluster

from outcome import WRITERS, Seen

seconds, ports = int(sys.argv[1]), [int(port) for port in sys.argv[2:]]
run, seen = uuid.uuid4().hex[:8], Seen()
until = time.time() + seconds


def connect():
    nodes = [ClusterNode("127.0.0.1", port) for port in ports]
    return RedisCluster(startup_nodes=nodes, username="app", password="secret", socket_timeout=2, decode_responses=True)


def write(writer):
    client, number = None, 0
    while time.time() < until:
        number += 1
        key = f"{run}:{writer}:{number}"
        try:
            client = client or connect()
            client.set(key, key)
            seen.keys.append(key)
            client.incr(f"counter:{run}:{writer}")
            seen.counters[writer] += 1
        except Exception as error:
            seen.fail(f"{type(error).__name__}: {error}")
        time.sleep(0.002)


writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
[writer.start() for writer in writers]
[writer.join() for writer in writers]
client = connect()
seen.report(lambda key: client.get(key.replace("counter:", f"counter:{run}:")))
