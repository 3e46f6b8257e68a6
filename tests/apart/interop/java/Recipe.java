import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.apache.curator.CuratorZookeeperClient;
import org.apache.curator.framework.CuratorFramework;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Watcher.Event.KeeperState;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.recipes.lock.LockListener;
import org.apache.zookeeper.recipes.lock.WriteLock;

/**
 * The lock among ZooKeeper's own recipes, a new one each time. Those of one session share a node, so each has a session.
 *
 * <p>`ask` calls `lock()` and does not wait, always on the same lock; `unlock` does not close it.
 */
final class Recipe implements Lock {
    private static final int LOOK_AGAIN_MILLIS = 20;

    private final ZooKeeper zk;
    private final String path;
    private WriteLock lock;

    Recipe(CuratorFramework client, String path) throws Exception {
        CuratorZookeeperClient like = client.getZookeeperClient();
        CountDownLatch connected = new CountDownLatch(1);
        zk = new ZooKeeper(like.getCurrentConnectionString(), like.getLastNegotiatedSessionTimeoutMs(), event -> {
            if (event.getState() == KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        connected.await();
        this.path = path;
        makePath();
    }

    /** The recipe makes no ancestors. */
    private void makePath() throws Exception {
        for (int end = path.indexOf('/', 1); ; end = path.indexOf('/', end + 1)) {
            try {
                String parent = end < 0 ? path : path.substring(0, end);
                zk.create(parent, new byte[0], Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
            } catch (KeeperException.NodeExistsException error) {
                // Another client created it.
            }
            if (end < 0) {
                return;
            }
        }
    }

    @Override
    public boolean acquire(long milliseconds) throws Exception {
        long limit = milliseconds < 0 ? Long.MAX_VALUE : milliseconds;
        CountDownLatch acquired = new CountDownLatch(1);
        lock = make(acquired);
        boolean held = false;
        try {
            // If its predecessor goes between its listing and its watch, it waits for ever unless it is called again.
            for (long waited = 0; !held && waited < limit; waited += LOOK_AGAIN_MILLIS) {
                lock.lock();
                held = acquired.await(Math.min(LOOK_AGAIN_MILLIS, limit - waited), TimeUnit.MILLISECONDS);
            }
        } finally {
            if (!held) {
                release();
            }
        }
        return held;
    }

    /** A lock that is not closed queues again when a watch of its own fires later. */
    @Override
    public void release() {
        synchronized (lock) {
            lock.unlock();
            lock.close();
        }
    }

    @Override
    public String command(String verb, String[] arguments) throws Exception {
        switch (verb) {
            case "ask":
                if (lock == null) {
                    lock = make(new CountDownLatch(1));
                }
                lock.lock();
                return String.valueOf(lock.isOwner());
            case "unlock":
                lock.unlock();
                return "";
            default:
                return Lock.super.command(verb, arguments);
        }
    }

    @Override
    public void close() throws Exception {
        zk.close();
    }

    private WriteLock make(CountDownLatch acquired) {
        return new WriteLock(zk, path, Ids.OPEN_ACL_UNSAFE, new LockListener() {
            @Override
            public void lockAcquired() {
                acquired.countDown();
            }

            @Override
            public void lockReleased() {}
        });
    }
}
