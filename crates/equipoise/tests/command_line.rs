//! The command line as people use it: accepted input, and messages.

mod common;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::config::said_among;
use common::{EQUIPOISE, Folder, Process, equipoise, stderr, stdout, text};
use equipoise_testkit::free_port;

#[test]
fn a_reader_that_closes_the_pipe_early_is_no_error() {
    for command in ["schema", "schema --reference"] {
        let line = format!("set -o pipefail; {EQUIPOISE} {command} | head -n 1");
        let output = Command::new("bash").args(["-c", &line]).output().expect("there is a shell");
        assert!(output.status.success(), "{command}: {}", stderr(&output));
        assert_eq!(stderr(&output), "", "{command}");
    }
}

/// Runs a command that reads standard input.
fn with_input(arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(EQUIPOISE);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary runs");
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

#[test]
fn check_reads_standard_input() {
    for (file, expected) in [
        ("[[pool]]\nname = \"web\"\n", "(standard input): valid"),
        ("[[pool]]\nnme = \"web\"\n", "(standard input):2:1: pool[#1].nme: unknown option"),
    ] {
        let output = with_input(&["check", "-"], file);
        assert!(stdout(&output).contains(expected), "{}", stdout(&output));
    }
}

/// As `run` does, so that both read the file of the service.
#[test]
fn check_without_an_argument_reads_the_file_of_equipoise_config_or_the_default_file() {
    let folder = Folder::new("check-default");
    let file = folder.write("equipoise.toml", "[[pool]]\nname = \"web\"\n");
    let check = |variable: Option<&Path>| {
        let mut command = Command::new(EQUIPOISE);
        command.arg("check").env_remove("EQUIPOISE_CONFIG");
        command.envs(variable.map(|file| ("EQUIPOISE_CONFIG", file)));
        stdout(&command.output().expect("the binary runs"))
    };
    let said = check(Some(&file));
    assert!(said.contains(&format!("{}: valid", text(&file))), "{said}");
    // The machine of the test may have the default file, with any content.
    let said = check(None);
    assert!(said.contains("/etc/equipoise/equipoise.toml"), "{said}");
    let help = stdout(&equipoise(&["check", "--help"]));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(help.contains("[default: /etc/equipoise/equipoise.toml]"), "{help}");
}

/// The exit status tells scripts whether someone has to look at the translation.
#[test]
fn import_exits_0_if_complete_2_if_partial_1_on_error() {
    let whole = "defaults\n mode tcp\nlisten web\n bind :80\n server one 10.0.0.1:80\n";
    let changed = format!("{whole} errorfile 503 /etc/haproxy/503.http\n");
    let unusable = format!("{whole} bind :443 ssl crt /nowhere/site.pem\n");
    for (text, status, printed) in [
        (whole, 0, "equipoise check: valid"),
        (&changed, 2, "line 6: errorfile 503"),
        (&unusable, 1, "/nowhere/site.pem"),
        ("hello", 1, "name it with --from"),
    ] {
        let output = with_input(&["import", "-"], text);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{text}: {errors}");
        assert!(errors.contains(printed), "{errors}");
    }
}

#[test]
fn the_packaged_configuration_can_be_used_as_it_is() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/equipoise.toml");
    let output = equipoise(&["check", file]);
    assert!(output.status.success(), "{}", stdout(&output));
}

/// The tables that are commented out in the packaged configuration.
#[test]
fn the_examples_in_the_packaged_configuration_can_be_used() {
    let packaged = include_str!("../../../packaging/equipoise.toml");
    let lines = packaged.lines().filter_map(|line| line.strip_prefix("# "));
    // Alternatives to a line are indented.
    let is_toml =
        |line: &&str| line.starts_with('[') || line.contains(" = ") && !line.starts_with("  ");
    let examples: Vec<_> = lines.filter(is_toml).collect();
    assert!(examples.len() > 10, "{examples:?}");
    let folder = Folder::new("packaged-examples");
    let file = folder.write("equipoise.toml", &(examples.join("\n") + "\n"));
    let said = stdout(&equipoise(&["check", text(&file)]));
    assert!(said.contains("valid: 2 front doors, 1 pool, 2 backends"), "{said}");
}

/// Libraries that every Debian has: those of libc6 and of the packages that libc6 depends on.
const EVERYWHERE: [&str; 5] =
    ["linux-vdso.so.1", "libc.so.6", "libm.so.6", "libgcc_s.so.1", "/lib64/ld-linux-x86-64.so.2"];
/// Other libraries that the binary may need, and their packages.
const PACKAGES: [(&str, &str); 2] = [("libelf.so.1", "libelf1"), ("libz.so.1", "zlib1g")];

#[test]
#[cfg(all(target_arch = "x86_64", not(feature = "dds-security")))]
fn the_install_page_lists_every_library_of_the_binary() {
    let page = include_str!("../../../docs/install.md");
    let install =
        page.lines().find(|line| line.starts_with("apt-get install lib")).expect("a line");
    let output = Command::new("ldd").arg(EQUIPOISE).output().expect("ldd is part of libc-bin");
    let listed = stdout(&output);
    let needed = listed.lines().filter_map(|line| line.split_whitespace().next());
    let needed: Vec<_> = needed.filter(|library| !EVERYWHERE.contains(library)).collect();
    assert!(!needed.is_empty(), "{listed}");
    for library in needed {
        let package = PACKAGES.iter().find(|(file, _)| *file == library).map(|(_, name)| *name);
        let package = package.unwrap_or_else(|| panic!("{library} is in no package that is named"));
        assert!(
            install.split_whitespace().any(|word| word == package),
            "{install} lacks {package}"
        );
    }
}

#[test]
fn run_reads_equipoise_config_and_its_help_shows_the_default_file() {
    let folder = Folder::new("default-file");
    let file = folder.write("bad.toml", "nonsense = 1\n");
    let mut command = Command::new(EQUIPOISE);
    let output = command.arg("run").env("EQUIPOISE_CONFIG", &file).output().expect("it runs");
    assert!(stderr(&output).contains(text(&file)), "{}", stderr(&output));
    for command in ["run", "agent"] {
        let help = stdout(&equipoise(&[command, "--help"]));
        // The terminal's width decides on which line it is.
        let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(help.contains("[default: /etc/equipoise/equipoise.toml]"), "{command}: {help}");
    }
}

#[test]
fn an_invalid_weight_is_refused_with_the_accepted_range() {
    for weight in ["-1", "1001", "99999", "half", "0.5"] {
        let output = equipoise(&["weight", "web/fast", weight]);
        let expected = format!("{weight} is not in 0..=1000; accepted: a whole number");
        assert!(stderr(&output).contains(&expected), "{}", stderr(&output));
    }
}

#[test]
fn run_and_agent_refuse_standard_input_and_suggest_check() {
    for command in ["run", "agent"] {
        let output = equipoise(&[command, "-"]);
        let said = stderr(&output);
        assert!(said.contains("`equipoise check -` reads standard input"), "{command}: {said}");
    }
}

#[test]
fn exit_codes_match_the_help() {
    let folder = Folder::new("exit-codes");
    let bad = folder.write("bad.toml", "nonsense = 1\n");
    let nowhere = folder.path("nowhere.sock");
    for (code, command) in [
        (0, &["--version"][..]),
        (1, &["check", text(&bad)]),
        (1, &["status", "--api", text(&nowhere)]),
        (1, &["ready", "--api", text(&nowhere)]),
        (2, &["nonsense"]),
        (2, &["weight", "web/fast", "half"]),
    ] {
        assert_eq!(equipoise(command).status.code(), Some(code), "{command:?}");
    }
    let help = stdout(&equipoise(&["--help"]));
    for line in ["  0  done;", "  1  not done,", "  2  the command line has an error"] {
        assert!(help.contains(line), "{help}");
    }
}

#[test]
fn change_commands_print_json_with_the_json_option() {
    let (folder, port) = (Folder::new("json-answers"), free_port());
    let socket = folder.path("api.sock");
    let file = folder.write(
        "equipoise.toml",
        &format!(
            "[api]\nsocket = {socket:?}\nlisten = \"off\"\n\
             [[pool]]\nname = \"web\"\nbackends = [{{ name = \"b1\", address = \"127.0.0.1:9\" }}]\n\
             [[session]]\nlisten = \"{}\"\nprotocol = \"http\"\npool = \"web\"\n",
            port.address()
        ),
    );
    let process = Process::start(&["run", text(&file)]);
    process.wait_for_text(" ready ");
    let token = folder.path("token");
    let api = ["--json", "--api", text(&socket)];
    for (command, field, expected) in [
        (&["drain", "web/b1"][..], "/backend/admin", "\"drain\""),
        (&["undrain", "web/b1"], "/backend/admin", "\"up\""),
        (&["disable", "web/b1"], "/backend/admin", "\"down\""),
        (&["enable", "web/b1"], "/backend/admin", "\"up\""),
        (&["weight", "web/b1", "7"], "/backend/weight", "7"),
        (&["backend", "add", "web/b2", "--address", "127.0.0.1:10"], "/backend/name", "\"b2\""),
        (&["backend", "set", "web/b2", "--weight", "3"], "/backend/weight", "3"),
        (&["backend", "remove", "web/b2", "--now"], "/pool", "\"web\""),
        (&["reload"], "/backends", "1"),
        (&["ready", "127.0.0.1"], "/0/ready", "true"),
    ] {
        let output = equipoise(&[command, &api].concat());
        let answer: serde_json::Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{command:?}: {error}: {}", stderr(&output)));
        let found = answer.pointer(field).map(ToString::to_string);
        assert_eq!(found.as_deref(), Some(expected), "{command:?}: {answer}");
    }
    let output = equipoise(&["api-token", text(&token), "--json"]);
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).expect("it is JSON");
    assert_eq!(answer["file"], text(&token));
}

/// A shell that `make test-setup` installs.
fn shell(name: &str, script: &str, folder: &Folder) -> Option<String> {
    let output = Command::new(name).args(["-c", script]).current_dir(folder.path(".")).output();
    let Ok(output) = output else {
        println!("skipped: there is no {name}; `make test-setup` installs it");
        return None;
    };
    assert!(output.status.success() && stderr(&output).is_empty(), "{name}: {}", stderr(&output));
    Some(stdout(&output))
}

#[test]
fn shells_complete_commands_and_options() {
    let folder = Folder::new("completions");
    for name in ["bash", "zsh", "fish"] {
        folder.write(name, &stdout(&equipoise(&["completions", name])));
    }
    for (so_far, expected) in [("slice re", "resize"), ("drain --js", "--json")] {
        let (command, last) = so_far.split_once(' ').expect("two words");
        let bash = format!(
            "source ./bash; COMP_WORDS=(equipoise {so_far}); COMP_CWORD=2; _equipoise equipoise {last} {command}; \
             echo \"${{COMPREPLY[@]}}\""
        );
        assert_eq!(shell("bash", &bash, &folder).expect("Debian has bash").trim(), expected);
        let fish = format!("source ./fish; complete --do-complete 'equipoise {so_far}'");
        if let Some(proposed) = shell("fish", &fish, &folder) {
            assert_eq!(proposed.split_whitespace().next(), Some(expected), "{proposed}");
        }
    }
    shell("zsh", "zsh -n ./zsh && grep -q '^#compdef equipoise$' ./zsh", &folder);
}

#[test]
fn every_command_has_a_manual_page_with_its_exit_codes() {
    let folder = Folder::new("manual");
    let output = equipoise(&["man", text(&folder.path("."))]);
    assert!(output.status.success(), "{}", stderr(&output));
    for name in
        ["equipoise", "equipoise-run", "equipoise-slice-resize", "equipoise-cluster-token-create"]
    {
        let page = std::fs::read_to_string(folder.path(&format!("{name}.1")));
        let page = page.unwrap_or_else(|error| panic!("{name}: {error}"));
        for section in ["NAME", "SYNOPSIS", "\"EXIT STATUS\""] {
            assert!(page.contains(&format!(".SH {section}\n")), "{name} lacks {section}: {page}");
        }
    }
    let pages = std::fs::read_dir(folder.path(".")).expect("it is there");
    let names: Vec<_> = pages.map(|page| page.expect("it is there").file_name()).collect();
    assert!(names.len() > 40, "{names:?}");
    assert!(names.iter().all(|name| !name.to_string_lossy().contains("sample")), "{names:?}");
}

#[test]
fn scheduler_names_of_other_balancers_receive_a_suggestion() {
    for (theirs, ours) in [
        ("leastconn", "least-connection"),
        ("least_conn", "least-connection"),
        ("LEAST_REQUEST", "least-connection"),
        ("wlc", "weighted-least-connection"),
        ("roundrobin", "round-robin"),
        ("rr", "round-robin"),
        ("random", "weighted-random"),
        ("ip_hash", "source-hash"),
        ("source", "source-hash"),
        ("RING_HASH", "maglev"),
        ("first", "round-robin"),
    ] {
        let said = said_among(&[], &format!("[[pool]]\nname = 'p'\nscheduler = '{theirs}'\n"));
        assert!(said.contains(&format!("(did you mean \"{ours}\"?)")), "{theirs}: {said}");
    }
}

#[test]
fn a_port_above_65535_is_rejected_with_the_limit() {
    for listen in ["[::]:99999", ":99999", "0.0.0.0:65536"] {
        let file = format!("[[pool]]\nname = 'p'\n[[session]]\nlisten = '{listen}'\npool = 'p'\n");
        let said = said_among(&[], &file);
        assert!(said.contains("(ports end at 65535)"), "{listen}: {said}");
    }
}

#[test]
fn a_second_announcer_of_the_same_file_is_refused() {
    let folder = Folder::new("announce-lock");
    let (file, socket) = (folder.path("bird.conf"), folder.path("none.sock"));
    let args = ["announce", "--bird", text(&file), "--reload", "true", "--api", text(&socket)];
    let mut first = Process::start(&args);
    first.wait_for_text("nothing is announced");
    let second = equipoise(&args);
    let expected = format!("another `equipoise announce` keeps {} in step", text(&file));
    assert!(!second.status.success() && stderr(&second).contains(&expected), "{}", stderr(&second));
    first.signal(libc::SIGTERM);
    assert!(first.ended().success(), "{}", first.printed());
    let mut third = Process::start(&args);
    third.wait_for_text("nothing is announced");
    third.signal(libc::SIGTERM);
    assert!(third.ended().success(), "{}", third.printed());
}

#[test]
fn options_of_announce_that_would_be_ignored_are_errors() {
    for (args, expected) in [
        (&["--bird", "-"][..], "accepted: a file, which BIRD's configuration includes"),
        (&["--keepalived", "-", "--reload", "true"], "cannot be used with"),
        (&["--keepalived", "-", "--every", "1"], "cannot be used with"),
        (&["--keepalived", "-", "--patience", "1"], "cannot be used with"),
        (&["--keepalived", "-", "--back-after", "1"], "cannot be used with"),
    ] {
        let output = equipoise(&[&["announce"], args].concat());
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn a_file_that_the_service_may_not_read_is_named_with_its_owner_and_the_user() {
    // SAFETY: geteuid reads a number of this process and cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can run a command as another user");
        return;
    }
    let folder = Folder::new("unreadable");
    let mode = |path: &Path, mode| {
        std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).expect("it is ours");
    };
    let key = folder.write("key.pem", "");
    let config = format!(
        "[[pool]]\nname = \"web\"\nbackends = [\"10.0.0.1:80\"]\n\
         [[session]]\nlisten = \"0.0.0.0:443\"\nprotocol = \"http\"\npool = \"web\"\n\
         tls = {{ certificates = [{{ chain = {key:?}, key = {key:?} }}] }}\n"
    );
    let file = folder.write("equipoise.toml", &config);
    mode(folder.root(), 0o755);
    mode(&file, 0o644);
    mode(&key, 0o600);
    let check = || {
        let mut check = Command::new("setpriv");
        check.args(["--reuid", "64123", "--regid", "64123", "--clear-groups"]);
        let output = check.args([EQUIPOISE, "check", text(&file)]).output().expect("it runs");
        stdout(&output) + &stderr(&output)
    };
    let said = check();
    let owner = "belongs to user root (uid 0) and group root (gid 0), with the mode";
    let expected = format!("this process runs as user 64123, and the file {owner} 0600");
    assert!(said.contains(&expected), "{said}");
    mode(&file, 0o600);
    let said = check();
    assert!(said.contains(&expected) && said.contains(text(&file)), "{said}");
    mode(folder.root(), 0o700);
    let said = check();
    assert!(said.contains(&format!("and {} {owner} 0700", text(folder.root()))), "{said}");
}
