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
import org.apache.pulsar.client.api.transaction.Transaction;
import org.apache.pulsar.client.impl.ControlledClusterFailover;

/**
 * Applications that write down what they see: read from standard input, one a line, until an empty line.
 * `client` begins a new client object, `client transactions` one that can begin transactions. A producer is plain,
 * chunked (each message in several chunks) or transacted (some messages in each transaction, acknowledged when it is
 * committed). When all are connected the file of the events is created, empty; `stop` ends the
 * producers, `end` writes the events and ends.
 * A third argument is the URL of a connection document, which the clients follow.
 * The events: A producer number time (acknowledged), E producer number time (failed), R consumer producer number time;
 * times in microseconds. `applications.py` and `go/main.go` do the same, for plain ones.
 */
public class Applications {
    static final int RUN = 8, KEYS = 10;
    static final int CHUNK_BYTES = 2_000, CHUNKS = 3;
    static final int TRANSACTION_SECONDS = 10;
    static final List<StringBuilder> EVENTS = new ArrayList<>();
    static final List<Writing> WRITERS = new ArrayList<>();
    static volatile boolean running = true;

    record Writing(Producer<byte[]> producer, String index, int rate, StringBuilder events, String kind, long began,
                   int[] sent) {
        void send() {
            long due = (System.nanoTime() - began) * rate / 1_000_000_000L;
            while (sent[0] < due) {
                int number = sent[0]++;
                put(producer.newMessage(), number).sendAsync()
                    .whenComplete((id, error) -> note(events, error == null ? "A " : "E ", index, number));
            }
        }

        TypedMessageBuilder<byte[]> put(TypedMessageBuilder<byte[]> message, int number) {
            String padding = kind.equals("chunked") ? "x".repeat(CHUNK_BYTES * CHUNKS) : "";
            return message.key("k" + number / RUN % KEYS).value((index + " " + number + " " + padding).getBytes());
        }

        void transact(PulsarClient client) {
            while (running) {
                int first = sent[0];
                sent[0] += RUN;
                String kind = "A ";
                try {
                    Transaction transaction = client.newTransaction()
                        .withTransactionTimeout(TRANSACTION_SECONDS, TimeUnit.SECONDS).build()
                        .get(TRANSACTION_SECONDS, TimeUnit.SECONDS);
                    for (int number = first; number < sent[0]; number++) {
                        put(producer.newMessage(transaction), number).sendAsync();
                    }
                    producer.flushAsync().get(TRANSACTION_SECONDS, TimeUnit.SECONDS);
                    transaction.commit().get(TRANSACTION_SECONDS, TimeUnit.SECONDS);
                    Thread.sleep(1000L * RUN / rate);
                } catch (Exception error) {
                    System.out.println(Instant.now() + " " + index + " " + error);
                    kind = "E ";
                }
                for (int number = first; number < sent[0]; number++) {
                    note(events, kind, index, number);
                }
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
        note(events, "R ", index, new String(message.getData(), StandardCharsets.UTF_8).strip().replaceAll(" x+$", ""));
    }

    static PulsarClient connect(String[] arguments, boolean transactions) throws Exception {
        ClientBuilder builder = PulsarClient.builder().ioThreads(1).listenerThreads(1).enableTransaction(transactions);
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
            case "producer" -> {
                Writing writing = new Writing(produce(client, words), index, Integer.parseInt(words[3]), events,
                    words[5], System.nanoTime(), new int[1]);
                if (words[5].equals("transacted")) {
                    Thread thread = new Thread(() -> writing.transact(client));
                    thread.start();
                } else {
                    WRITERS.add(writing);
                }
            }
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

    static Producer<byte[]> produce(PulsarClient client, String[] words) throws Exception {
        ProducerBuilder<byte[]> builder = client.newProducer().topic(words[2]).sendTimeout(0, TimeUnit.SECONDS)
            .maxPendingMessages(50_000);
        if (words[5].equals("chunked")) {
            return builder.enableBatching(false).enableChunking(true).chunkMaxMessageSize(CHUNK_BYTES).create();
        }
        return builder.batchingMaxPublishDelay(20, TimeUnit.MILLISECONDS)
            .batcherBuilder(words[4].equals("Key_Shared") ? BatcherBuilder.KEY_BASED : BatcherBuilder.DEFAULT).create();
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        PulsarClient client = null;
        for (String line = input.readLine(); line != null && !line.isEmpty(); line = input.readLine()) {
            if (line.startsWith("client")) {
                client = connect(arguments, line.endsWith(" transactions"));
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
