import java.util.Arrays;
import java.util.List;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.Revoker;

/** One lock, and the thread that runs its commands: Curator's locks belong to threads. */
final class Handle {
    private final String name;
    private final CuratorFramework client;
    private final BlockingQueue<String[]> commands = new LinkedBlockingQueue<>();
    private final Thread thread = new Thread(this::run);
    private volatile Lock lock;
    private boolean busy;
    private Bench bench;

    Handle(String name, CuratorFramework client) {
        this.name = name;
        this.client = client;
        thread.setDaemon(true);
        thread.start();
    }

    /** Queues a command; only `cancel` takes effect at once. */
    void command(String... words) {
        if (words[0].equals("cancel")) {
            Thread cancel = new Thread(this::cancel);
            cancel.setDaemon(true);
            cancel.start();
        } else {
            commands.add(words);
        }
    }

    /** Interrupts the command until it ends: ZooKeeper's recipe ignores an interrupt between two attempts. */
    private synchronized void cancel() {
        try {
            while (busy) {
                thread.interrupt();
                wait(100);
            }
        } catch (InterruptedException unexpected) {
            throw new IllegalStateException(unexpected);
        }
    }

    private synchronized void setBusy(boolean now) {
        busy = now;
        notifyAll();
        // Curator sets the flag again, and a cancel may come late.
        Thread.interrupted();
    }

    void close() throws Exception {
        if (lock != null) {
            lock.close();
        }
    }

    void reply(String text) {
        synchronized (System.out) {
            System.out.println(name + " " + text.replace('\n', ' '));
            System.out.flush();
        }
    }

    private void run() {
        while (true) {
            String answer;
            try {
                String[] words = commands.take();
                setBusy(true);
                answer = answer(words[0], Arrays.copyOfRange(words, 1, words.length));
            } catch (InterruptedException cancelled) {
                answer = "cancelled";
            } catch (Exception error) {
                answer = "error " + error;
            }
            setBusy(false);
            reply(answer);
        }
    }

    private String answer(String verb, String[] arguments) throws Exception {
        switch (verb) {
            case "new":
                lock = Kinds.make(arguments, client, this);
                return "ok";
            case "acquire":
                long limit = arguments.length > 0 ? Long.parseLong(arguments[0]) : -1;
                return lock.acquire(limit) ? "held" : "timeout";
            case "release":
                lock.release();
                return "ok";
            case "work":
                return work(new Ledger(arguments[0]), arguments[1], Integer.parseInt(arguments[2]),
                        Integer.parseInt(arguments[3]));
            case "version":
                return "ok " + Bench.version();
            case "bench":
                bench = bench == null ? new Bench(client) : bench;
                return "ok " + bench.run(arguments);
            case "revoke":
                Revoker.attemptRevoke(client, arguments[0]);
                return "ok";
            default:
                return "ok " + lock.command(verb, arguments);
        }
    }

    private String work(Ledger ledger, String mark, int limit, int times) throws Exception {
        String who = mark + " java-" + ProcessHandle.current().pid() + "-" + name + "-";
        for (int turn = 0; turn < times; turn++) {
            lock.acquire(-1);
            for (int permit = 0; permit < lock.permits(); permit++) {
                ledger.append("+" + who + permit);
            }
            // Holds for longer than the next in the queue would need to acquire.
            for (int request = 0; request < 10; request++) {
                client.checkExists().forPath("/");
            }
            List<String> together = ledger.overlap(limit);
            for (int permit = 0; permit < lock.permits(); permit++) {
                ledger.append("-" + who + permit);
            }
            lock.release();
            if (together != null) {
                return "error at once: " + together;
            }
        }
        return "ok";
    }
}
