//! The table of items that workers dropped, with explanations.

use equipoise_api::wire::slice::StreamStatus;

use crate::table::{Align, Cell, Table, Tone};

/// The table of drops; `None` if there are none.
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

/// The severity and the explanation of a reason.
fn meaning(reason: &str) -> (Tone, &'static str) {
    use Tone::{Bad, Plain, Warning};
    match reason {
        "not_owned" => (Plain, "no loss: another worker owns the slice"),
        "late" => (Plain, "no loss: the previous owner processed it"),
        "duplicate" => (Plain, "no loss: it arrived twice"),
        "mail_refused" => (Plain, "no loss: a message of the protocol, which is sent again"),
        "out_of_order" => (
            Warning,
            "not dropped: an item of a lost worker came after slice.workers.recovery, and was processed after newer ones",
        ),
        "shadow_full" => {
            (Warning, "no loss: too many items came during a handover, which was called off")
        }
        "given_up" => (
            Bad,
            "lost unless published again: the worker was silent for longer than its lease, and was given up",
        ),
        "tail_full" => (
            Bad,
            "lost unless published again: publishers started with many items while slices moved",
        ),
        "incompatible_type" => {
            (Bad, "a publisher's type differs, so no worker reads it: see the log")
        }
        "incompatible_qos" => {
            (Bad, "a publisher's QoS differs, so no worker reads it: see the log")
        }
        "incompatible_reader" => {
            (Bad, "a reader's type or QoS differs, so it gets no replies: see the log")
        }
        "released_full" => {
            (Warning, "too many items to keep for the target of a handover, if it is lost")
        }
        "standby_full" => (Warning, "too many items to keep for another worker, if it is lost"),
        "mail_unreadable" => (Warning, "a message of another version or program"),
        "reply_late" => (Plain, "no loss: a client accepted a reply late"),
        "reply_beside" => {
            (Plain, "no loss: kept for a client that accepts no replies; other clients have theirs")
        }
        "reply_refused" => (Warning, "a client does not accept replies"),
        "timestamp_repeated" => (
            Warning,
            "not dropped, but lost or processed twice if its slice moves: the publisher's timestamps do not rise",
        ),
        "no_such_slice" => (Bad, "the publisher has another number of slices than the stream"),
        "malformed" => (Bad, "too short, or another type under the same name"),
        "set_aside" => (
            Bad,
            "not processed: the program ended repeatedly with this item; the client was informed",
        ),
        "queue_full" => (Bad, "lost: the queue is full, and the publisher does not publish again"),
        "unknown_writer" => (Bad, "lost: the publisher left before it was known"),
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
