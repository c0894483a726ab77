//! Packages: the Debian package's life in a clean root, the units, what else a package has. Needs
//! root, and a root of Debian's packages, which `make package-root` makes.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{EQUIPOISE, Folder, stderr, stdout, text};

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Largest exposure of a unit that `systemd-analyze security` may find, in tenths.
const EXPOSURE_MAX: &str = "--threshold=25";

fn succeeds(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}{}", stdout(&output), stderr(&output));
    output
}

/// A package of the binary under test, which is compressed in haste.
fn package(kind: &str, folder: &Folder, version: &str) -> PathBuf {
    let mut command = Command::new(workspace().join("packaging/build"));
    command.args([kind, EQUIPOISE, text(&folder.path("packages")), version]);
    let made = succeeds(command.env("PACKAGE_COMPRESSION", "gzip -1"));
    PathBuf::from(stdout(&made).trim())
}

/// Whether packages can be made and tried here.
fn is_possible() -> bool {
    // SAFETY: geteuid only reads.
    let is_root = unsafe { libc::geteuid() } == 0;
    let tools = ["/usr/bin/dpkg-shlibdeps", "/usr/bin/systemd-analyze", "/usr/bin/strip"];
    let missing = tools.iter().find(|tool| !Path::new(tool).exists());
    if let Some(tool) = missing {
        println!("skipped: there is no {tool}; `make package-root` installs it");
    } else if !is_root {
        println!("skipped: packages are tried as root");
    }
    is_root && missing.is_none()
}

#[test]
fn a_package_is_installed_upgraded_without_a_lost_request_and_purged() {
    if !is_possible() {
        return;
    }
    succeeds(Command::new("make").args(["-s", "package-root"]).current_dir(workspace()));
    let folder = Folder::new("package");
    let root = folder.path("root");
    let packages = root.join("packages");
    std::fs::create_dir_all(&packages).expect("it can be made");
    let tar = workspace().join("target/package-root/root.tar");
    let mut unpack = Command::new("tar");
    succeeds(unpack.args(["--extract", "--directory", text(&root), "--file", text(&tar)]));
    for (version, name) in [("1.0.0", "1.deb"), ("1.0.1", "2.deb")] {
        let made = package("deb", &folder, version);
        std::fs::rename(made, packages.join(name)).expect("it was made");
    }
    let scenario = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/package/scenario.sh");
    std::fs::copy(scenario, packages.join("scenario.sh")).expect("it can be copied");
    // Addresses, processes and mounts of its own; its processes end with it.
    let inside = "ip link set lo up && mount --rbind /dev $1/dev && mount -t proc proc $1/proc && \
                  exec chroot $1 /bin/bash /packages/scenario.sh";
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--net", "--pid", "--fork", "--kill-child", "sh", "-c", inside, "sh"]);
    unshare.arg(&root).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    let output = unshare.output().expect("unshare is part of util-linux");
    let said = format!("{}{}", stdout(&output), stderr(&output));
    println!("{said}");
    assert!(output.status.success() && said.contains("== done"), "{said}");
}

/// systemd accepts the units, also with the packet level's drop-in, and finds them hardened.
#[test]
fn the_units_are_valid_and_hardened() {
    if !Path::new("/usr/bin/systemd-analyze").exists() {
        println!("skipped: there is no systemd-analyze; `make package-root` installs it");
        return;
    }
    let folder = Folder::new("units");
    for drop_in in [None, Some("equipoise.service.d/packet.conf")] {
        let root = folder.path(if drop_in.is_some() { "packet" } else { "plain" });
        check_units(&root, drop_in);
    }
}

fn check_units(root: &Path, drop_in: Option<&str>) {
    let system = root.join("etc/systemd/system");
    let put = |from: &Path, to: &Path| {
        std::fs::create_dir_all(to.parent().expect("a folder")).expect("it can be made");
        std::fs::copy(from, to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    };
    let packaging = workspace().join("packaging");
    let units = ["equipoise", "equipoise-agent", "equipoise-announce", "equipoise-slice-worker@"];
    for file in
        units.map(|unit| format!("{unit}.service")).iter().map(String::as_str).chain(drop_in)
    {
        put(&packaging.join(file), &system.join(file));
    }
    // Programs that units name: only their existence is checked.
    for program in ["usr/bin/equipoise", "bin/touch", "bin/sh"] {
        put(Path::new("/bin/true"), &root.join(program));
    }
    let units = units.map(|unit| format!("{}.service", unit.replace('@', "@1")));
    let root = format!("--root={}", root.display());
    for arguments in [
        &["verify", "--man=no", "--recursive-errors=no"][..],
        &["security", "--offline=true", EXPOSURE_MAX],
    ] {
        succeeds(Command::new("systemd-analyze").args(arguments).arg(&root).args(&units));
    }
}

#[test]
fn a_tarball_has_the_same_and_names_every_library() {
    if !is_possible() {
        return;
    }
    let folder = Folder::new("tarball");
    let tarball = package("tarball", &folder, "1.0.0");
    let root = folder.path("out");
    std::fs::create_dir_all(&root).expect("it can be made");
    let mut unpack = Command::new("tar");
    succeeds(
        unpack
            .args(["--extract", "--strip-components=1", "--directory", text(&root)])
            .arg("--file")
            .arg(&tarball),
    );
    for file in [
        "README",
        "usr/bin/equipoise",
        "etc/equipoise/equipoise.toml",
        "usr/lib/systemd/system/equipoise.service",
        "usr/share/bash-completion/completions/equipoise",
        "usr/share/man/man1/equipoise.1.gz",
        "usr/share/doc/equipoise/LICENSE.GPL-2.0",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    let documents = root.join("usr/share/doc/equipoise");
    check_pages(&documents);
    let notices = succeeds(Command::new("zcat").arg(documents.join("NOTICES.gz")));
    for library in ["Eclipse Cyclone DDS", "libbpf", "libelf", "zlib", "tokio 1.", "rustls 0."] {
        assert!(stdout(&notices).contains(library), "{library}");
    }
    let bom = std::fs::read(documents.join("equipoise.cdx.json")).expect("it was made");
    check_bom(&serde_json::from_slice(&bom).expect("it is JSON"));
    if workspace().join("web/dist/libraries.json").exists() {
        for library in ["svelte", "uplot"] {
            assert!(stdout(&notices).contains(&format!("\n{library} ")), "{library}");
            let component = format!("\"pkg:npm/{library}@");
            assert!(String::from_utf8_lossy(&bom).contains(&component), "{library}");
        }
    }
}

/// The README is for an installed system, and every link of a page leads to a file and a heading.
fn check_pages(documents: &Path) {
    let readme = std::fs::read_to_string(documents.join("README.md")).expect("it is there");
    for text in ["/etc/equipoise/equipoise.toml", "equipoise check", "systemctl", "docs/start.md"] {
        assert!(readme.contains(text), "{text} is not in: {readme}");
    }
    assert!(!readme.contains("make run") && !readme.contains("rustup"), "{readme}");
    succeeds(Command::new(workspace().join("scripts/links.py")).arg(documents));
}

/// Every component is identified and licensed, and every edge leads to one.
fn check_bom(bom: &serde_json::Value) {
    assert_eq!((&bom["bomFormat"], &bom["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let components = bom["components"].as_array().expect("a list");
    assert!(components.len() > 100, "{}", components.len());
    let mut known = vec![bom["metadata"]["component"]["bom-ref"].clone()];
    for component in components {
        assert!(
            component["purl"].is_string() && component["hashes"][0]["content"].is_string(),
            "{component}"
        );
        assert!(component["licenses"][0]["expression"].is_string(), "{component}");
        known.push(component["bom-ref"].clone());
    }
    for edge in bom["dependencies"].as_array().expect("a list") {
        let to = edge["dependsOn"].as_array().expect("a list");
        for one in to.iter().chain([&edge["ref"]]) {
            assert!(known.contains(one), "{one}");
        }
    }
}
