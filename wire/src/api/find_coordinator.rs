//! FindCoordinator: which broker looks after a consumer group or a transaction.

use alloc::string::String;
use alloc::vec::Vec;

use super::ErrorCode;
use crate::ids::BrokerId;
use crate::message::{message, structure};

/// The key is a consumer group.
pub const KEY_GROUP: i8 = 0;
/// The key is a transactional id.
pub const KEY_TRANSACTION: i8 = 1;
/// The key is a partition of a share group.
pub const KEY_SHARE: i8 = 2;

message! {
    /// One key before version 4, several from there on.
    pub struct FindCoordinatorRequest: FIND_COORDINATOR 0..=6, flexible 3.. {
        key: String [0..=3],
        key_type: i8 [1.., default KEY_GROUP],
        coordinator_keys: Vec<String> [4..],
    }
}

message! {
    /// One answer before version 4, one for every key from there on.
    pub struct FindCoordinatorResponse: FIND_COORDINATOR 0..=6, flexible 3.. {
        throttle_time_ms: i32 [1..],
        error_code: ErrorCode [0..=3],
        error_message: Option<String> [1..=3],
        node_id: BrokerId [0..=3],
        host: String [0..=3],
        port: i32 [0..=3],
        coordinators: Vec<Coordinator> [4..],
    }
}

structure! {
    pub struct Coordinator {
        key: String [4..],
        node_id: BrokerId [4..],
        host: String [4..],
        port: i32 [4..],
        error_code: ErrorCode [4..],
        error_message: Option<String> [4..],
    }
}

impl FindCoordinatorRequest {
    /// The keys asked for, in either shape.
    pub fn keys(&self, version: i16) -> impl Iterator<Item = &str> {
        let single = (version < 4).then_some(self.key.as_str());
        single.into_iter().chain(self.coordinator_keys.iter().map(String::as_str))
    }

    /// The answer that refuses every key with `error_code`, in the shape of `version`.
    #[must_use]
    pub fn refuse(
        &self,
        version: i16,
        error_code: ErrorCode,
        error_message: Option<&str>,
    ) -> FindCoordinatorResponse {
        let error_message = error_message.map(String::from);
        if version < 4 {
            return FindCoordinatorResponse {
                error_code,
                error_message,
                node_id: BrokerId::NONE,
                port: -1,
                ..FindCoordinatorResponse::default()
            };
        }
        let refusal = |key| Coordinator {
            key: String::from(key),
            node_id: BrokerId::NONE,
            port: -1,
            error_code,
            error_message: error_message.clone(),
            ..Coordinator::default()
        };
        FindCoordinatorResponse {
            coordinators: self.keys(version).map(refusal).collect(),
            ..FindCoordinatorResponse::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    #[test]
    fn a_refusal_answers_in_the_shape_that_was_asked() {
        let error_code = ErrorCode::COORDINATOR_NOT_AVAILABLE;
        let old = FindCoordinatorRequest { key: "a".into(), ..FindCoordinatorRequest::default() };
        let refusal = old.refuse(3, error_code, Some("why"));
        assert_eq!(refusal.error_code, error_code);
        assert_eq!(refusal.error_message.as_deref(), Some("why"));
        assert!(refusal.coordinators.is_empty());

        let new = FindCoordinatorRequest {
            coordinator_keys: vec!["a".into(), "b".into()],
            ..FindCoordinatorRequest::default()
        };
        let refusal = new.refuse(4, error_code, Some("why"));
        let keys: Vec<_> = refusal.coordinators.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(keys, ["a", "b"]);
        assert!(refusal.coordinators.iter().all(|one| one.error_code == error_code));
        assert_eq!(refusal.error_code, ErrorCode::NONE);
    }
}
