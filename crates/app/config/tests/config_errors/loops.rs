//! Backends that are front doors.

use crate::bed::said;

/// A front door `a` at the first address with a pool of the others.
fn door(name: &str, listen: &str, protocol: &str, backend: &str) -> String {
    format!(
        "[[session]]\nname = '{name}'\nlisten = '{listen}'\nprotocol = '{protocol}'\npool = '{name}'\n\
         [[pool]]\nname = '{name}'\nbackends = ['{backend}']\n"
    )
}

#[test]
fn a_backend_that_is_its_own_front_door_is_a_warning() {
    let itself = "f:5:8: warning: session.a.pool: backend `BACKEND` of pool `a` is this front door itself, so that a \
                  request never ends; name the address of the application";
    for (listen, protocol, backend, is_loop) in [
        ("10.0.0.1:80", "http", "10.0.0.1:80", true),
        ("10.0.0.1:80", "udp", "10.0.0.1:80", true),
        ("0.0.0.0:80", "http", "127.0.0.1:80", true),
        ("[::]:80", "tcp", "[::1]:80", true),
        ("*:80", "http", "[::1]:80", true),
        ("0.0.0.0:80", "http", "localhost:80", true),
        ("10.0.0.1:80", "http", "10.0.0.1:81", false),
        ("0.0.0.0:80", "http", "10.0.0.1:80", false),
        ("0.0.0.0:80", "http", "[::1]:80", false),
        ("127.0.0.1:80", "http", "127.0.0.2:80", false),
    ] {
        let expected = if is_loop { itself.replace("BACKEND", backend) } else { String::new() };
        assert_eq!(said(&door("a", listen, protocol, backend)), expected, "{listen} {backend}");
    }
}

#[test]
fn front_doors_that_lead_to_each_other_are_warnings() {
    let two = |protocol: &str, last: &str| {
        [door("a", "10.0.0.1:80", "http", "127.0.0.1:81"), door("b", "0.0.0.0:81", protocol, last)]
            .concat()
    };
    let lead_back = said(&two("tcp", "10.0.0.1:80"));
    assert!(
        lead_back.contains(
            "session.a.pool: backend `127.0.0.1:81` of pool `a` is front door \"b\", whose"
        ),
        "{lead_back}"
    );
    assert!(lead_back.contains("session.b.pool: backend `10.0.0.1:80` of pool `b`"), "{lead_back}");
    assert_eq!(said(&two("http", "10.0.0.3:80")), "", "one after the other is no loop");
    // Any address that a front door listens on is of this machine.
    let by_own = said(&two("http", "10.0.0.1:81"));
    assert!(
        by_own.contains("session.b.pool: backend `10.0.0.1:81` of pool `b` is this"),
        "{by_own}"
    );
    assert!(!by_own.contains("session.a"), "{by_own}");
}
