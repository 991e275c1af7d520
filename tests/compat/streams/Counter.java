import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts each value of the topic "words", exactly once, and writes each count to "counts". It runs until it is
 * killed.
 */
public class Counter {
    public static void main(String[] arguments) {
        var strings = Serdes.String();
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "counter");
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[1]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 3);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest");
        settings.put(StreamsConfig.consumerPrefix("session.timeout.ms"), 6000);
        var builder = new StreamsBuilder();
        builder.stream("words", Consumed.with(strings, strings))
            .groupBy((key, word) -> word, Grouped.with(strings, strings))
            .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counted"))
                .withKeySerde(strings).withValueSerde(Serdes.Long()))
            .toStream().mapValues(count -> count.toString())
            .to("counts", Produced.with(strings, strings));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((state, before) -> System.out.println(state));
        streams.start();
    }
}
