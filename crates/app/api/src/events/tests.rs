use std::sync::Arc;
use std::time::Duration;

use tracing_subscriber::layer::SubscriberExt;

use super::reader::Stopping;
use super::*;
use crate::wire::events::{Event, EventLevel, LOST};

fn journal(events: usize) -> Arc<EventJournal> {
    let journal = Arc::<EventJournal>::default();
    add(&journal, 0, events);
    journal
}

/// Adds events whose descriptions are numbers.
fn add(journal: &EventJournal, from: usize, to: usize) {
    for number in from..to {
        let kind = if number % 2 == 0 { "backend.even" } else { "pool.odd" };
        journal.add(EventLevel::Info, kind, &format!("web/b{number}"), &number.to_string());
    }
}

fn words(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.words.as_str()).collect()
}

fn read(journal: &Arc<EventJournal>, after: Option<&str>) -> Vec<Event> {
    Reader::new(journal, Filter::default(), after).rest()
}

#[test]
fn a_reader_continues_after_the_last_event_of_another_reader() {
    let journal = journal(3);
    let mut reader = Reader::new(&journal, Filter::default(), None);
    assert_eq!(words(&reader.rest()), ["0", "1", "2"]);
    let last = reader.last();
    assert!(last.ends_with("-3"), "{last}");
    assert_eq!(words(&read(&journal, Some(&last))), [""; 0]);
    add(&journal, 3, 5);
    assert_eq!(words(&read(&journal, Some(&last))), ["3", "4"]);
    assert_eq!(words(&reader.rest()), ["3", "4"]);
}

#[test]
fn a_reader_receives_the_number_of_events_dropped_from_the_journal() {
    let journal = journal(10);
    let last = Reader::new(&journal, Filter::default(), None).last();
    let first = last.replace("-0", "-4");
    assert_eq!(words(&read(&journal, Some(&first))), ["4", "5", "6", "7", "8", "9"]);
    add(&journal, 10, 1010);
    let events = read(&journal, Some(&first));
    assert_eq!((events[0].kind.as_str(), events[0].lost), (LOST, Some(6)));
    assert!(events[0].id.ends_with("-10"), "{:?}", events[0]);
    assert_eq!((events.len(), events[1].words.as_str()), (1001, "10"));
    let events = read(&journal, None);
    assert_eq!((events.len(), events[0].words.as_str()), (1000, "10"), "nothing was asked for");
}

#[test]
fn an_id_of_another_process_is_reported_as_an_unknown_loss() {
    let journal = journal(2);
    for id in ["0.0-1", "", "-", "nonsense", "0.0-99999999999999999999"] {
        let events = read(&journal, Some(id));
        assert_eq!((events[0].kind.as_str(), events[0].lost), (LOST, None), "{id}");
        assert_eq!(words(&events[1..]), ["0", "1"], "{id}");
    }
    // An id of this process that it has not given yet.
    let ahead = Reader::new(&journal, Filter::default(), None).last().replace("-0", "-3");
    assert_eq!(read(&journal, Some(&ahead))[0].kind, LOST);
}

#[test]
fn filters_select_by_parts_of_names() {
    let journal = journal(0);
    for (kind, subject) in [
        ("backend.down", "web/a"),
        ("backend.downed", "web2/a"),
        ("pool.empty", "web"),
        ("reload.applied", ""),
    ] {
        journal.add(EventLevel::Info, kind, subject, kind);
    }
    for (kinds, subject, expected) in [
        ("", "", &["backend.down", "backend.downed", "pool.empty", "reload.applied"][..]),
        ("backend", "", &["backend.down", "backend.downed"]),
        ("backend.down", "", &["backend.down"]),
        ("pool, reload.applied", "", &["pool.empty", "reload.applied"]),
        ("back", "", &[]),
        ("", "web", &["backend.down", "pool.empty"]),
        ("", "web/a", &["backend.down"]),
        ("backend", "web2", &["backend.downed"]),
    ] {
        let filter = Filter::new(Some(kinds), Some(subject));
        let events = Reader::new(&journal, filter, None).rest();
        assert_eq!(words(&events), expected, "{kinds} {subject}");
    }
}

#[test]
fn an_event_is_bounded() {
    let journal = journal(0);
    journal.add(EventLevel::Info, "x.y", &"é".repeat(1000), &"é".repeat(10_000));
    let event = &read(&journal, None)[0];
    assert!(event.subject.len() < 300 && event.words.len() < 1100);
    assert!(event.words.ends_with('…'));
}

#[test]
fn log_records_with_an_event_field_are_added_to_the_journal() {
    let journal = journal(0);
    let subscriber = tracing_subscriber::registry().with(layer(&journal));
    tracing::subscriber::with_default(subscriber, || {
        tracing::info!("not an event");
        tracing::debug!(event = "too.fine", "left out");
        let (pool, backend) = ("web", Some("a"));
        tracing::warn!(pool, backend, event = "backend.down", after = 3, "it is {}", "down");
        tracing::error!(pool, event = "pool.empty", "empty");
        tracing::info!(target: "event", event = "x.y", subject = %1, "words");
    });
    let events = read(&journal, None);
    let brief: Vec<_> =
        events.iter().map(|it| (it.level, &*it.kind, &*it.subject, &*it.words)).collect();
    let expected = [
        (EventLevel::Warning, "backend.down", "web/a", "it is down after=3"),
        (EventLevel::Error, "pool.empty", "web", "empty"),
        (EventLevel::Info, "x.y", "1", "words"),
    ];
    assert_eq!(brief, expected);
    assert!(events[0].time.ends_with('Z'), "{}", events[0].time);
}

#[tokio::test(start_paused = true)]
async fn an_idle_stream_sends_comments_that_advance_its_event_id() {
    let journal = journal(3);
    let mut reader = Reader::new(&journal, Filter::new(Some("none"), None), None);
    let began = tokio::time::Instant::now();
    let part = reader.next_part(&mut None).await.unwrap();
    assert_eq!(began.elapsed(), Duration::from_secs(15));
    assert!(part.starts_with(":\nid: ") && part.ends_with("-3\n\n"), "{part}");
}

#[tokio::test]
async fn a_stream_sends_pending_events_and_ends_with_its_listener() {
    let journal = journal(1);
    let (stop, stopping) = tokio::sync::watch::channel(());
    let mut stopping = Some(Stopping(stopping));
    let mut reader = Reader::new(&journal, Filter::default(), None);
    drop(stop);
    let part = reader.next_part(&mut stopping).await.unwrap();
    assert!(part.starts_with("id: ") && part.contains("\ndata: {\"id\":"), "{part}");
    assert_eq!(reader.next_part(&mut stopping).await, None);
}

#[tokio::test]
async fn a_slow_stream_reports_lost_events_and_continues() {
    let journal = journal(10);
    let mut reader = Reader::new(&journal, Filter::default(), None);
    let part = reader.next_part(&mut None).await.unwrap();
    assert_eq!(part.matches("\n\n").count(), 10);
    add(&journal, 10, 5010);
    let part = reader.next_part(&mut None).await.unwrap();
    assert!(part.contains("\"type\":\"events.lost\"") && part.contains("\"lost\":4000"), "{part}");
    assert_eq!(part.matches("\n\n").count(), 65, "a part is bounded");
}
