// Producers that run beside other requests, for tests that kill things under load.

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicLongArray;
import java.util.function.Consumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Stream implements Runnable {
    private static final Map<String, Stream> RUNNING = new HashMap<>();

    private final KafkaProducer<byte[], byte[]> producer;
    private final Filler filler;
    private final Produce.Failure failure = new Produce.Failure();
    private final String topic;
    private final int partitions;
    private final double recordsPerSecond;
    private final long deadlineNanos;
    private final long[] next;
    private final AtomicLongArray lastSequence;
    private final AtomicLongArray lastOffset;
    private final Thread thread;
    private volatile boolean stopping = false;

    private Stream(String bootstrap, Arguments arguments) {
        topic = arguments.next("TOPIC");
        partitions = arguments.option("partitions", 1);
        recordsPerSecond = arguments.option("rate", 1000);
        long seconds = arguments.option("seconds", 3600L);
        deadlineNanos = System.nanoTime() + seconds * 1_000_000_000L;
        filler = new Filler(arguments.option("seed", 1L), arguments.option("size", 100));
        long first = arguments.option("sequence-first", 0L);
        next = new long[partitions];
        lastSequence = new AtomicLongArray(partitions);
        lastOffset = new AtomicLongArray(partitions);
        for (int partition = 0; partition < partitions; partition++) {
            next[partition] = first;
            lastSequence.set(partition, first - 1);
            lastOffset.set(partition, -1);
        }
        producer = Produce.producer(bootstrap, arguments, Map.of("acks", "all", "delivery.timeout.ms", 300_000));
        arguments.done();
        thread = new Thread(this, "stream-" + topic);
    }

    @Override
    public void run() {
        long started = System.nanoTime();
        long sent = 0;
        while (!stopping && System.nanoTime() < deadlineNanos) {
            long due = (long) ((System.nanoTime() - started) / 1e9 * recordsPerSecond);
            if (sent >= due) {
                try {
                    Thread.sleep(1);
                } catch (InterruptedException interrupted) {
                    break;
                }
            }
            for (; sent < due && !stopping; sent++) {
                send((int) (sent % partitions));
            }
        }
        producer.close();
    }

    /** Idempotent and in order: an acknowledged sequence means that all before it are in the log. */
    private void send(int partition) {
        long sequence = next[partition]++;
        byte[] value = filler.value(partition, sequence);
        producer.send(new ProducerRecord<>(topic, partition, Filler.key(sequence), value), (metadata, exception) -> {
            failure.note(metadata, exception);
            if (exception == null) {
                lastSequence.accumulateAndGet(partition, sequence, Math::max);
                lastOffset.accumulateAndGet(partition, metadata.offset(), Math::max);
            }
        });
    }

    private void report(Consumer<String> answer) {
        for (int partition = 0; partition < partitions; partition++) {
            answer.accept(partition + " " + lastSequence.get(partition) + " " + lastOffset.get(partition));
        }
    }

    /** stream-start ID TOPIC --partitions N --rate PER_SECOND --seconds S. */
    static void start(String bootstrap, Arguments arguments, Consumer<String> answer) {
        String id = arguments.next("ID");
        if (RUNNING.containsKey(id)) {
            throw new IllegalArgumentException("a stream is already called " + id);
        }
        Stream stream = new Stream(bootstrap, arguments);
        RUNNING.put(id, stream);
        stream.thread.start();
    }

    /** stream-acked ID: `partition sequence offset` of the last acknowledged record, -1 for none. */
    static void acked(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        Stream stream = named(arguments.next("ID"));
        arguments.done();
        stream.failure.check();
        stream.report(answer);
    }

    /** stream-stop ID: flushes, closes, answers as stream-acked. */
    static void stop(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String id = arguments.next("ID");
        Stream stream = named(id);
        arguments.done();
        RUNNING.remove(id);
        stream.stopping = true;
        stream.thread.join();
        stream.report(answer);
        stream.failure.check();
    }

    /** stream TOPIC ...: to the end, for the command line. */
    static void run(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        Stream stream = new Stream(bootstrap, arguments);
        stream.run();
        stream.report(answer);
        stream.failure.check();
    }

    private static Stream named(String id) {
        Stream stream = RUNNING.get(id);
        if (stream == null) {
            throw new IllegalArgumentException("no stream is called " + id);
        }
        return stream;
    }
}
