import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.retry.ExponentialBackoffRetry;

/**
 * The driver of locks in Java. `peer.rs` lists its commands, and {@link Kinds} its kinds of locks. With `--version` it only
 * prints the versions of Curator and of Java.
 */
final class Peer {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--version")) {
            System.out.println(Bench.version());
            return;
        }
        int session = Integer.parseInt(arguments[1]);
        CuratorFramework client =
                CuratorFrameworkFactory.newClient(arguments[0], session, session, new ExponentialBackoffRetry(100, 3));
        client.start();
        if (!client.blockUntilConnected(60, TimeUnit.SECONDS)) {
            throw new IllegalStateException("not connected to " + arguments[0]);
        }
        Map<String, Handle> handles = new HashMap<>();
        System.out.println("ready");
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            Handle handle = handles.computeIfAbsent(words[0], name -> new Handle(name, client));
            handle.command(Arrays.copyOfRange(words, 1, words.length));
        }
        for (Handle handle : handles.values()) {
            handle.close();
        }
        client.close();
        System.exit(0);
    }
}
