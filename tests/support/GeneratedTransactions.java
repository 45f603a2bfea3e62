import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Writes to each topic two committed transactions with an aborted one in between, and two plain messages. */
public class GeneratedTransactions {
    public static void main(String[] arguments) throws Exception {
        PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
        for (int place = 1; place < arguments.length; place++) {
            try (Producer<byte[]> producer = client.newProducer().topic(arguments[place])
                    .sendTimeout(0, TimeUnit.SECONDS).enableBatching(false).create()) {
                for (int number = 0; number < 3; number++) {
                    Transaction transaction = client.newTransaction()
                            .withTransactionTimeout(10, TimeUnit.MINUTES).build().get(30, TimeUnit.SECONDS);
                    for (int part = 0; part < 2; part++) {
                        send(producer.newMessage(transaction), "part-" + number + "-" + part, 1000 + 2 * number + part);
                    }
                    (number == 1 ? transaction.abort() : transaction.commit()).get(30, TimeUnit.SECONDS);
                }
                send(producer.newMessage(), "after-0", 1006);
                send(producer.newMessage(), "after-1", 1007);
            }
        }
        System.exit(0);
    }

    private static void send(org.apache.pulsar.client.api.TypedMessageBuilder<byte[]> message, String text, long time)
            throws Exception {
        message.key("paid").eventTime(time).value(text.getBytes(StandardCharsets.UTF_8)).send();
    }
}
