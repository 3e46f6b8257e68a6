import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/** The driver of the lock among ZooKeeper's own recipes. `peer.rs` says what it understands. */
public final class Recipe {
    private static final int LOOK_AGAIN_MILLIS = 20;

    public static void main(String[] arguments) throws Exception {
        Map<String, Handle> handles = new HashMap<>();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        say("ready");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Handle handle = handles.get(words[0]);
            if (handle == null) {
                handle = new Handle(words[0], connect(arguments[0], Integer.parseInt(arguments[1])));
                handles.put(words[0], handle);
            }
            if (words[1].equals("cancel")) {
                handle.cancelled = true;
            } else {
                handle.commands.add(Arrays.asList(words).subList(1, words.length));
            }
        }
        for (Handle handle : handles.values()) {
            handle.zk.close();
        }
    }

    private static synchronized void say(String text) {
        System.out.println(text.replace('\n', ' '));
        System.out.flush();
    }

    private static ZooKeeper connect(String hosts, int session) throws Exception {
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zk = new ZooKeeper(hosts, session, event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        connected.await();
        return zk;
    }

    /** One lock, and the thread that obeys its commands. Locks of one session share a node, so each has its own. */
    private static final class Handle {
        final String name;
        final ZooKeeper zk;
        final BlockingQueue<List<String>> commands = new LinkedBlockingQueue<>();
        volatile boolean cancelled;
        String path;
        WriteLock lock;

        Handle(String name, ZooKeeper zk) {
            this.name = name;
            this.zk = zk;
            Thread thread = new Thread(this::obey);
            thread.setDaemon(true);
            thread.start();
        }

        void obey() {
            while (true) {
                String answer;
                try {
                    List<String> words = commands.take();
                    answer = obey(words.get(0), words.subList(1, words.size()));
                } catch (Exception error) {
                    answer = "error " + error;
                }
                say(name + " " + answer);
            }
        }

        String obey(String verb, List<String> arguments) throws Exception {
            switch (verb) {
                case "new":
                    path = arguments.get(1);
                    makePath();
                    return "ok";
                case "acquire":
                    return acquire(arguments.isEmpty() ? Long.MAX_VALUE : Long.parseLong(arguments.get(0)));
                case "release":
                    release();
                    return "ok";
                case "ask":
                    return "ok " + ask();
                case "unlock":
                    lock.unlock();
                    return "ok";
                case "work":
                    return work(arguments.get(0), arguments.get(1), Integer.parseInt(arguments.get(2)),
                            Integer.parseInt(arguments.get(3)));
                default:
                    return "error unknown verb " + verb;
            }
        }

        /** The recipe makes no ancestors. */
        void makePath() throws Exception {
            for (int end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
                try {
                    String parent = end < 0 ? path : path.substring(0, end);
                    zk.create(parent, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
                } catch (KeeperException.NodeExistsException error) {
                    // Somebody else made it.
                }
                if (end < 0) {
                    return;
                }
            }
        }

        String acquire(long milliseconds) throws Exception {
            CountDownLatch held = new CountDownLatch(1);
            lock = make(held);
            cancelled = false;
            // It waits for ever if the node before it goes between its listing and its watch, unless it is asked again.
            for (long waited = 0; waited < milliseconds; waited += LOOK_AGAIN_MILLIS) {
                if (cancelled) {
                    release();
                    return "cancelled";
                }
                lock.lock();
                if (held.await(Math.min(LOOK_AGAIN_MILLIS, milliseconds - waited), TimeUnit.MILLISECONDS)) {
                    return "held " + lock.getDir() + "/" + lock.getId();
                }
            }
            release();
            return "timeout";
        }

        /** Asks one lock, once more if it was asked before, and does not wait; true if it is held. */
        boolean ask() throws Exception {
            if (lock == null) {
                lock = make(new CountDownLatch(1));
            }
            lock.lock();
            return lock.isOwner();
        }

        WriteLock make(CountDownLatch held) {
            return new WriteLock(zk, path, Ids.OPEN_ACL_UNSAFE, new LockListener() {
                @Override
                public void lockAcquired() {
                    held.countDown();
                }

                @Override
                public void lockReleased() {}
            });
        }

        /** A lock that is not closed goes back in line when a watch of its own fires later. */
        void release() {
            synchronized (lock) {
                lock.unlock();
                lock.close();
            }
        }

        String work(String ledger, String mark, int limit, int times) throws Exception {
            String who = mark + " recipe-" + ProcessHandle.current().pid() + "-" + name;
            for (int turn = 0; turn < times; turn++) {
                acquire(Long.MAX_VALUE);
                append(ledger, "+" + who);
                // Long enough for another to come in, if it may.
                for (int look = 0; look < 10; look++) {
                    zk.exists("/", false);
                }
                List<String> together = overlap(ledger, limit);
                append(ledger, "-" + who);
                release();
                if (together != null) {
                    return "error at once: " + together;
                }
            }
            return "ok";
        }
    }

    private static void append(String ledger, String line) throws Exception {
        Path path = Paths.get(ledger);
        byte[] bytes = (line + "\n").getBytes(StandardCharsets.UTF_8);
        Files.write(path, bytes, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** Replays the ledger, and returns who was in at once and must not have been. */
    private static List<String> overlap(String ledger, int limit) throws Exception {
        List<String> present = new ArrayList<>();
        for (String line : Files.readAllLines(Paths.get(ledger))) {
            if (line.charAt(0) == '+') {
                present.add(line.substring(1));
            } else {
                present.remove(line.substring(1));
            }
            if (present.size() > limit && !present.stream().allMatch(who -> who.charAt(0) == 'r')) {
                return present;
            }
        }
        return null;
    }
}
