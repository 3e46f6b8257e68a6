import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.recipes.locks.InterProcessSemaphoreV2;
import org.apache.curator.framework.recipes.locks.Lease;
import org.apache.curator.framework.recipes.shared.SharedCount;

/** Some leases of a semaphore at once, whose maximum may come from a node: `count MAXIMUM` changes it. */
final class Semaphore implements Lock {
    private final InterProcessSemaphoreV2 semaphore;
    private final int leases;
    private final SharedCount count;
    private Collection<Lease> held = List.of();

    Semaphore(InterProcessSemaphoreV2 semaphore, int leases, SharedCount count) {
        this.semaphore = semaphore;
        this.leases = leases;
        this.count = count;
    }

    @Override
    public boolean acquire(long milliseconds) throws Exception {
        Collection<Lease> acquired = milliseconds < 0
                ? semaphore.acquire(leases)
                : semaphore.acquire(leases, milliseconds, TimeUnit.MILLISECONDS);
        if (acquired == null) {
            return false;
        }
        held = acquired;
        return true;
    }

    @Override
    public void release() {
        semaphore.returnAll(held);
        held = List.of();
    }

    @Override
    public int permits() {
        return leases;
    }

    @Override
    public String command(String verb, String[] arguments) throws Exception {
        switch (verb) {
            case "count":
                count.setCount(Integer.parseInt(arguments[0]));
                return "";
            case "participants":
                return String.join(" ", semaphore.getParticipantNodes());
            default:
                return Lock.super.command(verb, arguments);
        }
    }
}
