import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Consume, transform, produce with Apache Kafka's Java client: `java Transform TASK`, TASK being JSON. */
public final class Transform implements ConsumerRebalanceListener {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Duration POLL = Duration.ofMillis(200);
    private static final int KEYS = 40;

    private final JsonNode task;
    private final FileOutputStream history;
    private final Random random;
    private final List<String> outputs = new ArrayList<>();
    private final KafkaConsumer<String, String> consumer;
    private final KafkaProducer<String, String> producer;
    private volatile boolean stopping;
    private int transaction;
    private int sent;

    private Transform(JsonNode task) throws IOException {
        this.task = task;
        history = new FileOutputStream(task.get("history").asText(), true);
        random = new Random(task.get("seed").asLong() ^ text("name").hashCode());
        task.get("outputs").fieldNames().forEachRemaining(outputs::add);
        Map<String, Object> about = new HashMap<>();
        for (String name : List.of("name", "role", "client", "group", "isolation", "transactional_id"))
            about.put(name, text(name));
        about.put("transaction_timeout", task.get("transaction_timeout_ms").asLong() * 1_000_000);
        note("process", about);
        producer = new KafkaProducer<>(
            Map.of(
                "bootstrap.servers", text("bootstrap"),
                "client.id", text("name"),
                "transactional.id", text("transactional_id"),
                "transaction.timeout.ms", task.get("transaction_timeout_ms").asInt(),
                "max.block.ms", 20_000),
            new StringSerializer(), new StringSerializer());
        Map<String, Object> settings = new HashMap<>(Map.of(
            "bootstrap.servers", text("bootstrap"),
            "client.id", text("name"),
            "group.id", text("group"),
            "group.protocol", text("protocol"),
            "isolation.level", text("isolation"),
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false",
            "max.poll.records", 50));
        if (text("protocol").equals("classic"))
            settings.putAll(Map.of("session.timeout.ms", 6000, "heartbeat.interval.ms", 1000));
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    public static void main(String[] arguments) throws Exception {
        Transform loop = new Transform(JSON.readTree(arguments[0]));
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            loop.stopping = true;
            try {
                main.join();
            } catch (InterruptedException interrupted) {
                Thread.currentThread().interrupt();
            }
        }));
        int status = 0;
        try {
            loop.run();
        } catch (KafkaException failure) {
            failure.printStackTrace();
            status = 1;
        }
        if (!loop.stopping) Runtime.getRuntime().halt(status);
    }

    private void run() {
        note("init", Map.of());
        while (true) {
            try {
                producer.initTransactions();
                break;
            } catch (TimeoutException late) {
                continue; // the broker is away: ask again
            }
        }
        note("inited", Map.of());
        List<String> topics = new ArrayList<>();
        task.get("topics").fieldNames().forEachRemaining(topics::add);
        consumer.subscribe(topics, this);
        while (!stopping) {
            List<ConsumerRecord<String, String>> records = new ArrayList<>();
            consumer.poll(POLL).forEach(records::add);
            if (records.isEmpty()) continue;
            List<Object> read = new ArrayList<>();
            for (ConsumerRecord<String, String> record : records)
                read.add(List.of(record.topic(), record.partition(), record.offset(), record.value()));
            note("poll", Map.of("records", read));
            if (!process(records)) rewind();
        }
        consumer.close();
        producer.close();
    }

    /** One transaction; whether it was committed. Throws KafkaException when the producer is of no more use. */
    private boolean process(List<ConsumerRecord<String, String>> records) {
        transaction++;
        note("begin", Map.of("txn", transaction));
        producer.beginTransaction();
        try {
            Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                send(record);
                offsets.put(
                    new TopicPartition(record.topic(), record.partition()),
                    new OffsetAndMetadata(record.offset() + 1));
            }
            note("offsets", Map.of("txn", transaction, "group", text("group"), "offsets", flat(offsets)));
            producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
            note("end", Map.of("txn", transaction, "commit", true));
            commit();
            note("ended", Map.of("txn", transaction, "commit", true, "ok", true));
            return true;
        } catch (ProducerFencedException fenced) {
            throw fenced;
        } catch (KafkaException failure) {
            note("end", Map.of("txn", transaction, "commit", false, "because", failure.toString()));
            producer.abortTransaction();
            note("ended", Map.of("txn", transaction, "commit", false, "ok", true));
            return false;
        }
    }

    private void commit() {
        while (true) {
            try {
                producer.commitTransaction();
                return;
            } catch (TimeoutException late) {
                continue; // nobody knows yet: only the same call again tells
            }
        }
    }

    private void send(ConsumerRecord<String, String> source) {
        String id = text("name") + ":" + ++sent;
        int number = random.nextInt(KEYS);
        String topic = outputs.get(random.nextInt(outputs.size()));
        int partition = number % task.get("outputs").get(topic).asInt();
        note("send", Map.of(
            "id", id,
            "to", List.of(topic, partition),
            "key", "k" + number,
            "txn", transaction,
            "source", List.of(source.topic(), source.partition(), source.offset())));
        producer.send(new ProducerRecord<>(topic, partition, "k" + number, id), (metadata, error) -> {
            if (error == null) note("ack", Map.of("id", id, "offset", metadata.offset()));
            else note("nack", Map.of("id", id, "error", error.toString(), "unknown", true));
        });
    }

    /** Go on at what the group has committed: the transaction of what was read since is aborted. */
    private void rewind() {
        Map<TopicPartition, OffsetAndMetadata> offsets = new LinkedHashMap<>();
        consumer.committed(consumer.assignment()).forEach((part, committed) ->
            offsets.put(part, committed == null ? new OffsetAndMetadata(0) : committed));
        note("seek", Map.of("offsets", flat(offsets)));
        offsets.forEach((part, offset) -> consumer.seek(part, offset.offset()));
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> parts) {
        note("assigned", Map.of("partitions", places(parts)));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> parts) {
        note("revoked", Map.of("partitions", places(parts)));
    }

    private static List<Object> places(Collection<TopicPartition> parts) {
        List<Object> places = new ArrayList<>();
        for (TopicPartition part : parts) places.add(List.of(part.topic(), part.partition()));
        return places;
    }

    private static List<Object> flat(Map<TopicPartition, OffsetAndMetadata> offsets) {
        List<Object> flat = new ArrayList<>();
        offsets.forEach((part, offset) -> flat.add(List.of(part.topic(), part.partition(), offset.offset())));
        return flat;
    }

    private String text(String name) {
        return task.get(name).asText();
    }

    private synchronized void note(String what, Map<String, ?> fields) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("what", what);
        event.put("at", System.nanoTime());
        event.putAll(fields);
        try {
            history.write((JSON.writeValueAsString(event) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException failure) {
            throw new UncheckedIOException(failure);
        }
    }
}
