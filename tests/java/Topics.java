// What an administrator does to topics, and what brokers say about offsets.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.function.Consumer;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.errors.UnsupportedVersionException;

final class Topics {
    private static final Map<String, Admin> ADMINS = new ConcurrentHashMap<>();

    private Topics() { }

    private static Admin admin(String bootstrap) {
        return ADMINS.computeIfAbsent(bootstrap, b -> Admin.create(Map.of(
            "bootstrap.servers", b,
            "default.api.timeout.ms", 60_000,
            "reconnect.backoff.max.ms", 200)));
    }

    /** create TOPIC PARTITIONS --replication N [key=value ...]; returns once every partition has a leader. */
    static void create(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        int partitions = arguments.nextInt("PARTITIONS");
        short replication = (short) arguments.option("replication", 1);
        NewTopic wanted = new NewTopic(topic, partitions, replication).configs(arguments.pairs());
        arguments.done();
        admin(bootstrap).createTopics(List.of(wanted)).all().get();
        awaitLeaders(bootstrap, topic, partitions);
    }

    static void delete(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        arguments.done();
        admin(bootstrap).deleteTopics(List.of(topic)).all().get();
    }

    /** alter-config TOPIC key=value ...; an empty value takes the setting away. */
    static void alterConfig(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, arguments.next("TOPIC"));
        Collection<AlterConfigOp> changes = new ArrayList<>();
        arguments.pairs().forEach((name, value) -> changes.add(new AlterConfigOp(
            new ConfigEntry(name, value),
            value.isEmpty() ? AlterConfigOp.OpType.DELETE : AlterConfigOp.OpType.SET)));
        arguments.done();
        admin(bootstrap).incrementalAlterConfigs(Map.of(resource, changes)).all().get();
    }

    /** add-partitions TOPIC TOTAL. */
    static void addPartitions(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        int total = arguments.nextInt("TOTAL");
        arguments.done();
        admin(bootstrap).createPartitions(Map.of(topic, NewPartitions.increaseTo(total))).all().get();
        awaitLeaders(bootstrap, topic, total);
    }

    /** delete-records TOPIC PARTITION OFFSET; answers the new low watermark. */
    static void deleteRecords(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        TopicPartition partition = new TopicPartition(arguments.next("TOPIC"), arguments.nextInt("PARTITION"));
        RecordsToDelete before = RecordsToDelete.beforeOffset(arguments.nextLong("OFFSET"));
        arguments.done();
        var result = admin(bootstrap).deleteRecords(Map.of(partition, before));
        answer.accept(Long.toString(result.lowWatermarks().get(partition).get().lowWatermark()));
    }

    /** describe TOPIC: `id ID`, then `partition leader replicas isr`, numbers joined by commas. */
    static void describe(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        arguments.done();
        TopicDescription description = description(bootstrap, topic);
        answer.accept("id " + description.topicId());
        for (TopicPartitionInfo info : description.partitions()) {
            int leader = info.leader() == null ? -1 : info.leader().id();
            answer.accept(info.partition() + " " + leader + " " + ids(info.replicas()) + " " + ids(info.isr()));
        }
    }

    /** describe-config TOPIC: `key=value` of what was set on the topic itself. */
    static void describeConfig(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, arguments.next("TOPIC"));
        arguments.done();
        Config config = admin(bootstrap).describeConfigs(List.of(resource)).all().get().get(resource);
        config.entries().stream()
            .filter(entry -> entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG)
            .map(entry -> entry.name() + "=" + entry.value()).sorted().forEach(answer);
    }

    /**
     * offsets TOPIC --timestamp MS --isolation LEVEL: `partition earliest latest max by-timestamp`, the last
     * two as `offset@timestamp`, or `-` where the broker has no such request or none was asked for.
     */
    static void offsets(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String topic = arguments.next("TOPIC");
        long timestamp = arguments.option("timestamp", -1L);
        String isolation = arguments.option("isolation", "read_uncommitted");
        arguments.done();
        ListOffsetsOptions options = new ListOffsetsOptions(
            isolation.equals("read_committed") ? IsolationLevel.READ_COMMITTED : IsolationLevel.READ_UNCOMMITTED);
        List<TopicPartition> partitions = description(bootstrap, topic).partitions().stream()
            .map(info -> new TopicPartition(topic, info.partition())).collect(Collectors.toList());
        Admin admin = admin(bootstrap);
        var earliest = list(admin, partitions, OffsetSpec.earliest(), options);
        var latest = list(admin, partitions, OffsetSpec.latest(), options);
        Map<TopicPartition, ListOffsetsResultInfo> max = Map.of();
        try {
            max = list(admin, partitions, OffsetSpec.maxTimestamp(), options);
        } catch (ExecutionException failure) {
            if (!(failure.getCause() instanceof UnsupportedVersionException)) {
                throw failure;
            }
        }
        Map<TopicPartition, ListOffsetsResultInfo> by =
            timestamp < 0 ? Map.of() : list(admin, partitions, OffsetSpec.forTimestamp(timestamp), options);
        for (TopicPartition partition : partitions) {
            answer.accept(partition.partition() + " " + earliest.get(partition).offset() + " "
                + latest.get(partition).offset() + " " + at(max.get(partition)) + " " + at(by.get(partition)));
        }
    }

    /** commit GROUP TOPIC PARTITION OFFSET: sets the offset of a group that has no members. */
    static void commit(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String group = arguments.next("GROUP");
        TopicPartition partition = new TopicPartition(arguments.next("TOPIC"), arguments.nextInt("PARTITION"));
        OffsetAndMetadata offset =
            new OffsetAndMetadata(arguments.nextLong("OFFSET"), Optional.empty(), arguments.option("metadata", ""));
        arguments.done();
        admin(bootstrap).alterConsumerGroupOffsets(group, Map.of(partition, offset)).all().get();
    }

    /** committed GROUP: `topic partition offset`. */
    static void committed(String bootstrap, Arguments arguments, Consumer<String> answer) throws Exception {
        String group = arguments.next("GROUP");
        arguments.done();
        Map<TopicPartition, OffsetAndMetadata> found =
            admin(bootstrap).listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Map<String, Long> lines = new TreeMap<>();
        found.forEach((partition, offset) -> {
            if (offset != null) {
                lines.put(partition.topic() + " " + partition.partition(), offset.offset());
            }
        });
        lines.forEach((partition, offset) -> answer.accept(partition + " " + offset));
    }

    private static Map<TopicPartition, ListOffsetsResultInfo> list(
            Admin admin, List<TopicPartition> partitions, OffsetSpec spec, ListOffsetsOptions options)
            throws Exception {
        Map<TopicPartition, OffsetSpec> wanted = new HashMap<>();
        partitions.forEach(partition -> wanted.put(partition, spec));
        return admin.listOffsets(wanted, options).all().get();
    }

    private static String at(ListOffsetsResultInfo info) {
        return info == null ? "-" : info.offset() + "@" + info.timestamp();
    }

    private static TopicDescription description(String bootstrap, String topic) throws Exception {
        return admin(bootstrap).describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static String ids(List<Node> nodes) {
        return nodes.stream().map(Node::idString).collect(Collectors.joining(","));
    }

    /** Creation is acknowledged by the controller; brokers hear of it a little later. */
    private static void awaitLeaders(String bootstrap, String topic, int partitions) throws Exception {
        long deadline = System.nanoTime() + Duration.ofSeconds(30).toNanos();
        while (!haveLeaders(bootstrap, topic, partitions)) {
            if (System.nanoTime() > deadline) {
                throw new IllegalStateException("topic " + topic + " has partitions without a leader after 30 s");
            }
            Thread.sleep(20);
        }
    }

    private static boolean haveLeaders(String bootstrap, String topic, int partitions) throws Exception {
        try {
            List<TopicPartitionInfo> found = description(bootstrap, topic).partitions();
            return found.size() == partitions && found.stream().allMatch(p -> p.leader() != null && !p.leader().isEmpty());
        } catch (ExecutionException failure) {
            if (failure.getCause() instanceof UnknownTopicOrPartitionException) {
                return false;
            }
            throw failure;
        }
    }
}
