import java.util.concurrent.TimeUnit;
import org.apache.pulsar.PulsarTransactionCoordinatorMetadataSetup;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.transaction.Transaction;

/** Gives a cluster a transaction coordinator, and commits one message: an application that uses transactions. */
public class Transact {
    public static void main(String[] arguments) throws Exception {
        String cluster = arguments[0], store = arguments[1], service = arguments[2], token = arguments[3];
        PulsarTransactionCoordinatorMetadataSetup.main(new String[] {
            "--cluster", cluster, "--configuration-store", store, "--initial-num-transaction-coordinators", "1"});
        try (PulsarClient client = PulsarClient.builder().serviceUrl(service)
                .authentication(AuthenticationFactory.token(token)).enableTransaction(true).build()) {
            var producer = client.newProducer(Schema.STRING).topic(arguments[4]).create();
            Transaction transaction = client.newTransaction().withTransactionTimeout(1, TimeUnit.MINUTES).build().get();
            producer.newMessage(transaction).value("paid").send();
            transaction.commit().get();
        }
        System.exit(0);
    }
}
