// Reading topics whole and saying in one line per partition what was read.

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.Base64;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

final class Read {
    private Read() { }

    interface Visitor {
        void visit(ConsumerRecord<byte[], byte[]> record) throws Exception;
    }

    /** Where a partition began and ended when reading started. */
    private static final class Bounds {
        private final long first;
        private final long next;

        Bounds(long first, long next) {
            this.first = first;
            this.next = next;
        }
    }

    /** digest TOPIC --isolation LEVEL: `partition first next records sha256 crc32`. */
    static void digest(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        Map<Integer, Digest> digests = new HashMap<>();
        Map<Integer, Bounds> bounds = read(bootstrap, arguments, record -> {
            if (!digests.containsKey(record.partition())) {
                digests.put(record.partition(), new Digest());
            }
            digests.get(record.partition()).add(record);
        });
        for (Map.Entry<Integer, Bounds> entry : bounds.entrySet()) {
            Digest digest = digests.getOrDefault(entry.getKey(), new Digest());
            Bounds ends = entry.getValue();
            answer.accept(entry.getKey() + " " + ends.first + " " + ends.next + " " + digest);
        }
    }

    /** print TOPIC --isolation LEVEL: one JSON object per record, bytes in base64. */
    static void print(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        read(bootstrap, arguments, record -> answer.accept(json(record)));
    }

    /**
     * sequences TOPIC: `partition records first last missing repeated` of the sequences in the values.
     * `first` and `last` are -1 where no value carries one.
     */
    static void sequences(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        Map<Integer, long[]> found = new HashMap<>();
        Map<Integer, Bounds> bounds = read(bootstrap, arguments, record -> {
            long sequence = Filler.sequence(record.value());
            long[] seen = found.computeIfAbsent(record.partition(), p -> new long[] {0, -1, -1, 0, 0});
            if (sequence < 0) {
                return;
            }
            seen[0]++;
            if (seen[1] < 0) {
                seen[1] = sequence;
            } else if (sequence <= seen[2]) {
                seen[4]++;
            } else {
                seen[3] += sequence - seen[2] - 1;
            }
            seen[2] = Math.max(seen[2], sequence);
        });
        for (Integer partition : bounds.keySet()) {
            long[] seen = found.getOrDefault(partition, new long[] {0, -1, -1, 0, 0});
            answer.accept(partition + " " + seen[0] + " " + seen[1] + " " + seen[2] + " " + seen[3] + " " + seen[4]);
        }
    }

    /**
     * consume-group GROUP TOPIC --records N: joins as a member, reads that many records at the least,
     * commits and leaves; answers `partition position`.
     */
    static void consumeGroup(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("group.id", arguments.next("GROUP"));
        String topic = arguments.next("TOPIC");
        long wanted = arguments.option("records", 1L);
        long seconds = arguments.option("seconds", 60L);
        config.put("group.protocol", arguments.option("protocol", "classic"));
        config.put("isolation.level", arguments.option("isolation", "read_uncommitted"));
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", (int) Math.min(wanted, 5000));
        arguments.done();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            long deadline = System.nanoTime() + seconds * 1_000_000_000L;
            long read = 0;
            while (read < wanted) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("only " + read + " records after " + seconds + " s");
                }
                read += consumer.poll(Duration.ofMillis(100)).count();
            }
            consumer.commitSync();
            List<TopicPartition> assigned = consumer.assignment().stream()
                .sorted(Comparator.comparingInt(TopicPartition::partition)).collect(Collectors.toList());
            for (TopicPartition partition : assigned) {
                answer.accept(partition.partition() + " " + consumer.position(partition));
            }
        }
    }

    /** Shows every record from the earliest to the end as it was at the start; the end heeds isolation. */
    private static Map<Integer, Bounds> read(String bootstrap, Arguments arguments, Visitor visitor)
            throws Exception {
        String topic = arguments.next("TOPIC");
        String isolation = arguments.option("isolation", "read_uncommitted");
        long seconds = arguments.option("seconds", 120L);
        Map<String, Object> config = new HashMap<>();
        config.put("bootstrap.servers", bootstrap);
        config.put("isolation.level", isolation);
        config.put("auto.offset.reset", "none");
        config.put("enable.auto.commit", false);
        config.put("max.poll.records", 5000);
        config.put("fetch.max.wait.ms", 50);
        config.put("check.crcs", true);
        config.put("max.partition.fetch.bytes", arguments.option("max-partition-fetch-bytes", "1048576"));
        config.put("client.rack", arguments.option("rack", ""));
        arguments.done();
        ByteArrayDeserializer bytes = new ByteArrayDeserializer();
        try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(config, bytes, bytes)) {
            List<TopicPartition> partitions = partitions(consumer, topic);
            consumer.assign(partitions);
            Map<TopicPartition, Long> first = consumer.beginningOffsets(partitions);
            Map<TopicPartition, Long> next = consumer.endOffsets(partitions);
            first.forEach(consumer::seek);
            long deadline = System.nanoTime() + seconds * 1_000_000_000L;
            while (!reached(consumer, next)) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("not at the end of " + topic + " after " + seconds + " s");
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    long end = next.get(new TopicPartition(topic, record.partition()));
                    if (record.offset() < end) {
                        visitor.visit(record);
                    }
                }
            }
            Map<Integer, Bounds> bounds = new TreeMap<>();
            partitions.forEach(p -> bounds.put(p.partition(), new Bounds(first.get(p), next.get(p))));
            return bounds;
        }
    }

    /** A broker that has just come back may answer before it has heard of its topics again. */
    private static List<TopicPartition> partitions(KafkaConsumer<byte[], byte[]> consumer, String topic)
            throws InterruptedException {
        long deadline = System.nanoTime() + 10_000_000_000L;
        List<PartitionInfo> found = consumer.partitionsFor(topic);
        while (found.isEmpty()) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("topic " + topic + " has no partitions here");
            }
            Thread.sleep(50);
            found = consumer.partitionsFor(topic);
        }
        return found.stream().map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toList());
    }

    private static boolean reached(KafkaConsumer<byte[], byte[]> consumer, Map<TopicPartition, Long> next) {
        for (Map.Entry<TopicPartition, Long> entry : next.entrySet()) {
            if (consumer.position(entry.getKey()) < entry.getValue()) {
                return false;
            }
        }
        return true;
    }

    /**
     * SHA-256 of everything in a record and CRC-32 of what every client can show. Big-endian:
     *
     *     sha256   offset i64, timestamp i64, timestamp type i8, key, value, count i32, headers
     *     crc32    offset i64, timestamp i64, key, value
     *     key, value, and both parts of a header: length i32 (-1 for null), bytes
     */
    private static final class Digest {
        private final MessageDigest sha;
        private final CRC32 crc = new CRC32();
        private final ByteArrayOutputStream buffer = new ByteArrayOutputStream();
        private long records = 0;

        Digest() throws Exception {
            sha = MessageDigest.getInstance("SHA-256");
        }

        void add(ConsumerRecord<byte[], byte[]> record) throws IOException {
            records++;
            DataOutputStream out = start();
            out.writeLong(record.offset());
            out.writeLong(record.timestamp());
            bytes(out, record.key());
            bytes(out, record.value());
            crc.update(buffer.toByteArray());
            out = start();
            out.writeLong(record.offset());
            out.writeLong(record.timestamp());
            out.writeByte(record.timestampType().id);
            bytes(out, record.key());
            bytes(out, record.value());
            Header[] headers = record.headers().toArray();
            out.writeInt(headers.length);
            for (Header header : headers) {
                bytes(out, header.key().getBytes(StandardCharsets.UTF_8));
                bytes(out, header.value());
            }
            sha.update(buffer.toByteArray());
        }

        private DataOutputStream start() {
            buffer.reset();
            return new DataOutputStream(buffer);
        }

        private static void bytes(DataOutputStream out, byte[] bytes) throws IOException {
            out.writeInt(bytes == null ? -1 : bytes.length);
            if (bytes != null) {
                out.write(bytes);
            }
        }

        @Override
        public String toString() {
            StringBuilder hex = new StringBuilder();
            for (byte b : sha.digest()) {
                hex.append(String.format("%02x", b));
            }
            return records + " " + hex + " " + String.format("%08x", crc.getValue());
        }
    }

    private static String json(ConsumerRecord<byte[], byte[]> record) {
        StringBuilder out = new StringBuilder();
        out.append("{\"partition\":").append(record.partition());
        out.append(",\"offset\":").append(record.offset());
        out.append(",\"timestamp\":").append(record.timestamp());
        out.append(",\"timestamp_type\":\"").append(record.timestampType()).append('"');
        out.append(",\"leader_epoch\":").append(record.leaderEpoch().map(String::valueOf).orElse("null"));
        out.append(",\"key\":").append(base64(record.key()));
        out.append(",\"value\":").append(base64(record.value()));
        out.append(",\"headers\":[");
        String comma = "";
        for (Header header : record.headers()) {
            // Keys in base64 too: then nothing here needs escaping.
            String key = base64(header.key().getBytes(StandardCharsets.UTF_8));
            out.append(comma).append('[').append(key).append(',').append(base64(header.value())).append(']');
            comma = ",";
        }
        return out.append("]}").toString();
    }

    private static String base64(byte[] bytes) {
        return bytes == null ? "null" : '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }
}
