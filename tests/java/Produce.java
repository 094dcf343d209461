// Filling topics: plain, idempotent, compressed, keyed.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

final class Produce {
    private Produce() { }

    /** A producer with the options that every producing command shares. */
    static KafkaProducer<byte[], byte[]> producer(
            String bootstrap, Arguments arguments, Map<String, Object> more) {
        Map<String, Object> config = new HashMap<>();
        boolean idempotent = arguments.option("idempotent", true);
        config.put("bootstrap.servers", bootstrap);
        config.put("enable.idempotence", idempotent);
        config.put("acks", arguments.option("acks", "all"));
        config.put("compression.type", arguments.option("compression", "none"));
        config.put("linger.ms", arguments.option("linger-ms", "5"));
        config.put("batch.size", arguments.option("batch-size", "16384"));
        config.put("buffer.memory", 64L << 20);
        config.put("max.request.size", 32 << 20);
        config.put("max.block.ms", 60_000);
        config.put("reconnect.backoff.max.ms", 200);
        config.putAll(more);
        return new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** produce TOPIC --partitions N --records R (over all partitions); answers `partition next-sequence`. */
    static void records(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        int partitions = arguments.option("partitions", 1);
        long records = arguments.option("records", 1000L);
        int bytes = arguments.option("size", 100);
        Filler filler = new Filler(arguments.option("seed", 1L), bytes);
        long tombstoneEvery = arguments.option("tombstone-every", 0L);
        boolean headers = arguments.option("headers", true);
        boolean keys = arguments.option("keys", true);
        long timestampFirst = arguments.option("timestamp-first", -1L);
        long timestampStep = arguments.option("timestamp-step", 1L);
        long sequenceFirst = arguments.option("sequence-first", 0L);
        Failure failure = new Failure();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, arguments, Map.of())) {
            arguments.done();
            for (long index = 0; index < records; index++) {
                failure.check();
                int partition = (int) (index % partitions);
                long sequence = sequenceFirst + index / partitions;
                Long timestamp = timestampFirst < 0 ? null : Long.valueOf(timestampFirst + index * timestampStep);
                byte[] key = keys ? Filler.key(sequence) : null;
                // A tombstone has no room for its sequence, so it stands beside the numbered records.
                boolean tombstone = tombstoneEvery > 0 && key != null && index % tombstoneEvery == 0;
                byte[] value = tombstone ? null : filler.value(partition, sequence);
                var record = new ProducerRecord<byte[], byte[]>(topic, partition, timestamp, key, value);
                if (headers) {
                    Filler.addHeaders(record, sequence);
                }
                producer.send(record, failure::note);
            }
            producer.flush();
        }
        failure.check();
        for (int partition = 0; partition < partitions; partition++) {
            long count = records / partitions + (partition < records % partitions ? 1 : 0);
            answer.accept(partition + " " + (sequenceFirst + count));
        }
    }

    /** compact-load TOPIC: many overwrites of few keys, a tombstone now and then. */
    static void compactLoad(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        int partitions = arguments.option("partitions", 1);
        int keys = arguments.option("keys", 20);
        long records = arguments.option("records", 10_000L);
        Filler filler = new Filler(arguments.option("seed", 1L), arguments.option("size", 100));
        Failure failure = new Failure();
        try (KafkaProducer<byte[], byte[]> producer = producer(bootstrap, arguments, Map.of())) {
            arguments.done();
            for (long index = 0; index < records; index++) {
                failure.check();
                int partition = (int) (index % partitions);
                long sequence = index / partitions;
                byte[] key = ("key-" + (sequence * 31 + sequence / keys) % keys).getBytes();
                byte[] value = sequence % 97 == 96 ? null : filler.value(partition, sequence);
                producer.send(new ProducerRecord<>(topic, partition, key, value), failure::note);
            }
            producer.flush();
        }
        failure.check();
    }

    /** The first failure that a callback saw, thrown where the sender can say so. */
    static final class Failure {
        private final AtomicReference<Exception> first = new AtomicReference<>();

        void note(Object metadata, Exception exception) {
            if (exception != null) {
                first.compareAndSet(null, exception);
            }
        }

        void check() throws Exception {
            if (first.get() != null) {
                throw first.get();
            }
        }
    }
}
