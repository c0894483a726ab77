use super::*;

const AGAIN: Duration = Duration::from_millis(100);

const WRITER: Writer = Writer { group: Group::BASE, id: 7 };

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn client(pending_max: usize) -> Client<&'static str> {
    Client::new(7, Config { again: AGAIN, pending_max, ..Config::default() })
}

#[test]
fn an_item_is_republished_with_its_position_until_it_is_answered() {
    let mut client = client(10);
    let first = client.publish(at(0), 1, SliceId(3), "one").unwrap();
    let second = client.publish(at(40), 2, SliceId(3), "two").unwrap();
    assert_eq!((first.position, second.position, first.again), (1, 2, false));
    assert_eq!(client.due(), Some(at(100)));
    assert_eq!(client.again(at(99)), None);
    assert_eq!(client.again(at(100)), Some(Item { again: true, ..first.clone() }));
    assert_eq!(client.again(at(100)), None, "once in a period");
    assert_eq!(client.reply(at(110), 1), Reply::First { item: first, delay: at(110) });
    assert_eq!(client.again(at(500)), Some(Item { again: true, ..second }));
    assert_eq!(client.again(at(500)), None);
    assert_eq!(client.pending().map(|(id, _)| id).collect::<Vec<_>>(), [2]);
}

#[test]
fn a_second_reply_and_an_unknown_id_are_reported_as_duplicates() {
    let mut client = client(10);
    client.publish(at(0), 1, SliceId(3), "one").unwrap();
    assert!(matches!(client.reply(at(1), 1), Reply::First { .. }));
    assert_eq!(client.reply(at(2), 1), Reply::Duplicate);
    assert_eq!(client.reply(at(2), 99), Reply::Duplicate, "another client's");
    assert_eq!(client.due(), None);
}

#[test]
fn positions_are_counted_per_writer_and_each_group_has_a_writer() {
    let mut client = client(10);
    let writers = [1, 2, 65].map(|slice| {
        let item = client.publish(at(0), u64::from(slice), SliceId(slice), "x").unwrap();
        (item.writer.group.number(), item.position)
    });
    assert_eq!(writers, [(1, 1), (2, 1), (1, 2)]);
    let mut plain = Client::new(7, Config { plain: true, ..Config::default() });
    let item = plain.publish(at(0), 1, SliceId(3), "x").unwrap();
    assert_eq!(item.writer, Writer { group: Group::BASE, id: 7 });
}

#[test]
fn a_client_refuses_items_beyond_its_limit_and_duplicate_ids() {
    let mut client = client(2);
    client.publish(at(0), 1, SliceId(0), "x").unwrap();
    assert_eq!(client.publish(at(0), 1, SliceId(0), "x"), Err(Refused::Pending(1)));
    client.publish(at(0), 2, SliceId(0), "x").unwrap();
    assert_eq!(client.publish(at(0), 3, SliceId(0), "x"), Err(Refused::Full(2)));
    client.reply(at(1), 1);
    let item = client.publish(at(1), 3, SliceId(0), "x").unwrap();
    assert_eq!(item.position, 3, "what was refused took no position");
}

#[test]
fn every_assignment_stays_below_its_slices() {
    let range = Assignment::range(vec![10, 20, u64::MAX]).unwrap();
    for assignment in [Assignment::Modulo(7), Assignment::Hash(7), Assignment::Modulo(0), range] {
        for id in [0, 1, 9, 10, 19, 20, 21, u64::MAX - 1, u64::MAX] {
            assert!((assignment.slice(id).0 as usize) < assignment.slices(), "{assignment:?} {id}");
        }
    }
}

#[test]
fn ranges_have_the_ids_between_their_bounds() {
    let range = Assignment::range(vec![10, 20]).unwrap();
    let slices = [0, 9, 10, 19, 20, u64::MAX].map(|id| range.slice(id).0);
    assert_eq!(slices, [0, 0, 1, 1, 2, 2]);
    assert_eq!(Assignment::range(vec![10, 10]), Err(BoundsInvalid { at: 1, value: 10 }));
    assert_eq!(Assignment::range(vec![0]), Err(BoundsInvalid { at: 0, value: 0 }));
}

#[test]
fn a_hash_spreads_ids_with_a_pattern_evenly() {
    let assignment = Assignment::Hash(10);
    let mut counts = [0_u32; 10];
    for id in 0..100_000_u64 {
        counts[assignment.slice(id * 10).0 as usize] += 1;
    }
    // The expectation is 10,000 with a deviation of 95.
    assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
}

#[test]
fn a_client_lists_its_unanswered_items_per_requested_slice() {
    let mut client = client(10);
    for (id, slice) in [(1, 3), (2, 3), (3, 4), (4, 67), (5, 3)] {
        client.publish(at(0), id, SliceId(slice), "x").unwrap();
    }
    client.reply(at(1), 2);
    let said = client.keeps(&[3, 5, 67].map(SliceId), &Numbering::new(100));
    let of = |slice, positions: &[u64]| (SliceId(slice), positions.to_vec());
    let said: Vec<_> = said.into_iter().map(|it| (it.through, it.slices)).collect();
    // Slices 3 and 67 share a writer, and nothing was written to slice 5.
    let of_both = BTreeMap::from([of(3, &[1, 4]), of(67, &[3])]);
    assert_eq!(said, [(4, of_both), (0, BTreeMap::from([of(5, &[])]))]);
}

/// A worker with one queue. Items that are published again while they wait are recognised, and cost
/// nothing else here. Returns the number of items that were published again.
fn behind_a_queue(config: Config, items: u64, each: Duration) -> usize {
    let mut client = Client::new(7, config);
    let (mut again, mut published, mut answered) = (0, 0, 0);
    let mut free_at = Duration::ZERO;
    let mut queue = std::collections::VecDeque::new();
    for ms in 0.. {
        let now = at(ms);
        // Twice as many items arrive as the worker processes.
        if published < items && ms % (each.as_millis() as u64 / 2) == 0 {
            client.publish(now, published, SliceId(1), "x").unwrap();
            queue.push_back(published);
            published += 1;
        }
        if free_at <= now
            && let Some(id) = queue.pop_front()
        {
            free_at = now + each;
            answered += 1;
            client.reply(now, id);
        }
        while client.again(now).is_some() {
            again += 1;
        }
        if answered == items {
            return again;
        }
    }
    unreachable!()
}

#[test]
fn republishing_does_not_multiply_a_backlog() {
    let adaptive = Config { again: AGAIN, ..Config::default() };
    // 400 items of 20 ms each: the last waits for four seconds, forty times as long as `again`.
    let again = behind_a_queue(adaptive.clone(), 400, Duration::from_millis(20));
    let fixed = Config { again_max: AGAIN, ..adaptive };
    let by_the_clock = behind_a_queue(fixed, 400, Duration::from_millis(20));
    assert!(by_the_clock > 5_000, "{by_the_clock} times by the clock");
    assert!(again < 400, "{again} times, of 400 items");
}

#[test]
fn items_of_a_requested_slice_are_republished_at_once_then_periodically() {
    let mut client = client(10);
    client.publish(at(0), 1, SliceId(3), "one").unwrap();
    client.publish(at(0), 2, SliceId(4), "two").unwrap();
    // By then both have long timeouts.
    let mut time = 0;
    while time < 1000 {
        while client.again(at(time)).is_some() {}
        time += 10;
    }
    assert!(client.due() > Some(at(1300)), "{:?}", client.due());
    client.asked(at(1000), &[SliceId(3)], &Numbering::new(100));
    let mut came = Vec::new();
    for time in (1000..2000).step_by(10) {
        if time < 1300 {
            client.asked(at(time), &[SliceId(3)], &Numbering::new(100));
        }
        while let Some(item) = client.again(at(time)) {
            came.push((time, item.slice.0));
        }
    }
    let of_three: Vec<_> = came.iter().filter(|(_, slice)| *slice == 3).map(|(t, _)| *t).collect();
    assert_eq!(of_three[..4], [1000, 1100, 1200, 1300], "{came:?}");
    let others = came.iter().filter(|(_, slice)| *slice == 4).count();
    assert!(others <= 1, "{came:?}");
}

/// Items that are published again now.
fn again_of(kept: &mut Retention<u64>, now: Duration) -> Vec<u64> {
    std::iter::from_fn(|| kept.again(now).copied()).collect()
}

#[test]
fn unanswered_items_are_republished_when_the_successors_reader_matches() {
    let (slice, other, numbering) = (SliceId(3), SliceId(4), Numbering::new(8));
    let mut kept = Retention::new(AGAIN, 10 * AGAIN);
    kept.keep(at(0), 1, slice, (WRITER, 1), 1);
    kept.reply(at(1), 1);
    kept.keep(at(10), 2, slice, (WRITER, 2), 2);
    // The successor asks before any writer has met its reader.
    kept.asked(at(20), &Asked::new(&[slice, other], &numbering));
    assert_eq!(again_of(&mut kept, at(20)), [2]);
    kept.keep(at(22), 3, slice, (WRITER, 3), 3);
    kept.keep(at(23), 4, other, (WRITER, 4), 4);
    kept.met(at(25), Group::of(other));
    assert_eq!(again_of(&mut kept, at(25)), [] as [u64; 0], "it asks for none of these");
    kept.met(at(26), Group::of(slice));
    assert_eq!(again_of(&mut kept, at(26)), [2, 3]);
    // Of a slice of which all was answered it asks for what comes before the reader is met, too.
    let mut kept = Retention::new(AGAIN, 10 * AGAIN);
    kept.keep(at(0), 1, slice, (WRITER, 1), 1);
    kept.reply(at(1), 1);
    kept.asked(at(20), &Asked::new(&[slice], &numbering));
    kept.keep(at(22), 2, slice, (WRITER, 2), 2);
    kept.met(at(26), Group::of(slice));
    assert_eq!(again_of(&mut kept, at(26)), [2]);
    // Without a successor a reader that is met is any worker's.
    kept.reply(at(27), 2);
    kept.keep(at(1000), 3, slice, (WRITER, 3), 3);
    kept.met(at(1001), Group::of(slice));
    assert_eq!(again_of(&mut kept, at(1001)), [] as [u64; 0]);
}
