//! Reloads of the file.

use std::net::TcpListener;

use equipoise_testkit::{Answer, Client, Gate, HttpBackend, Step, eventually, free_port};

use crate::common::{Load, get, reload, text};
use crate::{Instance, backends, config, head};

#[test]
fn a_reload_by_command_or_signal_takes_the_file_and_a_broken_one_changes_nothing() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("reload", &backends(&[("a", &a)]));
    assert_eq!(instance.who(), "a");
    instance.rewrite(&backends(&[("b", &b)]));
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked && said.contains("front doors: 1, VIPs: 0, pools: 1, backends: 1"), "{said}");
    assert_eq!(instance.who(), "b");

    instance.rewrite("backends = [\"nonsense\"]\nscheduler = \"rond-robin\"");
    let (worked, said) = instance.command(&["reload"]);
    assert!(!worked, "{said}");
    for part in ["the running configuration stays", "equipoise.toml:", "nonsense", "rond-robin"] {
        assert!(said.contains(part), "{part} is not in: {said}");
    }
    assert_eq!(instance.who(), "b");
    let (_, status) = instance.command(&["status"]);
    assert!(status.contains("the last reload failed"), "{status}");

    instance.folder.write("equipoise.toml", "# A template that failed.\n");
    let (worked, said) = instance.command(&["reload"]);
    assert!(
        !worked && said.contains("would remove everything that runs") && said.contains("SIGTERM"),
        "{said}"
    );
    assert_eq!(instance.who(), "b");

    instance.rewrite(&backends(&[("a", &a)]));
    instance.process.signal(libc::SIGHUP);
    assert!(eventually(|| instance.who() == "a"));
    let (_, status) = instance.command(&["status"]);
    assert!(!status.contains("the last reload failed"), "{status}");
}

#[test]
fn a_reload_changes_the_limit_and_serves_queued_requests() {
    let gate = Gate::new();
    let held = Answer::ok("held").first(Step::Wait(gate.clone()));
    let backend = HttpBackend::start(move |request| match request.head.target() {
        "/held" => held.clone(),
        _ => Answer::ok("short"),
    });
    let with = |concurrency: &str| {
        let queue = "queue = { wait = \"5m\" }";
        format!("{}\nconcurrency = {concurrency}\n{queue}", backends(&[("a", &backend)]))
    };
    let instance = Instance::start("concurrency", &with("1"));
    let pool = || {
        let (_, json) = instance.command(&["status", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        json["pools"][0].clone()
    };
    let asking = |path: &str| {
        let mut client = Client::connect(instance.door.address());
        client.send(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        client
    };
    let mut first = asking("/held");
    assert!(backend.wait(|requests| requests.len() == 1));
    for (concurrency, limit) in [("\"none\"", None), ("1", Some(1)), ("\"learnt\"", Some(4))] {
        if concurrency != "1" {
            let mut waiting = asking("/");
            assert!(eventually(|| pool()["queued"] == 1), "{}", pool());
            instance.rewrite(&with(concurrency));
            assert!(instance.command(&["reload"]).0);
            assert_eq!(waiting.response().map(|it| it.text()), Ok("short".to_owned()));
        } else {
            instance.rewrite(&with(concurrency));
            assert!(instance.command(&["reload"]).0);
        }
        assert_eq!(pool()["backends"][0]["limit"].as_u64(), limit);
    }
    gate.open();
    assert_eq!(first.response().map(|it| it.text()), Ok("held".to_owned()));
}

#[test]
fn a_front_door_listens_on_every_address_of_its_list() {
    let a = HttpBackend::named("a");
    let (instance, second) = (Instance::start("list", &backends(&[("a", &a)])), free_port());
    let head = head(&instance.folder, &instance.api);
    let one = config(&head, instance.door.address(), &backends(&[("a", &a)]));
    let first = format!("\"{}\"", instance.door.address());
    let list = format!("[{first}, \"{}\"]\nname = \"door\"", second.address());
    let mut before = Client::connect(instance.door.address());
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    assert_eq!(before.ask(REQUEST).map(|response| response.text()), Ok("a".to_owned()));
    instance.folder.write(
        "equipoise.toml",
        &one.replace(&format!("listen = {first}\nprotocol"), &format!("listen = {list}\nprotocol")),
    );
    let (worked, said) = instance.command(&["reload"]);
    assert!(worked && said.contains("front doors: 2"), "{said}");
    assert_eq!(get(second.address(), "/").text(), "a");
    assert_eq!(before.ask(REQUEST).map(|response| response.text()), Ok("a".to_owned()));
    let (_, status) = instance.command(&["status"]);
    for address in [instance.door.address(), second.address()] {
        assert!(status.contains(&format!("door:{address}")), "{status}");
    }
}

#[test]
fn a_star_listens_on_ipv4_and_ipv6() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("star", &backends(&[("a", &a)]));
    // Both families of a port are certainly free only if the kernel has just assigned it.
    let reloaded = eventually(|| {
        let held = free_port();
        let port = held.address().port();
        let more = format!(
            "{}\n[[session]]\nlisten = \"*:{port}\"\nprotocol = \"http\"\npool = \"web\"",
            backends(&[("a", &a)])
        );
        instance.rewrite(&more);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked || said.contains("in use"), "{said}");
        let everywhere = || {
            ["127.0.0.1", "[::1]"]
                .map(|host| get(format!("{host}:{port}").parse().expect("an address"), "/").text())
        };
        worked && everywhere() == ["a", "a"]
    });
    assert!(reloaded);
}

#[test]
fn a_reload_turns_a_front_door_from_http_to_tcp_and_back_under_open_connections() {
    const REQUEST: &str = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let a = HttpBackend::echo();
    let instance = Instance::start("protocol", &backends(&[("a", &a)]));
    let door = instance.door.address();
    let as_http = config(&head(&instance.folder, &instance.api), door, &backends(&[("a", &a)]));
    let as_tcp = as_http.replace("protocol = \"http\"", "protocol = \"tcp\"");
    // Only HTTP tells the backend the client's address.
    let is_http = |client: &mut Client| {
        let seen = client.ask(REQUEST).expect("an answer").text();
        seen.to_ascii_lowercase().contains("x-forwarded-for")
    };
    let mut first = Client::connect(door);
    assert!(is_http(&mut first));
    for round in 0..3 {
        instance.folder.write("equipoise.toml", &as_tcp);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked, "{round}: {said}");
        assert!(eventually(|| !is_http(&mut Client::connect(door))), "{round}: new ones are TCP");
        assert!(is_http(&mut first), "{round}: an open connection lives on as it is");
        let mut tunnel = Client::connect(door);
        assert!(!is_http(&mut tunnel));

        instance.folder.write("equipoise.toml", &as_http);
        let (worked, said) = instance.command(&["reload"]);
        assert!(worked, "{round}: {said}");
        assert!(eventually(|| is_http(&mut Client::connect(door))), "{round}: new ones are HTTP");
        assert!(is_http(&mut first), "{round}: an open connection lives on as it is");
        assert!(!is_http(&mut tunnel), "{round}: an open connection lives on as it is");
    }
}

#[test]
fn a_reload_with_a_taken_port_fails_and_keeps_front_doors() {
    let a = HttpBackend::named("a");
    let instance = Instance::start("door", &backends(&[("a", &a)]));
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = (taken.local_addr().unwrap(), taken);
    let more = format!(
        "{}\n[[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"",
        backends(&[("a", &a)]),
        taken.0
    );
    instance.rewrite(&more);
    let (worked, said) = instance.command(&["reload"]);
    assert!(!worked && said.contains(&taken.0.to_string()) && said.contains("`listen`"), "{said}");
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");
    assert_eq!(instance.who(), "a");
}

#[test]
fn a_text_through_the_api_takes_effect_completely_or_leaves_the_file_as_it_was() {
    let (a, b) = (HttpBackend::named("a"), HttpBackend::named("b"));
    let instance = Instance::start("replace", &backends(&[("a", &a)]));
    let new = instance.folder.path("new.toml");
    let text_of = |name: &str| std::fs::read_to_string(instance.folder.path(name)).unwrap();
    let writable = |pool: &str| {
        let head = head(&instance.folder, &instance.api);
        let head = head.replace("[api]\n", "[api]\nwrite-config = true\n");
        config(&head, instance.door.address(), pool)
    };
    let replace = |toml: &str| {
        std::fs::write(&new, toml).unwrap();
        instance.command(&["reload", "--with", text(&new)])
    };

    let before = text_of("equipoise.toml");
    let (worked, said) = replace(&writable(&backends(&[("b", &b)])));
    assert!(!worked && said.contains("set `write-config = true`"), "{said}");
    let (worked, said) = instance.command(&["reload", "--back"]);
    assert!(!worked && said.contains("set `write-config = true`"), "{said}");
    assert_eq!((text_of("equipoise.toml"), instance.who()), (before, "a".into()));

    let first = writable(&backends(&[("a", &a)]));
    instance.folder.write("equipoise.toml", &first);
    assert!(instance.command(&["reload"]).0);
    let (worked, said) = instance.command(&["reload", "--back"]);
    assert!(!worked && said.contains("equipoise.toml.previous to restore"), "{said}");

    let second = writable(&backends(&[("b", &b)]));
    let (worked, said) = replace(&second);
    assert!(worked && said.contains("pools: 1, backends: 1"), "{said}");
    assert_eq!((text_of("equipoise.toml"), instance.who()), (second.clone(), "b".into()));
    assert_eq!(text_of("equipoise.toml.previous"), first);

    assert!(replace(&second).0, "the same text again");
    assert_eq!(text_of("equipoise.toml.previous"), first);

    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let door = taken.local_addr().unwrap();
    let busy = format!(
        "{second}\n[[session]]\nlisten = \"{door}\"\nprotocol = \"http\"\npool = \"web\"\n"
    );
    for (toml, part) in [
        (second.replace("listen =", "lisen ="), "lisen"),
        (busy, "`listen`"),
        (second.replace("write-config = true", ""), "lacks `write-config = true`"),
        (String::new(), "lacks `write-config = true`"),
    ] {
        let (worked, said) = replace(&toml);
        assert!(!worked && said.contains(part), "{part}: {said}");
        assert_eq!((text_of("equipoise.toml"), instance.who()), (second.clone(), "b".into()));
        assert_eq!(text_of("equipoise.toml.previous"), first, "{part}");
    }

    for (now, who) in [(&first, "a"), (&second, "b")] {
        let (worked, said) = instance.command(&["reload", "--back"]);
        assert!(worked, "{who}: {said}");
        assert_eq!((&text_of("equipoise.toml"), instance.who()), (now, who.into()));
    }
}

#[test]
fn two_hundred_reloads_under_load_fail_no_request() {
    let (a, b, c) = (HttpBackend::named("a"), HttpBackend::named("b"), HttpBackend::named("c"));
    let files = [
        backends(&[("a", &a), ("b", &b)]),
        backends(&[("b", &b), ("c", &c)]) + "\nscheduler = \"round-robin\"",
        backends(&[("c", &c), ("a", &a)]) + "\nretry-after = \"7s\"",
    ];
    let instance = Instance::start("reloads", &files[0]);
    let load = Load::start(instance.door.address(), 4);
    load.wait_for(20);
    for number in 0..200 {
        instance.rewrite(&files[number % files.len()]);
        let (status, answer) = reload(&instance.socket);
        assert_eq!(status, 200, "{answer}");
    }
    load.wait_for(20);
    let (good, bad) = load.finish();
    assert!(bad.is_empty(), "{} of {} failed: {bad:?}", bad.len(), good + bad.len());
    let metrics = get(instance.api.address(), "/metrics").text();
    assert!(
        metrics.contains("equipoise_config_reloads_total{result=\"success\"} 201\n"),
        "{metrics}"
    );
}
