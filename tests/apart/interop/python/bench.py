"""The cycles of the benchmark `peers`, in threads here and measured here, so that no pipe delays them."""

import platform
import threading
import time
import uuid

import kazoo
from kazoo.client import KazooClient


def exclusive(lock):
    def cycle():
        lock.acquire()
        lock.release()

    return cycle


def cycle_of(shape, client, path, worker, count):
    """A function that acquires and releases once."""
    if shape == "own":
        return exclusive(client.Lock(f"{path}/{worker}"))
    if shape == "shared":
        return exclusive(client.Lock(path))
    if shape == "read":
        return exclusive(client.ReadLock(path))
    if shape == "permits":
        return exclusive(client.Semaphore(path, max_leases=count))
    if shape == "deep":
        return lambda: exclusive(client.Lock(f"{path}/{uuid.uuid4()}/1/2/3/4/lock"))()
    if shape == "try":
        contended = client.Lock(path)

        def cycle():
            if contended.acquire(blocking=False):
                raise RuntimeError("it is held by another session")

        return cycle
    raise ValueError("unknown shape " + shape)


class First:
    """Locks that are new to the session and whose paths exist. Only the acquire counts."""

    def __init__(self, client, path):
        self.client = client
        self.path = path
        self.next = 0
        self.counted = 0

    def cycle(self):
        lock = self.client.Lock(f"{self.path}/{self.next}")
        self.next += 1
        began = time.perf_counter_ns()
        lock.acquire()
        self.counted += time.perf_counter_ns() - began
        lock.release()


class Bench:
    """Its sessions; the first is the driver's."""

    def __init__(self, first, hosts, timeout):
        self.hosts = hosts
        self.timeout = timeout
        self.clients = [first]
        self.held = None
        self.firsts = {}

    def client(self, number):
        while len(self.clients) <= number:
            client = KazooClient(hosts=self.hosts, timeout=self.timeout)
            client.start(timeout=60)
            self.clients.append(client)
        return self.clients[number]

    def run(self, shape, sessions, workers, count, path, cycles):
        """`bench SHAPE SESSIONS WORKERS COUNT PATH CYCLES`; returns elapsed nanoseconds and CPU time."""
        sessions, workers, count, cycles = int(sessions), int(workers), int(count), int(cycles)
        if shape == "try" and self.held != path:
            self.client(sessions).Lock(path).acquire()
            self.held = path
        start = threading.Barrier(workers + 1)
        failures = []

        def work(cycle):
            try:
                start.wait()
                for _ in range(cycles):
                    cycle()
            except Exception as error:
                failures.append(error)

        threads = []
        for worker in range(workers):
            client = self.client(worker % sessions)
            first = self.firsts.setdefault(path, First(client, path)) if shape == "first" else None
            cycle = first.cycle if first else cycle_of(shape, client, path, worker, count)
            threads.append(threading.Thread(target=work, args=(cycle,), daemon=True))
        for thread in threads:
            thread.start()
        cpu, began = time.process_time_ns(), time.perf_counter_ns()
        start.wait()
        for thread in threads:
            thread.join()
        elapsed, cpu = time.perf_counter_ns() - began, time.process_time_ns() - cpu
        if failures:
            raise failures[0]
        if first:
            elapsed, first.counted = first.counted, 0
        return f"{elapsed} {cpu}"


def version():
    return f"{kazoo.__version__}, Python {platform.python_version()}"
