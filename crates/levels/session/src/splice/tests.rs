use std::future::poll_fn;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use super::*;

/// A socket on the event loop, and its other end.
fn socket() -> (Socket, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    ours.set_nonblocking(true).unwrap();
    (Socket::new(ours.into()).unwrap(), theirs)
}

async fn run(body: &mut SpliceBody, from: &Socket, to: &Socket) -> Result<(), Side> {
    poll_fn(|cx| body.poll(cx, from, to)).await
}

#[tokio::test]
async fn a_splice_moves_exactly_the_bytes_of_the_body() {
    let pipes = Rc::new(Pipes::default());
    let (from, mut source) = socket();
    let (to, mut sink) = socket();
    let bytes: Vec<u8> = (0..3_000_000u32).map(|at| (at * 7 + at / 251) as u8).collect();
    let sent = bytes.clone();
    let writing = std::thread::spawn(move || {
        source.write_all(&sent).unwrap();
        source.write_all(b"the next message").unwrap();
        source
    });
    let reading = std::thread::spawn(move || {
        let mut read = vec![0; 3_000_000];
        sink.read_exact(&mut read).unwrap();
        read
    });
    let mut body = SpliceBody::new(&pipes, bytes.len() as u64).unwrap();
    run(&mut body, &from, &to).await.unwrap();
    assert_eq!(body.remaining(), 0);
    assert!(reading.join().unwrap() == bytes);
    let mut rest = [0; 100];
    let rest_bytes = poll_fn(|cx| from.poll_read(cx, &mut rest)).await.unwrap();
    assert_eq!(&rest[..rest_bytes], b"the next message");
    writing.join().unwrap();
}

#[tokio::test]
async fn a_splice_error_identifies_the_side_that_failed() {
    let pipes = Rc::new(Pipes::default());
    let (from, mut source) = socket();
    let (to, sink) = socket();
    source.write_all(b"half").unwrap();
    drop(source);
    let mut body = SpliceBody::new(&pipes, 8).unwrap();
    assert!(matches!(run(&mut body, &from, &to).await, Err(Side::Truncated)));
    assert_eq!(body.remaining(), 4, "the first half has been passed on");
    drop(sink);
    let (from, mut source) = socket();
    source.write_all(b"unwanted").unwrap();
    let mut body = SpliceBody::new(&pipes, 8).unwrap();
    assert!(matches!(run(&mut body, &from, &to).await, Err(Side::To)));
    assert_eq!(body.remaining(), 8);
}

#[tokio::test]
async fn a_pipe_with_leftover_bytes_is_not_reused() {
    let pipes = Rc::new(Pipes::default());
    let (from, mut source) = socket();
    source.write_all(b"secret").unwrap();
    let mut pipe = pipes.take().unwrap();
    assert_eq!(pipe.fill_from(from.as_raw_fd(), 100).unwrap(), 6);
    drop(pipe);
    assert_eq!((pipes.open.get(), pipes.free.borrow().len()), (0, 0));
    drop(pipes.take().unwrap());
    assert_eq!((pipes.open.get(), pipes.free.borrow().len()), (1, 1), "an empty one is kept");
}

#[test]
fn the_numbers_of_open_and_pooled_pipes_are_bounded() {
    let pipes = Rc::new(Pipes { open: Cell::new(PIPES_MAX - 1), ..Pipes::default() });
    let last = pipes.take();
    assert!(last.is_some() && pipes.take().is_none());
    drop(last);
    assert!(pipes.take().is_some(), "the place is free again");
    let pipes = Rc::new(Pipes::default());
    let taken: Vec<_> = (0..KEPT_MAX + 1).map(|_| pipes.take().unwrap()).collect();
    drop(taken);
    assert_eq!(pipes.open.get(), KEPT_MAX);
}
