"""redis-cli -c, one process per writer, which gets a command at a time."""

import subprocess
import sys
import threading
import time
import uuid

from outcome import WRITERS, Seen

seconds, ports = int(sys.argv[1]), sys.argv[2:]
run, seen = uuid.uuid4().hex[:8], Seen()
until = time.time() + seconds


def call(number, *words):
    login = ["--user", "app", "--pass", "secret", "--no-auth-warning"]
    command = ["redis-cli", "-c", "-p", ports[number % len(ports)], *login, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    text = done.stdout.strip() or done.stderr.strip()
    if done.returncode != 0 or "ERR" in text or "CLUSTERDOWN" in text or "Could not" in text or "Error" in text:
        raise RuntimeError(text)
    return text


def write(writer):
    number = 0
    while time.time() < until:
        number += 1
        key = f"{run}:{writer}:{number}"
        try:
            assert call(number, "set", key, key) == "OK"
            seen.keys.append(key)
            int(call(number, "incr", f"counter:{run}:{writer}"))
            seen.counters[writer] += 1
        except Exception as error:
            seen.fail(f"{type(error).__name__}: {error}")


writers = [threading.Thread(target=write, args=(writer,)) for writer in range(WRITERS)]
[writer.start() for writer in writers]
[writer.join() for writer in writers]
seen.report(lambda key: call(0, "get", key.replace("counter:", f"counter:{run}:")))
