import java.nio.charset.StandardCharsets;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Writes plain messages and transactions, committed and aborted, to one topic; leaves one open on another. */
public class Transactions {
    private static PulsarClient client;

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).enableTransaction(true).build();
        try (Producer<byte[]> producer = producer(arguments[1])) {
            for (int number = 0; number < 5; number++) {
                producer.send(("plain-" + number).getBytes(StandardCharsets.UTF_8));
                Transaction transaction = begin();
                for (int part = 0; part < 4; part++) {
                    String text = "part-" + number + "-" + part;
                    producer.newMessage(transaction).key("k" + part).value(text.getBytes(StandardCharsets.UTF_8)).send();
                }
                if (number < 3) {
                    transaction.commit().get(30, TimeUnit.SECONDS);
                } else {
                    transaction.abort().get(30, TimeUnit.SECONDS);
                }
                producer.send(("after-" + number).getBytes(StandardCharsets.UTF_8));
            }
        }
        try (Producer<byte[]> producer = producer(arguments[2])) {
            producer.newMessage(begin()).value(new byte[] {1}).send();
        }
        System.exit(0);
    }

    private static Transaction begin() throws Exception {
        return client.newTransaction().withTransactionTimeout(10, TimeUnit.MINUTES).build().get(30, TimeUnit.SECONDS);
    }

    private static Producer<byte[]> producer(String topic) throws Exception {
        return client.newProducer().topic(topic).sendTimeout(0, TimeUnit.SECONDS).enableBatching(false).create();
    }
}
