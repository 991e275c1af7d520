import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionState;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of a Java application: `java Transactions NAME BOOTSTRAP`, exit code 0 when all held. */
public final class Transactions {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;

    private final String bootstrap;
    private final Admin admin;

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        Transactions scenarios = new Transactions(arguments[1]);
        try {
            Transactions.class.getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    void committedIsSeenAndAbortedIsNot() throws Exception {
        String topic = newTopic(2);
        List<String> expected = new ArrayList<>();
        try (KafkaProducer<String, String> producer = producer(UUID.randomUUID().toString())) {
            producer.initTransactions();
            for (int number = 0; number < 12; number++) {
                producer.beginTransaction();
                for (int index = 0; index < 5; index++) {
                    producer.send(new ProducerRecord<>(topic, index % 2, null, number + "-" + index));
                }
                if (number % 3 == 1) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                    for (int index = 0; index < 5; index++) expected.add(number + "-" + index);
                }
            }
        }
        Set<String> found = new TreeSet<>(values(topic, 2, expected.size()));
        check(found.equals(new TreeSet<>(expected)), "found " + found);
    }

    void abortsOfUnflushedTransactionsAfterCommitsAreNotFenced() throws Exception {
        String topic = newTopic(2);
        int commits = 30;
        try (KafkaProducer<String, String> producer = producer(UUID.randomUUID().toString())) {
            producer.initTransactions();
            for (int number = 0; number < commits; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, number % 2, null, "v" + number));
                producer.commitTransaction();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, number % 2, null, "never " + number));
                producer.abortTransaction(); // what was not sent yet is dropped
            }
        }
        values(topic, 2, commits);
    }

    void consumeTransformProduceIsExactlyOnce() throws Exception {
        String source = newTopic(2);
        String target = newTopic(2);
        String group = "g-" + UUID.randomUUID();
        try (KafkaProducer<String, String> plain = producer(null)) {
            for (int number = 0; number < 200; number++) {
                plain.send(new ProducerRecord<>(source, number % 2, null, "v" + number));
            }
        }
        int attempts = 0;
        int done = 0;
        try (KafkaProducer<String, String> producer = producer(UUID.randomUUID().toString());
                KafkaConsumer<String, String> consumer = consumer(group, Map.of("max.poll.records", "30"))) {
            producer.initTransactions();
            consumer.subscribe(List.of(source));
            while (done < 200) {
                ConsumerRecords<String, String> records = consumer.poll(POLL);
                if (records.isEmpty()) continue;
                producer.beginTransaction();
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                for (ConsumerRecord<String, String> record : records) {
                    producer.send(new ProducerRecord<>(target, record.value().toUpperCase()));
                    offsets.put(new TopicPartition(source, record.partition()),
                            new OffsetAndMetadata(record.offset() + 1));
                }
                producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (attempts++ % 3 == 1) { // fails now and then, and is done again
                    producer.abortTransaction();
                    for (TopicPartition partition : offsets.keySet()) {
                        OffsetAndMetadata last = consumer.committed(Set.of(partition)).get(partition);
                        consumer.seek(partition, last == null ? 0 : last.offset());
                    }
                } else {
                    producer.commitTransaction();
                    done += records.count();
                }
            }
        }
        List<String> found = values(target, 2, 200);
        check(new TreeSet<>(found).size() == 200, "each once");
    }

    void successorFencesItsPredecessor() throws Exception {
        String topic = newTopic(1);
        String id = UUID.randomUUID().toString();
        try (KafkaProducer<String, String> old = producer(id); KafkaProducer<String, String> next = producer(id)) {
            old.initTransactions();
            old.beginTransaction();
            old.send(new ProducerRecord<>(topic, "zombie")).get();
            next.initTransactions();
            try {
                old.commitTransaction();
                check(false, "the predecessor could commit");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                // as it should be
            }
            next.beginTransaction();
            next.send(new ProducerRecord<>(topic, "alive"));
            next.commitTransaction();
        }
        check(values(topic, 1, 1).equals(List.of("alive")), "only the successor's");
    }

    void administratorSeesTransactionsAndAbortsOne() throws Exception {
        String topic = newTopic(1);
        String id = UUID.randomUUID().toString();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, "v")).get();
            check(admin.listTransactions().all().get().stream().anyMatch(listing ->
                    listing.transactionalId().equals(id) && listing.state() == TransactionState.ONGOING), "listed");
            TransactionDescription described =
                    admin.describeTransactions(List.of(id)).description(id).get();
            check(described.topicPartitions().equals(Set.of(partition)), "its partitions");
            check(described.transactionStartTimeMs().isPresent(), "its start");
            ProducerState state = admin.describeProducers(List.of(partition))
                    .partitionResult(partition).get().activeProducers().get(0);
            check(state.currentTransactionStartOffset().getAsLong() == 0, "its start offset");
            check(state.producerId() == described.producerId(), "its producer");
            admin.abortTransaction(new AbortTransactionSpec(partition, state.producerId(),
                    (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0))).all().get();
            check(admin.describeProducers(List.of(partition)).partitionResult(partition).get()
                    .activeProducers().get(0).currentTransactionStartOffset().isEmpty(), "it has ended");
            check(admin.fenceProducers(List.of(id)).all().get() == null, "fenced");
            try {
                producer.commitTransaction();
                check(false, "a fenced producer could commit");
            } catch (ProducerFencedException | InvalidProducerEpochException expected) {
                // as it should be
            }
        }
    }

    void transactionsV2AreFinalized() throws Exception {
        var features = admin.describeFeatures().featureMetadata().get();
        check(features.finalizedFeatures().get("transaction.version").maxVersionLevel() == 2, "level 2");
        check(features.supportedFeatures().get("transaction.version").maxVersion() == 2, "up to 2");
    }

    private String newTopic(int partitions) throws Exception {
        String topic = "t-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private KafkaProducer<String, String> producer(String id) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        if (id != null) settings.put("transactional.id", id);
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, Map<String, Object> more) {
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group,
                "auto.offset.reset", "earliest", "enable.auto.commit", "false", "isolation.level", "read_committed"));
        settings.putAll(more);
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** What a reader of committed records gets; it waits for `count`, then looks whether there is more. */
    private List<String> values(String topic, int partitions, int count) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("none", Map.of())) {
            Collection<TopicPartition> all = new ArrayList<>();
            for (int index = 0; index < partitions; index++) all.add(new TopicPartition(topic, index));
            consumer.assign(all);
            consumer.seekToBeginning(all);
            long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
            while (found.size() < count && System.nanoTime() < deadline) {
                consumer.poll(POLL).forEach(record -> found.add(record.value()));
            }
            consumer.poll(POLL).forEach(record -> found.add(record.value()));
        }
        check(found.size() == count, found.size() + " records, expected " + count);
        return found;
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
