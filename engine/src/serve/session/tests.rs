use super::*;

fn sessions(sessions_max: usize, session_partitions_max: usize) -> Sessions {
    Sessions::new(&ServeOptions { sessions_max, session_partitions_max, ..Default::default() })
}

fn wish(partition: i32) -> Wish {
    Wish {
        topic: TopicRef::Name(Arc::from("t")),
        partition: PartitionIndex(partition),
        offset: Offset(0),
        current_leader_epoch: LeaderEpoch::UNKNOWN,
        last_fetched_epoch: LeaderEpoch::UNKNOWN,
        bytes_max: 1 << 20,
    }
}

fn told(has_records: bool, high_watermark: i64) -> Told {
    Told {
        has_records,
        is_urgent: false,
        is_error: false,
        high_watermark: Offset(high_watermark),
        log_start_offset: Offset(0),
    }
}

fn begin(sessions: &mut Sessions, partitions: i32, now: Now) -> i32 {
    let all: Vec<_> = (0..partitions).map(|index| (wish(index), told(false, 0))).collect();
    sessions.begin(false, all.into_iter(), now)
}

fn claim(id: i32, epoch: i32) -> Claim {
    Claim { id, epoch, with_topic_ids: false }
}

fn after(seconds: u64) -> Now {
    Now(0).plus(Duration::from_secs(seconds))
}

#[test]
fn a_request_counts_on_in_its_session() {
    let mut sessions = sessions(10, 100);
    let id = begin(&mut sessions, 2, Now(0));
    let open = |sessions: &mut Sessions, epoch| {
        sessions.open(claim(id, epoch), vec![], vec![], Now(1)).map(|(context, _)| context)
    };
    assert_eq!(open(&mut sessions, 1), Ok(Context::Within { id, epoch: 2 }));
    assert_eq!(open(&mut sessions, 1), Err(ErrorCode::INVALID_FETCH_SESSION_EPOCH));
    assert_eq!(open(&mut sessions, 2), Ok(Context::Within { id, epoch: 3 }));
    assert!(sessions.current(id, 2).is_err(), "a later request came");
    assert!(sessions.current(id, 3).is_ok());
    let other = sessions.open(claim(id + 1, 1), vec![], vec![], Now(1));
    assert_eq!(other, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    let by_id = Claim { with_topic_ids: true, ..claim(id, 3) };
    let by_id = sessions.open(by_id, vec![], vec![], Now(1));
    assert_eq!(by_id, Err(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR));
}

#[test]
fn a_session_holds_what_was_added_and_not_what_was_forgotten() {
    let mut sessions = sessions(10, 100);
    let id = begin(&mut sessions, 3, Now(0));
    let changed = Wish { offset: Offset(7), ..wish(1) };
    let forgotten = vec![(wish(0).topic, PartitionIndex(0))];
    let wishes = vec![changed.clone(), wish(9)];
    let (_, placed) = sessions.open(claim(id, 1), wishes, forgotten, Now(1)).unwrap();
    let wishes: Vec<_> = placed.into_iter().map(|(_, wish)| wish).collect();
    assert_eq!(wishes, [changed, wish(2), wish(9)]);
    assert_eq!(sessions.partition_count, 3);
}

#[test]
fn a_session_without_partitions_ends() {
    let mut sessions = sessions(10, 100);
    let id = begin(&mut sessions, 1, Now(0));
    let forgotten = vec![(wish(0).topic, PartitionIndex(0))];
    let opened = sessions.open(claim(id, 1), vec![], forgotten, Now(1));
    assert_eq!(opened, Ok((Context::Without, vec![])));
    assert_eq!((sessions.len(), sessions.memory_bytes()), (0, 0));
}

#[test]
fn a_session_ends_when_its_client_begins_another_or_wants_none() {
    for epoch in [INITIAL_EPOCH, FINAL_EPOCH] {
        let mut sessions = sessions(10, 100);
        let id = begin(&mut sessions, 1, Now(0));
        sessions.open(claim(id, epoch), vec![], vec![], Now(1)).unwrap();
        assert_eq!(sessions.len(), 0);
    }
}

#[test]
fn only_news_is_told_and_who_got_records_comes_last_next_time() {
    let mut sessions = sessions(10, 100);
    let id = begin(&mut sessions, 3, Now(0));
    let session = sessions.current(id, 1).unwrap();
    assert!(!session.tell(1, told(false, 0)), "nothing is new");
    assert!(session.tell(1, told(false, 5)), "the high watermark moved");
    assert!(session.tell(0, told(true, 0)), "records came");
    let order = |session: &Session| -> Vec<i32> {
        session.partitions.values().map(|cached| cached.wish.partition.0).collect()
    };
    assert_eq!(order(session), [1, 2, 0]);
    assert!(session.tell(2, Told { is_error: true, ..told(false, 0) }));
    assert!(session.tell(2, told(false, 0)), "the error is gone, which is news");
    assert!(!session.tell(2, told(false, 0)));
}

#[test]
fn a_new_session_takes_the_place_of_a_silent_or_a_smaller_one_that_is_not_young() {
    let mut sessions = sessions(2, 100);
    let small = begin(&mut sessions, 1, Now(0));
    let large = begin(&mut sessions, 5, Now(0));
    assert_eq!(begin(&mut sessions, 9, after(100)), NO_SESSION, "both are young");
    for (id, epoch) in [(small, 1), (large, 1)] {
        sessions.open(claim(id, epoch), vec![], vec![], after(121)).unwrap();
    }
    assert_eq!(begin(&mut sessions, 1, after(122)), NO_SESSION, "it is not larger");
    let newcomer = begin(&mut sessions, 2, after(122));
    assert_ne!(newcomer, NO_SESSION);
    assert!(!sessions.sessions.contains_key(&small));
    let next = begin(&mut sessions, 1, after(242));
    assert_ne!(next, NO_SESSION, "the large one was silent for two minutes");
    assert!(!sessions.sessions.contains_key(&large));
}

#[test]
fn sessions_stay_within_their_partitions() {
    let mut sessions = sessions(100, 10);
    assert_eq!(begin(&mut sessions, 11, Now(0)), NO_SESSION);
    let id = begin(&mut sessions, 8, Now(0));
    assert_eq!(begin(&mut sessions, 3, Now(0)), NO_SESSION);
    let more = (8..12).map(wish).collect();
    let grown = sessions.open(claim(id, 1), more, vec![], Now(1));
    assert_eq!(grown, Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND));
    assert_eq!(sessions.partition_count, 0);
}

#[test]
fn shards_number_their_sessions_apart() {
    let ids = |shard| {
        let shard = crate::ids::ShardId(shard);
        let options = ServeOptions { shard, shard_count: 3, ..Default::default() };
        let mut sessions = Sessions::new(&options);
        (0..100).map(|_| begin(&mut sessions, 1, Now(0))).collect::<Vec<_>>()
    };
    let (first, second, third) = (ids(0), ids(1), ids(2));
    assert!(first.iter().max() < second.iter().min());
    assert!(second.iter().max() < third.iter().min());
    assert!(first.iter().all(|id| *id > 0));
}
