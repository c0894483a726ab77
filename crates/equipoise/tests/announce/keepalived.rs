//! A floating address, with Debian's keepalived.

use equipoise_testkit::netns::{Host, Switch};

use crate::bed::{Load, Machine, can_run};
use crate::common::{Process, text};

const VIP: &str = "203.0.113.80";
const KEEPALIVED: &str = "/usr/sbin/keepalived";

/// Starts keepalived on a machine, with the check scripts that `equipoise announce` writes.
fn keepalived(machine: &Machine, place: u8) -> Process {
    let scripts = machine.folder.path("scripts.conf");
    let args = ["announce", "--keepalived", text(&scripts), "--address", VIP];
    let (succeeded, said) = machine.command(&args);
    assert!(succeeded, "{said}");
    let written = std::fs::read_to_string(&scripts).unwrap();
    let asks = format!("ready --quiet --api {} {VIP}", machine.folder.path("api.sock").display());
    assert!(written.contains(&asks), "{written}");
    let written = written.replace("rise 5", "rise 2");
    std::fs::write(&scripts, written).unwrap();
    let config = format!(
        "global_defs {{\n router_id b{place}\n script_user root\n}}\ninclude {}\n\
         vrrp_instance vip {{\n state BACKUP\n interface eth0\n virtual_router_id 80\n \
         priority {}\n advert_int 1\n virtual_ipaddress {{ {VIP}/24 dev eth0 }}\n \
         track_script {{ equipoise_{} }}\n}}\n",
        scripts.display(),
        200 - place,
        VIP.replace('.', "_"),
    );
    let file = machine.folder.write("keepalived.conf", &config);
    let (pid, vrrp) = (machine.folder.path("k.pid"), machine.folder.path("v.pid"));
    let args = ["-n", "-l", "-P", "-f", text(&file), "-p", text(&pid), "-r", text(&vrrp)];
    machine.program(KEEPALIVED, &args)
}

#[test]
fn the_address_moves_to_the_machine_that_serves() {
    if !can_run(&[KEEPALIVED]) {
        return;
    }
    let client = Host::new("client").unwrap();
    let switch = Switch::new(&client, "lan").unwrap();
    client.address("lan", "203.0.113.254".parse().unwrap(), 24).unwrap();
    let mut machines: Vec<_> = ["b1", "b2"]
        .into_iter()
        .enumerate()
        .map(|(place, name)| {
            let mut machine = Machine::new("announce-vrrp", name, "0.0.0.0");
            switch.plug(&machine.host, "eth0").unwrap();
            let own = format!("203.0.113.{}", place + 1);
            machine.host.address("eth0", own.parse().unwrap(), 24).unwrap();
            machine.start();
            machine
        })
        .collect();
    let daemons: Vec<_> =
        machines.iter().zip([1, 2]).map(|(machine, place)| keepalived(machine, place)).collect();
    let load = Load::start(&client, VIP);
    load.until_served_by(&["b1"]);
    load.forget();

    let mut equipoise = machines[0].equipoise.take().unwrap();
    equipoise.signal(libc::SIGKILL);
    equipoise.ended();
    load.until_served_by(&["b2"]);
    let (failures, gap) = load.failures();
    println!("killed: {} connections failed, within {gap:?}", failures.len());

    // It comes back, and its priority is higher.
    machines[0].start();
    load.until_served_by(&["b1"]);
    load.finish();
    daemons.iter().for_each(|daemon| daemon.signal(libc::SIGTERM));
}
