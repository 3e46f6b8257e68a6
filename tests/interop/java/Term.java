import java.util.concurrent.TimeUnit;

/** A new candidate each time, which is closed if it does not come to lead. */
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

    /** Gets in line. */
    abstract void stand() throws Exception;

    /** Waits until it leads. */
    abstract void await() throws Exception;

    /** Waits for so long at most; tells whether it leads. */
    abstract boolean await(long time, TimeUnit unit) throws Exception;

    /** Ends it, though it does not lead. */
    abstract void withdraw() throws Exception;
}
