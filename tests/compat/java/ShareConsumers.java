import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.WakeupException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Members of share groups (KIP-932, KIP-1206, KIP-1222): `java ShareConsumers NAME BOOTSTRAP`. */
public final class ShareConsumers {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long PATIENCE_MS = 45_000;
    /** How often a member polls in vain before we believe that there is nothing for it. */
    private static final int IN_VAIN = 5;
    private static final Map<String, Object> EXPLICIT = Map.of("share.acknowledgement.mode", "explicit");

    private final String bootstrap;
    private final Admin admin;
    private final String group = "g-" + UUID.randomUUID();
    private final String topic = "t-" + UUID.randomUUID();

    private ShareConsumers(String bootstrap) throws Exception {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
        if (!admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("share.version")) {
            FeatureUpdate use = new FeatureUpdate((short) 1, FeatureUpdate.UpgradeType.UPGRADE);
            admin.updateFeatures(Map.of("share.version", use), new UpdateFeaturesOptions()).all().get();
        }
        admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all().get();
        configure("share.auto.offset.reset", "earliest");
    }

    public static void main(String[] arguments) throws Exception {
        ShareConsumers scenarios = new ShareConsumers(arguments[1]);
        try {
            ShareConsumers.class.getDeclaredMethod(arguments[0]).invoke(scenarios);
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    void implicitModeAcceptsTheRecordsOfThePollBefore() throws Exception {
        send("a", "b", "c");
        try (Member member = new Member(Map.of())) {
            check(member.take(3).equals(List.of("a 1", "b 1", "c 1")), "first deliveries");
            check(member.nothing(), "accepted by the next poll");
        }
        try (Member other = new Member(Map.of())) {
            check(other.nothing(), "accepted for the whole group");
        }
    }

    void explicitModeTreatsEachRecordByItsAcknowledgement() throws Exception {
        send("accepted", "released", "rejected");
        try (Member member = new Member(EXPLICIT)) {
            member.take(3);
            fails(IllegalStateException.class, () -> member.consumer.poll(POLL));
            member.acknowledge("accepted", AcknowledgeType.ACCEPT);
            member.acknowledge("released", AcknowledgeType.RELEASE);
            member.acknowledge("rejected", AcknowledgeType.REJECT);
            member.commit();
            check(member.take(1).equals(List.of("released 2")), "only one comes again");
            member.acknowledge("released", AcknowledgeType.ACCEPT);
            member.commit();
            check(member.nothing(), "all are done");
        }
    }

    void implicitModeHasNoAcknowledgements() throws Exception {
        send("a");
        try (Member member = new Member(Map.of())) {
            member.take(1);
            fails(IllegalStateException.class, () -> member.acknowledge("a", AcknowledgeType.ACCEPT));
        }
    }

    void callbackHearsOfTheAcknowledgedOffsets() throws Exception {
        send("a", "b");
        try (Member member = new Member(EXPLICIT)) {
            List<Long> offsets = new ArrayList<>();
            member.consumer.setAcknowledgementCommitCallback((acknowledged, failure) -> {
                check(failure == null, "callback: " + failure);
                acknowledged.values().forEach(offsets::addAll);
            });
            member.take(2);
            member.acknowledge("a", AcknowledgeType.ACCEPT);
            member.acknowledge("b", AcknowledgeType.RELEASE);
            member.consumer.commitAsync();
            List<String> again = member.take(1);
            check(again.equals(List.of("b 2")), "again: " + again);
            check(Set.copyOf(offsets).equals(Set.of(0L, 1L)), "offsets " + offsets);
            member.acknowledge("b", AcknowledgeType.ACCEPT);
        }
    }

    void renewedLockOutlivesItsDuration() throws Exception {
        configure("share.record.lock.duration.ms", "15000");
        send("long");
        try (Member worker = new Member(EXPLICIT); Member other = new Member(EXPLICIT)) {
            worker.take(1);
            check(worker.consumer.acquisitionLockTimeoutMs().get() == 15_000, "the duration is told");
            long end = System.nanoTime() + Duration.ofSeconds(20).toNanos();
            while (System.nanoTime() < end) {
                worker.acknowledge("long", AcknowledgeType.RENEW);
                worker.commit();
                check(worker.consumer.poll(POLL).count() <= 1, "a renewed record comes with the next poll");
                for (int i = 0; i < 10; i++) {
                    check(other.consumer.poll(POLL).isEmpty(), "the lock has ended");
                }
            }
            worker.acknowledge("long", AcknowledgeType.ACCEPT);
            worker.commit();
            check(other.nothing(), "accepted after more than one duration");
        }
    }

    void lockEndsAfterItsDuration() throws Exception {
        configure("share.record.lock.duration.ms", "15000");
        send("slow");
        try (Member slow = new Member(EXPLICIT); Member other = new Member(EXPLICIT)) {
            slow.take(1);
            check(other.take(1).equals(List.of("slow 2")), "another member gets it");
            slow.acknowledge("slow", AcknowledgeType.ACCEPT);
            String failure = slow.consumer.commitSync().values().iterator().next().get().getClass().getSimpleName();
            check(failure.equals("InvalidRecordStateException"), failure);
            other.acknowledge("slow", AcknowledgeType.ACCEPT);
            other.commit();
        }
    }

    void wakeupEndsAPollAndTheMemberGoesOn() throws Exception {
        try (Member member = new Member(Map.of())) {
            member.consumer.poll(POLL);
            Thread waker = new Thread(member.consumer::wakeup);
            waker.start();
            fails(WakeupException.class, () -> member.consumer.poll(Duration.ofMillis(PATIENCE_MS)));
            waker.join();
            send("a");
            check(member.take(1).equals(List.of("a 1")), "polls again");
        }
    }

    void abortedRecordsAreDeliveredOnlyUnderReadUncommitted() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("transactional.id", group))) {
            producer.initTransactions();
            for (String value : List.of("aborted", "committed")) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                if (value.equals("aborted")) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        try (Member member = new Member(Map.of())) {
            check(member.take(2).equals(List.of("aborted 1", "committed 1")), "read_uncommitted");
        }
        String careful = group + "-committed";
        configure(careful, "share.auto.offset.reset", "earliest");
        configure(careful, "share.isolation.level", "read_committed");
        try (Member member = new Member(Map.of("group.id", careful))) {
            check(member.take(1).equals(List.of("committed 1")), "read_committed");
            check(member.nothing(), "and nothing else");
        }
    }

    void locksOfAPartitionAreLimited() throws Exception {
        configure("share.record.lock.duration.ms", "60000"); // longer than this takes on a busy machine
        try (KafkaProducer<String, String> producer = producer(Map.of("batch.size", "0"))) {
            for (int i = 0; i < 2100; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + i));
            }
        }
        List<Member> members = new ArrayList<>();
        int taken = 0;
        int more;
        do {
            members.add(new Member(EXPLICIT));
            more = members.get(members.size() - 1).takeWithin(20_000).size();
            taken += more;
            check(taken < 2010, "2000, and at most the rest of a batch: " + taken);
        } while (more > 0);
        // A client that polls while its fetch is answered fetches once more: then it locks records that nobody sees.
        check(taken >= 1000, members.size() + " members have only " + taken);
        Member first = members.get(0);
        first.held.values().forEach(first.consumer::acknowledge);
        first.commit();
        check(members.get(members.size() - 1).take(1).size() > 0, "locks are left again");
        members.forEach(Member::close);
    }

    void recordLimitDividesABatch() throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of("linger.ms", "1000"))) {
            for (int i = 0; i < 5; i++) {
                producer.send(new ProducerRecord<>(topic, 0, null, "" + i));
            }
        }
        Map<String, Object> strict = new HashMap<>(EXPLICIT);
        strict.put("share.acquire.mode", "record_limit");
        strict.put("max.poll.records", "2");
        try (Member first = new Member(strict); Member second = new Member(strict)) {
            check(first.take(1).equals(List.of("0 1", "1 1")), "two of a batch");
            check(second.take(1).equals(List.of("2 1", "3 1")), "the next two");
        }
    }

    void recordsOfAMemberThatLeavesComeAgain() throws Exception {
        send("a", "b");
        Member leaving = new Member(EXPLICIT);
        leaving.take(2);
        leaving.acknowledge("a", AcknowledgeType.ACCEPT);
        leaving.close();
        try (Member member = new Member(EXPLICIT)) {
            List<String> again = member.take(1);
            check(again.equals(List.of("b 2")), "again: " + again);
            member.acknowledge("b", AcknowledgeType.ACCEPT);
        }
    }

    void recordIsGivenUpAfterFiveDeliveries() throws Exception {
        send("poison");
        try (Member member = new Member(EXPLICIT)) {
            for (int delivery = 1; delivery <= 5; delivery++) {
                check(member.take(1).equals(List.of("poison " + delivery)), "delivery " + delivery);
                member.acknowledge("poison", AcknowledgeType.RELEASE);
                member.commit();
            }
            check(member.nothing(), "given up");
        }
    }

    void moreMembersThanPartitionsShareThem() throws Exception {
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            members.add(new Member(EXPLICIT));
        }
        for (Member member : members) {
            check(member.nothing(), "nothing yet");
        }
        for (int i = 0; i < 4; i++) {
            send("" + i);
        }
        // one record a batch: each goes to whoever asks
        Set<String> values = members.stream().flatMap(member -> member.takeAll().stream()).collect(Collectors.toSet());
        check(values.equals(Set.of("0 1", "1 1", "2 1", "3 1")), "all together " + values);
        int assigned = admin.describeShareGroups(List.of(group)).all().get().get(group).members().stream()
                .mapToInt(member -> member.assignment().topicPartitions().size()).sum();
        check(assigned == 4, "each is assigned the one partition, not " + assigned);
        members.forEach(Member::close);
    }

    /** A member of a share group that holds records by their values. */
    private final class Member implements AutoCloseable {
        final KafkaShareConsumer<String, String> consumer;
        final Map<String, ConsumerRecord<String, String>> held = new HashMap<>();

        Member(Map<String, Object> settings) {
            Map<String, Object> all = new HashMap<>(Map.of("bootstrap.servers", bootstrap, "group.id", group));
            all.putAll(settings);
            consumer = new KafkaShareConsumer<>(all, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(topic));
        }

        /** The values of one poll, each with the number of its delivery. */
        List<String> poll() {
            List<String> values = new ArrayList<>();
            held.clear();
            for (ConsumerRecord<String, String> record : consumer.poll(POLL)) {
                held.put(record.value(), record);
                values.add(record.value() + " " + record.deliveryCount().get());
            }
            return values;
        }

        /** The first poll with records, which are at least so many: they were written before. */
        List<String> take(int least) {
            List<String> values = takeWithin(PATIENCE_MS);
            check(!values.isEmpty(), "no record comes");
            check(values.size() >= least, "fewer than " + least + ": " + values);
            return values;
        }

        /** The records of the first poll that has some; none if there is no such poll in this time. */
        List<String> takeWithin(long milliseconds) {
            long deadline = System.currentTimeMillis() + milliseconds;
            List<String> values = poll();
            while (values.isEmpty() && System.currentTimeMillis() < deadline) {
                values = poll();
            }
            return values;
        }

        /** The records of some polls in vain at most; each is accepted. */
        Collection<String> takeAll() {
            List<String> values = new ArrayList<>();
            for (int i = 0; i < IN_VAIN; i++) {
                values.addAll(poll());
                held.values().forEach(consumer::acknowledge);
            }
            return values;
        }

        boolean nothing() {
            for (int i = 0; i < IN_VAIN; i++) {
                if (!poll().isEmpty()) {
                    return false;
                }
            }
            return true;
        }

        void acknowledge(String value, AcknowledgeType type) {
            consumer.acknowledge(held.get(value), type);
        }

        void commit() {
            consumer.commitSync().values().forEach(failure -> check(failure.isEmpty(), "commit: " + failure));
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    private void send(String... values) throws Exception {
        try (KafkaProducer<String, String> producer = producer(Map.of())) {
            for (String value : values) {
                producer.send(new ProducerRecord<>(topic, 0, null, value)).get();
            }
        }
    }

    private KafkaProducer<String, String> producer(Map<String, Object> settings) {
        Map<String, Object> all = new HashMap<>(settings);
        all.put("bootstrap.servers", bootstrap);
        return new KafkaProducer<>(all, new StringSerializer(), new StringSerializer());
    }

    private void configure(String name, String value) throws Exception {
        configure(group, name, value);
    }

    private void configure(String group, String name, String value) throws Exception {
        admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group), List.of(
                new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)))).all().get();
    }

    private interface Action {
        void run() throws Exception;
    }

    private static void fails(Class<? extends Exception> expected, Action action) {
        try {
            action.run();
        } catch (Exception failure) {
            check(expected.isInstance(failure), "expected " + expected + ", got " + failure);
            return;
        }
        throw new AssertionError("expected " + expected);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
