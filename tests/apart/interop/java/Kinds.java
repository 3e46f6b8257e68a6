import java.util.List;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMultiLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreMutex;
import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.framework.state.ConnectionState;

/**
 * The locks in Java, by name: Curator's, and the one among ZooKeeper's own recipes.
 *
 * <p>`new KIND PATH…` makes one: `mutex PATH`, `watched PATH`, `read PATH`, `write PATH`, `semaphore PATH [MAXIMUM [LEASES]]`,
 * `shared PATH COUNT-PATH MAXIMUM`, `semaphore-mutex PATH`, `multi PATH` (of PATH/a, PATH/b and PATH/c), `latch PATH [ID]`,
 * `selector PATH`, `member PATH ID DATA` of a group, and ZooKeeper's `recipe PATH`.
 */
final class Kinds {
    private Kinds() {}

    static Lock make(String[] words, CuratorFramework client, Handle handle) throws Exception {
        String path = words[1];
        switch (words[0]) {
            case "mutex":
                return new Mutex(new InterProcessMutex(client, path), handle);
            case "watched":
                return new Watched(new InterProcessMutex(client, path), client, handle);
            case "write":
            case "read":
                return new ReadWrite(new InterProcessReadWriteLock(client, path), words[0].equals("write"), handle);
            case "semaphore":
                int maximum = words.length > 2 ? Integer.parseInt(words[2]) : 1;
                int leases = words.length > 3 ? Integer.parseInt(words[3]) : 1;
                return new Semaphore(new InterProcessSemaphoreV2(client, path, maximum), leases, null);
            case "shared":
                SharedCount count = new SharedCount(client, words[2], Integer.parseInt(words[3]));
                count.start();
                return new Semaphore(new InterProcessSemaphoreV2(client, path, count), 1, count);
            case "semaphore-mutex":
                return new Plain(new InterProcessSemaphoreMutex(client, path));
            case "multi":
                return new Plain(new InterProcessMultiLock(client, List.of(path + "/a", path + "/b", path + "/c")));
            case "latch":
                return new Latch(client, path, words.length > 2 ? words[2] : "");
            case "selector":
                return new Selector(client, path);
            case "member":
                return new Member(client, path, words[2], words[3]);
            case "recipe":
                return new Recipe(client, path);
            default:
                throw new IllegalArgumentException("unknown kind " + words[0]);
        }
    }

    /** A lock that can only be acquired and released. */
    static class Plain implements Lock {
        private final InterProcessLock lock;

        Plain(InterProcessLock lock) {
            this.lock = lock;
        }

        @Override
        public boolean acquire(long milliseconds) throws Exception {
            if (milliseconds < 0) {
                lock.acquire();
                return true;
            }
            return lock.acquire(milliseconds, TimeUnit.MILLISECONDS);
        }

        @Override
        public void release() throws Exception {
            lock.release();
        }
    }

    /** A lock that lists its contenders, and can be revoked. */
    static class Mutex extends Plain {
        private final InterProcessMutex mutex;
        private final Handle handle;

        Mutex(InterProcessMutex mutex, Handle handle) {
            super(mutex);
            this.mutex = mutex;
            this.handle = handle;
        }

        @Override
        public String command(String verb, String[] arguments) throws Exception {
            switch (verb) {
                case "participants":
                    return String.join(" ", mutex.getParticipantNodes());
                case "revocable":
                    // Replies `revoked` and lets the holding thread release.
                    mutex.makeRevocable(asked -> {
                        handle.reply("revoked");
                        handle.command("release");
                    });
                    return "";
                default:
                    return super.command(verb, arguments);
            }
        }
    }

    /**
     * A mutex with a listener to the state of the connection, as Curator's documentation asks for. The lock counts as lost
     * when the session is, and as not held while the connection is suspended. `held` returns whether it is held.
     */
    static final class Watched extends Mutex {
        private volatile boolean suspended;
        private volatile boolean lost;

        Watched(InterProcessMutex mutex, CuratorFramework client, Handle handle) {
            super(mutex, handle);
            client.getConnectionStateListenable().addListener((connection, state) -> {
                suspended = !state.isConnected();
                lost |= state == ConnectionState.LOST;
            });
        }

        @Override
        public boolean acquire(long milliseconds) throws Exception {
            boolean acquired = super.acquire(milliseconds);
            // What happened before is no loss of this hold.
            lost = false;
            return acquired;
        }

        @Override
        public String command(String verb, String[] arguments) throws Exception {
            return verb.equals("held") ? String.valueOf(!suspended && !lost) : super.command(verb, arguments);
        }
    }

    /** One side of a read-write lock, whose thread can `read` and `unread` besides. */
    static final class ReadWrite extends Mutex {
        private final InterProcessReadWriteLock lock;

        ReadWrite(InterProcessReadWriteLock lock, boolean writes, Handle handle) {
            super(writes ? lock.writeLock() : lock.readLock(), handle);
            this.lock = lock;
        }

        @Override
        public String command(String verb, String[] arguments) throws Exception {
            switch (verb) {
                case "read":
                    lock.readLock().acquire();
                    return "";
                case "unread":
                    lock.readLock().release();
                    return "";
                default:
                    return super.command(verb, arguments);
            }
        }
    }
}
