import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.ControlledClusterFailover;

/**
 * Applications that write down what they see: read from standard input, one a line, until an empty line.
 * `client` begins a new client object. When all are connected the file of the events is created, empty; `stop` ends the
 * producers, `end` writes the events and ends.
 * A third argument is the URL of a connection document, which the clients follow.
 * The events: A producer number time (acknowledged), E producer number time (failed), R consumer producer number time;
 * times in microseconds. `applications.py` and `go/main.go` do the same.
 */
public class Applications {
    static final int RUN = 8, KEYS = 10;
    static final List<StringBuilder> EVENTS = new ArrayList<>();
    static final List<Writing> WRITERS = new ArrayList<>();
    static volatile boolean running = true;

    record Writing(Producer<byte[]> producer, String index, int rate, StringBuilder events, long began, int[] sent) {
        void send() {
            long due = (System.nanoTime() - began) * rate / 1_000_000_000L;
            while (sent[0] < due) {
                int number = sent[0]++;
                producer.newMessage().key("k" + number / RUN % KEYS).value((index + " " + number).getBytes())
                    .sendAsync().whenComplete((id, error) -> note(events, error == null ? "A " : "E ", index, number));
            }
        }
    }

    static void note(StringBuilder events, String kind, String who, Object what) {
        Instant now = Instant.now();
        long time = now.getEpochSecond() * 1_000_000L + now.getNano() / 1000;
        synchronized (events) {
            events.append(kind).append(who).append(' ').append(what).append(' ').append(time).append('\n');
        }
    }

    static StringBuilder newEvents() {
        StringBuilder events = new StringBuilder();
        EVENTS.add(events);
        return events;
    }

    static void received(StringBuilder events, String index, Message<byte[]> message) {
        note(events, "R ", index, new String(message.getData(), StandardCharsets.UTF_8));
    }

    static PulsarClient connect(String[] arguments) throws Exception {
        ClientBuilder builder = PulsarClient.builder().ioThreads(1).listenerThreads(1);
        if (arguments.length < 3) {
            return builder.serviceUrl(arguments[0]).build();
        }
        return builder.serviceUrlProvider(ControlledClusterFailover.builder().defaultServiceUrl(arguments[0])
            .urlProvider(arguments[2]).checkInterval(1, TimeUnit.SECONDS).build()).build();
    }

    static void start(PulsarClient client, String[] words) throws Exception {
        StringBuilder events = newEvents();
        String index = words[1];
        MessageListener<byte[]> listener = (consumer, message) -> {
            received(events, index, message);
            consumer.acknowledgeAsync(message);
        };
        switch (words[0]) {
            case "producer" -> WRITERS.add(new Writing(
                client.newProducer().topic(words[2]).sendTimeout(0, TimeUnit.SECONDS).maxPendingMessages(50_000)
                    .batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
                    .batcherBuilder(words[4].equals("Key_Shared") ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT)
                    .create(),
                index, Integer.parseInt(words[3]), events, System.nanoTime(), new int[1]));
            case "consumer" -> client.newConsumer().topic(words[2]).subscriptionName(words[3])
                .subscriptionType(SubscriptionType.valueOf(words[4])).messageListener(listener).subscribe();
            case "pattern" -> client.newConsumer().topicsPattern(Pattern.compile(words[2])).subscriptionName(words[3])
                .patternAutoDiscoveryPeriod(2, TimeUnit.SECONDS).subscriptionType(SubscriptionType.Shared)
                .messageListener(listener).subscribe();
            case "reader" -> client.newReader().topic(words[2]).startMessageId(MessageId.earliest)
                .readerListener((reader, message) -> received(events, index, message)).create();
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        PulsarClient client = null;
        for (String line = input.readLine(); line != null && !line.isEmpty(); line = input.readLine()) {
            if (line.equals("client")) {
                client = connect(arguments);
            } else {
                start(client, line.split(" "));
            }
        }
        Thread pacer = new Thread(() -> {
            while (running) {
                WRITERS.forEach(Writing::send);
                try {
                    Thread.sleep(10);
                } catch (InterruptedException e) {
                    return;
                }
            }
        });
        pacer.start();
        Path file = Path.of(arguments[1]);
        Files.createFile(file);
        if ("stop".equals(input.readLine())) {
            running = false;
            if ("end".equals(input.readLine())) {
                write(file);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    static void write(Path file) throws Exception {
        try (var out = Files.newBufferedWriter(file)) {
            for (StringBuilder events : EVENTS) {
                synchronized (events) {
                    out.append(events);
                }
            }
        }
    }
}
