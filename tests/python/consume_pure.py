"""Reads a topic with kafka-python, which shares no code with Java or librdkafka; as consume.py.

    consume_pure.py BOOTSTRAP TOPIC read_committed|read_uncommitted
    -> partition first next records sha256 crc32
"""
import hashlib
import struct
import sys
import time
import zlib

from kafka import KafkaConsumer, TopicPartition

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

    def add(self, record):
        key, value = field(record.key), field(record.value)
        head = struct.pack(">qq", record.offset, record.timestamp)
        self.records += 1
        self.crc = zlib.crc32(head + key + value, self.crc)
        self.sha.update(head + struct.pack(">b", record.timestamp_type) + key + value)
        self.sha.update(struct.pack(">i", len(record.headers)))
        for name, content in record.headers:
            self.sha.update(field(name.encode()) + field(content))


def main(bootstrap, topic, level):
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        isolation_level=level,
        enable_auto_commit=False,
        auto_offset_reset="none",
        check_crcs=True,
        fetch_max_wait_ms=50,
    )
    numbers = sorted(consumer.partitions_for_topic(topic) or ())
    if not numbers:
        sys.exit("error: topic %s has no partitions" % topic)
    partitions = [TopicPartition(topic, number) for number in numbers]
    first = consumer.beginning_offsets(partitions)
    following = consumer.end_offsets(partitions)
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, first[partition])
    digests = {partition: Digest() for partition in partitions}
    deadline = time.monotonic() + SECONDS_MAX
    while any(consumer.position(p) < following[p] for p in partitions):
        if time.monotonic() > deadline:
            sys.exit("error: not at the end of %s after %d s" % (topic, SECONDS_MAX))
        for partition, records in consumer.poll(timeout_ms=100, max_records=5000).items():
            for record in records:
                if record.offset < following[partition]:
                    digests[partition].add(record)
    consumer.close(autocommit=False)
    for partition in partitions:
        digest = digests[partition]
        print(partition.partition, first[partition], following[partition], digest.records,
              digest.sha.hexdigest(), "%08x" % digest.crc)


main(*sys.argv[1:])
