//! Clients that change their address.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc;
use std::time::Duration;

use ::quinn::rustls::RootCertStore;
use ::quinn::{ClientConfig, Connection, Endpoint, EndpointConfig, RecvStream, TokioRuntime};
use rcgen::{CertifiedKey, KeyPair};
use tokio::net::UdpSocket;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;

use super::super::{CONNECTIONS, PORT};
use super::{Round, SERVER_NAME};
use crate::bed::Bed;
use crate::method::Method;

/// Bytes under way to a client.
pub(super) const WINDOW: u32 = 1 << 16;
/// Bytes that a client reads before and after a change of its address: not all are there before.
const CHUNK: usize = 2 * WINDOW as usize;
/// Pause between changes.
const PACE: Duration = Duration::from_millis(100);
/// Longest time for an answer, so that a round with failures ends within the test's patience.
const ANSWER: Duration = Duration::from_secs(45);

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The VIP, and the addresses of the clients' host.
#[derive(Clone, Copy)]
pub(super) struct Network {
    vip: SocketAddr,
    addresses: [IpAddr; 2],
}

impl Network {
    /// Gives the clients' host a second address.
    pub(super) fn new(bed: &Bed, method: Method) -> Network {
        let first = bed.site.client_address(false);
        let IpAddr::V4(second) = first else { unreachable!("an IPv4 address") };
        let second = IpAddr::V4(second | Ipv4Addr::new(0, 0, 0, 64));
        bed.site.client.address("eth0", second, 24).expect("an address can be given");
        let vip = SocketAddr::new(method.vip_address(), PORT);
        Network { vip, addresses: [first, second] }
    }
}

/// Opens the connections, reports their servers, and does the rounds until no more can come.
pub(super) async fn work(
    network: Network,
    certificate: &CertifiedKey<KeyPair>,
    opened: &mpsc::Sender<Vec<String>>,
    mut rounds: UnboundedReceiver<Round>,
) {
    let mut roots = RootCertStore::empty();
    roots.add(certificate.cert.der().clone()).expect("a certificate");
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots)).expect("a certificate");
    let mut transport = super::transport();
    // A server sends to an address that it has not validated at most three times the bytes that
    // came from there (RFC 9000, section 8.1). If its challenge or the answer is lost, and the
    // client has nothing to send, both ends wait.
    transport.keep_alive_interval(Some(Duration::from_secs(1)));
    config.transport_config(Arc::new(transport));
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let client = Client::open(network, &config, number % 2 == 1).await;
        clients.push(client.unwrap_or_else(|error| panic!("connection {number}: {error}")));
    }
    let _ = opened.send(clients.iter().map(|client| client.server.clone()).collect());
    while let Some(Round { is_over, failures }) = rounds.recv().await {
        let mut all = JoinSet::new();
        for mut client in clients.drain(..) {
            let is_over = Arc::clone(&is_over);
            all.spawn(async move {
                let outcome = client.round(&is_over).await;
                let server = &client.server;
                let failure = outcome.err().map(|error| format!("{server}: {error}"));
                (client, failure)
            });
        }
        let (returned, found): (Vec<_>, Vec<_>) = all.join_all().await.into_iter().unzip();
        clients = returned;
        let _ = failures.send(found.into_iter().flatten().collect::<Vec<_>>().join("; "));
    }
}

/// A connection, and the way to change its address.
struct Client {
    endpoint: Endpoint,
    /// Sockets for the NAT between client and VIP, which changes its address unknown to the client.
    nat: Option<UnboundedSender<UdpSocket>>,
    connection: Connection,
    /// The name of the server at first.
    server: String,
    addresses: [IpAddr; 2],
}

impl Client {
    async fn open(
        network: Network,
        config: &ClientConfig,
        behind_nat: bool,
    ) -> Result<Client, Failure> {
        let Network { vip, addresses } = network;
        let (nat, peer, own) = if behind_nat {
            let inside = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            let (peer, outside) = (inside.local_addr()?, bind(addresses[0])?);
            let (nat, sockets) = unbounded_channel();
            tokio::spawn(translate(inside, UdpSocket::from_std(outside)?, vip, sockets));
            (Some(nat), peer, Ipv4Addr::LOCALHOST.into())
        } else {
            (None, vip, addresses[0])
        };
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), None, bind(own)?, runtime)?;
        let connecting = endpoint.connect_with(config.clone(), peer, SERVER_NAME)?;
        let connection = within(connecting).await?;
        let server = String::new();
        let mut client = Client { endpoint, nat, connection, server, addresses };
        client.server = client.ask_name().await?;
        Ok(client)
    }

    /// Changes the address in the middle of a transfer, again and again until `is_over`, then once
    /// more, and checks that the server is the same.
    async fn round(&mut self, is_over: &AtomicBool) -> Result<(), Failure> {
        let mut transfer = self.ask(b"bytes").await?;
        loop {
            read(&mut transfer).await?;
            let is_last = is_over.load(Relaxed);
            self.change_address()?;
            if is_last {
                break;
            }
            tokio::time::sleep(PACE).await;
        }
        read(&mut transfer).await?;
        transfer.stop(0_u8.into())?;
        let now = self.ask_name().await?;
        if now == self.server { Ok(()) } else { Err(format!("now {now}").into()) }
    }

    async fn ask(&self, question: &[u8]) -> Result<RecvStream, Failure> {
        let (mut send, receive) = within(self.connection.open_bi()).await?;
        within(send.write_all(question)).await?;
        send.finish()?;
        Ok(receive)
    }

    async fn ask_name(&self) -> Result<String, Failure> {
        let mut answer = self.ask(b"who").await?;
        Ok(String::from_utf8(within(answer.read_to_end(64)).await?)?)
    }

    /// Sends from another address and port from now on. A client that moves uses another connection
    /// id (RFC 9000, section 9.5); one behind a NAT does not know that its address has changed.
    fn change_address(&mut self) -> Result<(), Failure> {
        self.addresses.reverse();
        let socket = bind(self.addresses[0])?;
        match &self.nat {
            Some(nat) => nat.send(UdpSocket::from_std(socket)?)?,
            None => self.endpoint.rebind(socket)?,
        }
        Ok(())
    }
}

/// Binds a socket to another port of this address.
fn bind(address: IpAddr) -> io::Result<std::net::UdpSocket> {
    let socket = std::net::UdpSocket::bind((address, 0))?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

/// Reads a chunk.
async fn read(transfer: &mut RecvStream) -> Result<(), Failure> {
    within(transfer.read_exact(&mut [0; CHUNK])).await
}

async fn within<T, E>(answer: impl Future<Output = Result<T, E>>) -> Result<T, Failure>
where
    Failure: From<E>,
{
    Ok(tokio::time::timeout(ANSWER, answer).await??)
}

/// A NAT between a client and the VIP. It sends from the newest of `sockets`.
async fn translate(
    inside: UdpSocket,
    mut outside: UdpSocket,
    vip: SocketAddr,
    mut sockets: UnboundedReceiver<UdpSocket>,
) {
    let (mut sent, mut received) = ([0; 1500], [0; 1500]);
    let mut client = None;
    loop {
        tokio::select! {
            Ok((bytes, from)) = inside.recv_from(&mut sent) => {
                client = Some(from);
                // A datagram may be lost.
                let _ = outside.send_to(&sent[..bytes], vip).await;
            }
            Ok((bytes, _)) = outside.recv_from(&mut received) => if let Some(client) = client {
                let _ = inside.send_to(&received[..bytes], client).await;
            },
            socket = sockets.recv() => match socket {
                Some(socket) => outside = socket,
                None => return,
            },
        }
    }
}
