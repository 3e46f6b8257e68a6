import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;

import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.recipes.nodes.GroupMember;

/** A member of a group, a new one each time: `acquire` starts it, and `release` closes it. */
final class Member implements Lock {
    private final CuratorFramework client;
    private final String path;
    private final String id;
    private final byte[] data;
    private GroupMember member;

    Member(CuratorFramework client, String path, String id, String data) {
        this.client = client;
        this.path = path;
        this.id = id;
        this.data = data.getBytes(StandardCharsets.UTF_8);
    }

    /** Its node is created in the background. */
    @Override
    public boolean acquire(long milliseconds) {
        member = new GroupMember(client, path, id, data);
        member.start();
        return true;
    }

    @Override
    public void release() {
        member.close();
    }

    @Override
    public String command(String verb, String[] arguments) throws Exception {
        switch (verb) {
            case "members":
                StringBuilder all = new StringBuilder();
                for (Map.Entry<String, byte[]> one : new TreeMap<>(member.getCurrentMembers()).entrySet()) {
                    all.append(all.length() == 0 ? "" : " ");
                    all.append(one.getKey()).append('=').append(new String(one.getValue(), StandardCharsets.UTF_8));
                }
                return all.toString();
            case "set":
                member.setThisData(arguments[0].getBytes(StandardCharsets.UTF_8));
                return "";
            default:
                return Lock.super.command(verb, arguments);
        }
    }
}
