import java.lang.reflect.InvocationTargetException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.BooleanSupplier;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** What people expect of consumer groups, with each assignor of the Java client. */
public class Groups {
    private static final List<Class<?>> ASSIGNORS = List.of(
        RangeAssignor.class, RoundRobinAssignor.class, StickyAssignor.class, CooperativeStickyAssignor.class);
    private static final int PARTITIONS = 3;
    private static final int KEYS = 7;

    private final String bootstrap;

    private Groups(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        try {
            Groups.class.getDeclaredMethod(arguments[0]).invoke(new Groups(arguments[1]));
        } catch (InvocationTargetException failure) {
            failure.getCause().printStackTrace();
            System.exit(1);
        }
        System.exit(0);
    }

    void threePartitionsFeedThreeMembersAndTheFourthIsIdle() throws Exception {
        for (Class<?> assignor : ASSIGNORS) {
            Group group = new Group(assignor);
            for (List<Integer> shares : List.of(List.of(3), List.of(1, 2), List.of(1, 1, 1), List.of(0, 1, 1, 1))) {
                group.join();
                group.awaitShares(shares);
            }
            group.leave(group.members.stream().filter(member -> !member.owned.isEmpty()).findFirst().get());
            group.awaitShares(List.of(1, 1, 1));
            group.close();
        }
    }

    void eachKeyIsReadOnceAndInOrderWhileMembersComeAndGo() throws Exception {
        for (Class<?> assignor : ASSIGNORS) {
            Group group = new Group(assignor);
            Member first = group.join();
            group.write(20);
            until(() -> group.log.size() > 50, assignor);
            group.join();
            group.write(20);
            group.awaitShares(List.of(1, 2));
            group.write(20);
            group.leave(first);
            group.write(20);
            until(() -> group.log.size() >= 80 * KEYS, assignor);
            group.close();
            for (int key = 0; key < KEYS; key++) {
                String wanted = "key-" + key;
                List<Integer> read = group.log.stream().filter(record -> record.key().equals(wanted))
                    .map(record -> Integer.valueOf(record.value())).toList();
                if (!read.equals(IntStream.range(0, 80).boxed().toList()))
                    throw new AssertionError(assignor + ": " + wanted + " was read as " + read);
            }
        }
    }

    /** A topic, the members of one group that reads it, and what they have read, in the order of reading. */
    private final class Group {
        final Class<?> assignor;
        final String id = "g-" + UUID.randomUUID();
        final String topic = "t-" + UUID.randomUUID();
        final List<Member> members = new ArrayList<>();
        final List<ConsumerRecord<String, String>> log = new CopyOnWriteArrayList<>();
        int written = 0;

        Group(Class<?> assignor) throws Exception {
            this.assignor = assignor;
            try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                admin.createTopics(List.of(new NewTopic(topic, PARTITIONS, (short) 1))).all().get();
            }
        }

        Member join() {
            Member member = new Member(this);
            members.add(member);
            member.start();
            return member;
        }

        void leave(Member member) throws InterruptedException {
            members.remove(member);
            member.leaving = true;
            member.join();
        }

        void close() throws InterruptedException {
            while (!members.isEmpty())
                leave(members.get(0));
        }

        void write(int rounds) {
            Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap);
            try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
                for (int end = written + rounds; written < end; written++)
                    for (int key = 0; key < KEYS; key++)
                        producer.send(new ProducerRecord<>(topic, "key-" + key, String.valueOf(written)));
            }
        }

        /** Until every partition is owned once, and so many by each member, in whatever order. */
        void awaitShares(List<Integer> shares) {
            until(() -> {
                List<Set<Integer>> parts = members.stream().map(member -> member.owned).toList();
                return parts.stream().flatMap(Set::stream).sorted().toList().equals(List.of(0, 1, 2))
                    && parts.stream().map(Set::size).sorted().toList().equals(shares);
            }, assignor);
        }
    }

    /** A consumer that commits what it has read before it gives partitions up. */
    private final class Member extends Thread implements ConsumerRebalanceListener {
        final Group group;
        final KafkaConsumer<String, String> consumer;
        volatile Set<Integer> owned = Set.of();
        volatile boolean leaving = false;

        Member(Group group) {
            this.group = group;
            Properties settings = new Properties();
            settings.putAll(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group.id, "auto.offset.reset", "earliest",
                "enable.auto.commit", "false", "heartbeat.interval.ms", "100",
                "partition.assignment.strategy", group.assignor.getName()));
            consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(group.topic), this);
        }

        @Override
        public void run() {
            while (!leaving) {
                consumer.poll(Duration.ofMillis(100)).forEach(group.log::add);
                owned = Set.copyOf(consumer.assignment().stream().map(TopicPartition::partition).toList());
            }
            consumer.close();
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            if (!partitions.isEmpty())
                consumer.commitSync();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) { }
    }

    private static void until(BooleanSupplier reached, Object what) {
        long deadline = System.nanoTime() + 30_000_000_000L;
        while (!reached.getAsBoolean()) {
            if (System.nanoTime() > deadline)
                throw new AssertionError(what + ": not within 30 seconds");
            try {
                Thread.sleep(20);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
        }
    }
}
