//! Names over elastic pools: answers follow backends that are created and removed.

use std::net::TcpStream;
use std::time::Instant;

use super::*;
use crate::common::scripts::NUMBERED;

const POOL: &str = "
[load]
period = \"100ms\"
[controller]
state = \"FOLDER\"
[[dns]]
zone = \"cluster.example.\"
listen = \"LISTEN\"
pool = \"web\"
ttl = \"3s\"
ttl-draining = \"1s\"
ns = [\"ns.other.example.\"]
[nameserver]
rate-limit = 0
[[pool]]
name = \"web\"
[pool.elastic]
min = 1
max = 4
warm-up = \"0s\"
in-cool-down = \"1m\"
drain-timeout = \"10s\"
";

#[test]
fn a_name_follows_script_backends_and_omits_them_before_removal() {
    let script = "[\"python3\", \"FOLDER/script.py\", \"FOLDER/log\"]";
    let exec = format!("[pool.elastic.exec]\nadd = {script}\nremove = {script}\n");
    let config = format!(
        "{}{exec}",
        POOL.replace("pool = \"web\"\n", "pool = \"web\"\nmode = \"ordered\"\n")
    );
    let instance = Instance::start_with("dns-made", &config, &[("script.py", NUMBERED)]);
    let log = || fs::read_to_string(instance.folder.path("log")).unwrap_or_default();
    let answer = || instance.addresses("cluster.example");
    let [e1, e2] = [1, 2].map(|last| [192, 0, 2, last]);
    assert!(eventually(|| answer() == (vec![e1], 3)), "{:?} {}", answer(), log());
    instance.command(&["plan", "pin", "web", "2"]);
    assert!(eventually(|| answer() == (vec![e1, e2], 3)), "{:?} {}", answer(), log());
    let status = instance.command(&["status"]);
    for row in ["web/web-e1", "web/web-e2", "192.0.2.2", "50.0%"] {
        assert!(status.contains(row), "{row}:\n{status}");
    }
    instance.command(&["reload"]);
    assert_eq!(answer(), (vec![e1, e2], 3));

    let begun = Instant::now();
    instance.command(&["plan", "pin", "web", "1"]);
    let drains = || matches!(answer(), (given, 1) if given.len() == 1);
    assert!(eventually(drains), "{:?} {}", answer(), log());
    assert!(eventually(|| log().contains("remove web-e")), "{}", log());
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_secs(10),
        "clients may have its address so long: {took:?} {}",
        log()
    );
    assert!(eventually(|| answer().1 == 3), "{:?}", answer());
    assert_eq!(answer().0.len(), 1);
    assert_eq!(log().lines().count(), 3, "{}", log());
}

/// The ports in the SRV records of a name.
fn ports(instance: &Instance, name: &str) -> BTreeSet<u16> {
    let answer = ask(instance.port.address(), name, 33);
    let (mut ports, mut records) = (BTreeSet::new(), &answer[..]);
    while let [0xc0, 12, 0, 33, 0, 1, _, _, _, _, high, low, rest @ ..] = records {
        let (body, after) = rest.split_at(usize::from(u16::from_be_bytes([*high, *low])));
        ports.insert(u16::from_be_bytes([body[4], body[5]]));
        records = after;
    }
    ports
}

#[test]
fn srv_records_contain_the_port_of_each_process() {
    let process = format!(
        "[pool.elastic.process]\ncommand = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n",
        common::EQUIPOISE
    );
    let names = "names = [{ name = \"_web._tcp\", mode = \"srv\" }]\n";
    let config =
        POOL.replace("[nameserver]", &format!("{names}[nameserver]")).replace("min = 1", "min = 2");
    let config = config.replace("pool = \"web\"\n", "mode = \"srv\"\npool = \"web\"\n") + &process;
    let instance = Instance::start("dns-processes", &config);
    let told = || ports(&instance, "_web._tcp.cluster.example");
    assert!(eventually(|| told().len() == 2), "{:?} {}", told(), instance.process.printed());
    for port in told() {
        assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{port}");
    }
    // The host name in a record has an address.
    let host = instance.addresses("web-e1.cluster.example").0;
    assert_eq!(host, [[127, 0, 0, 1]]);
    instance.command(&["plan", "pin", "web", "3"]);
    assert!(eventually(|| told().len() == 3), "{:?}", told());
}
