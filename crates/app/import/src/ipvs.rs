//! Commands of `ipvsadm`, and the output of `ipvsadm-save`.

use crate::ImportError;
use crate::model::{Config, Options, Pool, Vip, duration};
use crate::report::Report;

/// Translates commands.
pub(crate) fn import(text: &str, report: &mut Report) -> Result<Config, ImportError> {
    let mut config = Config::default();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        report.open(number, line);
        let words: Vec<&str> = line
            .split_whitespace()
            .skip_while(|it| it.ends_with("ipvsadm") || *it == "sudo")
            .collect();
        match words.first().copied() {
            Some("-A" | "--add-service") => service(&words, number, &mut config, report),
            Some("-a" | "--add-server") => server(&words, number, &mut config, report)?,
            Some("--set") => times(&words, number, &mut config, report),
            Some("--start-daemon") => {
                report.lost(number, "a fleet of balancers with the same [flows] seed")
            }
            Some("-E" | "--edit-service" | "-e" | "--edit-server" | "-D" | "--delete-service")
            | Some("-d" | "--delete-server") => report
                .lost(number, "translate the tables after all changes: ipvsadm-save -n has them"),
            // Other commands of a script, and `-C`, which clears the tables.
            _ => {}
        }
    }
    if config.vips.is_empty() {
        return Err(ImportError::Empty { wanted: "a virtual service (-A)" });
    }
    Ok(config)
}

/// The value of an option in its short or long form.
fn value<'a>(words: &[&'a str], short: &str, long: &str) -> Option<&'a str> {
    let at = words.iter().position(|it| *it == short || *it == long)?;
    words.get(at + 1).copied()
}

/// The VIP of a command, and the name of its pool.
fn vip(words: &[&str]) -> Option<(String, String)> {
    let tcp = value(words, "-t", "--tcp-service").map(|it| (it, "tcp"));
    let udp = || value(words, "-u", "--udp-service").map(|it| (it, "udp"));
    let (address, protocol) = tcp.or_else(udp)?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port_number(port)?;
    let name = crate::model::name(&format!(
        "{}-{port}-{protocol}",
        host.trim_matches(['[', ']']).replace(':', "-")
    ));
    let port = if port == 0 { "*".to_string() } else { port.to_string() };
    Some((format!("{host}:{port}/{protocol}"), name))
}

fn port_number(text: &str) -> Option<u16> {
    match text {
        "http" => Some(80),
        "https" => Some(443),
        "domain" => Some(53),
        text => text.parse().ok(),
    }
}

fn service(words: &[&str], number: usize, config: &mut Config, report: &mut Report) {
    let Some((vip, name)) = vip(words) else {
        report.lost(number, "a [[packet]] is for a TCP or UDP address; a [[packet]] for each port of a firewall mark");
        return;
    };
    report.carried(number);
    let mut options = Options::default();
    options.set("vip", vip).set("interface", "eth0").set("forward", "direct-routing");
    report
        .changes(number, "set `interface` to the one at which the packets arrive; it is eth0 now");
    let how = value(words, "-s", "--scheduler").unwrap_or("wlc");
    let is_persistent = words.iter().any(|it| *it == "-p" || *it == "--persistent");
    let mask = value(words, "-M", "--netmask").unwrap_or_default();
    schedule(&mut options, how, is_persistent.then_some(mask), number, report);
    if value(words, "--pe", "--pe").is_some() {
        report.lost(number, "the key of a flow is an address or its prefix, not a part of SIP");
    }
    if value(words, "-b", "--sched-flags").is_some() {
        report.changes(number, "schedulers have no flags");
    }
    if words.iter().any(|it| *it == "-o" || *it == "--ops") {
        report.changes(number, "datagrams of one client port stay at one backend");
    }
    options.set("pool", name.clone());
    config.pools.push(Pool { name, ..Pool::default() });
    config.vips.push(Vip { options });
}

/// Sets the scheduler and the key of a VIP from LVS' names. `persistence`: a client keeps its
/// backend; the value is the mask of its address, if one is stated.
pub(crate) fn schedule(
    options: &mut Options,
    how: &str,
    persistence: Option<&str>,
    number: usize,
    report: &mut Report,
) {
    if let Some(mask) = persistence {
        options.set("scheduler", "maglev");
        let client = match prefix_length(mask) {
            Some(bits) if bits != 32 && bits != 128 => {
                options.set("key", "source-prefix").set("key-prefix", bits);
                "the prefix of a client's address"
            }
            _ => {
                options.set("key", "source-address");
                "a client's address"
            }
        };
        report.changes(
            number,
            format!(
                "persistence is by a hash: {client} has one backend by weight, for as long as that \
                 is in the pool; new clients are not placed by {how}, and no time ends it"
            ),
        );
        return;
    }
    let scheduler = match how {
        "rr" => "round-robin",
        "wrr" => "weighted-round-robin",
        "lc" => "least-connection",
        "wlc" => "weighted-least-connection",
        "sed" => "sed",
        "nq" => "nq",
        "mh" => "maglev",
        "sh" => "sh",
        "dh" | "lblc" | "lblcr" | "fo" | "ovf" => {
            report.lost(
                number,
                "schedulers are maglev, round-robin, least-connection and their weighted forms",
            );
            "weighted-least-connection"
        }
        other => {
            report.lost(number, format!("there is no scheduler {other}"));
            "weighted-least-connection"
        }
    };
    options.set("scheduler", scheduler);
}

/// Bits of a mask such as `255.255.255.0`, or of a length such as `64`.
fn prefix_length(mask: &str) -> Option<i64> {
    if let Ok(mask) = mask.parse::<std::net::Ipv4Addr>() {
        return Some(i64::from(mask.to_bits().leading_ones()));
    }
    mask.parse().ok().filter(|it| (1..=128).contains(it))
}

fn server(
    words: &[&str],
    number: usize,
    config: &mut Config,
    report: &mut Report,
) -> Result<(), ImportError> {
    let Some((address, name)) = vip(words) else {
        report.lost(number, "a [[packet]] is for a TCP or UDP address");
        return Ok(());
    };
    let problem = || ImportError::Syntax {
        line: number,
        problem: format!("no service {address} is added before it (-A)"),
    };
    let pool = config.pools.iter_mut().find(|it| it.name == name).ok_or_else(problem)?;
    let vip = config.vips.iter_mut().find(|it| it.options.text("pool") == Some(&name));
    let vip = vip.ok_or_else(problem)?;
    let Some(real) = value(words, "-r", "--real-server") else {
        return Err(ImportError::Syntax { line: number, problem: "-r is missing".to_string() });
    };
    report.carried(number);
    let service_port = address
        .rsplit_once('/')
        .and_then(|(it, _)| it.rsplit_once(':'))
        .map_or("80", |(_, port)| port);
    let has_port = real.rsplit_once(':').is_some_and(|(host, port)| {
        port_number(port).is_some() && (!host.contains(':') || host.ends_with(']'))
    });
    let real = if has_port {
        real.to_string()
    } else {
        format!("{real}:{}", if service_port == "*" { "80" } else { service_port })
    };
    let mut backend = Options::default();
    backend.set("address", real);
    if let Some(weight) = value(words, "-w", "--weight").and_then(|it| it.parse::<i64>().ok()) {
        backend.set("weight", weight.clamp(0, 1000));
    }
    pool.backends.push(backend);
    let has = |short: &str, long: &str| words.iter().any(|it| *it == short || *it == long);
    let forward = if has("-m", "--masquerading") {
        "nat"
    } else if has("-i", "--ipip") {
        if value(words, "--tun-type", "--tun-type") == Some("gue") { "gue" } else { "tunnel" }
    } else {
        "direct-routing"
    };
    let is_other = !pool.backends[1..].is_empty() && vip.options.text("forward") != Some(forward);
    if is_other {
        report.changes(number, "all backends of a VIP have one `forward`: that of the first");
    } else {
        vip.options.set("forward", forward);
    }
    for (short, long) in [("-x", "--u-threshold"), ("-y", "--l-threshold")] {
        if value(words, short, long).is_some_and(|it| it != "0") {
            report
                .lost(number, "a VIP has no limit of flows; an http or tcp pool has `concurrency`");
        }
    }
    Ok(())
}

/// `--set TCP FIN UDP`, in seconds; 0 leaves a time.
fn times(words: &[&str], number: usize, config: &mut Config, report: &mut Report) {
    report.carried(number);
    let keys = [("tcp-timeout", 20), ("closing-timeout", 10), ("udp-timeout", 20)];
    for ((key, least), word) in keys.into_iter().zip(&words[1..]) {
        let Some(seconds) = word.parse::<u64>().ok().filter(|it| *it > 0) else { continue };
        let taken = seconds.clamp(least, 86_400);
        if taken != seconds {
            report.changes(number, format!("{key} is {}", duration(taken * 1000)));
        }
        config.flows.set(key, duration(taken * 1000));
    }
}
