import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.GroupNotEmptyException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What a Java application does with a broker: `java Scenarios NAME BOOTSTRAP`, exit code 0 when all held. */
public final class Scenarios {
    private static final Duration POLL = Duration.ofMillis(100);
    private static final long PATIENCE_MS = 30_000;

    private final String bootstrap;
    private final Admin admin;

    private Scenarios(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        Scenarios scenarios = new Scenarios(arguments[1]);
        try {
            Scenarios.class.getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.exit(1);
        }
        System.exit(0); // clients that a scenario left open do not hold the process
    }

    void idempotentProducerKeepsOrderInEveryCodec() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            String topic = newTopic(3, Map.of());
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            try (KafkaProducer<String, String> producer = producer(Map.of(
                    "enable.idempotence", "true", "compression.type", codec, "linger.ms", "5",
                    "batch.size", "2000", "max.in.flight.requests.per.connection", "5"))) {
                for (int i = 0; i < 1500; i++) {
                    ProducerRecord<String, String> record = new ProducerRecord<>(topic, i % 3, "k" + i, "v" + i);
                    record.headers().add("index", Integer.toString(i).getBytes(StandardCharsets.UTF_8));
                    sent.add(producer.send(record));
                }
            }
            for (int i = 0; i < 1500; i++) {
                check(sent.get(i).get().offset() == i / 3, codec + ": offset of record " + i);
            }
            Map<Integer, Integer> next = new HashMap<>();
            for (ConsumerRecord<String, String> record : readAll(topic, 3, 1500)) {
                int expected = next.merge(record.partition(), 1, Integer::sum) * 3 - 3 + record.partition();
                check(record.value().equals("v" + expected) && record.key().equals("k" + expected), codec);
                byte[] header = record.headers().lastHeader("index").value();
                check(new String(header, StandardCharsets.UTF_8).equals(Integer.toString(expected)), "header");
            }
        }
    }

    void nullKeysNullValuesAndNullHeadersCameBackAsTheyWent() throws Exception {
        String topic = newTopic(1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            ProducerRecord<String, String> record =
                    new ProducerRecord<>(topic, 0, 1234L, (String) null, (String) null);
            record.headers().add("none", null);
            producer.send(record).get();
            producer.send(new ProducerRecord<>(topic, 0, "", "")).get();
        }
        List<ConsumerRecord<String, String>> records = readAll(topic, 1, 2);
        check(records.get(0).key() == null && records.get(0).value() == null, "nulls");
        check(records.get(0).timestamp() == 1234L, "timestamp");
        check(records.get(0).headers().lastHeader("none").value() == null, "null header");
        check(records.get(1).key().isEmpty() && records.get(1).value().isEmpty(), "empty is not null");
    }

    void producerIsToldOfARecordTooLargeForTheTopic() throws Exception {
        String topic = newTopic(1, Map.of("max.message.bytes", "1000"));
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            fails(RecordTooLargeException.class,
                    () -> producer.send(new ProducerRecord<>(topic, "x".repeat(2000))).get());
            check(producer.send(new ProducerRecord<>(topic, "small")).get().offset() == 0, "next one goes in");
        }
    }

    void topicIsCreatedWhenAProducerFirstNamesIt() throws Exception {
        String topic = "auto-" + UUID.randomUUID();
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            check(producer.send(new ProducerRecord<>(topic, "first")).get().offset() == 0, "offset");
        }
        check(readAll(topic, 1, 1).get(0).value().equals("first"), "value");
    }

    void unacknowledgedProducerIsServedToo() throws Exception {
        String topic = newTopic(1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of("acks", "0", "enable.idempotence", "false"))) {
            for (int i = 0; i < 100; i++) {
                check(!producer.send(new ProducerRecord<>(topic, 0, "k", "v" + i)).get().hasOffset(), "no offset");
            }
        }
        check(readAll(topic, 1, 100).get(99).value().equals("v99"), "the last");
    }

    void cooperativeGroupKeepsWhatItNeedNotMove() throws Exception {
        String topic = newTopic(4, Map.of());
        String group = "g-" + UUID.randomUUID();
        Map<String, Object> settings = Map.of(
                "partition.assignment.strategy", CooperativeStickyAssignor.class.getName(),
                "heartbeat.interval.ms", "300");
        Member first = new Member(consumer(group, settings), topic);
        Member second = new Member(consumer(group, settings), topic);
        first.pollUntil(() -> first.owned.size() == 4);
        Set<TopicPartition> before = new HashSet<>(first.owned);
        pollBothUntil(first, second, () -> first.owned.size() == 2 && second.owned.size() == 2);
        check(first.revoked.size() == 2, "only what moved was revoked: " + first.revoked);
        Set<TopicPartition> kept = new HashSet<>(before);
        kept.removeAll(first.revoked);
        check(kept.equals(first.owned), "kept " + kept + ", owns " + first.owned);

        ConsumerGroupDescription described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        check(described.groupState() == GroupState.STABLE, "state " + described.groupState());
        check(described.partitionAssignor().equals("cooperative-sticky"), described.partitionAssignor());
        check(described.members().size() == 2, "members");
        second.consumer.close();
        first.pollUntil(() -> first.owned.size() == 4);
        first.consumer.close();
    }

    void staticMemberComesBackWithoutARebalance() throws Exception {
        String topic = newTopic(2, Map.of());
        String group = "g-" + UUID.randomUUID();
        Member other = new Member(consumer(group, Map.of("group.instance.id", "a")), topic);
        Member leaving = new Member(consumer(group, Map.of("group.instance.id", "b")), topic);
        pollBothUntil(other, leaving, () -> other.owned.size() == 1 && leaving.owned.size() == 1);
        int generation = other.consumer.groupMetadata().generationId();
        Set<TopicPartition> owned = new HashSet<>(leaving.owned);
        leaving.consumer.close();

        Member returned = new Member(consumer(group, Map.of("group.instance.id", "b")), topic);
        pollBothUntil(other, returned, () -> returned.owned.size() == 1);
        check(returned.owned.equals(owned), "same partitions");
        check(other.consumer.groupMetadata().generationId() == generation, "same generation");
        other.consumer.close();
        returned.consumer.close();
    }

    void committedOffsetsComeBackWithMetadataAndEpoch() throws Exception {
        String topic = newTopic(1, Map.of());
        fill(topic, 10);
        String group = "g-" + UUID.randomUUID();
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(group, Map.of())) {
            consumer.subscribe(List.of(topic));
            while (consumer.poll(POLL).isEmpty()) { }
            consumer.commitSync(Map.of(
                    partition, new OffsetAndMetadata(4, Optional.of(0), "half way")));
        }
        try (KafkaConsumer<String, String> consumer = consumer(group, Map.of())) {
            OffsetAndMetadata committed = consumer.committed(Set.of(partition)).get(partition);
            check(committed.offset() == 4 && committed.metadata().equals("half way"), committed.toString());
            consumer.subscribe(List.of(topic));
            List<String> values = new ArrayList<>();
            until(() -> {
                consumer.poll(POLL).forEach(record -> values.add(record.value()));
                return values.size() == 6;
            });
            check(values.get(0).equals("4"), "goes on at the commit, not " + values.get(0));
        }
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
                .get(partition).offset() == 4, "listed");
    }

    void consumerSeeksByTimeAndPausesAndFindsTheEnds() throws Exception {
        String topic = newTopic(1, Map.of());
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < 20; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_000_000L + i * 1000, null, "" + i)).get();
            }
        }
        TopicPartition partition = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = consumer(null, Map.of())) {
            consumer.assign(List.of(partition));
            OffsetAndTimestamp found = consumer.offsetsForTimes(Map.of(partition, 1_007_500L)).get(partition);
            check(found.offset() == 8 && found.timestamp() == 1_008_000L, found.toString());
            check(consumer.offsetsForTimes(Map.of(partition, 9_000_000L)).get(partition) == null, "later than all");
            check(consumer.beginningOffsets(List.of(partition)).get(partition) == 0, "beginning");
            check(consumer.endOffsets(List.of(partition)).get(partition) == 20, "end");
            consumer.seek(partition, found.offset());
            check(pollSome(consumer).get(0).value().equals("8"), "seek");
            consumer.pause(List.of(partition));
            consumer.seek(partition, 3);
            check(consumer.poll(POLL).isEmpty(), "paused");
            consumer.resume(List.of(partition));
            check(pollSome(consumer).get(0).value().equals("3"), "resumed");
            consumer.seek(partition, 500);
            check(pollSome(consumer).get(0).value().equals("0"), "out of range: back to the earliest");
            check(consumer.partitionsFor(topic).size() == 1, "partitionsFor");
            check(consumer.listTopics().containsKey(topic), "listTopics");
        }
    }

    void adminManagesTopics() throws Exception {
        String topic = newTopic(2, Map.of("retention.ms", "60000"));
        fails(TopicExistsException.class,
                () -> admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get());
        fails(InvalidReplicationFactorException.class,
                () -> admin.createTopics(List.of(new NewTopic(topic + "-r", 1, (short) 3))).all().get());
        fails(InvalidConfigurationException.class, () -> admin.createTopics(List.of(
                new NewTopic(topic + "-c", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all().get());

        TopicDescription described = describe(topic);
        check(described.partitions().size() == 2, "partitions");
        check(described.partitions().get(0).leader() != null, "leader");
        check(described.partitions().get(0).isr().size() == 1, "isr");
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get();
        check(describe(topic).partitions().size() == 5, "more partitions");

        Uuid id = described.topicId();
        TopicDescription byId = admin.describeTopics(TopicCollection.ofTopicIds(List.of(id)))
                .allTopicIds().get().get(id);
        check(byId.name().equals(topic), "described by id");
        admin.deleteTopics(TopicCollection.ofTopicIds(List.of(id))).all().get();
        check(!admin.listTopics().names().get().contains(topic), "deleted by id");
        fails(UnknownTopicOrPartitionException.class, () -> describe(topic));
    }

    void adminManagesSettings() throws Exception {
        String topic = newTopic(1, Map.of());
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        ConfigEntry entry = config(resource).get("segment.bytes");
        check(entry.source() == ConfigEntry.ConfigSource.DEFAULT_CONFIG && entry.isDefault(), "default " + entry);
        check(entry.type() == ConfigEntry.ConfigType.INT, "type " + entry);
        check(entry.synonyms().get(0).name().equals("log.segment.bytes"), "synonyms " + entry);
        check(entry.documentation() != null && !entry.documentation().isEmpty(), "documentation");

        alter(resource, "retention.ms", "5000", AlterConfigOp.OpType.SET);
        alter(resource, "cleanup.policy", "compact", AlterConfigOp.OpType.APPEND);
        entry = config(resource).get("retention.ms");
        check(entry.value().equals("5000"), entry.value());
        check(entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "" + entry.source());
        check(config(resource).get("cleanup.policy").value().equals("delete,compact"), "appended");
        alter(resource, "cleanup.policy", "delete", AlterConfigOp.OpType.SUBTRACT);
        check(config(resource).get("cleanup.policy").value().equals("compact"), "subtracted");
        alter(resource, "retention.ms", "", AlterConfigOp.OpType.DELETE);
        check(config(resource).get("retention.ms").isDefault(), "deleted");
        fails(InvalidConfigurationException.class,
                () -> alter(resource, "retention.ms", "soon", AlterConfigOp.OpType.SET));
    }

    void adminReadsAndCutsLogs() throws Exception {
        String topic = newTopic(1, Map.of());
        fill(topic, 10);
        TopicPartition partition = new TopicPartition(topic, 0);
        check(offset(partition, OffsetSpec.earliest()).offset() == 0, "earliest");
        check(offset(partition, OffsetSpec.latest()).offset() == 10, "latest");
        check(offset(partition, OffsetSpec.maxTimestamp()).offset() >= 0, "max timestamp");
        check(offset(partition, OffsetSpec.forTimestamp(0)).offset() == 0, "by time");
        long low = admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(6)))
                .lowWatermarks().get(partition).get().lowWatermark();
        check(low == 6, "low watermark " + low);
        check(offset(partition, OffsetSpec.earliest()).offset() == 6, "earliest after");
        check(admin.describeProducers(List.of(partition)).partitionResult(partition).get() != null, "producers");
        long size = admin.describeLogDirs(List.of(nodeId())).allDescriptions().get().get(nodeId()).values().stream()
                .mapToLong(directory -> directory.replicaInfos().get(partition).size()).sum();
        check(size > 0, "size");
        check(admin.describeCluster().controller().get().id() == nodeId(), "controller");
        check(!admin.describeCluster().clusterId().get().isEmpty(), "cluster id");
    }

    void adminManagesGroups() throws Exception {
        String topic = newTopic(1, Map.of());
        String group = "g-" + UUID.randomUUID();
        TopicPartition partition = new TopicPartition(topic, 0);
        Member member = new Member(consumer(group, Map.of()), topic);
        member.pollUntil(() -> member.owned.size() == 1);
        member.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(0)));
        check(admin.listGroups().all().get().stream().anyMatch(listing -> listing.groupId().equals(group)), "list");
        fails(GroupNotEmptyException.class, () -> admin.deleteConsumerGroups(List.of(group)).all().get());
        member.consumer.close();
        until(() -> state(group) == GroupState.EMPTY);
        admin.alterConsumerGroupOffsets(group, Map.of(partition, new OffsetAndMetadata(0, "moved"))).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(partition)
                .metadata().equals("moved"), "altered");
        admin.deleteConsumerGroupOffsets(group, Set.of(partition)).all().get();
        check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "no offsets");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        check(admin.listGroups().all().get().stream().noneMatch(listing -> listing.groupId().equals(group)), "gone");
    }

    // ---- what the scenarios are told in terms of

    /** A consumer of a group that remembers what it was given and what was taken from it. */
    private static final class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final Set<TopicPartition> owned = new HashSet<>();
        final Set<TopicPartition> revoked = new HashSet<>();

        Member(KafkaConsumer<String, String> consumer, String topic) {
            this.consumer = consumer;
            consumer.subscribe(List.of(topic), this);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            owned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
            revoked.addAll(partitions);
        }

        void pollUntil(BooleanSupplier reached) {
            until(() -> {
                consumer.poll(POLL);
                return reached.getAsBoolean();
            });
        }
    }

    private static void pollBothUntil(Member first, Member second, BooleanSupplier reached) {
        // Each from a thread of its own: closing or joining one waits for the other's heartbeat and poll.
        Thread poller = new Thread(() -> second.pollUntil(reached));
        poller.start();
        first.pollUntil(reached);
        try {
            poller.join();
        } catch (InterruptedException interrupted) {
            throw new IllegalStateException(interrupted);
        }
    }

    private String newTopic(int partitions, Map<String, String> configs) throws Exception {
        String topic = "t-" + UUID.randomUUID();
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1).configs(configs))).all().get();
        return topic;
    }

    private void fill(String topic, int count) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + i)).get();
            }
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        all.put("auto.offset.reset", "earliest");
        all.put("enable.auto.commit", "false");
        if (group != null) {
            all.put("group.id", group);
        }
        return new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
    }

    private List<ConsumerRecord<String, String>> readAll(String topic, int partitions, int count) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer(null, Map.of())) {
            List<TopicPartition> all = new ArrayList<>();
            for (int i = 0; i < partitions; i++) {
                all.add(new TopicPartition(topic, i));
            }
            consumer.assign(all);
            until(() -> {
                consumer.poll(POLL).forEach(records::add);
                return records.size() >= count;
            });
        }
        check(records.size() == count, "read " + records.size() + " of " + count);
        return records;
    }

    private static List<ConsumerRecord<String, String>> pollSome(KafkaConsumer<String, String> consumer) {
        List<ConsumerRecord<String, String>> records = new ArrayList<>();
        until(() -> {
            consumer.poll(POLL).forEach(records::add);
            return !records.isEmpty();
        });
        return records;
    }

    private TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private Map<String, ConfigEntry> config(ConfigResource resource) throws Exception {
        Config config = admin.describeConfigs(List.of(resource),
                new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true))
                .all().get().get(resource);
        return config.entries().stream().collect(Collectors.toMap(ConfigEntry::name, entry -> entry));
    }

    private void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType how) throws Exception {
        admin.incrementalAlterConfigs(
                Map.of(resource, List.of(new AlterConfigOp(new ConfigEntry(name, value), how)))).all().get();
    }

    private ListOffsetsResultInfo offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get();
    }

    private int nodeId() throws Exception {
        return admin.describeCluster().nodes().get().iterator().next().id();
    }

    private GroupState state(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState();
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void fails(Class<? extends Throwable> expected, Action action) throws Exception {
        try {
            action.run();
        } catch (ExecutionException failure) {
            check(expected.isInstance(failure.getCause()), "expected " + expected + ", got " + failure.getCause());
            return;
        }
        throw new AssertionError("expected " + expected + ", but it succeeded");
    }

    private static void until(BooleanSupplier reached) {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (!reached.getAsBoolean()) {
            check(System.nanoTime() < deadline, "not reached in " + PATIENCE_MS + " ms");
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
