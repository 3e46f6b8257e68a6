import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.List;

/** The file to which all holders write every acquire and release. */
final class Ledger {
    private final Path file;

    Ledger(String file) {
        this.file = Path.of(file);
    }

    void append(String line) throws IOException {
        byte[] bytes = (line + "\n").getBytes();
        Files.write(file, bytes, StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /** Holders that excluded each other but held at once, or null. */
    List<String> overlap(int limit) throws IOException {
        List<String> present = new ArrayList<>();
        for (String line : Files.readAllLines(file)) {
            String who = line.substring(1);
            if (line.charAt(0) == '+') {
                present.add(who);
            } else {
                present.remove(who);
            }
            if (present.size() > limit && !present.stream().allMatch(one -> one.startsWith("r"))) {
                return present;
            }
        }
        return null;
    }
}
