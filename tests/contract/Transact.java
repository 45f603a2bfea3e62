import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;

/** One message in a committed transaction: an application that uses them, for its topic's statistics. */
public class Transact {
    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0])
                .authentication(AuthenticationFactory.token(arguments[1])).enableTransaction(true).build()) {
            var producer = client.newProducer(Schema.STRING).topic(arguments[2]).create();
            Transaction transaction = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            producer.newMessage(transaction).value("paid").send();
            transaction.commit().get();
        }
    }
}
