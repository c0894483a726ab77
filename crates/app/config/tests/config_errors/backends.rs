//! Addresses of backends.

use equipoise_session::config::Place;

use crate::bed::{assert_said, read, with_backends};

#[test]
fn backends_are_addresses_or_names_which_no_load_resolves() {
    assert_said(
        &[
            ("'one.internal:80'", ""),
            (
                "'10.0.0.1'",
                "f:7:13: pool.p.backends[10.0.0.1].address: '10.0.0.1' is not a backend's address; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
            ),
            (
                "{ address = '10.0.0.300:80' }",
                "f:7:25: pool.p.backends[10.0.0.300:80].address: '10.0.0.300:80' is not a backend's address; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"",
            ),
            (
                "80",
                "f:7:13: pool.p.backends[#1]: 80 is a whole number; accepted: a string (its `address`) or a table",
            ),
            (
                "{ weight = 2 }",
                "f:7:13: pool.p.backends[#1].address: missing; accepted: IP:PORT, HOST:PORT or unix:PATH, such as \"10.0.0.11:8080\", \"[2001:db8::1]:8080\", \"web.internal:8080\" or \"unix:/run/app.sock\"\n\
                 f:7:24: warning: pool.p.backends[#1].weight: has no effect: least-connection ignores weights; use weighted-least-connection",
            ),
            (
                "{ address = '10.0.0.1:80', weight = 1001 }",
                "f:7:49: pool.p.backends[10.0.0.1:80].weight: 1001 is too large; accepted: a whole number, 0 to 1000",
            ),
            ("'one.internal:80', '10.1.0.1:80'", ""),
            (
                "'One.internal:80', { address = 'one.internal:80', name = 'b' }",
                "f:7:44: pool.p.backends.b.address: backend `One.internal:80` has this address (one.internal:80); accepted: each address once",
            ),
            (
                "{ address = '10.0.0.1:80', name = 'b' }, { address = '10.0.0.2:80', name = 'b' }",
                "f:7:88: pool.p.backends.b.name: \"b\" is in use, on line 7; accepted: one that is unique",
            ),
        ],
        with_backends,
    );
    let config = read(&with_backends("'one.internal:80'")).unwrap().config;
    let backend = &config.session.pools[0].backends[0];
    assert_eq!(&*backend.name, "one.internal:80");
    let Place::Host { name, resolved } = &backend.place else { panic!("{:?}", backend.place) };
    assert_eq!((&**name, resolved.addresses().len()), ("one.internal:80", 0));
    let again = read(&with_backends("'one.internal:80'")).unwrap().config;
    assert_eq!(backend.address, again.session.pools[0].backends[0].address, "its identity");
    assert_eq!(backend.address.port(), 80);
}
