//! A real Kafka for tests.
