//! Kafka bytes and their meaning.
