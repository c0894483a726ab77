//! The allowed dependencies between crates (ARCHITECTURE.md, invariants 2 and 3).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

/// Each crate of the workspace, with the other crates that it may use. Levels must not use each
/// other nor the API.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "equipoise",
        &[
            "equipoise-acme",
            "equipoise-api",
            "equipoise-cli",
            "equipoise-config",
            "equipoise-demo",
            "equipoise-discovery",
            "equipoise-dispatch",
            "equipoise-handover",
            "equipoise-heap",
            "equipoise-cluster",
            "equipoise-session",
            "equipoise-otlp",
            "equipoise-packet",
            "equipoise-dns",
            "equipoise-planes",
            "equipoise-planning",
            "equipoise-status",
            "equipoise-tickets",
            // The slice level: its protocol, its leader's side, and for tests workers and DDS.
            "equipoise-slice",
            "equipoise-slices",
            "equipoise-slice-dds",
            "equipoise-dds",
            "equipoise-core",
            "equipoise-controller",
            "equipoise-basics",
            "equipoise-planner",
            "equipoise-monitor",
            "equipoise-netns",
        ],
    ),
    (
        "equipoise-api",
        &[
            "equipoise-basics",
            "equipoise-admission",
            "equipoise-core",
            "equipoise-handover",
            "equipoise-tls",
        ],
    ),
    ("equipoise-otlp", &["equipoise-basics", "equipoise-core", "equipoise-http-client"]),
    ("equipoise-handover", &["equipoise-basics", "equipoise-core"]),
    // Its outcome is each level's own configuration.
    (
        "equipoise-config",
        &[
            "equipoise-acme",
            "equipoise-api",
            "equipoise-cluster",
            "equipoise-core",
            "equipoise-discovery",
            "equipoise-dispatch",
            "equipoise-dns",
            "equipoise-driver",
            "equipoise-basics",
            "equipoise-packet",
            "equipoise-planner",
            "equipoise-planning",
            "equipoise-session",
            "equipoise-slice",
            "equipoise-slice-dds",
            "equipoise-store",
            "equipoise-dds",
            "equipoise-tls",
        ],
    ),
    (
        "equipoise-cli",
        &[
            "equipoise-api",
            "equipoise-basics",
            "equipoise-cluster",
            "equipoise-config",
            "equipoise-controller",
            "equipoise-core",
            "equipoise-import",
            "equipoise-packet",
            "equipoise-session",
            "equipoise-slice",
            "equipoise-slice-dds",
            "equipoise-tls",
        ],
    ),
    // Each level's engine, with its input from the configuration, the pools and the plan.
    (
        "equipoise-planes",
        &[
            "equipoise-basics",
            "equipoise-cluster",
            "equipoise-config",
            "equipoise-controller",
            "equipoise-core",
            "equipoise-discovery",
            "equipoise-dns",
            "equipoise-handover",
            "equipoise-packet",
            "equipoise-planner",
            "equipoise-planning",
            "equipoise-session",
            "equipoise-slices",
            "equipoise-store",
        ],
    ),
    // The states of all levels, as types of the API.
    (
        "equipoise-status",
        &[
            "equipoise-acme",
            "equipoise-api",
            "equipoise-cluster",
            "equipoise-config",
            "equipoise-controller",
            "equipoise-core",
            "equipoise-discovery",
            "equipoise-dns",
            "equipoise-monitor",
            "equipoise-packet",
            "equipoise-planes",
            "equipoise-planner",
            "equipoise-planning",
            "equipoise-session",
            "equipoise-slice",
            "equipoise-slice-dds",
            "equipoise-slices",
        ],
    ),
    // Its machines are network namespaces, and its load is a client's.
    (
        "equipoise-demo",
        &[
            "equipoise-api",
            "equipoise-basics",
            "equipoise-dds",
            "equipoise-monitor",
            "equipoise-netns",
            "equipoise-slice",
            "equipoise-slice-dds",
        ],
    ),
    // Dispatch for tests: nodes of the tests delegate requests.
    (
        "equipoise-session",
        &[
            "equipoise-basics",
            "equipoise-core",
            "equipoise-dispatch",
            "equipoise-handover",
            "equipoise-health",
            "equipoise-limits",
            "equipoise-routes",
            "equipoise-tls",
        ],
    ),
    // Translations of other balancers' configurations.
    ("equipoise-import", &[]),
    // Conditions of routes, and the decision which one a request takes.
    ("equipoise-routes", &["equipoise-basics"]),
    // Limits on clients: prefixes, rates, counts.
    ("equipoise-limits", &["equipoise-basics"]),
    ("equipoise-heap", &[]),
    ("equipoise-dispatch", &["equipoise-core", "equipoise-tls"]),
    ("equipoise-tls", &[]),
    ("equipoise-tickets", &["equipoise-basics", "equipoise-store", "equipoise-tls"]),
    ("equipoise-health", &["equipoise-basics", "equipoise-core", "equipoise-tls"]),
    (
        "equipoise-packet",
        &["equipoise-basics", "equipoise-core", "equipoise-health", "equipoise-pog"],
    ),
    ("equipoise-dns", &["equipoise-basics", "equipoise-core", "equipoise-handover"]),
    ("equipoise-store", &["equipoise-basics", "equipoise-core"]),
    (
        "equipoise-cluster",
        &[
            "equipoise-admission",
            "equipoise-core",
            "equipoise-basics",
            "equipoise-planner",
            "equipoise-store",
            "equipoise-controller",
        ],
    ),
    (
        "equipoise-acme",
        &["equipoise-basics", "equipoise-http-client", "equipoise-store", "equipoise-tls"],
    ),
    (
        "equipoise-discovery",
        &["equipoise-basics", "equipoise-core", "equipoise-http-client", "equipoise-store"],
    ),
    ("equipoise-monitor", &["equipoise-core"]),
    ("equipoise-planner", &["equipoise-core"]),
    (
        "equipoise-controller",
        &[
            "equipoise-basics",
            "equipoise-core",
            "equipoise-monitor",
            "equipoise-planner",
            "equipoise-store",
        ],
    ),
    ("equipoise-driver", &["equipoise-basics", "equipoise-http-client"]),
    (
        "equipoise-planning",
        &[
            "equipoise-basics",
            "equipoise-cluster",
            "equipoise-controller",
            "equipoise-core",
            "equipoise-driver",
            "equipoise-monitor",
            "equipoise-planner",
            "equipoise-store",
        ],
    ),
    ("equipoise-slice", &["equipoise-core"]),
    ("equipoise-dds", &["equipoise-basics"]),
    // The last two for tests: its workers and clients need a leader.
    (
        "equipoise-slice-dds",
        &[
            "equipoise-basics",
            "equipoise-core",
            "equipoise-dds",
            "equipoise-slice",
            "equipoise-slices",
            "equipoise-store",
        ],
    ),
    (
        "equipoise-slices",
        &[
            "equipoise-admission",
            "equipoise-basics",
            "equipoise-core",
            "equipoise-dds",
            "equipoise-slice",
            "equipoise-slice-dds",
            "equipoise-store",
        ],
    ),
    ("equipoise-core", &[]),
    // Admission of connections by the API, by the cluster and for workers.
    ("equipoise-admission", &["equipoise-basics"]),
    // Requests of the control side to other services.
    ("equipoise-http-client", &["equipoise-basics"]),
    // Files, locks, waits, error texts.
    ("equipoise-basics", &[]),
    // Stand-alone: usable without the rest of the workspace.
    ("equipoise-pog", &[]),
    // Network namespaces, for the demo and for tests.
    ("equipoise-netns", &[]),
    ("equipoise-testkit", &["equipoise-netns"]),
    // The packet programs for the host, with the packet level's memory layout.
    ("equipoise-packet-host", &["equipoise-packet"]),
    // The lab uses the binary from outside, as a user does.
    ("equipoise-lab-session-http", &[]),
    ("equipoise-lab-runner", &[]),
    ("equipoise-lab-l3b", &["equipoise-lab-runner"]),
    ("equipoise-lab-region", &["equipoise-lab-runner"]),
    // Simulated nodes are clients of a cluster; the time of a plan is measured with the planner
    // only.
    (
        "equipoise-lab-control",
        &[
            "equipoise-cluster",
            "equipoise-controller",
            "equipoise-core",
            "equipoise-lab-runner",
            "equipoise-netns",
            "equipoise-planner",
        ],
    ),
    ("equipoise-lab-dns-load", &[]),
    ("equipoise-lab-tllb", &["equipoise-lab-runner", "equipoise-netns"]),
    ("equipoise-lab-sdlb", &["equipoise-lab-runner", "equipoise-pog"]),
    // The parts of the slice level that are measured: the demo's, and separate processes.
    (
        "equipoise-lab-dpslb",
        &[
            "equipoise-dds",
            "equipoise-lab-runner",
            "equipoise-slice",
            "equipoise-slice-dds",
            "equipoise-slices",
            "equipoise-store",
        ],
    ),
    ("equipoise-lab-pog", &["equipoise-lab-runner", "equipoise-pog"]),
    // A program under test is called in the kernel, so this crate loads it itself.
    (
        "equipoise-lab-packet",
        &["equipoise-core", "equipoise-lab-runner", "equipoise-packet", "equipoise-pog"],
    ),
];

/// Crates for tests only: any crate may have them as a dev-dependency, none as a dependency.
const TESTS_ONLY: &[&str] = &["equipoise-testkit", "equipoise-packet-host"];

/// Crates that only make decisions.
const PURE: &[&str] = &[
    "equipoise-core",
    "equipoise-dispatch",
    "equipoise-import",
    "equipoise-planner",
    "equipoise-slice",
];

/// Dependencies that give a pure crate sockets, files, clocks or threads.
const IMPURE_CRATES: &[&str] = &[
    "async-std",
    "hyper",
    "libc",
    "mio",
    "nix",
    "rustix",
    "smol",
    "socket2",
    "tokio",
    "tracing",
    "tracing-subscriber",
];

/// The same from the standard library. Addresses (`std::net::SocketAddr`) are plain values, and
/// allowed.
const IMPURE_PATHS: &[&str] = &[
    "std::fs",
    "std::io",
    "std::os",
    "std::process",
    "std::thread",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "ToSocketAddrs",
    "UnixListener",
    "UnixStream",
    "Instant::now",
    "SystemTime",
    "rand::rng()",
    "thread_rng",
    "env::var",
];

fn metadata() -> Metadata {
    MetadataCommand::new()
        .manifest_path(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
        .no_deps()
        .exec()
        .expect("cargo metadata reads the workspace")
}

/// Edges that the table does not allow, as (from, to).
fn forbidden(metadata: &Metadata) -> Vec<(String, String)> {
    let allowed: BTreeMap<_, _> = ALLOWED.iter().copied().collect();
    let members: BTreeSet<_> =
        metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        for dependency in &package.dependencies {
            let may = allowed.get(package.name.as_str()).copied().unwrap_or_default();
            let for_tests = dependency.kind == DependencyKind::Development;
            let fine = may.contains(&dependency.name.as_str())
                || for_tests && TESTS_ONLY.contains(&dependency.name.as_str());
            if members.contains(&dependency.name) && !fine {
                found.push((package.name.to_string(), dependency.name.clone()));
            }
        }
    }
    found
}

#[test]
fn crates_depend_only_on_crates_that_the_table_allows() {
    let metadata = metadata();
    let stated: BTreeSet<_> = ALLOWED.iter().map(|(name, _)| name.to_string()).collect();
    let members: BTreeSet<_> =
        metadata.workspace_packages().iter().map(|p| p.name.to_string()).collect();
    assert_eq!(members, stated, "every crate of the workspace states here what it may use");
    assert_eq!(forbidden(&metadata), [], "(crate, dependency) that ALLOWED does not have");
}

/// The floors of `crates/` from the lowest, each with the floors that its crates may use. `levels`
/// and `control` are side by side.
const FLOORS: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("levels", &["base"]),
    ("control", &["base", "control"]),
    ("app", &["base", "levels", "control", "app"]),
    ("equipoise", &["base", "levels", "control", "app"]),
    ("dev", &["dev"]),
];

/// Edges that the floors do not allow, each with its reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("equipoise-demo", "equipoise-netns", "machines of the demo are network namespaces"),
    ("equipoise-slice-dds", "equipoise-slice", "one level in two crates: its protocol, and DDS"),
    ("equipoise-slices", "equipoise-slice", "the leader speaks the level's protocol"),
    ("equipoise-slices", "equipoise-slice-dds", "the leader's messages go over the level's topics"),
];

/// The floor of a crate in `crates/`, by the folder of its manifest.
fn floor<'a>(metadata: &Metadata, package: &'a Package) -> Option<&'a str> {
    let below = package.manifest_path.strip_prefix(metadata.workspace_root.join("crates")).ok()?;
    below.components().next().map(|part| part.as_str())
}

#[test]
fn crates_depend_only_on_their_own_floor_and_lower_floors() {
    let metadata = metadata();
    let floors: BTreeMap<_, _> = metadata
        .workspace_packages()
        .iter()
        .filter_map(|package| {
            Some((package.name.to_string(), floor(&metadata, package)?.to_string()))
        })
        .collect();
    assert!(floors.len() > 20, "the crates below crates/: {floors:?}");
    let may: BTreeMap<_, _> = FLOORS.iter().copied().collect();
    let mut found = Vec::new();
    for package in metadata.workspace_packages() {
        let Some(own) = floors.get(package.name.as_str()) else { continue };
        for dependency in &package.dependencies {
            let Some(other) = floors.get(&dependency.name) else { continue };
            let exception = EXCEPTIONS
                .iter()
                .any(|(from, to, _)| *from == package.name.as_str() && *to == dependency.name);
            let for_tests = dependency.kind == DependencyKind::Development;
            if !may[own.as_str()].contains(&other.as_str()) && !exception && !for_tests {
                found.push(format!("{} ({own}) uses {} ({other})", package.name, dependency.name));
            }
        }
    }
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn a_forbidden_edge_is_found() {
    let mut metadata = metadata();
    let of = |metadata: &Metadata, name: &str| -> usize {
        metadata
            .packages
            .iter()
            .position(|p| p.name.as_str() == name)
            .expect("a crate of the workspace")
    };
    let (session, core) = (of(&metadata, "equipoise-session"), of(&metadata, "equipoise-core"));
    let edge = metadata.packages[session].dependencies.iter().find(|d| d.name == "equipoise-core");
    let mut edge = edge.expect("session uses core").clone();
    edge.name = "equipoise-session".to_string();
    metadata.packages[core].dependencies.push(edge);
    assert_eq!(
        forbidden(&metadata),
        [("equipoise-core".to_string(), "equipoise-session".to_string())]
    );
}

fn pure(metadata: &Metadata) -> impl Iterator<Item = &Package> {
    let find = |name: &&str| metadata.packages.iter().find(|p| p.name.as_str() == *name);
    PURE.iter().map(move |name| find(name).expect("the workspace has its pure crates"))
}

#[test]
fn pure_crates_have_no_dependency_that_does_io() {
    for package in pure(&metadata()) {
        let impure: Vec<_> = package
            .dependencies
            .iter()
            .filter(|d| {
                d.kind == DependencyKind::Normal && IMPURE_CRATES.contains(&d.name.as_str())
            })
            .map(|d| &d.name)
            .collect();
        assert!(impure.is_empty(), "{} depends on {impure:?}", package.name);
    }
}

#[test]
fn pure_crates_do_no_io_themselves() {
    let mut found = Vec::new();
    for package in pure(&metadata()) {
        let manifest = &package.manifest_path;
        let source = manifest.parent().expect("a manifest is in a folder").join("src");
        let mut read = 0;
        let mut folders = vec![source.into_std_path_buf()];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(&folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    // Simulations are compiled for tests only; a test may pass the seed through the
                    // environment.
                    if path.file_name() != Some("sim".as_ref()) {
                        folders.push(path);
                    }
                    continue;
                }
                read += 1;
                let text = std::fs::read_to_string(&path).unwrap();
                for (line, text) in text.lines().enumerate() {
                    let code = text.split("//").next().unwrap_or_default();
                    for impure in IMPURE_PATHS.iter().filter(|impure| code.contains(**impure)) {
                        found.push(format!("{}:{}: {impure}", path.display(), line + 1));
                    }
                }
            }
        }
        assert!(read > 3, "read only {read} files of {}", package.name);
    }
    assert!(
        found.is_empty(),
        "pure crates do no I/O; `now` and `rng` are arguments:\n{}",
        found.join("\n")
    );
}
