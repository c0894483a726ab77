//! Clients generated from the API's description: a validator accepts the description, a generator
//! creates a client, and the client queries a real process. Needs Python: `make openapi-clients`
//! sets up its environment under target/; this test does so if it is missing.

mod common;

use std::path::Path;
use std::process::{Command, Output};

use common::{Folder, Process, equipoise, stderr, stdout, text};
use equipoise_testkit::{Client, free_port, python_programs, workspace};

/// Runs one of the programs, which finds the others in the same folder.
fn run(programs: &Path, program: &str, args: &[&str], folder: &Folder) -> Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(programs.join(program));
    // The generated package is in the current folder.
    command.args(args).current_dir(folder.path(".")).env("PYTHONPATH", ".");
    command.env("PATH", format!("{}:{path}", programs.display())).env("NO_COLOR", "1");
    // The process is on this machine, whatever proxy the environment names.
    command.env("NO_PROXY", "*").env("no_proxy", "*");
    command.output().expect("it runs")
}

fn assert_worked(what: &str, output: &Output) {
    assert!(output.status.success(), "{what}: {}{}", stdout(output), stderr(output));
}

#[test]
fn a_client_that_is_generated_from_the_description_asks_a_process() {
    let Some(programs) = python_programs("openapi-clients") else { return };
    let (folder, api) = (Folder::new("openapi-clients"), free_port());
    let token = folder.path("token");
    assert_worked("api-token", &equipoise(&["api-token", text(&token)]));
    let file = folder.write(
        "equipoise.toml",
        &format!(
            "[api]\nsocket = {:?}\nlisten = \"{}\"\n\
             [[api.token]]\nname = \"generated\"\nrole = \"admin\"\nfile = {token:?}\n\
             [[pool]]\nname = \"web\"\nbackends = [{{ name = \"b1\", address = \"10.1.1.11:443\" }}]\n",
            folder.path("api.sock"),
            api.address(),
        ),
    );
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let secret = std::fs::read_to_string(&token).expect("it was made");
    let request = format!(
        "GET /v1/openapi.json HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\r\n",
        secret.trim()
    );
    let served = Client::exchange(api.address(), request).expect("it answers");
    let description = folder.path("openapi.json");
    std::fs::write(&description, &served.body).expect("it can be written");

    let valid = run(&programs, "openapi-spec-validator", &[text(&description)], &folder);
    assert_worked("openapi-spec-validator", &valid);
    let args =
        ["generate", "--path", text(&description), "--output-path", "client", "--meta", "none"];
    let generated = run(&programs, "openapi-python-client", &args, &folder);
    assert_worked("openapi-python-client", &generated);
    let said = stdout(&generated) + &stderr(&generated);
    assert!(!said.contains("WARNING"), "no operation may be left out: {said}");

    let script = workspace().join("crates/equipoise/tests/openapi_clients/ask.py");
    let url = format!("http://{}", api.address());
    let asked = run(&programs, "python", &[text(&script), &url, secret.trim()], &folder);
    assert_worked("ask.py", &asked);
    assert_eq!(stdout(&asked), "asked\n");
}
