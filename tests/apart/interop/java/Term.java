import java.util.concurrent.TimeUnit;

/** A new candidate each time, closed if it does not lead in time. */
abstract class Term implements Lock {
    @Override
    public final boolean acquire(long milliseconds) throws Exception {
        stand();
        boolean leads = false;
        try {
            if (milliseconds < 0) {
                await();
                leads = true;
            } else {
                leads = await(milliseconds, TimeUnit.MILLISECONDS);
            }
        } finally {
            if (!leads) {
                withdraw();
            }
        }
        return leads;
    }

    /** Enters the queue. */
    abstract void stand() throws Exception;

    /** Waits until it leads. */
    abstract void await() throws Exception;

    /** Waits at most this long; returns whether it leads. */
    abstract boolean await(long time, TimeUnit unit) throws Exception;

    /** Closes it without having led. */
    abstract void withdraw() throws Exception;
}
