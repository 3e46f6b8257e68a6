import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;

/** A leader selector, a new one each time, that leads until it is released. */
final class Selector implements Lock {
    private final CuratorFramework client;
    private final String path;
    private ExecutorService executor;
    private LeaderSelector selector;
    private CountDownLatch released;

    Selector(CuratorFramework client, String path) {
        this.client = client;
        this.path = path;
    }

    @Override
    public boolean acquire(long milliseconds) throws Exception {
        CountDownLatch leads = new CountDownLatch(1);
        CountDownLatch end = new CountDownLatch(1);
        executor = Executors.newSingleThreadExecutor();
        released = end;
        selector = new LeaderSelector(client, path, executor, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                leads.countDown();
                end.await();
            }
        });
        selector.start();
        boolean held = false;
        try {
            if (milliseconds < 0) {
                leads.await();
                held = true;
            } else {
                held = leads.await(milliseconds, TimeUnit.MILLISECONDS);
            }
        } finally {
            if (!held) {
                selector.close();
                executor.shutdown();
            }
        }
        return held;
    }

    @Override
    public void release() throws Exception {
        released.countDown();
        // Its node is gone when its work is done; closing it earlier would interrupt that.
        executor.shutdown();
        executor.awaitTermination(1, TimeUnit.MINUTES);
        selector.close();
    }
}
