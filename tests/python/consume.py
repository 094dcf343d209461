"""Reads a topic with librdkafka and prints what the Java client's `digest` prints.

    consume.py BOOTSTRAP TOPIC read_committed|read_uncommitted
    -> partition first next records sha256 crc32

Both sums are over the same bytes as in Read.java, where their layout stands.
"""
import hashlib
import struct
import sys
import time
import zlib

from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

SECONDS_MAX = 120


def field(data):
    if data is None:
        return struct.pack(">i", -1)
    return struct.pack(">i", len(data)) + data


class Digest:
    def __init__(self):
        self.records = 0
        self.sha = hashlib.sha256()
        self.crc = 0

    def add(self, message):
        # librdkafka counts from "none"; the log says 0 for creation and 1 for append time.
        kind, timestamp = message.timestamp()
        key, value = field(message.key()), field(message.value())
        head = struct.pack(">qq", message.offset(), timestamp)
        headers = message.headers() or []
        self.records += 1
        self.crc = zlib.crc32(head + key + value, self.crc)
        self.sha.update(head + struct.pack(">b", kind - 1) + key + value)
        self.sha.update(struct.pack(">i", len(headers)))
        for name, content in headers:
            self.sha.update(field(name.encode()) + field(content))


def bounds(admin, partitions, spec, isolation):
    futures = admin.list_offsets({p: spec for p in partitions}, isolation_level=isolation)
    return {p.partition: future.result().offset for p, future in futures.items()}


def main(bootstrap, topic, level):
    isolation = IsolationLevel[level.upper()]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    numbers = sorted(admin.list_topics(topic, timeout=30).topics[topic].partitions)
    partitions = [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        sys.exit("error: topic %s has no partitions" % topic)
    first = bounds(admin, partitions, OffsetSpec.earliest(), isolation)
    following = bounds(admin, partitions, OffsetSpec.latest(), isolation)
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": "unused",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": level,
        "auto.offset.reset": "error",
        "check.crcs": True,
        "fetch.wait.max.ms": 50,
    })
    consumer.assign([TopicPartition(topic, n, first[n]) for n in numbers])
    digests = {number: Digest() for number in numbers}
    reading = {number for number in numbers if first[number] < following[number]}
    deadline = time.monotonic() + SECONDS_MAX
    while reading:
        if time.monotonic() > deadline:
            sys.exit("error: not at the end of %s after %d s" % (topic, SECONDS_MAX))
        for message in consumer.consume(5000, 0.1):
            number = message.partition()
            if message.error() is None:
                if message.offset() < following[number]:
                    digests[number].add(message)
            elif message.error().code() == KafkaError._PARTITION_EOF:
                # The end is past the last record where that is followed by a control batch.
                if message.offset() >= following[number]:
                    reading.discard(number)
            else:
                raise KafkaException(message.error())
    consumer.close()
    for number in numbers:
        digest = digests[number]
        print(number, first[number], following[number], digest.records,
              digest.sha.hexdigest(), "%08x" % digest.crc)


main(*sys.argv[1:])
