//! Explanations of many routes, of mirrors and of limits.

use super::{Rig, backends, pool};

#[test]
fn of_many_routes_the_first_and_their_number_are_named() {
    let main = backends("main", 1);
    let route = |number| format!("[[session.route]]\npath = \"/{number}\"\npool = \"main\"\n");
    let routes: String = (1..=1000).map(route).collect();
    let rig = Rig::new("why-many", &pool("main", &main, ""), &format!("pool = \"main\"\n{routes}"));
    let none = rig.why("/", &[]);
    assert!(none.lines().count() < 10, "{none}");
    assert!(none.contains("session: route 1: no: the path does not match\n"), "{none}");
    let more = "session: 999 more routes do not match (--all explains each)\n";
    assert!(none.contains(more), "{none}");
    let some = rig.why("/500", &[]);
    assert!(some.contains("session: 498 more routes do not match"), "{some}");
    assert!(some.contains("session: route 500: yes: pool main\n"), "{some}");
    let all = rig.why("/500", &["--all"]);
    assert!(all.contains("session: route 499: no: the path does not match\n"), "{all}");
    assert!(!all.contains("more routes"), "{all}");
    let few = rig.why("/11", &[]);
    assert!(few.contains("session: route 10: no: the path does not match\n"), "{few}");
}

#[test]
fn a_mirror_is_named() {
    let [main, copies] = ["main", "copies"].map(|name| backends(name, 1));
    let pools = [pool("main", &main, ""), pool("copies", &copies, "")].concat();
    let rig = Rig::new(
        "why-mirror",
        &pools,
        r#"pool = "main"
        [[session.route]]
        path = "/some"
        mirror = { pool = "copies", share = 0.1 }
        [[session.route]]
        path = "/all"
        mirror = { pool = "copies", body-max = "10B" }
        "#,
    );
    let some = rig.why("/some", &[]);
    assert!(some.contains("session: mirror: a copy of 10 % to pool copies\n"), "{some}");
    let all = rig.why("/all", &[]);
    assert!(all.contains("session: mirror: a copy to pool copies\n"), "{all}");
    let large = rig.why("/all", &["--method", "POST", "--header", "Content-Length: 11"]);
    assert!(large.contains("session: mirror: no copy to pool copies: "), "{large}");
    assert!(!rig.why("/", &[]).contains("mirror"));
}

#[test]
fn the_limits_of_the_route_are_asked_first_as_for_a_request() {
    let main = backends("main", 1);
    let rig = Rig::new(
        "why-limits",
        &pool("main", &main, ""),
        r#"pool = "main"
        limit = [{ by = "front-door", rate = "1/h", burst = 1 }]
        [[session.route]]
        path = "/route"
        limit = [{ by = "route", rate = "1/h", burst = 1 }]
        "#,
    );
    let free = rig.why("/route", &[]);
    let at = |text: &str, part: &str| text.find(part).unwrap_or_else(|| panic!("{part}\n{text}"));
    let (of_route, of_door) = ("route's limit of all clients", "session: limit of all clients");
    assert!(at(&free, of_route) < at(&free, of_door), "{free}");
    assert!(at(&free, "route 1: yes") < at(&free, of_route), "{free}");
    let mut client = equipoise_testkit::Client::connect(rig.front.address());
    let request = "GET /route HTTP/1.1\r\nHost: a\r\n\r\n";
    assert_eq!(client.ask(request).expect("an answer").status(), 200);
    // Both are exceeded, and the route's limit refuses it.
    let refused = rig.why("/route", &[]);
    assert!(refused.contains(of_route) && !refused.contains(of_door), "{refused}");
    let by_door = rig.why("/", &[]);
    assert!(by_door.contains(of_door) && by_door.contains("refused with 429"), "{by_door}");
}

#[test]
fn a_front_door_that_does_not_exist_is_named() {
    let main = backends("main", 1);
    let rig = Rig::new("why-nope", &pool("main", &main, ""), "pool = \"main\"\n");
    let nope = rig.not_taken(&[&rig.url("/"), "--front-door", "nope"]);
    let expected = "no front door has the name \"nope\"; there are \"door\" at 127.0.0.1:";
    assert!(nope.contains(expected), "{nope}");
}
