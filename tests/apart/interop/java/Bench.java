import java.io.InputStream;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.Collectors;
import java.util.stream.IntStream;

import com.sun.management.OperatingSystemMXBean;
import org.apache.curator.CuratorZookeeperClient;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;

/** The cycles of the benchmark `peers`, in threads here and measured here, so that no pipe delays them. */
final class Bench {
    /** Acquires and releases once. */
    private interface Cycle {
        void run() throws Exception;
    }

    private final List<CuratorFramework> clients = new ArrayList<>();
    private final Map<String, Integer> used = new HashMap<>();
    private String held = "";
    /** The part of the cycles that counts, if not all of their time does. */
    private long counted;

    /** The first of its sessions is the driver's. */
    Bench(CuratorFramework first) {
        clients.add(first);
    }

    /** `bench SHAPE SESSIONS WORKERS COUNT PATH CYCLES`; returns elapsed nanoseconds and CPU time. */
    String run(String[] words) throws Exception {
        int sessions = Integer.parseInt(words[1]);
        int workers = Integer.parseInt(words[2]);
        int cycles = Integer.parseInt(words[5]);
        if (words[0].equals("try") && !held.equals(words[4])) {
            new InterProcessMutex(client(sessions), words[4]).acquire();
            held = words[4];
        }
        CountDownLatch ready = new CountDownLatch(workers);
        CountDownLatch start = new CountDownLatch(1);
        CountDownLatch done = new CountDownLatch(workers);
        AtomicReference<Exception> failure = new AtomicReference<>();
        for (int worker = 0; worker < workers; worker++) {
            // Each thread has a lock object of its own: a shared one wakes all its threads at each event.
            Cycle cycle = cycle(words[0], client(worker % sessions), words[4], worker, Integer.parseInt(words[3]));
            new Thread(() -> {
                try {
                    ready.countDown();
                    start.await();
                    for (int turn = 0; turn < cycles; turn++) {
                        cycle.run();
                    }
                } catch (Exception error) {
                    failure.set(error);
                }
                done.countDown();
            }).start();
        }
        ready.await();
        counted = 0;
        OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = process.getProcessCpuTime();
        long began = System.nanoTime();
        start.countDown();
        done.await();
        long elapsed = System.nanoTime() - began;
        String measured = (words[0].equals("first") ? counted : elapsed) + " " + (process.getProcessCpuTime() - cpu);
        if (failure.get() != null) {
            throw failure.get();
        }
        return measured;
    }

    static String version() throws Exception {
        Properties properties = new Properties();
        String about = "/META-INF/maven/org.apache.curator/curator-recipes/pom.properties";
        try (InputStream stream = InterProcessMutex.class.getResourceAsStream(about)) {
            if (stream != null) {
                properties.load(stream);
            }
        }
        return properties.getProperty("version", "?") + ", Java " + System.getProperty("java.version");
    }

    private CuratorFramework client(int number) throws Exception {
        while (clients.size() <= number) {
            CuratorZookeeperClient like = clients.get(0).getZookeeperClient();
            CuratorFramework client = CuratorFrameworkFactory.newClient(like.getCurrentConnectionString(),
                    like.getLastNegotiatedSessionTimeoutMs(), like.getConnectionTimeoutMs(), like.getRetryPolicy());
            client.start();
            if (!client.blockUntilConnected(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException("not connected");
            }
            clients.add(client);
        }
        return clients.get(number);
    }

    private Cycle cycle(String shape, CuratorFramework client, String path, int worker, int count) {
        switch (shape) {
            case "own":
                return exclusive(new InterProcessMutex(client, path + "/" + worker));
            case "first":
                return () -> first(client, path);
            case "shared":
                return exclusive(new InterProcessMutex(client, path));
            case "read":
                return exclusive(new InterProcessReadWriteLock(client, path).readLock());
            case "permits":
                InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(client, path, count);
                return () -> semaphore.returnLease(semaphore.acquire());
            case "many":
                return exclusive(new InterProcessMultiLock(client,
                        IntStream.range(0, count).mapToObj(member -> path + "/" + member).collect(Collectors.toList())));
            case "deep":
                return () -> exclusive(new InterProcessMutex(client, path + "/" + UUID.randomUUID() + "/1/2/3/4/lock")).run();
            case "try":
                InterProcessMutex contended = new InterProcessMutex(client, path);
                return () -> {
                    if (contended.acquire(0, TimeUnit.MILLISECONDS)) {
                        throw new IllegalStateException("it is held by another session");
                    }
                };
            default:
                throw new IllegalArgumentException("unknown shape " + shape);
        }
    }

    /** Acquires a lock that is new to this session and whose path exists. One thread at a time does this. */
    private void first(CuratorFramework client, String path) throws Exception {
        InterProcessMutex lock = new InterProcessMutex(client, path + "/" + (used.merge(path, 1, Integer::sum) - 1));
        long began = System.nanoTime();
        lock.acquire();
        counted += System.nanoTime() - began;
        lock.release();
    }

    private static Cycle exclusive(InterProcessLock lock) {
        return () -> {
            lock.acquire();
            lock.release();
        };
    }
}
