"""What a program has seen: acknowledged writes and errors, and how they are checked and reported."""

import collections
import json
import re
import time

WRITERS = 4


class Seen:
    def __init__(self):
        self.keys, self.counters, self.errors = [], [0] * WRITERS, collections.Counter()

    def fail(self, text):
        """Counts an error. Numbers in it, such as ports, do not matter."""
        self.errors[re.sub(r"\d+", "N", text)[:160]] += 1

    def report(self, get):
        """Reads all that was acknowledged by `get`, which may fail for a while."""
        deadline = time.time() + 60

        def read(key):
            while True:
                try:
                    return get(key)
                except Exception:
                    if time.time() > deadline:
                        raise
                    time.sleep(0.05)

        lost = sum(read(key) != key for key in self.keys)
        for writer, count in enumerate(self.counters):
            lost += max(0, count - int(read(f"counter:{writer}") or 0))
        acknowledged = len(self.keys) + sum(self.counters)
        print(json.dumps({"acknowledged": acknowledged, "lost": lost, "errors": self.errors}))
