// Keys, values and headers of test records: a function of seed, partition and sequence alone,
// so that a record read anywhere can be told from any other.

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.SplittableRandom;
import org.apache.kafka.clients.producer.ProducerRecord;

final class Filler {
    /** A value opens with its sequence, eight bytes, big-endian. */
    static final int SEQUENCE_BYTES = 8;

    private static final int POOL_BYTES = 1 << 20;
    private static final byte[] ALPHABET =
        "abcdefghijklmnopqrstuvwxyzABCDEF".getBytes(StandardCharsets.US_ASCII);

    private final byte[] pool;
    private final long seed;
    private final int valueBytes;

    Filler(long seed, int valueBytes) {
        this.seed = seed;
        this.valueBytes = Math.max(valueBytes, SEQUENCE_BYTES);
        // Five bits of chance in eight: codecs find something to do, yet not everything.
        SplittableRandom random = new SplittableRandom(seed);
        pool = new byte[POOL_BYTES + this.valueBytes];
        for (int at = 0; at < pool.length; at++) {
            pool[at] = ALPHABET[random.nextInt(ALPHABET.length)];
        }
    }

    /** Slices of one pool, because fresh random bytes would be slower than the broker we feed. */
    byte[] value(int partition, long sequence) {
        long mixed = (seed ^ (sequence * 0x9E3779B97F4A7C15L)) + partition * 0xBF58476D1CE4E5B9L;
        int from = (int) ((mixed >>> 17) % POOL_BYTES);
        byte[] value = new byte[valueBytes];
        System.arraycopy(pool, from, value, 0, valueBytes);
        ByteBuffer.wrap(value).putLong(sequence);
        return value;
    }

    /** Every seventh record has no key. */
    static byte[] key(long sequence) {
        if (sequence % 7 == 3) {
            return null;
        }
        return ("key-" + sequence % 1000).getBytes(StandardCharsets.US_ASCII);
    }

    /** The shapes a codec gets wrong: one key twice, a null value, an empty key and an empty value. */
    static void addHeaders(ProducerRecord<byte[], byte[]> record, long sequence) {
        if (sequence % 3 != 1) {
            return;
        }
        byte[] number = Long.toString(sequence).getBytes(StandardCharsets.US_ASCII);
        record.headers().add("twice", number).add("twice", "again".getBytes(StandardCharsets.US_ASCII));
        if (sequence % 2 == 0) {
            record.headers().add("null", null).add("", new byte[0]);
        }
    }

    /** The sequence at the head of a value, or -1 where there is none. */
    static long sequence(byte[] value) {
        return value == null || value.length < SEQUENCE_BYTES ? -1 : ByteBuffer.wrap(value).getLong();
    }
}
