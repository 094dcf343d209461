// Transactions of several producers, interleaved in every partition, some aborted, one left open.

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Transactions {
    /** Transactions left open, by transactional id; they stay so until told or until this JVM dies. */
    private static final Map<String, KafkaProducer<byte[], byte[]>> OPEN = new HashMap<>();

    /** Of the request at work: there is one at a time. */
    private static boolean keyed = false;

    private Transactions() { }

    /**
     * transactions TOPIC --producers P --transactions T --records-per R --abort-every K --leave-open true
     * --keyed true (every record has a key, as compacted topics want it).
     * Answers `committed N`, `aborted N` and, when one is left open, `open ID`.
     */
    static void run(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        int partitions = arguments.option("partitions", 1);
        int producerCount = arguments.option("producers", 2);
        int transactions = arguments.option("transactions", 10);
        int recordsPer = arguments.option("records-per", 10);
        int abortEvery = arguments.option("abort-every", 3);
        boolean leaveOpen = arguments.option("leave-open", false);
        long timeoutMs = arguments.option("timeout-ms", 600_000L);
        String compression = arguments.option("compression", "none");
        String prefix = arguments.option("id", "transactions-" + topic);
        keyed = arguments.option("keyed", false);
        Filler filler = new Filler(arguments.option("seed", 1L), arguments.option("size", 100));
        arguments.done();

        Map<String, String> shared = Map.of("compression", compression);
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        long[] sequences = new long[partitions];
        int ended = 0;
        int aborted = 0;
        try {
            for (int at = 0; at < producerCount; at++) {
                producers.add(transactional(bootstrap, prefix + "-" + at, shared, timeoutMs));
            }
            for (int round = 0; round < transactions; round++) {
                producers.forEach(KafkaProducer::beginTransaction);
                for (int record = 0; record < recordsPer; record++) {
                    for (int at = 0; at < producerCount; at++) {
                        int partition = (record * producerCount + at + round) % partitions;
                        send(producers.get(at), topic, partition, sequences[partition]++, filler);
                    }
                    // A batch per step, so that batches of different producers lie between one another.
                    producers.forEach(KafkaProducer::flush);
                }
                for (int step = 0; step < producerCount; step++) {
                    KafkaProducer<byte[], byte[]> producer = producers.get((step + round) % producerCount);
                    ended++;
                    if (abortEvery > 0 && ended % abortEvery == 0) {
                        producer.abortTransaction();
                        aborted++;
                    } else {
                        producer.commitTransaction();
                    }
                }
            }
        } finally {
            producers.forEach(KafkaProducer::close);
        }
        answer.accept("committed " + (ended - aborted));
        answer.accept("aborted " + aborted);
        if (leaveOpen) {
            answer.accept("open " + open(bootstrap, prefix, topic, recordsPer, sequences, filler, timeoutMs));
        }
    }

    private static String open(String bootstrap, String prefix, String topic, int records,
                               long[] sequences, Filler filler, long timeoutMs) {
        String id = prefix + "-open";
        KafkaProducer<byte[], byte[]> producer = transactional(bootstrap, id, Map.of(), timeoutMs);
        producer.beginTransaction();
        for (int record = 0; record < records; record++) {
            int partition = record % sequences.length;
            send(producer, topic, partition, sequences[partition]++, filler);
        }
        producer.flush();
        OPEN.put(id, producer);
        return id;
    }

    /** end-open ID commit|abort. */
    static void endOpen(String bootstrap, Arguments arguments, Consumer<String> answer) {
        String id = arguments.next("ID");
        String how = arguments.next("commit|abort");
        arguments.done();
        KafkaProducer<byte[], byte[]> producer = OPEN.remove(id);
        if (producer == null) {
            throw new IllegalArgumentException("no transaction is open under " + id);
        }
        try (producer) {
            if (how.equals("commit")) {
                producer.commitTransaction();
            } else {
                producer.abortTransaction();
            }
        }
    }

    private static KafkaProducer<byte[], byte[]> transactional(
            String bootstrap, String id, Map<String, String> options, long timeoutMs) {
        List<String> fields = new ArrayList<>();
        options.forEach((name, value) -> {
            fields.add("--" + name);
            fields.add(value);
        });
        KafkaProducer<byte[], byte[]> producer = Produce.producer(bootstrap, new Arguments(fields),
            Map.of("transactional.id", id, "transaction.timeout.ms", (int) timeoutMs, "linger.ms", "0"));
        producer.initTransactions();
        return producer;
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, int partition,
                             long sequence, Filler filler) {
        byte[] value = filler.value(partition, sequence);
        byte[] key = keyed && Filler.key(sequence) == null ? new byte[] {'k'} : Filler.key(sequence);
        producer.send(new ProducerRecord<>(topic, partition, key, value));
    }
}
