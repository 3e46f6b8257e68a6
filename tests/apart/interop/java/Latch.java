import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;

/** A leader latch, a new one each time; `leader` returns the leader. */
final class Latch extends Term {
    private final CuratorFramework client;
    private final String path;
    private final String id;
    private LeaderLatch latch;

    Latch(CuratorFramework client, String path, String id) {
        this.client = client;
        this.path = path;
        this.id = id;
    }

    @Override
    void stand() throws Exception {
        latch = new LeaderLatch(client, path, id);
        latch.start();
    }

    @Override
    void await() throws Exception {
        latch.await();
    }

    @Override
    boolean await(long time, TimeUnit unit) throws Exception {
        return latch.await(time, unit);
    }

    @Override
    void withdraw() throws Exception {
        latch.close();
    }

    @Override
    public void release() throws Exception {
        latch.close();
    }

    @Override
    public String command(String verb, String[] arguments) throws Exception {
        if (verb.equals("leader")) {
            // A latch that was not started can ask as well.
            return new LeaderLatch(client, path, id).getLeader().getId();
        }
        return super.command(verb, arguments);
    }
}
