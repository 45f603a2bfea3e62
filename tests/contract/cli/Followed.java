import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.ServiceUrlProvider;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.ControlledClusterFailover;

/**
 * An application that follows a connection document: java Followed DEFAULT_URL DOCUMENT_URL TOKEN TOPIC. It publishes and
 * receives until its stdin ends, then prints how many messages were acknowledged, and how many of them it did not get.
 */
public class Followed {
    private static volatile boolean publishing = true;
    private static volatile boolean receiving = true;

    public static void main(String[] words) throws Exception {
        // As docs/clients.md shows it.
        ServiceUrlProvider provider = ControlledClusterFailover.builder()
            .defaultServiceUrl(words[0])
            .urlProvider(words[1])
            .urlProviderHeader(Map.of("Authorization", "Bearer " + words[2]))
            .checkInterval(1, TimeUnit.SECONDS)
            .build();
        PulsarClient client = PulsarClient.builder().serviceUrlProvider(provider).build();
        Set<String> sent = ConcurrentHashMap.newKeySet();
        Set<String> received = ConcurrentHashMap.newKeySet();
        Consumer<byte[]> consumer = client.newConsumer().topic(words[3]).subscriptionName("application")
            .subscriptionType(SubscriptionType.Shared).replicateSubscriptionState(true)
            .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        Producer<byte[]> producer = client.newProducer().topic(words[3]).sendTimeout(60, TimeUnit.SECONDS).create();
        Thread receiver = new Thread(() -> {
            while (receiving) {
                try {
                    Message<byte[]> message = consumer.receive(200, TimeUnit.MILLISECONDS);
                    if (message != null) {
                        received.add(new String(message.getData()));
                        consumer.acknowledge(message);
                    }
                } catch (Exception error) {
                    // The client is moving.
                }
            }
        });
        Thread publisher = new Thread(() -> {
            for (int number = 0; publishing; number++) {
                try {
                    producer.send(("" + number).getBytes());
                    sent.add("" + number);
                    Thread.sleep(20);
                } catch (Exception error) {
                    throw new IllegalStateException(error);
                }
            }
        });
        receiver.start();
        publisher.start();
        System.in.read();
        publishing = false;
        publisher.join();
        for (int tries = 0; tries < 100 && !received.containsAll(sent); tries++) {
            Thread.sleep(200);
        }
        receiving = false;
        receiver.join();
        int count = sent.size();
        sent.removeAll(received);
        System.out.println(count + " " + sent.size());
        System.exit(0);
    }
}
