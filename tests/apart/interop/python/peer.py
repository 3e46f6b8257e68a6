"""The driver of kazoo's locks. `peer.rs` lists its commands."""

import os
import queue
import sys
import threading

from kazoo.client import KazooClient
from kazoo.exceptions import CancelledError, LockTimeout
from kazoo.recipe.lock import Lock

# Our names, as kazoo has to be configured with them.
OURS = ["-lock-"]
OUR_WRITERS = ["__WRIT__"]
OUR_READERS = ["__READ__"]


class RenamedLock(Lock):
    """kazoo's lock with the names that Curator, Go's client and we use. It also waits for ZooKeeper's own recipe."""

    _NODE_NAME = "-lock-"
    _EXCLUDE_NAMES = ["-lock-", "x--?[0-9a-f]+-"]


output_lock = threading.Lock()


def reply(handle, text):
    with output_lock:
        print(handle, text.replace("\n", " "), flush=True)


def overlap(ledger, limit):
    """Replays the ledger, and returns holders that excluded each other but held at once."""
    present = []
    with open(ledger) as lines:
        for line in lines:
            who = line[1:].strip()
            present.append(who) if line[0] == "+" else present.remove(who)
            if len(present) > limit and not all(who[0] == "r" for who in present):
                return present
    return None


def append(ledger, line):
    descriptor = os.open(ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, (line + "\n").encode())
    os.close(descriptor)


class Handle:
    """One lock, and the thread that runs its commands."""

    def __init__(self, name, client):
        self.name = name
        self.client = client
        self.commands = queue.Queue()
        self.lock = None
        self.measuring = None
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            verb, *arguments = self.commands.get()
            try:
                answer = getattr(self, verb)(*arguments)
            except Exception as error:
                answer = f"error {type(error).__name__}: {error}"
            reply(self.name, answer)

    def new(self, kind, path, extra=None):
        """`extra` is the permits of a semaphore, or the identifier of a lock."""
        if kind == "lock":
            self.lock = self.client.Lock(path, extra, extra_lock_patterns=OURS)
        elif kind == "plain":
            self.lock = self.client.Lock(path)
        elif kind == "renamed":
            self.lock = RenamedLock(self.client, path, extra)
        elif kind == "semaphore":
            self.lock = self.client.Semaphore(path, max_leases=int(extra))
        elif kind == "lock-of-read-write":
            self.lock = self.client.Lock(path, extra_lock_patterns=OUR_WRITERS + OUR_READERS)
        elif kind == "write-of-mutex":
            self.lock = self.client.WriteLock(path, extra_lock_patterns=OURS)
        elif kind == "read-of-mutex":
            self.lock = self.client.ReadLock(path, extra_lock_patterns=OURS)
        elif kind == "write":
            self.lock = self.client.WriteLock(path, extra_lock_patterns=OUR_WRITERS + OUR_READERS)
        elif kind == "read":
            self.lock = self.client.ReadLock(path, extra_lock_patterns=OUR_WRITERS)
        else:
            return "error unknown kind " + kind
        return "ok"

    def acquire(self, milliseconds=None):
        limit = int(milliseconds) / 1000 if milliseconds else None
        try:
            if not self.lock.acquire(timeout=limit):
                return "timeout"
        except LockTimeout:
            return "timeout"
        except CancelledError:
            return "cancelled"
        # A semaphore does not expose the name of its node.
        return f"held {self.lock.path}/{getattr(self.lock, 'node', '')}"

    def cancel(self):
        self.lock.cancel()

    def release(self):
        return "ok" if self.lock.release() else "error not held"

    def contenders(self):
        return "ok " + ",".join(self.lock.contenders())

    def work(self, ledger, mark, limit, times):
        who = f"{mark} kazoo-{os.getpid()}-{self.name}"
        for _ in range(int(times)):
            self.lock.acquire()
            append(ledger, "+" + who)
            # Long enough for another holder to acquire, if it may.
            for _ in range(10):
                self.client.exists("/")
            together = overlap(ledger, int(limit))
            append(ledger, "-" + who)
            self.lock.release()
            if together:
                return f"error at once: {together}"
        return "ok"

    def version(self):
        # Imported here, because only the benchmark needs it.
        from bench import version

        return "ok " + version()

    def bench(self, *arguments):
        from bench import Bench

        if not self.measuring:
            hosts, session = sys.argv[1:]
            self.measuring = Bench(self.client, hosts, int(session) / 1000)
        return "ok " + self.measuring.run(*arguments)


def main():
    hosts, session = sys.argv[1:]
    client = KazooClient(hosts=hosts, timeout=int(session) / 1000)
    client.start()
    handles = {}
    print("ready", flush=True)
    for line in sys.stdin:
        name, verb, *arguments = line.split()
        handle = handles.get(name) or handles.setdefault(name, Handle(name, client))
        if verb == "cancel":
            handle.cancel()
        else:
            handle.commands.put((verb, *arguments))
    client.stop()
    client.close()


main()
