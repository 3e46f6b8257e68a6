/** A lock as the commands see it. */
interface Lock {
    /** Acquires it within a limit, or without one if it is negative; false if it times out. */
    boolean acquire(long milliseconds) throws Exception;

    void release() throws Exception;

    /** How many lines it writes to the ledger. */
    default int permits() {
        return 1;
    }

    /** Closes everything but the client, which all locks share. */
    default void close() throws Exception {}

    /** What only this kind can do. */
    default String command(String verb, String[] arguments) throws Exception {
        throw new IllegalArgumentException("unknown command " + verb);
    }
}
