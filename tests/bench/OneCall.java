import org.apache.pulsar.client.admin.PulsarAdmin;

/** One admin call in a JVM of its own, as a runbook of commands makes it. */
public class OneCall {
    public static void main(String[] arguments) throws Exception {
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[0]).build()) {
            System.out.println(admin.namespaces().getPolicies(arguments[1]));
        }
    }
}
