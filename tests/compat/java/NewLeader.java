import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A producer and a consumer go on at a new leader before they request metadata again: `java NewLeader BOOTSTRAP`.
 * The cluster has the brokers 1, 2 and 3. The exit code is 0 when all held.
 */
public final class NewLeader {
    /** The clients wait so long before they repeat a request, for metadata too. */
    private static final int BACKOFF_MS = 60_000;
    private static final Duration SOON = Duration.ofMillis(BACKOFF_MS / 2);
    private static final TopicPartition PARTITION = new TopicPartition("moves", 0);

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        try (Admin admin = Admin.create(settings)) {
            NewTopic topic = new NewTopic(PARTITION.topic(), Map.of(0, List.of(1, 2)));
            admin.createTopics(List.of(topic)).all().get();
            awaitLeader(admin, 1);
            settings.put("retry.backoff.ms", BACKOFF_MS);
            settings.put("retry.backoff.max.ms", BACKOFF_MS);
            settings.put("auto.offset.reset", "earliest");
            try (KafkaProducer<String, String> producer =
                            new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                    KafkaConsumer<String, String> consumer =
                            new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
                consumer.assign(List.of(PARTITION));
                exchange(producer, consumer, "before");
                NewPartitionReassignment moved = new NewPartitionReassignment(List.of(2, 3));
                admin.alterPartitionReassignments(Map.of(PARTITION, Optional.of(moved))).all().get();
                awaitLeader(admin, 2);
                exchange(producer, consumer, "after");
            }
        }
    }

    private static void exchange(
            KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, String value)
            throws Exception {
        producer.send(new ProducerRecord<>(PARTITION.topic(), 0, null, value))
                .get(SOON.toMillis(), TimeUnit.MILLISECONDS);
        long end = System.nanoTime() + SOON.toNanos();
        while (System.nanoTime() < end) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                if (record.value().equals(value)) {
                    return;
                }
            }
        }
        throw new AssertionError("the consumer did not get " + value);
    }

    private static void awaitLeader(Admin admin, int leader) throws Exception {
        for (int attempt = 0; attempt < 600; attempt++) {
            Node found = null;
            try {
                found = admin.describeTopics(List.of(PARTITION.topic())).allTopicNames().get()
                        .get(PARTITION.topic()).partitions().get(0).leader();
            } catch (java.util.concurrent.ExecutionException failure) {
                // a broker that does not know the topic yet
            }
            if (found != null && found.id() == leader) {
                Thread.sleep(1000); // all brokers know it then
                return;
            }
            Thread.sleep(50);
        }
        throw new AssertionError("broker " + leader + " does not become the leader");
    }
}
