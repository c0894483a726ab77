//! What workers let go, and what that means.

use equipoise_api::wire::slice::StreamStatus;

use crate::commands::table::{Align, Cell, Table, Tone};

/// What was let go of, if anything was.
pub(super) fn table(stream: &StreamStatus) -> Option<Table> {
    let mut table = Table::new(&[
        ("WORKER", Align::Left),
        ("DROPS", Align::Right),
        ("REASON", Align::Left),
        ("MEANING", Align::Left),
    ]);
    let mut any = false;
    for worker in &stream.workers {
        for (reason, count) in worker.drops.iter().filter(|(_, count)| **count > 0) {
            let (tone, meaning) = meaning(reason);
            let count = Cell::toned(count.to_string(), tone);
            table.row(vec![(&worker.name).into(), count, reason.into(), meaning.into()]);
            any = true;
        }
    }
    any.then_some(table)
}

/// How bad it is, and what it is.
fn meaning(reason: &str) -> (Tone, &'static str) {
    use Tone::{Bad, Plain, Warning};
    match reason {
        "not_owned" => (Plain, "no loss: the slice is another worker's"),
        "late" => (Plain, "no loss: the owner before did it"),
        "duplicate" => (Plain, "no loss: it came again"),
        "mail_refused" => (Plain, "no loss: a message of the protocol, which is said again"),
        "out_of_order" => (
            Warning,
            "not dropped: a lost worker's item came later than slice.workers.recovery, and was done after newer ones",
        ),
        "shadow_full" => {
            (Warning, "no loss: too much came during a handover, which was called off")
        }
        "given_up" => (
            Bad,
            "lost, unless published again: it was silent for longer than its lease, and given up",
        ),
        "tail_full" => {
            (Bad, "lost, unless published again: publishers began with much while slices moved")
        }
        "incompatible_type" => {
            (Bad, "a publisher's type differs, and nobody reads it: see the log")
        }
        "incompatible_qos" => (Bad, "a publisher's QoS differs, and nobody reads it: see the log"),
        "incompatible_reader" => {
            (Bad, "a reader's type or QoS differs, it gets no reply: see the log")
        }
        "released_full" => (Warning, "too much to keep for a taker that may be lost"),
        "standby_full" => (Warning, "too much to keep for another worker, were it lost"),
        "mail_unreadable" => (Warning, "a message of another version, or none of ours"),
        "reply_late" => (Plain, "no loss: a client took its time for a reply"),
        "reply_beside" => {
            (Plain, "no loss: kept for a client that takes no replies; others have theirs")
        }
        "reply_refused" => (Warning, "a client does not take replies"),
        "timestamp_repeated" => (
            Warning,
            "not dropped; what moves may be lost or done twice: its publisher's timestamps do not grow",
        ),
        "no_such_slice" => (Bad, "the publisher has another number of slices than the stream"),
        "malformed" => (Bad, "too short, or another type under the same name"),
        "set_aside" => (
            Bad,
            "not done: the program ended again and again with it in hand; its client was told",
        ),
        "queue_full" => (Bad, "lost: too much waits, and the publisher does not publish again"),
        "unknown_writer" => (Bad, "lost: the publisher was gone before it was known"),
        _ => (Warning, "see docs/operations/drops.md"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "slice")]
    fn every_reason_has_a_meaning() {
        let protocol = equipoise_slice::worker::Reason::ALL.map(|reason| reason.name());
        let runtime = equipoise_slice_dds::DropReason::ALL.map(|reason| reason.name());
        for reason in protocol.into_iter().chain(runtime) {
            assert!(!meaning(reason).1.starts_with("see"), "{reason}");
        }
    }
}
