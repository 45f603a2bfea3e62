import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.lang.instrument.ClassFileTransformer;
import java.lang.instrument.Instrumentation;
import java.security.ProtectionDomain;
import java.util.jar.JarFile;

/** An agent by which a JVM's clock is wrong: every call of System.currentTimeMillis comes here instead. */
public class ShiftedClock implements ClassFileTransformer {
    private static long ahead;

    /** The argument is the path of this jar, a comma, and how many milliseconds the clock is ahead. */
    public static void premain(String argument, Instrumentation jvm) throws Exception {
        int comma = argument.lastIndexOf(',');
        jvm.appendToBootstrapClassLoaderSearch(new JarFile(argument.substring(0, comma)));
        ahead = Long.parseLong(argument.substring(comma + 1));
        // Classes of the JDK see a copy of this class, which the first line made; all others see this one.
        Class<?> seen = Class.forName("ShiftedClock", true, null);
        seen.getMethod("set", long.class).invoke(null, ahead);
        jvm.addTransformer((ClassFileTransformer) seen.getDeclaredConstructor().newInstance(), true);
        jvm.retransformClasses(Class.forName("java.time.Clock$SystemClock"));
    }

    public static void set(long milliseconds) {
        ahead = milliseconds;
    }

    public static long currentTimeMillis() {
        return System.currentTimeMillis() + ahead;
    }

    @Override
    public byte[] transform(ClassLoader loader, String name, Class<?> old, ProtectionDomain domain, byte[] content) {
        if (name == null || name.equals("ShiftedClock")) {
            return null;
        }
        try {
            return redirected(content);
        } catch (IOException error) {
            return null;
        }
    }

    /** The class with its reference to System.currentTimeMillis led to this class, or null if it has none. */
    private static byte[] redirected(byte[] content) throws IOException {
        DataInputStream in = new DataInputStream(new ByteArrayInputStream(content));
        in.readInt();
        in.readInt();
        int count = in.readUnsignedShort();
        int[] at = new int[count];
        int[] tag = new int[count];
        String[] text = new String[count];
        for (int number = 1; number < count; number++) {
            at[number] = content.length - in.available();
            tag[number] = in.readUnsignedByte();
            switch (tag[number]) {
                case 1 -> text[number] = in.readUTF();
                case 7, 8, 16, 19, 20 -> in.skipBytes(2);
                case 15 -> in.skipBytes(3);
                case 5, 6 -> {
                    in.skipBytes(8);
                    number++;
                }
                default -> in.skipBytes(4);
            }
        }
        int end = content.length - in.available();
        for (int number = 1; number < count; number++) {
            if (tag[number] != 10 || !"java/lang/System".equals(text[two(content, at[two(content, at[number] + 1)] + 1)])) {
                continue;
            }
            if ("currentTimeMillis".equals(text[two(content, at[two(content, at[number] + 3)] + 1)])) {
                return withOwner(content, end, count, at[number] + 1);
            }
        }
        return null;
    }

    private static byte[] withOwner(byte[] content, int end, int count, int owner) throws IOException {
        ByteArrayOutputStream made = new ByteArrayOutputStream();
        DataOutputStream out = new DataOutputStream(made);
        out.write(content, 0, end);
        out.writeByte(1);
        out.writeUTF("ShiftedClock");
        out.writeByte(7);
        out.writeShort(count);
        out.write(content, end, content.length - end);
        byte[] found = made.toByteArray();
        put(found, 8, count + 2);
        put(found, owner, count + 1);
        return found;
    }

    private static int two(byte[] content, int at) {
        return (content[at] & 0xff) << 8 | content[at + 1] & 0xff;
    }

    private static void put(byte[] content, int at, int value) {
        content[at] = (byte) (value >> 8);
        content[at + 1] = (byte) value;
    }
}
