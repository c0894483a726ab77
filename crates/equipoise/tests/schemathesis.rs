//! schemathesis against the API of a real process: it makes valid and invalid requests from the
//! API's description, with and without tokens. Every answer must match the description.
//!
//! As root it runs in a network namespace with the packet level; otherwise on loopback without it.
//! Needs Python: `make schemathesis` sets up its environment under target/; this test does so if it
//! is missing.

mod common;

use std::process::Command;

use common::{EQUIPOISE, Folder, Process, equipoise, stderr, stdout, text};
use equipoise_netns::{Site, SiteShape, unavailable};
use equipoise_testkit::{free_port, python_programs, workspace};
use serde_json::Value;

/// Generated requests for each operation, in addition to those for every limit of the description.
/// 20 take 3 s.
const EXAMPLES: &str = "20";
const SEED: &str = "20260101";

/// The network in which the process runs.
enum Place {
    Namespace(Box<Site>),
    Here,
}

impl Place {
    fn find() -> Place {
        if let Some(why) = unavailable() {
            println!("without the packet level: {why}");
            return Place::Here;
        }
        let site = Site::new(SiteShape { backends: 2, two_arms: false });
        Place::Namespace(Box::new(site.expect("namespaces are available")))
    }

    fn command(&self, program: &str) -> Command {
        match self {
            Place::Namespace(site) => site.balancer.command(program),
            Place::Here => Command::new(program),
        }
    }

    /// A VIP with the address of the description's example.
    fn vip(&self) -> &'static str {
        match self {
            Place::Namespace(_) => {
                "[[packet]]\nvip = \"192.0.2.10:443/tcp\"\ninterface = \"eth0\"\nforward = \"gue\"\npool = \"web\"\n"
            }
            Place::Here => "",
        }
    }
}

#[test]
fn every_api_answer_matches_the_openapi_description() {
    let Some(programs) = python_programs("schemathesis") else { return };
    let schemathesis = programs.join("schemathesis");
    let (place, folder) = (Place::find(), Folder::new("schemathesis"));
    let (api, door, cluster) = (free_port(), free_port(), free_port());
    let token = folder.path("token");
    let made = equipoise(&["api-token", text(&token)]);
    assert!(made.status.success(), "{}", stderr(&made));
    let file = folder.write(
        "equipoise.toml",
        &format!(
            "[api]\nsocket = {:?}\nlisten = \"{}\"\naudit-log = {:?}\nauth-failures = 1000000\n\
             [[api.token]]\nname = \"schemathesis\"\nrole = \"admin\"\nfile = {token:?}\n\
             [cluster]\nname = \"test\"\nstore = {{}}\nlisten = \"{}\"\nstate = {state:?}\n\
             [controller]\nstate = {state:?}\n[instance]\nname = \"n1\"\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n\
             [[pool]]\nname = \"web\"\nbackends = [{{ name = \"b1\", address = \"10.1.1.11:443\" }}, \
             {{ name = \"b2\", address = \"10.1.1.12:443\" }}]\n\
             [[slice]]\nname = \"images\"\nslices = 8\ndomain = 93\ninterfaces = \"lo\"\n{}",
            folder.path("api.sock"),
            api.address(),
            folder.path("audit"),
            cluster.address(),
            door.address(),
            place.vip(),
            state = folder.path("state"),
        ),
    );
    let made = equipoise(&["cluster", "init", "--config", text(&file)]);
    assert!(made.status.success(), "{}", stderr(&made));
    let mut run = place.command(EQUIPOISE);
    run.args(["run", text(&file)]);
    let process = Process::of(run);
    process.wait_for_text(" ready ");

    let secret = std::fs::read_to_string(&token).expect("it was made");
    let mut command = place.command(text(&schemathesis));
    let settings = workspace().join("crates/equipoise/tests/schemathesis/schemathesis.toml");
    command
        .args(["--config-file", text(&settings)])
        .arg("run")
        .arg(format!("http://{}/v1/openapi.json", api.address()))
        .args(["--header", &format!("Authorization: Bearer {}", secret.trim())])
        // It replaces the process with one that this test does not own: tests/upgrade has it.
        .args(["--exclude-path", "/v1/upgrade"])
        // Its answers last as long as the captures: tests/packet has it.
        .args(["--exclude-path", "/v1/capture"])
        .args(["--seed", SEED, "--max-examples", EXAMPLES, "--continue-on-failure"])
        .env("NO_COLOR", "1")
        // It stores notes in its current folder.
        .current_dir(folder.path("."));
    let output = command.output().expect("schemathesis runs");
    let report = stdout(&output) + &stderr(&output);
    println!("{report}");
    assert!(output.status.success(), "schemathesis found something; seed {SEED}");

    let status = equipoise(&["status", "--json", "--api", text(&folder.path("api.sock"))]);
    let error = || format!("{}\n{}", stderr(&status), process.printed());
    assert!(status.status.success(), "it does not answer any more: {}", error());
    let status: Value = serde_json::from_str(&stdout(&status)).expect("it still answers");
    assert_eq!(status["packet"].is_object(), matches!(place, Place::Namespace(_)), "{status}");
    assert!(!process.printed().contains("panicked"), "{}", process.printed());
    let audited = std::fs::read_to_string(folder.path("audit")).expect("changes were noted");
    for outcome in ["done", "denied", "refused"] {
        assert!(audited.contains(&format!("\"outcome\":\"{outcome}\"")), "{outcome}");
    }
    assert!(!audited.contains(secret.trim()) && !process.printed().contains(secret.trim()));
}
