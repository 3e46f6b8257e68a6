/** A lock as the commands see it. */
interface Lock {
    /** Acquires it, in so many milliseconds or, if they are negative, without a limit; false when the time is over. */
    boolean acquire(long milliseconds) throws Exception;

    void release() throws Exception;

    /** How many lines it writes to the ledger. */
    default int permits() {
        return 1;
    }

    /** Ends what it has besides the client that all share. */
    default void close() throws Exception {}

    /** What only this kind can do. */
    default String obey(String verb, String[] arguments) throws Exception {
        throw new IllegalArgumentException("unknown command " + verb);
    }
}
