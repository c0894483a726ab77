use std::path::Path;

use equipoise_session::config::Resolved;

use super::*;
use equipoise_config::{Surroundings, parse};

fn wish(text: &str) -> PacketWish {
    let around = Surroundings {
        host_name: "h".into(),
        api_socket: "/s".into(),
        read: &|_, _| Err(std::io::Error::other("no file is read here")),
        mode: &|_| Ok(0o600),
    };
    let loaded = parse(text, Path::new("f"), &around).unwrap();
    PacketWish::new(loaded.config.packet, loaded.config.session.pools)
}

const FILE: &str = r#"
[[pool]]
name = "web"
backends = ["10.0.0.1:8080", { address = "10.0.0.2:8080", weight = 5 }]
[[packet]]
vip = "192.0.2.1:80/tcp"
interface = ["eth0", "eth1"]
reply-interface = ["eth1", "eth2"]
forward = "nat"
pool = "web"
[[packet]]
vip = "192.0.2.2:*/tcp"
interface = "eth2"
forward = "tunnel"
pool = "web"
when-down = "keep"
"#;

#[test]
fn a_vip_has_the_backends_of_its_pool_as_they_are_seen() {
    let mut state = State::default();
    let seen = BackendState {
        name: "b".into(),
        address: "10.0.0.1:8080".parse().unwrap(),
        place: Default::default(),
        checked_at: Vec::new(),
        weight: Weight::new(7).unwrap(),
        admin: AdminState::Drain,
        health: Health::Unhealthy,
    };
    let pools = [PoolState { name: "web".into(), backends: vec![seen] }];
    let wanted = state.wanted(&wish(FILE), &pools);
    let [nat, tunnel] = &wanted.snapshot.vips[..] else { panic!("{wanted:?}") };
    let [first, second] = &nat.backends[..] else { panic!("{nat:?}") };
    assert_eq!((first.port, first.weight.get()), (Some(8080), 7));
    assert_eq!((first.admin, first.health), (AdminState::Drain, Health::Unhealthy));
    assert_eq!((second.weight.get(), second.health), (5, Health::Unknown));
    assert_eq!(tunnel.backends[0].port, None);
    assert_eq!(tunnel.backends[0].on_down, equipoise_packet::OnDown::Keep);
}

#[test]
fn an_interface_that_clients_come_by_sees_replies_too() {
    let wanted = State::default().wanted(&wish(FILE), &[]);
    let roles: Vec<_> = wanted.interfaces.iter().map(|(name, role)| (&**name, *role)).collect();
    assert_eq!(roles, [("eth0", Role::Clients), ("eth1", Role::Clients), ("eth2", Role::Clients)]);
    let only = FILE.replace("interface = \"eth2\"", "interface = \"eth0\"");
    let wanted = State::default().wanted(&wish(&only), &[]);
    assert_eq!(wanted.interfaces.get("eth2"), Some(&Role::Replies));
}

#[test]
fn generations_rise() {
    let (mut state, wish) = (State::default(), wish(FILE));
    let first = state.wanted(&wish, &[]).snapshot.generation;
    assert!(first > Generation(1 << 40));
    assert!(state.wanted(&wish, &[]).snapshot.generation > first);
}

#[test]
fn a_backend_with_a_host_name_is_where_it_resolves_to_in_the_family_of_the_vip() {
    let named = FILE.replace("\"10.0.0.1:8080\"", "\"web.internal:8080\"");
    let mut wish = wish(&named);
    let backends = |wish: &PacketWish| {
        let wanted = State::default().wanted(wish, &[]);
        let addresses =
            |vip: &VipSpec| vip.backends.iter().map(|b| b.address.to_string()).collect();
        wanted.snapshot.vips.iter().map(addresses).collect::<Vec<Vec<_>>>()
    };
    assert_eq!(backends(&wish), [["10.0.0.2"], ["10.0.0.2"]], "nothing goes to a name alone");
    let mut resolve = |addresses: &[&str]| {
        let Place::Host { resolved, .. } = &mut wish.pools[0].backends[0].place else { panic!() };
        *resolved = Resolved::new(addresses.iter().map(|it| it.parse().unwrap()));
        backends(&wish)
    };
    let both = resolve(&["[2001:db8::1]:8080", "10.0.0.9:8080"]);
    assert_eq!(both, [["10.0.0.9", "10.0.0.2"], ["10.0.0.9", "10.0.0.2"]]);
    let v6 = resolve(&["[2001:db8::1]:8080"]);
    assert_eq!(v6, [vec!["10.0.0.2"], vec!["2001:db8::1", "10.0.0.2"]], "a tunnel may use it");
}

#[test]
fn a_backend_with_a_host_name_is_at_the_address_that_its_checks_stay_with() {
    let mut wish = wish(&FILE.replace("\"10.0.0.1:8080\"", "\"web.internal:8080\""));
    let backend = &mut wish.pools[0].backends[0];
    let Place::Host { resolved, .. } = &mut backend.place else { panic!() };
    let addresses = ["10.0.0.8:8080", "10.0.0.9:8080", "[2001:db8::1]:8080"];
    *resolved = Resolved::new(addresses.map(|it| it.parse().unwrap()));
    let seen = |checked_at: &[&str]| BackendState {
        name: Arc::clone(&backend.name),
        address: backend.address,
        place: backend.place.clone(),
        checked_at: checked_at.iter().map(|it| it.parse().unwrap()).collect(),
        weight: Weight::DEFAULT,
        admin: AdminState::Up,
        health: Health::Healthy,
    };
    let rows: [(&[&str], &str); 4] = [
        (&[], "10.0.0.8"),
        (&["[2001:db8::1]:8080"], "10.0.0.8"),
        (&["[2001:db8::1]:8080", "10.0.0.9:8080"], "10.0.0.9"),
        (&["10.0.0.7:8080"], "10.0.0.8"),
    ];
    let rows = rows.map(|(checked_at, destination)| (seen(checked_at), destination));
    for (backend, destination) in rows {
        let checked_at = backend.checked_at.clone();
        let pools = [PoolState { name: "web".into(), backends: vec![backend] }];
        let wish = wish.clone().beginning_where_checked(&pools);
        let wanted = State::default().wanted(&wish, &pools);
        let first = wanted.snapshot.vips[0].backends[0].address.to_string();
        assert_eq!(first, destination, "{checked_at:?}");
    }
}

#[test]
fn flows_leave_an_address_that_failed_its_checks_and_drain_from_one_that_the_name_lost() {
    let first = wish(&FILE.replace("\"10.0.0.1:8080\"", "\"web.internal:8080\""));
    let at = |addresses: &[&str], checked_at: &str| {
        let mut wish = first.clone();
        let backend = &mut wish.pools[0].backends[0];
        let Place::Host { resolved, .. } = &mut backend.place else { panic!() };
        *resolved = Resolved::new(addresses.iter().map(|it| it.parse().unwrap()));
        let seen = BackendState {
            name: Arc::clone(&backend.name),
            address: backend.address,
            place: backend.place.clone(),
            checked_at: vec![checked_at.parse().unwrap()],
            weight: Weight::DEFAULT,
            admin: AdminState::Up,
            health: Health::Healthy,
        };
        let pools = [PoolState { name: "web".into(), backends: vec![seen] }];
        (wish.beginning_where_checked(&pools), pools)
    };
    let both = ["10.0.0.8:8080", "10.0.0.9:8080"];
    let (before, pools) = at(&both, both[0]);
    let mut state = State::default();
    let wanted = state.wanted(&before, &pools);
    assert_eq!(state.with_departed(&before, &wanted, &pools).snapshot.vips, wanted.snapshot.vips);
    state.go_over_to(before, wanted);
    let mut told = |wish: &PacketWish, pools: &[PoolState]| {
        let wanted = state.wanted(wish, pools);
        let vips = state.with_departed(wish, &wanted, pools).snapshot.vips;
        let shown = |it: &BackendSpec| (it.address.to_string(), it.standing());
        vips.iter()
            .map(|vip| vip.backends.iter().map(shown).collect::<Vec<_>>())
            .collect::<Vec<_>>()
    };
    use equipoise_packet::Standing::{Draining, Eligible, Gone};
    let listed = [("10.0.0.9".to_string(), Eligible), ("10.0.0.2".to_string(), Eligible)];
    let with = |standing| [&listed[..], &[("10.0.0.8".to_string(), standing)]].concat();
    let (failed, pools) = at(&both, both[1]);
    // The first VIP moves the flows of a backend that is down; the second VIP keeps them.
    assert_eq!(told(&failed, &pools), [with(Gone), with(Draining)]);
    let (lost, pools) = at(&both[1..], both[1]);
    assert_eq!(told(&lost, &pools), [listed.to_vec(), listed.to_vec()]);
}

#[test]
fn an_address_that_passes_in_its_own_family_has_not_failed() {
    let mut wish = wish(&FILE.replace("\"10.0.0.1:8080\"", "\"web.internal:8080\""));
    let pool = &mut wish.pools[0];
    let Place::Host { resolved, .. } = &mut pool.backends[0].place else { panic!() };
    let [v4, other, v6] = ["10.0.0.8:8080", "10.0.0.9:8080", "[2001:db8::1]:8080"];
    *resolved = Resolved::new([v4, other, v6].map(|it| it.parse().unwrap()));
    let failed = |checked_at: &[&str]| {
        let seen = BackendState {
            name: Arc::clone(&pool.backends[0].name),
            address: pool.backends[0].address,
            place: pool.backends[0].place.clone(),
            checked_at: checked_at.iter().map(|it| it.parse().unwrap()).collect(),
            weight: Weight::DEFAULT,
            admin: AdminState::Up,
            health: Health::Healthy,
        };
        let state = PoolState { name: "web".into(), backends: vec![seen] };
        let failed = failed_addresses(&wish.config.vips[1], pool, &state);
        let mut failed: Vec<_> = failed.iter().map(|it| it.address.to_string()).collect();
        failed.sort();
        failed
    };
    assert_eq!(failed(&[v6, v4]), ["10.0.0.9"]);
    assert_eq!(failed(&[v4]), ["10.0.0.9", "2001:db8::1"]);
    assert_eq!(failed(&[]), [""; 0], "no check has passed: nothing is known");
}

fn checked(text: &str) -> Vec<(String, u16, String)> {
    let wish = wish(text);
    let checks = State::default().wanted(&wish, &[]).checks;
    let row = |it: &TunnelCheck| (it.vip.to_string(), it.port, it.backend.to_string());
    checks.iter().map(row).collect()
}

const TUNNEL: &str = r#"
[[pool]]
name = "web"
backends = ["10.0.0.1:80", "10.0.0.2:80"]
health = { http = "/", interval = "7s" }
[[packet]]
vip = "192.0.2.1:80/tcp"
interface = "eth0"
forward = "tunnel"
pool = "web"
"#;

#[test]
fn each_backend_of_a_tunnel_is_checked_at_the_port_of_the_vip() {
    let row = |vip: &str, port, backend: &str| (vip.to_owned(), port, backend.to_owned());
    let (first, second) = ("10.0.0.1", "10.0.0.2");
    let vip = "192.0.2.1:80/tcp";
    assert_eq!(checked(TUNNEL), [row(vip, 80, first), row(vip, 80, second)]);
    assert_eq!(checked(&TUNNEL.replace("\"tunnel\"", "\"gue\"")).len(), 2);
    let rules = State::default().wanted(&wish(TUNNEL), &[]).checks.remove(0).rules;
    assert_eq!(rules.interval, std::time::Duration::from_secs(7));

    // For several ports: the port of the backend's address, if the VIP has it.
    let any = TUNNEL.replace(":80/tcp", ":*/tcp").replace("0.1:80", "0.1:8080");
    let vip = "192.0.2.1:*/tcp";
    assert_eq!(checked(&any), [row(vip, 8080, first), row(vip, 80, second)]);
    let range = any.replace(":*/tcp", ":8000-8999/tcp");
    assert_eq!(checked(&range), [row("192.0.2.1:8000-8999/tcp", 8080, first)]);
}

#[test]
fn other_vips_have_no_check_through_a_tunnel() {
    let without = |what: &str, instead: &str| {
        let text = TUNNEL.replace(what, instead);
        assert_ne!(text, TUNNEL);
        assert_eq!(checked(&text), [], "{instead}");
    };
    without("/tcp", "/udp");
    without("\"tunnel\"", "\"nat\"");
    without("\"tunnel\"", "\"direct-routing\"");
    without("health = { http = \"/\", interval = \"7s\" }", "");
    without("forward =", "check-tunnel = false\nforward =");
}

#[test]
fn a_backend_without_an_address_is_not_checked_through_a_tunnel() {
    let named = TUNNEL.replace("10.0.0.1:80", "web.internal:80");
    assert_eq!(checked(&named).len(), 1);
}

const NAMED: &str = r#"
[[pool]]
name = "a"
backends = ["loop.test:80", "10.0.0.1:80"]
[[pool]]
name = "b"
backends = ["10.0.0.2:80"]
[[packet]]
vip = "192.0.2.20:80/tcp"
interface = "eth0"
forward = "nat"
pool = "a"
[[packet]]
vip = "192.0.2.21:80/tcp"
interface = "eth0"
forward = "nat"
pool = "b"
"#;

/// The configuration with `loop.test` resolved to this address.
fn resolved(text: &str, address: &str) -> PacketWish {
    let PacketWish { config, mut pools, .. } = wish(text);
    let Place::Host { resolved, .. } = &mut pools[0].backends[0].place else { panic!() };
    *resolved = Resolved::new([address.parse().unwrap()]);
    PacketWish::new(config, pools)
}

/// The addresses of each VIP's backends, and the texts of the empty places.
fn placed(wish: &PacketWish) -> (Vec<Vec<String>>, Vec<String>) {
    let wanted = State::default().wanted(wish, &[]);
    let addresses = |vip: &VipSpec| vip.backends.iter().map(|it| it.id().to_string()).collect();
    let details = wish.empty.values().map(|place| place.detail.clone()).collect();
    (wanted.snapshot.vips.iter().map(addresses).collect(), details)
}

#[test]
fn a_name_that_resolves_to_a_vip_has_an_empty_place() {
    let without = vec![vec!["10.0.0.1:80".to_owned()], vec!["10.0.0.2:80".to_owned()]];
    for vip in ["192.0.2.20", "192.0.2.21"] {
        let (backends, details) = placed(&resolved(NAMED, &format!("{vip}:80")));
        assert_eq!(backends, without, "{vip}");
        let said = format!(
            "no packets go to it: its name resolves to {vip}:80, which is the address of VIP {vip}:80/tcp: packets would \
             return to the balancer"
        );
        assert_eq!(details, [said]);
    }
    let (backends, details) = placed(&resolved(NAMED, "10.0.0.9:80"));
    assert_eq!(backends[0], ["10.0.0.9:80", "10.0.0.1:80"]);
    assert_eq!(details, [""; 0]);
}

#[test]
fn a_name_that_resolves_to_a_backend_of_another_nat_vip_has_an_empty_place() {
    let without = vec![vec!["10.0.0.1:80".to_owned()], vec!["10.0.0.2:80".to_owned()]];
    let (backends, details) = placed(&resolved(NAMED, "10.0.0.2:80"));
    assert_eq!(backends, without);
    let said = "no packets go to it: its name resolves to 10.0.0.2:80, where VIP 192.0.2.21:80/tcp also sends packets \
                by nat: the balancer could not assign replies to a VIP";
    assert_eq!(details, [said]);
    // Only nat has to assign replies, and protocol and port distinguish them.
    for (is, other) in [("21:80/tcp", "21:80/udp"), ("0.2:80", "0.2:81")] {
        let text = NAMED.replace(is, other);
        assert_ne!(text, NAMED);
        assert_eq!(placed(&resolved(&text, "10.0.0.2:80")).1, [""; 0], "{other}");
    }
    let tunnels = NAMED.replace("\"nat\"", "\"tunnel\"");
    assert_eq!(placed(&resolved(&tunnels, "10.0.0.2:80")).1, [""; 0]);
    assert_eq!(placed(&resolved(&tunnels, "192.0.2.21:80")).1.len(), 1);
}

#[test]
fn of_two_names_with_one_address_the_first_in_the_file_has_it() {
    let text = NAMED.replace("\"10.0.0.2:80\"", "\"other.test:80\"");
    let PacketWish { config, mut pools, .. } = resolved(&text, "10.0.0.9:80");
    let Place::Host { resolved, .. } = &mut pools[1].backends[0].place else { panic!() };
    *resolved = Resolved::new(["10.0.0.9:80".parse().unwrap()]);
    let (backends, details) = placed(&PacketWish::new(config, pools));
    assert_eq!(backends, [vec!["10.0.0.9:80", "10.0.0.1:80"], vec![]]);
    assert_eq!(details.len(), 1, "{details:?}");
}
