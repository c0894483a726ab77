//! Exhaustion of file descriptors. The only test of its process, since it lowers the process's
//! limit.

mod common;

use std::net::TcpStream;

use common::{Plan, get};
use equipoise_session::config::Upstream;
use equipoise_testkit::{Client, HttpBackend, eventually, open_fds, set_fd_limit};

#[test]
fn accepting_pauses_without_descriptors_is_counted_and_recovers() {
    let backend = HttpBackend::named("x");
    let proxy = Plan::new(Upstream::Exclusive, &[backend.address()]).start();
    let mut served = proxy.connect();
    assert_eq!(served.ask(get("/")).map(|r| r.text()), Ok("x".to_owned()));
    let clients: Vec<TcpStream> =
        (0..50).map(|_| TcpStream::connect(proxy.address).expect("the queue has room")).collect();
    let open = || proxy.stats.sum(|s| s.connections_open.get());
    assert!(eventually(|| open() == 51), "{}", open());

    // From here on this process gets no descriptor, while five clients connect. Their descriptors
    // exist before the limit, so only accepting fails.
    let waiting: Vec<socket2::Socket> = (0..5)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None))
        .collect::<Result<_, _>>()
        .expect("sockets can be made");
    set_fd_limit(open_fds() as u64).expect("a limit may be lowered");
    let fill: Vec<TcpStream> = std::iter::from_fn(|| served.stream().try_clone().ok()).collect();
    for socket in &waiting {
        socket.connect(&proxy.address.into()).expect("the queue has room");
    }
    assert!(eventually(|| proxy.stats.sum(|s| s.accept_pauses.get()) > 0), "the pause is counted");
    assert_eq!(open(), 51);
    assert_eq!(
        served.ask(get("/")).map(|r| r.text()),
        Ok("x".to_owned()),
        "those inside are served"
    );

    drop((clients, fill));
    for socket in waiting {
        let stream = TcpStream::from(socket);
        set_fd_limit(1000).expect("a soft limit may be raised up to the hard one");
        assert_eq!(Client::over(stream).ask(get("/")).map(|r| r.text()), Ok("x".to_owned()));
    }
    assert!(eventually(|| open() <= 6), "{}", open());
    proxy.assert_drops(&[]);
}
