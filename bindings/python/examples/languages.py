"""Counts visits by language, and prints all counts: the program of the book's page "Other languages"."""

# ANCHOR: program
import sys

import siltstone


def count_visit(tx):
    tx[b"python"] = b"%d" % (int(tx.get(b"python", b"0")) + 1)


with siltstone.open(sys.argv[1] if len(sys.argv) > 1 else "/tmp/visits") as db:
    visits = db.table("visits")
    visits.transact(count_visit)
    for language, count in visits.items():
        print(language.decode(), count.decode())
# ANCHOR_END: program
