//! `equipoise decap`: unpacks the packets of `forward = "tunnel"` and `"gue"` on a backend with a
//! kernel that does not unpack them.

mod addresses;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use equipoise_packet::Decapsulated;
use equipoise_packet::abi::{Counter, DecapsulationConstants};
use equipoise_packet::config::{MacAddress, Prefix};
use equipoise_packet::decap::Decapsulation;
use equipoise_packet::privileges::reduce_to;
use rustix::net::{AddressFamily, SocketType, netdevice, socket};
use tokio::signal::unix::{SignalKind, signal};

/// Help text: further requirements of a backend.
const ALSO: &str = "Runs until Ctrl-C or SIGTERM, then prints what it has unpacked.

The backend also needs the VIP on its loopback, without answering ARP for it:
  ip addr add VIP/32 dev lo
  sysctl net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2 net.ipv4.conf.all.rp_filter=0
Whoever reaches the backend can send it tunnelled packets of any client, and --source is easily forged: let only the
balancers' network in.";

/// Arguments of `equipoise decap`.
#[derive(Debug, clap::Args)]
#[command(after_help = ALSO)]
pub struct Args {
    /// Interface on which tunnelled packets arrive
    #[arg(long)]
    interface: String,
    /// Unpack only packets to this address; repeat for several [default: all addresses of this
    /// host]
    #[arg(long, value_name = "IP")]
    address: Vec<IpAddr>,
    /// Also unpack packets in frames to this MAC address, such as a virtual one; repeat for several
    /// [default: frames to this host's interfaces]
    #[arg(long, value_name = "MAC")]
    accept_mac: Vec<MacAddress>,
    /// Unpack only IPv4 packets from this prefix, as in [flows] tunnel-source of the balancers
    /// [default: anywhere]
    #[arg(long, value_name = "PREFIX")]
    source: Option<Prefix<Ipv4Addr>>,
    /// Unpack only IPv6 packets from this prefix, as in tunnel-source6 [default: anywhere]
    #[arg(long, value_name = "PREFIX")]
    source6: Option<Prefix<Ipv6Addr>>,
    /// Pass packets of TCP flows that this host does not know on to one of these backends, if the
    /// packet names it: the addresses of the pool's hosts. For VIPs with `second-chance = true`;
    /// needs --source or --source6
    #[arg(long, value_name = "IP", value_delimiter = ',')]
    second_chance: Vec<IpAddr>,
    /// UDP destination port of GUE, as in [flows] gue-port of the balancer; 0: none
    #[arg(long, default_value_t = 6080)]
    gue_port: u16,
    /// Leave the program on the interface at the end; the next `equipoise decap` adopts it
    #[arg(long)]
    keep: bool,
}

/// Interval between checks for new addresses of the host.
const ADDRESSES_PERIOD: Duration = Duration::from_secs(1);

/// The same while the way to a backend is not known.
const UNRESOLVED_PERIOD: Duration = Duration::from_millis(100);

/// Runs the command.
///
/// # Errors
/// The program cannot be loaded or attached, or standard output cannot be written.
pub async fn run(args: Args) -> anyhow::Result<ExitCode> {
    // A signal from here on is queued, and handled when the program is loaded.
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot handle signals")?;
    let mut terminate = signal(SignalKind::terminate()).context("cannot handle signals")?;
    let ifindex = ifindex(&args.interface)?;
    check_second_chance(&args)?;
    let mut decapsulation = match &args.second_chance[..] {
        [] => Decapsulation::load(&constants(&args))?,
        backends => Decapsulation::with_second_chance(&constants(&args), backends)?,
    };
    let mut accepted = wanted(&args)?;
    decapsulation.accept(&accepted)?;
    let mut macs = macs(&args)?;
    decapsulation.take_frames(&macs)?;
    let mode = decapsulation.attach(&args.interface, ifindex, args.keep)?;
    reduce_to(decapsulation.needs()).context("cannot give up capabilities")?;
    say(&format!(
        "decapsulating on {} ({}) for {}; ready",
        args.interface,
        mode.name(),
        accepted.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    ));
    let mut all_resolved = false;
    loop {
        let period = if all_resolved { ADDRESSES_PERIOD } else { UNRESOLVED_PERIOD };
        tokio::select! {
            _ = interrupt.recv() => break,
            _ = terminate.recv() => break,
            () = tokio::time::sleep(period) => {}
        }
        all_resolved = decapsulation.resolve()?;
        let now = wanted(&args)?;
        if now != accepted {
            decapsulation.accept(&now)?;
            accepted = now;
        }
        let now = self::macs(&args)?;
        if now != macs {
            decapsulation.take_frames(&now)?;
            macs = now;
        }
    }
    say(&totals(&decapsulation.counts()?));
    Ok(ExitCode::SUCCESS)
}

/// A host that passes packets on for any sender would be a reflector.
fn check_second_chance(args: &Args) -> anyhow::Result<()> {
    for backend in &args.second_chance {
        let (is_given, option, balancers) = match backend {
            IpAddr::V4(_) => (args.source.is_some(), "--source", "tunnel-source"),
            IpAddr::V6(_) => (args.source6.is_some(), "--source6", "tunnel-source6"),
        };
        if !is_given {
            bail!(
                "--second-chance {backend} without {option}; accepted with the [flows] {balancers} of the balancers, so \
                 that only their packets are passed on"
            );
        }
    }
    Ok(())
}

/// Constants of the program, which are set when it is loaded.
fn constants(args: &Args) -> DecapsulationConstants {
    let mut constants = DecapsulationConstants {
        gue_port: args.gue_port.to_be_bytes(),
        ..DecapsulationConstants::default()
    };
    if let Some(Prefix { address, len }) = args.source {
        constants.source4 = address.octets();
        constants.source4_mask = mask::<4>(len);
    }
    if let Some(Prefix { address, len }) = args.source6 {
        constants.source6 = address.octets();
        constants.source6_mask = mask::<16>(len);
    }
    constants
}

/// A mask of the first `len` bits.
fn mask<const BYTES: usize>(len: u8) -> [u8; BYTES] {
    std::array::from_fn(|byte| {
        let bits = usize::from(len).saturating_sub(byte * 8).min(8);
        !(0xff_u16 >> bits) as u8
    })
}

/// Outer destination addresses of packets to unpack.
fn wanted(args: &Args) -> anyhow::Result<Vec<IpAddr>> {
    if args.address.is_empty() {
        addresses::of_this_host().context("cannot read this host's addresses")
    } else {
        Ok(args.address.clone())
    }
}

/// Destination MAC addresses of frames with packets to unpack.
fn macs(args: &Args) -> anyhow::Result<Vec<[u8; 6]>> {
    let own = addresses::macs_of_this_host().context("cannot read this host's MAC addresses")?;
    Ok(own.into_iter().chain(args.accept_mac.iter().map(|mac| mac.0)).collect())
}

fn ifindex(name: &str) -> anyhow::Result<u32> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    netdevice::name_to_index(any, name)
        .map_err(|error| anyhow!("no interface `{name}` ({error}); `ip link` lists the interfaces"))
}

/// A line for each outcome that occurred.
fn totals(counts: &Decapsulated) -> String {
    let Decapsulated { taken, foreign, invalid, foreign_mac, .. } = counts;
    let rows = [
        ("unpacked", taken),
        ("unpacked after another backend passed them on", &counts.second),
        ("passed on to another backend", &counts.passed_on),
        ("not passed on, to a host that --second-chance does not name", &counts.refused),
        ("dropped, no way to the other backend", &counts.unreachable),
        ("left alone, not from --source", foreign),
        ("dropped as invalid", invalid),
        ("left alone, in frames to another station", foreign_mac),
    ];
    let mut text = String::new();
    for (what, Counter { packets, bytes }) in rows {
        if *packets > 0 || what == "unpacked" {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{what}: {packets} packets, {bytes} bytes");
        }
    }
    text.trim_end().to_owned()
}

fn say(text: &str) {
    let mut stdout = io::stdout();
    // A closed standard output does not stop the program.
    let _ = writeln!(stdout, "{text}").and_then(|()| stdout.flush());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn totals_list_invalid_packets_only_if_any_were_dropped() {
        let mut counts = Decapsulated::default();
        assert_eq!(totals(&counts), "unpacked: 0 packets, 0 bytes");
        counts.taken = Counter { packets: 2, bytes: 300 };
        counts.invalid = Counter { packets: 1, bytes: 60 };
        assert_eq!(
            totals(&counts),
            "unpacked: 2 packets, 300 bytes\ndropped as invalid: 1 packets, 60 bytes"
        );
    }

    #[test]
    fn a_mask_sets_the_leading_bits() {
        assert_eq!(mask::<4>(0), [0; 4]);
        assert_eq!(mask::<4>(9), [255, 128, 0, 0]);
        assert_eq!(mask::<4>(32), [255; 4]);
        assert_eq!(mask::<16>(64)[7..9], [255, 0]);
        assert_eq!(mask::<16>(128), [255; 16]);
    }

    #[test]
    fn the_error_for_a_missing_interface_names_it() {
        let error = ifindex("eqp-nowhere").unwrap_err().to_string();
        assert!(error.contains("`eqp-nowhere`") && error.contains("ip link"), "{error}");
    }
}
