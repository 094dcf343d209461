//! The walk over a Fetch response: every place that it tells lies in the frame, and after it the last.

use wire::fetch::FetchResponse;

use super::choices::Choices;

/// Walks the rest of the bytes as an answer of the version that the first one says.
pub fn fetch_response(data: &[u8]) {
    let mut choices = Choices::new(data);
    let version = i16::from(choices.u8() % 20);
    let body = usize::from(choices.u8() % 16);
    let reads_all = choices.u8().is_multiple_of(2);
    let frame = choices.rest();
    let Ok(mut walk) = FetchResponse::open(frame, body, version) else { return };
    let mut walked = 0_usize;
    let mut past = body;
    while let Ok(Some(topic)) = walk.topic(frame) {
        walked += 1;
        assert!(topic.name.len() <= frame.len());
        while let Ok(Some(partition)) = walk.partition(frame) {
            walked += 1;
            let records = partition.records.clone();
            assert!(records.end <= frame.len(), "records lie outside of the frame");
            if !records.is_empty() {
                assert!(past <= records.start, "records of two partitions overlap");
                past = records.end;
            }
            let aborted = partition.aborted_transactions.take(frame.len() + 1).count();
            assert!(aborted <= frame.len(), "more aborted transactions than bytes");
            if !reads_all {
                break;
            }
        }
    }
    // Every topic and every partition takes at least a byte.
    assert!(walked <= frame.len(), "{walked} things in {} bytes", frame.len());
    if let Ok(tail) = walk.tail(frame) {
        assert!(tail.node_endpoints.take(frame.len() + 1).count() <= frame.len());
    }
}
