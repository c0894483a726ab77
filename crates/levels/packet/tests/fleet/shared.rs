//! Single properties of the exchange, between balancers without time on the way.

use std::net::SocketAddr;
use std::time::Duration;

use equipoise_packet::FlowScheduler::{self, LeastConnection, Maglev, RoundRobin};
use equipoise_packet::abi::Forward;
use equipoise_packet::control::{Ack, FlowId, Position, Timeouts};
use equipoise_packet::packet::Parsed;
use equipoise_packet::twin::{Route, Surroundings, Twin, Verdict};
use equipoise_packet::{BackendId, Capacity, Protocol, Settings, VipId, VipSpec};

use crate::world::{
    ACK, Backend, FIN, PORT, SYN, World, address_of, capacity, client_of, settings, tcp, vip,
};

/// Time in which received flows are published.
const PUBLISH: Duration = Duration::from_millis(300);

struct Fleet {
    worlds: Vec<World>,
    /// By sender and receiver.
    positions: Vec<Vec<Position>>,
    acks: Ack,
}

impl Fleet {
    fn new(
        balancers: usize,
        scheduler: FlowScheduler,
        pool: &[Backend],
        capacity: impl Fn(usize) -> Capacity,
        settings: &Settings,
    ) -> Fleet {
        Fleet::of(balancers, &vip(1, scheduler, pool), capacity, settings)
    }

    fn of(
        balancers: usize,
        vip: &VipSpec,
        capacity: impl Fn(usize) -> Capacity,
        settings: &Settings,
    ) -> Fleet {
        let worlds = (0..balancers).map(|number| {
            let mut world = World::new(1, capacity(number), settings.clone());
            let now = world.now;
            world.control().share(now);
            world.apply(vec![vip.clone()]);
            world.settle();
            world
        });
        let positions = vec![vec![Position::default(); balancers]; balancers];
        Fleet { worlds: worlds.collect(), positions, acks: Ack::default() }
    }

    fn pair(scheduler: FlowScheduler) -> Fleet {
        Fleet::new(2, scheduler, &[0, 1, 2], |_| capacity(), &settings())
    }

    /// Sends everything that one balancer has for another.
    fn send(&mut self, from: usize, to: usize) {
        loop {
            let now = self.worlds[from].now;
            let position = self.positions[from][to].clone();
            let collected = self.worlds[from].control().collect(&position, now);
            let now = self.worlds[to].now;
            let ack = self.worlds[to].control().take_in(&collected.message, now, 0);
            self.acks.full += ack.full;
            self.acks.unplaced += ack.unplaced;
            let mut position = collected.position;
            position.asked = ack.asks;
            let is_done = !collected.more && position.swept >= position.asked;
            self.positions[from][to] = position;
            if is_done {
                return;
            }
        }
    }

    /// Lets time go on, and all balancers exchange flows each 100 ms.
    fn run(&mut self, time: Duration) {
        let step = Duration::from_millis(100);
        for _ in 0..time.as_millis() / step.as_millis() {
            self.worlds.iter_mut().for_each(|world| world.run(step));
            for from in 0..self.worlds.len() {
                for to in (0..self.worlds.len()).filter(|&to| to != from) {
                    self.send(from, to);
                }
            }
        }
    }
}

#[test]
fn flows_of_a_scheduler_without_a_hash_are_kept_by_every_balancer() {
    for scheduler in [RoundRobin, LeastConnection] {
        let mut fleet = Fleet::pair(scheduler);
        let homes = fleet.worlds[0].open_all(1, 0..300);
        fleet.run(PUBLISH);
        fleet.worlds[1].assert_at(1, 0, &homes);
        let loads = |world: &mut World| {
            let mut loads: Vec<_> = world.vip_status(1).backends;
            loads.sort_by_key(|it| it.backend);
            loads.iter().map(|it| (it.active, it.inactive)).collect::<Vec<_>>()
        };
        assert_eq!(loads(&mut fleet.worlds[1]), [(100, 0); 3], "all balancers count all flows");
        for client in 0..300 {
            fleet.worlds[0].send(tcp(1, client, FIN));
        }
        fleet.run(PUBLISH);
        assert_eq!(loads(&mut fleet.worlds[1]), [(0, 100); 3]);
    }
}

#[test]
fn a_flow_lives_everywhere_while_one_balancer_carries_it() {
    let timeouts = Timeouts { open: Duration::from_secs(30), ..Timeouts::default() };
    let interval = Duration::from_secs(1);
    let settings = Settings { timeouts, interval, ..settings() };
    let mut fleet = Fleet::new(3, RoundRobin, &[0, 1, 2], |_| capacity(), &settings);
    let homes = fleet.worlds[0].open_all(1, 0..50);
    for _ in 0..20 {
        fleet.run(Duration::from_secs(10));
        fleet.worlds[0].assert_at(1, 0, &homes);
    }
    assert_eq!([1, 2].map(|at| fleet.worlds[at].flows()), [50; 2]);
    // The first dies, and the second carries them.
    fleet.worlds[1].assert_at(1, 0, &homes);
    fleet.worlds.remove(0);
    fleet.positions = vec![vec![Position::default(); 2]; 2];
    for _ in 0..20 {
        fleet.run(Duration::from_secs(10));
        fleet.worlds[0].assert_at(1, 0, &homes);
    }
    fleet.worlds[1].assert_at(1, 0, &homes);
    // Without packets they end, although balancers repeat them to each other.
    fleet.run(Duration::from_secs(60));
    assert_eq!([0, 1].map(|at| fleet.worlds[at].flows()), [0; 2]);
}

/// Whether a balancer translates a backend's reply to a client.
fn translates(world: &World, backend: Backend, client: u32) -> bool {
    let (address, port) = client_of(client);
    let from = SocketAddr::new(address_of(backend), PORT);
    let to = SocketAddr::new(address.into(), port);
    let reply = Parsed::of_flow(from, to, Protocol::Tcp.number(), None);
    let around = Surroundings { route: Route::Out(9), ..Surroundings::default() };
    let twin = Twin::new(world.memories[0].clone(), world.limits);
    twin.decide(&reply, &around).verdict == Verdict::Redirect(9)
}

#[test]
fn replies_under_nat_are_translated_before_the_next_packet_of_a_client_that_changes_balancer() {
    let nat = VipSpec { forward: Forward::Nat, ..vip(1, Maglev, &[0, 1, 2]) };
    let mut fleet = Fleet::of(2, &nat, |_| capacity(), &settings());
    let homes = fleet.worlds[0].open_all(1, 0..20);
    fleet.run(3 * settings().interval);
    for world in &fleet.worlds {
        for (client, home) in (0..).zip(&homes) {
            assert!(translates(world, *home, client), "client {client}");
            assert!(!translates(world, (home + 1) % 3, client), "not its backend");
        }
        assert!(!translates(world, 0, 77), "a client of the backend's own address");
    }
    // The end of a flow is known, too; its last replies are translated for a while.
    fleet.worlds[0].send(tcp(1, 0, FIN));
    fleet.run(3 * settings().interval);
    assert!(translates(&fleet.worlds[1], homes[0], 0));
}

#[test]
fn a_balancer_that_joins_keeps_flows_of_backends_that_have_left() {
    let mut fleet = Fleet::pair(Maglev);
    let homes = fleet.worlds[0].open_all(1, 0..300);
    fleet.run(PUBLISH);
    for world in &mut fleet.worlds {
        world.apply(vec![vip(1, Maglev, &[0, 1])]);
    }
    fleet.run(Duration::from_secs(3));
    let mut joined = Fleet::new(1, Maglev, &[0, 1], |_| capacity(), &settings());
    fleet.worlds[1] = joined.worlds.remove(0);
    fleet.positions = vec![vec![Position::default(); 2]; 2];
    fleet.run(PUBLISH);
    fleet.worlds[1].assert_at(1, 0, &homes);
    assert!(homes.contains(&2));
    let new = fleet.worlds[1].open_all(1, 1000..1300);
    assert!(!new.contains(&2), "the backend that has left gets no new flows");
}

#[test]
fn flows_of_a_backend_that_comes_later_are_requested_again() {
    let mut fleet = Fleet::pair(RoundRobin);
    let unhealthy = |world: &mut World| {
        world.change(1, |pool| pool[2].health = equipoise_core::Health::Unhealthy);
    };
    unhealthy(&mut fleet.worlds[1]);
    fleet.run(Duration::from_secs(3));
    let homes = fleet.worlds[0].open_all(1, 0..30);
    fleet.run(PUBLISH);
    assert!(fleet.acks.unplaced >= 10, "{:?}", fleet.acks);
    fleet.worlds[1].change(1, |pool| pool[2].health = equipoise_core::Health::Healthy);
    fleet.run(PUBLISH);
    fleet.worlds[1].assert_at(1, 0, &homes);
}

#[test]
fn a_full_registry_is_counted_and_takes_the_rest_later() {
    let small = |number| match number {
        0 => capacity(),
        _ => Capacity { flows: 1024, pins: 1024, ..capacity() },
    };
    let mut fleet = Fleet::new(2, RoundRobin, &[0, 1, 2], small, &settings());
    let homes = fleet.worlds[0].open_all(1, 0..2000);
    fleet.run(PUBLISH);
    assert_eq!(fleet.worlds[1].flows(), 1024);
    // A few without evidence gave way to others.
    assert!((950..=976).contains(&fleet.acks.full), "{:?}", fleet.acks);
    let counted = fleet.worlds[1].control().fleet_totals().full;
    assert_eq!(counted, u64::from(fleet.acks.full));
    // Most of those that were taken end.
    for client in 0..2000 {
        fleet.worlds[0].send(tcp(1, client, if client < 1500 { FIN } else { ACK }));
    }
    fleet.run(Duration::from_secs(240));
    fleet.worlds[0].assert_at(1, 1500, &homes[1500..]);
    fleet.run(Duration::from_secs(90));
    fleet.worlds[1].assert_at(1, 1500, &homes[1500..]);
}

#[test]
fn the_last_change_of_a_registered_pin_wins_everywhere() {
    let mut fleet = Fleet::new(3, Maglev, &[0, 1, 2], |_| capacity(), &settings());
    let id: VipId = fleet.worlds[0].snapshot.vips[0].id();
    let (address, port) = client_of(7);
    let destination = (id.address, 443).into();
    let flow = FlowId::FiveTuple((address, port).into(), destination);
    let to = |number| BackendId { address: address_of(number), port: None };
    let pins = |fleet: &mut Fleet| {
        let pins = fleet.worlds.iter_mut().map(|world| world.control().pins());
        pins.map(|it| it.first().map(|pin| (pin.backend, pin.in_force))).collect::<Vec<_>>()
    };
    fleet.worlds[0].control().pin(&id, &flow, &to(1)).unwrap();
    fleet.run(PUBLISH);
    assert_eq!(pins(&mut fleet), [Some((to(1), true)); 3]);
    fleet.worlds[1].control().move_pin(&id, &flow, &to(2)).unwrap();
    fleet.run(PUBLISH);
    assert_eq!(pins(&mut fleet), [Some((to(2), true)); 3]);
    assert_eq!(
        fleet.worlds.iter_mut().map(|it| it.send(tcp(1, 7, ACK))).collect::<Vec<_>>(),
        [Some(2); 3]
    );
    // The third is away while the pin is removed, and does not bring it back.
    let away = fleet.worlds.pop().unwrap();
    fleet.worlds[0].control().unpin(&id, &flow).unwrap();
    fleet.run(PUBLISH);
    assert_eq!(pins(&mut fleet), [None; 2]);
    fleet.worlds.push(away);
    fleet.run(PUBLISH);
    assert_eq!(pins(&mut fleet), [None; 3]);
    // The flow stays where it was.
    assert_eq!(fleet.worlds[2].send(tcp(1, 7, ACK)), Some(2));
}

#[test]
fn a_peer_that_falls_behind_gets_all_flows_again() {
    let many = |_| Capacity { flows: 400_000, pins: 10_000, log_events: 1 << 19, ..capacity() };
    let mut fleet = Fleet::new(2, Maglev, &[0, 1, 2], many, &settings());
    fleet.run(PUBLISH);
    for round in 0..60 {
        for client in round * 5_000..(round + 1) * 5_000 {
            fleet.worlds[0].send(tcp(1, client, SYN));
            fleet.worlds[0].send(tcp(1, client, ACK));
        }
        fleet.worlds[0].run(Duration::from_millis(100));
    }
    fleet.send(0, 1);
    assert_eq!(fleet.worlds[0].control().fleet_totals().overtaken, 1);
    assert_eq!(fleet.worlds[1].flows(), fleet.worlds[0].flows());
}
