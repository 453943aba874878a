"""Writes or reads a table and prints the seconds of each part, and those of CPU time of the thread,
for ../../compare-languages.

speed.py write|read STORE COUNT
"""

import sys
import time

import siltstone

REST = b"." * 84


def timed(name, run, *arguments):
    start, cpu_start = time.perf_counter(), time.thread_time()
    run(*arguments)
    print(name, time.perf_counter() - start, time.thread_time() - cpu_start)


def fill(table, keys):
    with table.batch() as batch:
        for key in keys:
            batch[key] = key + REST
            if len(batch) == 100:
                batch.write()


def put(table, keys):
    for key in keys:
        table[key] = key + REST


def scan(table, keys):
    count = 0
    for key, value in table.items():
        if value != key + REST:
            sys.exit(f"the value of {key} is {value}")
        count += 1
    if count != len(keys):
        sys.exit(f"{count} entries instead of {len(keys)}")


def get(table, keys):
    for key in keys:
        value = table.get(key)
        if value != key + REST:
            sys.exit(f"the value of {key} is {value}")


mode, store, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
parts = {"write": [fill, put], "read": [scan, get]}[mode]
keys = [b"%016d" % (i * 7919 % count) for i in range(count)]
with siltstone.open(store) as db:
    table = db.table("speed", options={"cache": "256MiB"})
    for part in parts:
        timed(part.__name__, part, table, keys)
        table.maintain()
