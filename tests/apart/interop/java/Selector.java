import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.leader.LeaderSelector;
import org.apache.curator.framework.recipes.leader.LeaderSelectorListenerAdapter;

/** A leader selector, a new one each time, that leads until it is released. */
final class Selector extends Term {
    private final CuratorFramework client;
    private final String path;
    private ExecutorService executor;
    private LeaderSelector selector;
    private CountDownLatch leads;
    private CountDownLatch released;

    Selector(CuratorFramework client, String path) {
        this.client = client;
        this.path = path;
    }

    @Override
    void stand() {
        CountDownLatch begin = new CountDownLatch(1);
        CountDownLatch end = new CountDownLatch(1);
        leads = begin;
        released = end;
        executor = Executors.newSingleThreadExecutor();
        selector = new LeaderSelector(client, path, executor, new LeaderSelectorListenerAdapter() {
            @Override
            public void takeLeadership(CuratorFramework client) throws Exception {
                begin.countDown();
                end.await();
            }
        });
        selector.start();
    }

    @Override
    void await() throws Exception {
        leads.await();
    }

    @Override
    boolean await(long time, TimeUnit unit) throws Exception {
        return leads.await(time, unit);
    }

    @Override
    void withdraw() {
        selector.close();
        executor.shutdown();
    }

    @Override
    public void release() throws Exception {
        released.countDown();
        // Its node is gone when its work is done; an earlier close would interrupt that.
        executor.shutdown();
        executor.awaitTermination(1, TimeUnit.MINUTES);
        selector.close();
    }
}
