import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderLatch;

/** A leader latch, a new one each time; `leader` tells who leads. */
final class Latch implements Lock {
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
    public boolean acquire(long milliseconds) throws Exception {
        latch = new LeaderLatch(client, path, id);
        latch.start();
        boolean leads = false;
        try {
            if (milliseconds < 0) {
                latch.await();
                leads = true;
            } else {
                leads = latch.await(milliseconds, TimeUnit.MILLISECONDS);
            }
        } finally {
            if (!leads) {
                latch.close();
            }
        }
        return leads;
    }

    @Override
    public void release() throws Exception {
        latch.close();
    }

    @Override
    public String obey(String verb, String[] arguments) throws Exception {
        if (verb.equals("leader")) {
            // One that was not started can ask as well.
            return new LeaderLatch(client, path, id).getLeader().getId();
        }
        return Lock.super.obey(verb, arguments);
    }
}
