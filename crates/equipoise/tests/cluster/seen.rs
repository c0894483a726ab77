//! The view of a cluster: members that report, and the knowledge of a node when no controller
//! answers.

use equipoise_testkit::HttpBackend;
use serde_json::Value;

use crate::bed::{Machine, Site, command, soon};
use crate::common::{Process, equipoise, stderr, stdout, text};

/// A controller with its state in a file.
pub(crate) fn controller(site: &Site, backend: &HttpBackend) -> Machine {
    let mut one = site.machine("c1", backend.address(), |machine| {
        format!("name = \"test\"\nstore = {{}}\nlisten = \"{}\"", machine.cluster.address())
    });
    command(&["cluster", "init", "--config", text(&one.file)]);
    one.start();
    one.process().wait_for_text("cluster API");
    one
}

/// An agent that has joined, and its file.
fn agent(site: &Site, controller: &Machine, name: &str) -> (Process, String) {
    let token = command(&["cluster", "token", "create", "--config", text(&controller.file)]);
    let file = site.folder.write(
        &format!("{name}.toml"),
        &format!(
            "[instance]\nname = {name:?}\n[load]\n{}[cluster]\nstate = {:?}\ncontrollers = \"{}\"\njoin-token = {:?}\n",
            site.load,
            text(&site.folder.path(name)),
            controller.cluster.address(),
            token.trim(),
        ),
    );
    let process = Process::start(&["agent", text(&file)]);
    process.wait_for_text("certified for the cluster");
    (process, text(&file).to_string())
}

fn member(status: &Value, name: &str) -> Value {
    let members = status["view"]["members"].as_array().cloned().unwrap_or_default();
    members.into_iter().find(|member| member["name"] == name).unwrap_or_default()
}

/// The output of `status --cluster`, whether or not a controller answers.
fn page(file: &str) -> (bool, String) {
    let output = equipoise(&["status", "--cluster", "--config", file]);
    (output.status.success(), stdout(&output) + &stderr(&output))
}

fn line<'p>(page: &'p str, name: &str) -> &'p str {
    page.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {page}"))
}

#[test]
fn members_are_alive_late_or_evicted_and_agents_show_their_load_as_nodes_do() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-seen") else { return };
    site.load = "period = \"200ms\"\n".to_string();
    let one = controller(&site, &backend);
    let mut node = site.node("n1", backend.address(), std::slice::from_ref(&one));
    node.start();
    let (first, _) = agent(&site, &one, "a1");
    let (_second, _) = agent(&site, &one, "a2");
    let has_load = |it: &Value| it["planned"]["l1"].is_number() && it["planned"]["l2"].is_number();
    one.until("all are alive, with their loads", |status| {
        ["a1", "a2", "n1"].iter().all(|name| {
            let it = member(status, name);
            it["state"] == "alive" && has_load(&it)
        })
    });
    // A member that is late once, as on a busy machine, is alive again with its next report.
    soon("the page has it", || {
        let (worked, shown) = page(text(&one.file));
        worked && line(&shown, "a1").contains(" alive ")
    });

    drop(first);
    one.until("it is late", |status| member(status, "a1")["state"] == "late");
    command(&["cluster", "evict", "a2", "--config", text(&one.file)]);
    one.until("it is evicted", |status| member(status, "a2")["state"] == "evicted");
    let mut shown = String::new();
    soon("both are named", || {
        shown = page(text(&one.file)).1;
        shown.contains("\nlate: a1\n") && shown.contains("\nevicted: a2\n")
    });
    let evicted = line(&shown, "a2");
    assert!(evicted.contains(" evicted ") && !evicted.contains('%'), "no load: {shown}");

    // It joins again, with its earlier state.
    let file = site.folder.path("a2.toml");
    let written = std::fs::read_to_string(&file).unwrap();
    let token =
        command(&["cluster", "token", "create", "--node", "a2", "--config", text(&one.file)]);
    let before = written.lines().find(|line| line.starts_with("join-token")).unwrap();
    std::fs::write(&file, written.replace(before, &format!("join-token = {:?}", token.trim())))
        .unwrap();
    std::fs::remove_dir_all(site.folder.path("a2")).unwrap();
    let _again = Process::start(&["agent", text(&file)]);
    one.until("it is alive again", |status| member(status, "a2")["state"] == "alive");
}

/// A request that only a controller can serve: `node` refuses it and names the controller at
/// `address`.
fn says_whom_to_ask(node: &Machine, address: &str) {
    let asked = |args: &[&str]| {
        let socket = node.file.with_extension("sock");
        let output = equipoise(&[args, &["--api", text(&socket)]].concat());
        assert!(!output.status.success(), "{args:?} worked");
        stderr(&output)
    };
    // Also while the controller runs: the error says where to run the command.
    let rows = [
        (&["plan"][..], "plan"),
        // The command reads the plan first.
        (&["plan", "pin", "web", "2"], "plan"),
        (&["drain", "n1"], "drain n1"),
    ];
    for (command, there) in rows {
        let said = asked(command);
        let there = format!("run it on a controller: equipoise {there} --api SOCKET");
        assert!(said.contains(&there) && said.contains(address), "{said}");
    }
}

/// Checks the parts of a member's status while no controller answers.
fn says_what_it_knows(now: &Value, kind: &str, address: &str) {
    let cluster = &now["node"]["cluster"];
    let contact = &cluster["controllers"][0];
    assert_eq!((&contact["address"], &cluster["kind"]), (&address.into(), &kind.into()));
    assert!(
        contact["tried_seconds"].is_number() && contact["reports_taken_total"].as_u64() > Some(0)
    );
    assert!(cluster["load"]["l1"].is_number(), "{now:#}");
    assert!(now["unanswered"][0].as_str().is_some_and(|it| it.contains("refused")), "{now:#}");
}

#[test]
fn a_node_and_an_agent_report_their_own_state_without_controllers() {
    let backend = HttpBackend::named("a");
    let Some(mut site) = Site::new("cluster-unheard") else { return };
    site.load = "period = \"200ms\"\n".to_string();
    let mut one = controller(&site, &backend);
    let mut node = site.node("n1", backend.address(), std::slice::from_ref(&one));
    node.start();
    let (_process, agent) = agent(&site, &one, "a1");
    let applied = |it: &Value| it["applied"].is_object();
    one.until("both go by a plan", |status| {
        applied(&member(status, "n1")) && applied(&member(status, "a1"))
    });
    let address = one.cluster.address().to_string();
    says_whom_to_ask(&node, &address);

    one.kill();
    let status = |file: &str| {
        let output = equipoise(&["status", "--cluster", "--json", "--config", file]);
        assert!(!output.status.success(), "members were not to be had");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    for (name, kind, file) in [("n1", "node", text(&node.file)), ("a1", "agent", &agent)] {
        let mut now = Value::Null;
        soon("it has noticed", || {
            now = status(file);
            let cluster = &now["node"]["cluster"];
            let age = |what: &str| cluster[what].as_f64() > Some(0.5);
            cluster["following"].is_null()
                && age("age_seconds")
                && age("heard_seconds")
                && cluster["controllers"][0]["problem"].is_string()
                // A machine without time for it has not measured its load yet, and has not noticed
                // the refused connection.
                && cluster["load"]["l1"].is_number()
                && now["unanswered"][0].as_str().is_some_and(|it| it.contains("refused"))
        });
        says_what_it_knows(&now, kind, &address);

        let (own, mut shown) = (format!("the {kind} {name} by its own knowledge"), String::new());
        soon("it answers in time", || {
            let worked;
            (worked, shown) = page(file);
            assert!(!worked, "members were not to be had: {shown}");
            shown.contains(&own) && shown.contains("Connection refused")
        });
        assert!(shown.starts_with(&format!("no controller answers:\n  {address}: ")), "{shown}");
        assert!(shown.contains("  follows instructions "), "{shown}");
        assert!(line(&shown, &address).contains("Connection refused"), "{shown}");
        assert!(line(&shown, name).contains(" %"), "its own load: {shown}");
    }

    // The answer of an agent itself.
    let socket = site.folder.path("a1").join("agent.sock");
    let shown = command(&["status", "--api", text(&socket)]);
    assert!(
        shown.contains("· agent ·") && shown.contains("no controller can be reached"),
        "{shown}"
    );
    let said = stderr(&equipoise(&["plan", "--api", text(&socket)]));
    assert!(said.contains("a1 is an agent and does not plan; run it on a controller"), "{said}");

    // The output if the node's process does not run either.
    node.kill();
    let (_, shown) = page(text(&node.file));
    assert!(shown.contains("the process of this machine does not answer either"), "{shown}");
}
