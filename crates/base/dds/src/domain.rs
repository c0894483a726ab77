//! Domains: the settings of Cyclone DDS in this process, one set per domain number.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Mutex;
use std::time::Duration;

use cyclors::{
    __socket_type_SOCK_CLOEXEC, __socket_type_SOCK_DGRAM, AF_INET, bind, dds_create_domain,
    ddsrt_setsockreuse, in_addr, sa_family_t, sockaddr, sockaddr_in, socket, socklen_t,
};
use equipoise_basics::lock;

use crate::entity::Handle;
use crate::error::{Error, c_string, check};
use crate::log;

/// Settings of Cyclone DDS in a domain. The defaults are Cyclone's, except for the lease and its
/// renewal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Names or addresses of the network interfaces to use. Empty: Cyclone chooses one.
    pub interfaces: Vec<String>,
    /// Hosts at which to look for participants, `ADDRESS` or `ADDRESS:PORT`, for networks without
    /// multicast.
    pub peers: Vec<String>,
    /// Use of multicast.
    pub multicast: Multicast,
    /// Silence after which a participant counts as dead; samples of this time never reach it. Until
    /// then writers wait for its acknowledgements, so a worker that dies can block its clients'
    /// writes for this long.
    pub lease: Duration,
    /// For tests: number of sent packets in 1000 that are dropped.
    pub loss_permille: u16,
    /// Further configuration for Cyclone: XML as in its manual, or `file://PATH`. It comes last,
    /// and so takes precedence. DDS Security is configured here, and needs the feature `security`.
    pub more: Option<String>,
}

/// Use of multicast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Multicast {
    /// For discovery and data.
    #[default]
    Full,
    /// For discovery only.
    Discovery,
    /// Not at all. `peers` lists the other participants.
    Off,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            interfaces: Vec::new(),
            peers: Vec::new(),
            multicast: Multicast::Full,
            lease: Duration::from_secs(5),
            loss_permille: 0,
            more: None,
        }
    }
}

/// Retransmission timers. With Cyclone's defaults, a single lost sample, such as a message of a
/// handover, arrives 100 to 200 ms late. Heartbeats are sent only while something is not
/// acknowledged.
///
/// A sample written later than 4/5 of the heartbeat interval after the previous one requests its
/// own acknowledgement, which costs writer and reader about 15 us each. For a client with ten
/// groups and 1150 items a second, 10 ms made every item acknowledged; 20 ms makes none, and delays
/// a lost sample by 10 ms more.
const REPAIR: &str = "<HeartbeatInterval min=\"1 ms\" minsched=\"5 ms\">20 ms</HeartbeatInterval><NackDelay>5 ms</NackDelay>";

/// Bounds of unacknowledged data of a writer, beyond which it waits. With Cyclone's defaults the
/// bound is 30 kB at first, and each retransmission takes a fifth, down to 1 kB. It rises only
/// while a writer waits. So the writers of a client with small items end at 1 kB after some
/// matches: a reader that acknowledges 20 items late blocks the client, beside busy programs for up
/// to half a second. `WhcLow` is the least bound, and the level at which a blocked writer
/// continues.
const WATERMARKS: &str =
    "<Watermarks><WhcLow>64 kB</WhcLow><WhcHighInit>128 kB</WhcHighInit></Watermarks>";

/// Number of lease renewals of a participant per lease. With Cyclone's default an idle participant
/// renews after four fifths of the lease, so a pause of a fifth of the lease may end it.
const RENEWALS: u32 = 5;
/// Longest interval between two renewals. Discovery without multicast depends on them, too.
const RENEWAL_MAX: Duration = Duration::from_secs(30);

impl Settings {
    /// The settings as XML for Cyclone DDS.
    pub fn xml(&self) -> String {
        let mut xml = String::from("<CycloneDDS><Domain Id=\"any\"><General>");
        let multicast = match self.multicast {
            Multicast::Full => "default",
            Multicast::Discovery => "spdp",
            Multicast::Off => "false",
        };
        let _ = write!(xml, "<AllowMulticast>{multicast}</AllowMulticast>");
        if !self.interfaces.is_empty() {
            xml.push_str("<Interfaces>");
            for interface in &self.interfaces {
                let kind =
                    if interface.parse::<std::net::IpAddr>().is_ok() { "address" } else { "name" };
                let _ = write!(xml, "<NetworkInterface {kind}=\"{}\"/>", escaped(interface));
            }
            xml.push_str("</Interfaces>");
        }
        let lease_ms = self.lease.as_millis().max(1);
        let renewal_ms = (self.lease / RENEWALS).min(RENEWAL_MAX).as_millis().max(1);
        let _ = write!(
            xml,
            "</General><Discovery><LeaseDuration>{lease_ms} ms</LeaseDuration><SPDPInterval>{renewal_ms} ms</SPDPInterval>"
        );
        if self.multicast == Multicast::Off {
            // Without multicast, ports of participants are known only if they are numbered.
            xml.push_str("<ParticipantIndex>auto</ParticipantIndex><MaxAutoParticipantIndex>119</MaxAutoParticipantIndex>");
        }
        if !self.peers.is_empty() {
            xml.push_str("<Peers>");
            for peer in &self.peers {
                let _ = write!(xml, "<Peer Address=\"{}\"/>", escaped(peer));
            }
            xml.push_str("</Peers>");
        }
        xml.push_str("</Discovery>");
        let _ = write!(xml, "<Internal>{REPAIR}{WATERMARKS}");
        if self.loss_permille > 0 {
            let loss = self.loss_permille;
            let _ = write!(xml, "<Test><XmitLossiness>{loss}</XmitLossiness></Test>");
        }
        xml.push_str("</Internal></Domain></CycloneDDS>");
        if let Some(more) = &self.more {
            let _ = write!(xml, ",{more}");
        }
        xml
    }
}

/// True if a configuration of Cyclone DDS (XML) configures DDS Security.
fn asks_for_security(xml: &str) -> bool {
    let xml = xml.to_ascii_lowercase();
    ["<security", "<ddssecurity"].iter().any(|element| xml.contains(element))
}

impl Settings {
    /// Refuses a configuration of DDS Security that would protect nothing. Cyclone DDS itself
    /// ignores the element in a build without security, with only a line in its log.
    fn check_security(&self) -> Result<(), Error> {
        let Some(more) = &self.more else { return Ok(()) };
        let mut asked = asks_for_security(more);
        for path in more.split(',').filter_map(|part| part.trim().strip_prefix("file://")) {
            let xml = std::fs::read_to_string(path).map_err(|error| {
                let (path, reason) = (path.to_string(), error.to_string());
                Error::Unreadable { path, reason }
            })?;
            asked |= asks_for_security(&xml);
        }
        if asked && !cfg!(feature = "security") { Err(Error::NoSecurity) } else { Ok(()) }
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// A socket with this UDP port, shared in the way of Cyclone DDS: by all participants of the domain
/// on this host.
fn shared(port: u16) -> io::Result<OwnedFd> {
    let kind = (__socket_type_SOCK_DGRAM | __socket_type_SOCK_CLOEXEC) as i32;
    // SAFETY: the call takes only numbers.
    let socket = unsafe { socket(AF_INET as i32, kind, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let address = sockaddr_in {
        sin_family: AF_INET as sa_family_t,
        sin_port: port.to_be(),
        sin_addr: in_addr { s_addr: 0 },
        sin_zero: [0; 8],
    };
    let size = size_of::<sockaddr_in>() as socklen_t;
    // SAFETY: the socket is open, and `address` has `size` bytes and outlives the calls.
    let bound = unsafe {
        // If sharing is refused, binding fails as for a port that is not shared.
        ddsrt_setsockreuse(socket.as_raw_fd(), true);
        bind(socket.as_raw_fd(), (&raw const address).cast::<sockaddr>(), size)
    };
    if bound < 0 { Err(io::Error::last_os_error()) } else { Ok(socket) }
}

/// The first UDP port of domain `number` that another socket uses without sharing, if the system
/// may have given it that port by chance.
///
/// # Source
/// DDSI-RTPS 2.5, section 9.6.2.3: multicast goes to ports 7400 + 250 domain, and the next one.
fn taken_by_chance(number: u32) -> Option<u16> {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
    let mut range = range.split_whitespace().map(str::parse::<u32>);
    let (first, last) = (range.next()?.ok()?, range.next()?.ok()?);
    let ports = [0, 1].map(|offset| 7400 + 250 * number + offset);
    let taken =
        |port: &u16| shared(*port).is_err_and(|error| error.kind() == io::ErrorKind::AddrInUse);
    let chance = ports.into_iter().filter(|port| (first..=last).contains(port));
    chance.filter_map(|port| u16::try_from(port).ok()).find(taken)
}

/// Participation of this process in a DDS domain. It ends with the last `Domain` of this number.
#[derive(Debug)]
pub struct Domain {
    number: u32,
}

#[derive(Debug)]
struct Opened {
    _handle: Handle,
    xml: String,
    users: usize,
}

/// Open domains and their users. Cyclone DDS has one set of settings per domain and process.
static OPENED: Mutex<BTreeMap<u32, Opened>> = Mutex::new(BTreeMap::new());

impl Domain {
    /// Opens domain `number` (0 to 232) with `settings`. On Linux, only domains 0 to 101 and 215 to
    /// 232 have ports that the system gives to no other socket by chance.
    ///
    /// # Errors
    /// [`Error::OtherSettings`]; [`Error::NoSecurity`], [`Error::Unreadable`];
    /// [`Error::PortTaken`]; [`Error::Refused`] if Cyclone DDS does not accept the settings.
    pub fn open(number: u32, settings: &Settings) -> Result<Self, Error> {
        settings.check_security()?;
        log::install();
        let xml = settings.xml();
        let mut opened = lock(&OPENED);
        if let Some(domain) = opened.get_mut(&number) {
            if domain.xml != xml {
                return Err(Error::OtherSettings { domain: number });
            }
            domain.users += 1;
            return Ok(Self { number });
        }
        let config = c_string("the DDS configuration", &xml)?;
        // SAFETY: `config` is a C string that outlives the call.
        let entity = unsafe { dds_create_domain(number, config.as_ptr()) };
        let entity = check("open the domain", entity).map_err(|error| {
            match (error, taken_by_chance(number)) {
                (Error::Refused { cause, .. }, Some(port)) => {
                    Error::PortTaken { domain: number, port, cause }
                }
                (error, _) => error,
            }
        })?;
        let _handle = Handle::new(entity);
        opened.insert(number, Opened { _handle, xml, users: 1 });
        Ok(Self { number })
    }

    /// The domain's number.
    pub fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        let mut opened = lock(&OPENED);
        if let Some(domain) = opened.get_mut(&self.number) {
            domain.users -= 1;
            if domain.users == 0 {
                opened.remove(&self.number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, UdpSocket};

    use super::*;

    #[test]
    fn settings_are_converted_to_cyclone_dds_xml() {
        let settings = Settings {
            interfaces: vec!["lo".into(), "10.0.0.7".into()],
            peers: vec!["10.0.0.8:7410".into()],
            multicast: Multicast::Off,
            loss_permille: 10,
            more: Some("file:///etc/dds.xml".into()),
            ..Settings::default()
        };
        assert_eq!(
            settings.xml(),
            "<CycloneDDS><Domain Id=\"any\"><General><AllowMulticast>false</AllowMulticast><Interfaces>\
             <NetworkInterface name=\"lo\"/><NetworkInterface address=\"10.0.0.7\"/></Interfaces></General>\
             <Discovery><LeaseDuration>5000 ms</LeaseDuration><SPDPInterval>1000 ms</SPDPInterval><ParticipantIndex>auto</ParticipantIndex>\
             <MaxAutoParticipantIndex>119</MaxAutoParticipantIndex><Peers><Peer Address=\"10.0.0.8:7410\"/></Peers>\
             </Discovery><Internal><HeartbeatInterval min=\"1 ms\" minsched=\"5 ms\">20 ms</HeartbeatInterval>\
             <NackDelay>5 ms</NackDelay><Watermarks><WhcLow>64 kB</WhcLow><WhcHighInit>128 kB</WhcHighInit></Watermarks>\
             <Test><XmitLossiness>10</XmitLossiness></Test></Internal></Domain></CycloneDDS>,\
             file:///etc/dds.xml"
        );
    }

    #[test]
    #[cfg(not(feature = "security"))]
    fn security_settings_are_refused_in_a_build_without_security() {
        let file = tempfile("<CycloneDDS><Domain><Security/></Domain></CycloneDDS>");
        let inline = "<CycloneDDS><Domain><DDSSecurity></DDSSecurity></Domain></CycloneDDS>";
        for more in [inline.to_string(), format!("file://{}", file.display())] {
            let settings = Settings { more: Some(more.clone()), ..Settings::default() };
            assert_eq!(Domain::open(16, &settings).err(), Some(Error::NoSecurity), "{more}");
        }
        std::fs::remove_file(&file).unwrap();
        let more = Some(format!("file://{}", file.display()));
        let gone = Domain::open(16, &Settings { more, ..Settings::default() });
        assert!(matches!(gone, Err(Error::Unreadable { .. })), "{gone:?}");
    }

    #[cfg(not(feature = "security"))]
    fn tempfile(text: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("equipoise-dds-{}.xml", std::process::id()));
        std::fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn a_domain_with_an_occupied_port_is_refused_naming_the_port() {
        let taken = (102..214).find_map(|number: u16| {
            let port = 7400 + 250 * number;
            let is_free = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).is_ok();
            // Shared, as by another participant of the domain.
            shared(port).ok().filter(|_| is_free).map(|socket| (number, port, socket))
        });
        let (number, port, neighbour) = taken.expect("some port is free");
        let number = u32::from(number);
        assert_eq!(taken_by_chance(number), None, "a neighbour is in nobody's way");
        drop(neighbour);
        let _socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap();
        let settings = Settings { interfaces: vec!["lo".into()], ..Settings::default() };
        let refused = Domain::open(number, &settings).unwrap_err();
        let Error::PortTaken { domain, port: named, cause } = refused else { panic!("{refused}") };
        assert_eq!((domain, named), (number, port));
        let said = refused.to_string();
        assert!(said.contains(&cause.to_string()) && said.contains("outside that range"), "{said}");
    }

    #[test]
    fn interface_names_are_escaped_in_the_xml() {
        let settings = Settings { interfaces: vec!["a\"/><b".into()], ..Settings::default() };
        assert!(settings.xml().contains("name=\"a&quot;/>&lt;b\""));
    }
}
