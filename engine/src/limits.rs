//! Bounds that several rooms share. What bounds one room stands in it.

/// The largest response that a source may send: more than its `fetch_bytes_max` where a single
/// batch is larger. Beyond it the connection is closed with an error that says so.
pub const RESPONSE_BYTES_MAX: usize = 256 << 20;

/// The largest request that a client may send. Produce is refused here, so only its head matters;
/// Kafka's own clients send at most 1 MiB unless they were told otherwise.
pub const REQUEST_BYTES_MAX: usize = 8 << 20;

/// Requests that a client may have in flight on one connection before we stop reading from it.
pub const REQUESTS_IN_FLIGHT_MAX: usize = 16;

/// Client connections per shard.
pub const CLIENT_CONNECTIONS_MAX: usize = 4_096;

/// Segment files that a shard keeps open at once; the rest is opened when it is used.
pub const FILES_OPEN_MAX: usize = 4_096;

/// Messages that may wait between two shards.
pub const MAIL_MAX: usize = 4_096;

/// How much of the list of losses, from its end, is looked through for one that stands there already.
pub const LOSSES_LOOKED_AT_BYTES_MAX: u64 = 1 << 20;

/// While this much is on its way to a shard's files it reads no large frame from its source. What has
/// begun to come by then is more than the disk takes at once: `ring/writer/load.rs` says who takes it.
pub const WRITING_BYTES_MAX: usize = 8 << 20;

/// From this size on a frame is large: it is read in two so that its records need not be copied, and
/// waits where the disk is behind. The records of a smaller one go through the page cache anyway.
pub const LARGE_FRAME_BYTES_LEAST: usize = 256 << 10;

/// Partitions that a topic may have here: its leader epochs are one array.
pub const PARTITIONS_OF_TOPIC_MAX: i32 = 1 << 20;
