import java.lang.reflect.InvocationTargetException;
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
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Consumers with group.protocol=consumer (KIP-848): `java ConsumerGroups NAME BOOTSTRAP`. */
public final class ConsumerGroups {
    private static final Duration POLL = Duration.ofMillis(50);
    private static final long PATIENCE_MS = 45_000;

    private final String bootstrap;
    private final Admin admin;
    private final String group = "g-" + UUID.randomUUID();

    private ConsumerGroups(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        ConsumerGroups scenarios = new ConsumerGroups(arguments[1]);
        try {
            ConsumerGroups.class.getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    void membersShareAndOnlyWhatMovesIsRevoked() throws Exception {
        String topic = newTopic("t", 4);
        try (Member first = new Member(Map.of(), topic)) {
            until(() -> first.owned.size() == 4, first);
            try (Member second = new Member(Map.of(), topic)) {
                until(() -> first.owned.size() == 2 && second.owned.size() == 2, first, second);
                check(first.revoked.equals(second.owned), "revoked " + first.revoked);
                ConsumerGroupDescription described = describe();
                check(described.type() == GroupType.CONSUMER, "type");
                check(described.groupState() == GroupState.STABLE, "state " + described.groupState());
                check(described.groupEpoch().equals(described.targetAssignmentEpoch()), "epochs");
                for (MemberDescription member : described.members()) {
                    check(member.assignment().equals(member.targetAssignment().get()), "target");
                    check(member.upgraded().equals(Optional.of(true)), "upgraded");
                }
            }
            until(() -> first.owned.size() == 4, first);
        }
        check(describe().groupState() == GroupState.EMPTY, "empty at the end");
    }

    void patternIsResolvedByTheBrokerAndFollowsNewTopics() throws Exception {
        String prefix = UUID.randomUUID().toString();
        String one = newTopic(prefix + "-a", 2);
        newTopic("other-" + prefix, 1);
        try (Member member = new Member(Map.of())) {
            member.consumer.subscribe(new SubscriptionPattern(prefix + "-[ab]"), member);
            until(() -> member.owned.size() == 2, member);
            String two = newTopic(prefix + "-b", 1);
            until(() -> member.owned.size() == 3, member);
            check(member.owned.contains(new TopicPartition(one, 0)) && member.owned.contains(new TopicPartition(two, 0)),
                    "owns " + member.owned);
        }
    }

    void invalidPatternIsToldToTheApplication() {
        Member member = new Member(Map.of());
        member.consumer.subscribe(new SubscriptionPattern("(a"), member);
        fails(InvalidRegularExpression.class, () -> until(() -> false, member));
    }

    void staticMemberComesBackToWhatItHad() throws Exception {
        String topic = newTopic("t", 2);
        Member other = new Member(Map.of("group.instance.id", "a"), topic);
        Member leaving = new Member(Map.of("group.instance.id", "b"), topic);
        until(() -> other.owned.size() == 1 && leaving.owned.size() == 1, other, leaving);
        Set<TopicPartition> owned = new HashSet<>(leaving.owned);
        int epoch = describe().groupEpoch().get();
        leaving.close();
        Member returned = new Member(Map.of("group.instance.id", "b"), topic);
        until(() -> returned.owned.equals(owned), other, returned);
        check(describe().groupEpoch().get() == epoch, "nobody noticed");
        Member intruder = new Member(Map.of("group.instance.id", "b"), topic);
        fails(UnreleasedInstanceIdException.class, () -> until(() -> false, intruder));
        other.close();
        returned.close();
    }

    void commitsOfBothKindsComeBack() throws Exception {
        String topic = newTopic("t", 1);
        fill(topic, 20);
        TopicPartition partition = new TopicPartition(topic, 0);
        try (Member member = new Member(Map.of(), topic)) {
            until(() -> member.records.size() == 20, member);
            member.consumer.commitSync(Map.of(partition, new OffsetAndMetadata(7, "seven")));
            check(member.consumer.committed(Set.of(partition)).get(partition).metadata().equals("seven"), "sync");
            boolean[] done = new boolean[1];
            member.consumer.commitAsync(Map.of(partition, new OffsetAndMetadata(9)), (offsets, failure) -> {
                check(failure == null, "async: " + failure);
                done[0] = true;
            });
            until(() -> done[0], member);
        }
        try (Member member = new Member(Map.of(), topic)) {
            until(() -> member.records.size() == 11, member);
            check(member.records.get(0).offset() == 9, "goes on at " + member.records.get(0).offset());
        }
    }

    void topicThatGrowsIsReadInAllPartitions() throws Exception {
        String topic = newTopic("t", 1);
        try (Member member = new Member(Map.of("metadata.max.age.ms", "500"), topic)) {
            until(() -> member.owned.size() == 1, member);
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
            until(() -> member.owned.size() == 3, member);
        }
    }

    void assignorIsTheOneThatIsAskedFor() throws Exception {
        String topic = newTopic("t", 4);
        try (Member first = new Member(Map.of("group.remote.assignor", "range"), topic);
                Member second = new Member(Map.of("group.remote.assignor", "range"), topic)) {
            until(() -> first.owned.size() == 2 && second.owned.size() == 2, first, second);
            check(describe().partitionAssignor().equals("range"), describe().partitionAssignor());
        }
    }

    void classicMembersChangeTheirProtocolOneByOneAndBack() throws Exception {
        String topic = newTopic("t", 4);
        Map<String, Object> classic = Map.of("group.protocol", "classic", "heartbeat.interval.ms", "300");
        List<Member> members = new ArrayList<>(List.of(new Member(classic, topic), new Member(classic, topic)));
        fill(topic, 100);
        Set<Long> read = new HashSet<>();
        for (Map<String, Object> settings : List.of(Map.<String, Object>of(), Map.<String, Object>of(), classic, classic)) {
            until(() -> fair(members, 4), members.toArray(new Member[0]));
            Member leaving = members.remove(0);
            leaving.consumer.commitSync();
            leaving.records.forEach(record -> read.add(record.offset()));
            leaving.close();
            members.add(new Member(settings, topic));
        }
        until(() -> fair(members, 4), members.toArray(new Member[0]));
        members.forEach(member -> member.records.forEach(record -> read.add(record.offset())));
        check(read.size() == 100, "read " + read.size() + " of 100");
        members.forEach(Member::close);
    }

    void settingsOfAGroupAreKeptWithinBounds() throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        alter(resource, "consumer.session.timeout.ms", "50000");
        until(() -> config(resource, "consumer.session.timeout.ms").value().equals("50000"));
        check(config(resource, "consumer.session.timeout.ms").source()
                == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, "source");
        check(config(resource, "consumer.heartbeat.interval.ms").isDefault(), "default");
        fails(InvalidConfigurationException.class, () -> alter(resource, "consumer.session.timeout.ms", "1"));
        fails(InvalidConfigurationException.class, () -> alter(resource, "no.such.setting", "1"));
    }

    // ---- what the scenarios are told in terms of

    private static boolean fair(List<Member> members, int partitions) {
        return members.stream().allMatch(member -> member.owned.size() == partitions / members.size());
    }

    /** A consumer that remembers what it was given, what was taken from it and what it read. */
    private final class Member implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Set<TopicPartition> owned = new HashSet<>();
        final Set<TopicPartition> revoked = new HashSet<>();
        final List<ConsumerRecord<String, String>> records = new ArrayList<>();

        Member(Map<String, Object> settings, String... topics) {
            Map<String, Object> all = new HashMap<>(Map.of(
                    "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", "consumer",
                    "auto.offset.reset", "earliest", "enable.auto.commit", "false"));
            all.putAll(settings);
            consumer = new KafkaConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            if (topics.length > 0) {
                consumer.subscribe(List.of(topics), this);
            }
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

        @Override
        public void close() {
            consumer.close();
        }
    }

    private ConsumerGroupDescription describe() {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group);
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private String newTopic(String name, int partitions) throws Exception {
        String topic = name.equals("t") ? "t-" + UUID.randomUUID() : name;
        admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all().get();
        return topic;
    }

    private void fill(String topic, int count) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + i)).get();
            }
        }
    }

    private void alter(ConfigResource resource, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }

    private ConfigEntry config(ConfigResource resource, String name) {
        try {
            return admin.describeConfigs(List.of(resource)).all().get().get(resource).get(name);
        } catch (InterruptedException | ExecutionException failure) {
            throw new IllegalStateException(failure);
        }
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void fails(Class<? extends Exception> expected, Action action) {
        try {
            action.run();
        } catch (Exception failure) {
            Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
            check(expected.isInstance(cause), "expected " + expected + ", got " + cause);
            return;
        }
        throw new AssertionError("expected " + expected);
    }

    private static void until(BooleanSupplier reached, Member... members) {
        long deadline = System.currentTimeMillis() + PATIENCE_MS;
        while (!reached.getAsBoolean()) {
            check(System.currentTimeMillis() < deadline, "not reached in time");
            for (Member member : members) {
                member.consumer.poll(POLL).forEach(member.records::add);
            }
        }
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
