import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.coordinator.group.api.assignor.ConsumerGroupPartitionAssignor;
import org.apache.kafka.coordinator.group.api.assignor.SubscribedTopicDescriber;
import org.apache.kafka.coordinator.group.api.assignor.SubscriptionType;
import org.apache.kafka.coordinator.group.assignor.RangeAssignor;
import org.apache.kafka.coordinator.group.assignor.UniformAssignor;
import org.apache.kafka.coordinator.group.modern.Assignment;
import org.apache.kafka.coordinator.group.modern.GroupSpecImpl;
import org.apache.kafka.coordinator.group.modern.MemberSubscriptionAndAssignmentImpl;

/**
 * Reads groups, a JSON object a line, and answers each with the targets of Apache Kafka's assignor.
 *
 * A group: {"assignor": name, "topics": {name: partitions}, "members": [{"id", "instance", "topics": [name],
 * "assigned": {name: [partition]}}]}, all topics in the order of their names. An answer: {id: {name: [partition]}}.
 */
public class Assignors {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, ConsumerGroupPartitionAssignor> ASSIGNORS =
        Map.of("uniform", new UniformAssignor(), "range", new RangeAssignor());

    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; )
            System.out.println(JSON.writeValueAsString(targets(JSON.readTree(line))));
    }

    private static Map<String, Map<String, Set<Integer>>> targets(JsonNode group) {
        Map<String, Uuid> ids = new HashMap<>();
        Map<Uuid, String> names = new HashMap<>();
        Map<Uuid, Integer> partitions = new HashMap<>();
        group.get("topics").fields().forEachRemaining(topic -> {
            var id = new Uuid(0, ids.size() + 1);  // ids are in the order of the names
            ids.put(topic.getKey(), id);
            names.put(id, topic.getKey());
            partitions.put(id, topic.getValue().asInt());
        });
        Map<String, MemberSubscriptionAndAssignmentImpl> members = new LinkedHashMap<>();
        Map<Uuid, Map<Integer, String>> owners = new HashMap<>();
        Set<Set<Uuid>> subscriptions = new HashSet<>();
        for (JsonNode member : group.get("members")) {
            String memberId = member.get("id").asText();
            Set<Uuid> topics = new TreeSet<>();
            for (JsonNode topic : member.get("topics"))
                topics.add(ids.get(topic.asText()));
            subscriptions.add(topics);
            Map<Uuid, Set<Integer>> assigned = new TreeMap<>();
            member.get("assigned").fields().forEachRemaining(topic -> {
                for (JsonNode partition : topic.getValue()) {
                    Uuid id = ids.get(topic.getKey());
                    assigned.computeIfAbsent(id, key -> new TreeSet<>()).add(partition.asInt());
                    owners.computeIfAbsent(id, key -> new HashMap<>()).put(partition.asInt(), memberId);
                }
            });
            members.put(memberId, new MemberSubscriptionAndAssignmentImpl(
                Optional.empty(),
                Optional.ofNullable(member.get("instance").textValue()),
                topics,
                new Assignment(Collections.unmodifiableMap(assigned))
            ));
        }
        var type = subscriptions.size() > 1 ? SubscriptionType.HETEROGENEOUS : SubscriptionType.HOMOGENEOUS;
        var targets = ASSIGNORS.get(group.get("assignor").asText())
            .assign(new GroupSpecImpl(members, type, owners), new Topics(partitions)).members();
        Map<String, Map<String, Set<Integer>>> answer = new TreeMap<>();
        targets.forEach((memberId, target) -> {
            Map<String, Set<Integer>> byName = new TreeMap<>();
            target.partitions().forEach((id, found) -> byName.put(names.get(id), found));
            answer.put(memberId, byName);
        });
        return answer;
    }

    private record Topics(Map<Uuid, Integer> partitions) implements SubscribedTopicDescriber {
        public int numPartitions(Uuid id) {
            return partitions.getOrDefault(id, -1);
        }

        public Set<String> racksForPartition(Uuid id, int partition) {
            throw new AssertionError("the assignor asked for racks");
        }
    }
}
