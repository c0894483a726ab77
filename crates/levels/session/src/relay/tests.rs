use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::sync::Arc;

use equipoise_core::LineFormat;

use super::*;
use crate::access_log::{AccessLog, LogOutput};
use crate::memory::MemoryBound;
use crate::sources::SourceSamples;
use crate::worker::Shared;

fn worker() -> Rc<Worker> {
    let (events, _) = tokio::sync::mpsc::channel(1);
    let (access_log, _) =
        AccessLog::start(LogOutput::Stream(Box::new(io::sink())), LineFormat::TEXT).unwrap();
    let shared = Shared {
        instance: "test".into(),
        threads: 1,
        descriptors: crate::descriptors::Descriptors::of_process(),
        memory: MemoryBound::NONE,
        epoch: Instant::now(),
        events,
        access_log,
        traces: None,
        sources: Arc::new(SourceSamples::new(1)),
        challenges: Default::default(),
        is_held: false,
    };
    Worker::new(0, shared)
}

/// A socket on the event loop, and its other end.
fn socket() -> (Socket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    // All data of a test fits into the sockets' buffers.
    for end in [&ours, &theirs] {
        socket2::SockRef::from(end).set_send_buffer_size(1 << 20).unwrap();
    }
    (Socket::new(ours.into()).unwrap(), theirs)
}

/// Turns until the direction comes to `end`; returns whether it was ever about to splice.
async fn turns(
    direction: &mut Direction,
    (from, to): (&Socket, &Socket),
    worker: &Worker,
    end: impl Fn(&Direction, Turn) -> bool,
) -> bool {
    let mut piped = false;
    poll_fn(|cx| {
        piped |= direction.splicing;
        let turn = direction.turn(cx, from, to, worker, false);
        piped |= direction.splicing;
        if turn == Turn::Again {
            cx.waker().wake_by_ref();
        }
        if end(direction, turn) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    piped
}

#[tokio::test]
async fn large_transfers_are_spliced_and_small_transfers_are_copied() {
    let worker = worker();
    let (from, mut source) = socket();
    let (to, mut sink) = socket();
    let mut direction = Direction::new(None);
    let mut total = 0;
    // The first small amount after a large one is still handled as a large one.
    for (bytes, splices) in [(100, false), (150_000, true), (100, true), (100, false)] {
        total += bytes as u64;
        source.write_all(&vec![1; bytes]).unwrap();
        let end = |direction: &Direction, turn| turn == Turn::Waiting && direction.moved == total;
        let spliced = turns(&mut direction, (&from, &to), &worker, end).await;
        assert_eq!(spliced, splices, "{bytes} bytes");
        assert!(matches!(direction.held, Held::Nothing));
        sink.read_exact(&mut vec![0; bytes]).unwrap();
        // The other direction's bytes wake the task as well.
        turns(&mut direction, (&from, &to), &worker, |_, turn| turn == Turn::Waiting).await;
    }
    drop(source);
    turns(&mut direction, (&from, &to), &worker, |_, turn| turn == Turn::Ended).await;
    assert_eq!(sink.read(&mut [0]).unwrap(), 0);
}

#[test]
fn the_states_of_both_directions_determine_the_verdict() {
    use Turn::{Again, Blocked, Ended, ReadFailed, Waiting, WriteFailed};
    let (going, gone, closed) = (None, Some(Reason::ClientGone), Some(Reason::UpstreamClosed));
    // Rows: client to backend; columns: backend to client.
    let all = [Waiting, Blocked, Again, Ended, ReadFailed, WriteFailed];
    let over = Some;
    let expected = [
        [going, going, going, going, over(closed), over(gone)],
        [going, going, going, going, over(closed), going],
        [going, going, going, going, over(closed), going],
        [going, going, going, over(None), over(closed), over(gone)],
        [over(gone); 6],
        [over(closed), going, going, over(closed), over(closed), over(closed)],
    ];
    for (up, row) in all.iter().zip(expected) {
        for (down, expected) in all.iter().zip(row) {
            assert_eq!(verdict(*up, *down), expected, "{up:?}, {down:?}");
        }
    }
}

#[test]
fn a_relay_takes_at_most_256_bytes() {
    assert!(size_of::<Relay<'_>>() <= 256, "{} bytes", size_of::<Relay<'_>>());
}
