use std::cell::RefCell;
use std::rc::Rc;

use super::*;

#[derive(Default)]
struct Tables {
    interfaces: Vec<Interface>,
    neighbours: Vec<Neighbour>,
    routes: HashMap<IpAddr, Route>,
    kicked: Vec<(u32, IpAddr)>,
}

#[derive(Clone, Default)]
struct Fake(Rc<RefCell<Tables>>);

impl Network for Fake {
    fn interfaces(&mut self) -> io::Result<Vec<Interface>> {
        Ok(self.0.borrow().interfaces.clone())
    }
    fn neighbours(&mut self) -> io::Result<Vec<Neighbour>> {
        Ok(self.0.borrow().neighbours.clone())
    }
    fn route(&mut self, to: IpAddr) -> io::Result<Option<Route>> {
        Ok(self.0.borrow().routes.get(&to).copied())
    }
    fn kick(&mut self, ifindex: u32, address: IpAddr) -> io::Result<()> {
        self.0.borrow_mut().kicked.push((ifindex, address));
        Ok(())
    }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const MAC: [u8; 6] = [2, 0, 0, 0, 0, 9];

/// Interface 2 with a backend on its link and another behind a gateway.
fn network() -> Fake {
    let fake = Fake::default();
    let mut tables = fake.0.borrow_mut();
    let eth0 = Interface {
        index: 2,
        name: "eth0".into(),
        mac: [2, 0, 0, 0, 0, 1],
        mtu: 1500,
        up: true,
        controller: None,
        lower: None,
        kind: Kind::Other,
    };
    tables.interfaces.push(eth0);
    let route = Route { ifindex: 2, gateway: None, mtu: None, local: false };
    tables.routes.insert(ip("10.0.0.9"), route);
    let far = Route { gateway: Some(ip("10.0.0.1")), mtu: Some(1400), ..route };
    tables.routes.insert(ip("10.9.9.9"), far);
    drop(tables);
    fake
}

fn aimed(fake: &Fake, targets: &[&str], now: Instant) -> NextHops<Fake> {
    let mut hops = NextHops::new(fake.clone()).unwrap();
    hops.aim(targets.iter().map(|target| ip(target)).collect(), now).unwrap();
    hops
}

fn resolved(address: &str, mac: Option<[u8; 6]>) -> Change {
    Change::Neighbour(Neighbour { ifindex: 2, address: ip(address), mac, is_static: false })
}

#[test]
fn a_hop_is_the_backend_or_its_gateway() {
    let (fake, now) = (network(), Instant::now());
    let mut hops = aimed(&fake, &["10.0.0.9", "10.9.9.9", "10.8.8.8"], now);
    assert!(hops.change(resolved("10.0.0.1", Some(MAC)), now));
    let found = hops.hops();
    let hop =
        NextHop { ifindex: 2, destination_mac: None, source_mac: [2, 0, 0, 0, 0, 1], mtu: 1500 };
    assert_eq!(found[&ip("10.0.0.9")], hop);
    assert_eq!(found[&ip("10.9.9.9")], NextHop { destination_mac: Some(MAC), mtu: 1400, ..hop });
    assert!(!found.contains_key(&ip("10.8.8.8")));
}

#[test]
fn a_neighbour_is_resolved_every_second_and_rarely_once_known() {
    let (fake, start) = (network(), Instant::now());
    let mut hops = aimed(&fake, &["10.0.0.9"], start);
    let kicks = |hops: &mut NextHops<Fake>, now| {
        hops.tick(now).unwrap();
        std::mem::take(&mut fake.0.borrow_mut().kicked).len()
    };
    let at = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(kicks(&mut hops, at(0)), 1);
    assert_eq!(kicks(&mut hops, at(0)), 0);
    assert_eq!(kicks(&mut hops, at(1)), 1);
    hops.change(resolved("10.0.0.9", Some(MAC)), at(1));
    assert_eq!(kicks(&mut hops, at(2)), 1);
    assert_eq!(hops.next_tick(), Some(at(17)));
    assert_eq!(kicks(&mut hops, at(16)), 0);
    assert_eq!(kicks(&mut hops, at(17)), 1);
    // A lost neighbour is resolved again soon.
    assert!(hops.change(resolved("10.0.0.9", None), at(18)));
    assert_eq!(kicks(&mut hops, at(19)), 1);
}

/// Linux removes a static entry that it is asked to resolve.
#[test]
fn a_static_entry_is_never_resolved() {
    let (fake, start) = (network(), Instant::now());
    let (address, mac) = (ip("10.0.0.9"), Some(MAC));
    let entry = |is_static| Neighbour { ifindex: 2, address, mac, is_static };
    fake.0.borrow_mut().neighbours.push(entry(true));
    let mut hops = aimed(&fake, &["10.0.0.9"], start);
    let kicks = |hops: &mut NextHops<Fake>, seconds| {
        hops.tick(start + Duration::from_secs(seconds)).unwrap();
        std::mem::take(&mut fake.0.borrow_mut().kicked).len()
    };
    assert_eq!(kicks(&mut hops, 0), 0);
    assert_eq!(kicks(&mut hops, 100), 0);
    assert_eq!(hops.hops()[&address].destination_mac, mac);
    hops.change(Change::Neighbour(entry(false)), start + Duration::from_secs(100));
    assert_eq!(kicks(&mut hops, 200), 1);
    hops.change(Change::Neighbour(entry(true)), start + Duration::from_secs(200));
    assert_eq!(kicks(&mut hops, 300), 0);
}

#[test]
fn only_a_changed_neighbour_of_a_backend_is_reported_as_change() {
    let (fake, now) = (network(), Instant::now());
    let mut hops = aimed(&fake, &["10.0.0.9"], now);
    assert!(!hops.change(resolved("10.0.0.77", Some(MAC)), now));
    assert!(hops.change(resolved("10.0.0.9", Some(MAC)), now));
    assert!(!hops.change(resolved("10.0.0.9", Some(MAC)), now));
}

#[test]
fn links_and_routes_are_read_again_after_changes_settle() {
    let (fake, now) = (network(), Instant::now());
    let mut hops = aimed(&fake, &["10.0.0.9"], now);
    hops.tick(now).unwrap();
    fake.0.borrow_mut().interfaces[0].up = false;
    fake.0.borrow_mut().neighbours.push(Neighbour {
        ifindex: 2,
        address: ip("10.0.0.9"),
        mac: Some(MAC),
        is_static: false,
    });
    assert!(!hops.change(Change::Link, now));
    assert!(!hops.tick(now).unwrap());
    let later = now + SETTLE;
    assert_eq!(hops.next_tick(), Some(later));
    assert!(hops.tick(later).unwrap());
    assert_eq!(hops.hops()[&ip("10.0.0.9")].destination_mac, None, "the link is down");
    fake.0.borrow_mut().interfaces[0].up = true;
    hops.change(Change::Link, later);
    hops.tick(later + SETTLE).unwrap();
    assert_eq!(hops.hops()[&ip("10.0.0.9")].destination_mac, Some(MAC));
    fake.0.borrow_mut().routes.clear();
    hops.change(Change::Route, later + SETTLE);
    hops.tick(later + 2 * SETTLE).unwrap();
    assert_eq!(hops.hops(), HashMap::new());
}

#[test]
fn a_local_backend_has_no_next_hop_to_resolve() {
    let (fake, now) = (network(), Instant::now());
    let local = Route { ifindex: 2, gateway: None, mtu: None, local: true };
    fake.0.borrow_mut().routes.insert(ip("10.0.0.2"), local);
    let mut hops = aimed(&fake, &["10.0.0.2"], now);
    hops.change(resolved("10.0.0.2", Some(MAC)), now);
    assert_eq!(hops.next_tick(), None);
    assert_eq!(hops.hops()[&ip("10.0.0.2")].destination_mac, None);
}

#[test]
fn frames_to_an_interface_its_bond_or_bridge_and_their_ports_are_for_this_machine() {
    let fake = Fake::default();
    let link = |index: u32, controller: Option<u32>| {
        let mac = [2, 0, 0, 0, 0, index as u8];
        let (lower, kind) = (None, Kind::Other);
        Interface {
            index,
            name: format!("eth{index}"),
            mac,
            mtu: 1500,
            up: true,
            controller,
            lower,
            kind,
        }
    };
    fake.0.borrow_mut().interfaces =
        vec![link(2, Some(9)), link(3, Some(9)), link(4, None), link(9, None)];
    let hops = NextHops::new(fake).unwrap();
    let of = |name: &str| {
        let stations = hops.stations(hops.interface(name).unwrap());
        stations.into_iter().map(|it| (it.ifindex, it.mac[5])).collect::<Vec<_>>()
    };
    assert_eq!(of("eth4"), [(4, 4)]);
    assert_eq!(of("eth2"), [(2, 2), (2, 9)], "a port: its own, and its bond's or bridge's");
    let all = [2, 3, 9].into_iter().flat_map(|at| [2, 3, 9].map(|mac| (at, mac)));
    assert_eq!(of("eth9"), all.collect::<Vec<_>>());
}
