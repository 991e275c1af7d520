import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.MessageUtil;

/** Reads lines of "class version hex", and answers each with the message as Apache Kafka's codec reads it. */
public class Codec {
    public static void main(String[] arguments) throws Exception {
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line; (line = lines.readLine()) != null; ) {
            String[] parts = line.split(" ", -1);
            short version = Short.parseShort(parts[1]);
            byte[] bytes = HexFormat.of().parseHex(parts[2]);
            Class<?> type = Class.forName(parts[0]);
            var message = (ApiMessage) type.getConstructor().newInstance();
            var buffer = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
            message.read(buffer, version);
            if (buffer.remaining() != 0)
                throw new IllegalStateException(line + ": " + buffer.remaining() + " bytes are left");
            ByteBuffer again = MessageUtil.toByteBufferAccessor(message, version).buffer();
            byte[] written = new byte[again.remaining()];
            again.get(written);
            if (!Arrays.equals(bytes, written))
                throw new IllegalStateException(line + "\nwritten " + HexFormat.of().formatHex(written));
            var json = (JsonNode) Class.forName(parts[0] + "JsonConverter")
                .getMethod("write", type, short.class).invoke(null, message, version);
            System.out.println(json);
        }
    }
}
