//! No two top-level modules of a crate import each other, directly or over others, but for those in
//! [`CIRCLES`]. A reader of one module of a circle has to read them all.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Circles that are left: crate, modules, the reason. Shorten the list; a new circle is an error.
const CIRCLES: &[(&str, &[&str], &str)] = &[
    ("cluster", &["node", "peer", "server"], "a node and a server each know what the other sends"),
    (
        "dds",
        &["participant", "publications", "reader", "wait", "writer"],
        "a participant makes the entities that keep it alive",
    ),
    (
        "driver",
        &["driver", "exec", "options", "process", "webhook", "wire"],
        "the drivers' options and errors are variants of the trait's",
    ),
    ("health", &["checker", "named"], "a checker of a host name makes checkers of its addresses"),
    ("netns", &["host", "offload", "pass"], "parts of a host, apart for their length"),
    ("packet", &["control", "ledger"], "the ledger is the written form of the control's state"),
    (
        "session",
        &[
            "access_log",
            "door",
            "handshake",
            "hedge_delay",
            "http",
            "learning",
            "lease",
            "linger",
            "live",
            "proxy_protocol",
            "queue",
            "relay",
            "snapshot",
            "udp",
            "upstream",
            "worker",
        ],
        "to do: `Worker` is handed out whole",
    ),
    ("session", &["socket", "tls"], "a socket may be encrypted, and TLS is a layer under a socket"),
    (
        "store",
        &["entry", "error", "lease", "store", "transaction", "watch"],
        "the trait `Store`, its arguments and its errors, one noun a file",
    ),
];

/// Imports between the top-level modules of a crate: importer, imported.
type Imports = BTreeMap<String, BTreeSet<String>>;

/// Every crate below `crates/`, by its folder's name, with its `src`.
fn crates() -> Vec<(String, PathBuf)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    let mut folders = vec![root];
    while let Some(folder) = folders.pop() {
        if folder.join("Cargo.toml").exists() {
            let folder = folder.canonicalize().unwrap();
            let name = folder.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, folder.join("src")));
            continue;
        }
        let entries = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
        folders.extend(entries.filter(|path| path.is_dir()));
    }
    found.sort();
    found
}

/// The Rust files below a folder, each with its module path. Files of tests are left out.
fn files(source: &Path) -> Vec<(PathBuf, Vec<String>)> {
    let mut found = Vec::new();
    let mut folders = vec![source.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            if path.extension() != Some("rs".as_ref()) {
                continue;
            }
            let below = path.strip_prefix(source).unwrap().with_extension("");
            let mut module: Vec<String> =
                below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
            if module.last().is_some_and(|last| last == "mod") {
                module.pop();
            }
            if !module.iter().any(|part| part == "tests") {
                found.push((path, module));
            }
        }
    }
    found
}

/// The code of a file, without comments and without `mod tests`.
fn code(text: &str) -> String {
    let mut kept = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        let opens_tests = |next: &str| next.starts_with("mod ") && next.ends_with('{');
        if line == "#[cfg(test)]" && lines.peek().is_some_and(|next| opens_tests(next)) {
            lines.by_ref().find(|line| *line == "}");
            continue;
        }
        kept.push_str(line.split("//").next().unwrap_or_default());
        kept.push('\n');
    }
    kept
}

/// The paths that a list of `use`d names stands for: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(prefix: &str, list: &str, paths: &mut Vec<String>) {
    let Some((head, rest)) = list.split_once('{') else {
        let path = list.split(" as ").next().unwrap_or_default();
        paths.push(format!("{prefix}{}", path.trim()));
        return;
    };
    let prefix = format!("{prefix}{}", head.trim());
    let (mut depth, mut begin) = (0, 0);
    for (at, letter) in rest.char_indices() {
        match letter {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                if !rest[begin..at].trim().is_empty() {
                    expand(&prefix, rest[begin..at].trim(), paths);
                }
                begin = at + 1;
                if letter == '}' {
                    return;
                }
            }
            _ => {}
        }
    }
}

/// Every path of a file's code that begins with `crate` or `super`, in a `use` or elsewhere.
fn paths(code: &str) -> Vec<String> {
    let mut paths = Vec::new();
    let mut rest = code;
    while let Some(at) = ["crate::", "super::"].iter().filter_map(|it| rest.find(it)).min() {
        let is_word = rest[..at].ends_with(|c: char| c.is_alphanumeric() || "_$:".contains(c));
        let path = &rest[at..];
        let end =
            path.find(|c: char| !(c.is_alphanumeric() || "_:".contains(c))).unwrap_or(path.len());
        // A list may follow: it is read up to the end of the statement.
        let is_list = path[..end].ends_with("::") && path[end..].starts_with('{');
        let end = if is_list { path.find(';').unwrap_or(path.len()) } else { end };
        if !is_word {
            let text: String = path[..end].split_whitespace().collect::<Vec<_>>().join(" ");
            expand("", &text, &mut paths);
        }
        rest = &path[end..];
    }
    paths
}

/// The top-level module that a path of `module` names, if it names one.
fn named<'p>(
    path: &'p str,
    module: &[String],
    aliases: &'p BTreeMap<String, String>,
) -> Option<&'p str> {
    let mut parts = path.split("::");
    let mut above = 0;
    let first = loop {
        match parts.next()? {
            "crate" => above = module.len(),
            "super" => above += 1,
            other => break other,
        }
    };
    // A path that does not leave the own top-level module is no import.
    (above >= module.len()).then(|| aliases.get(first).map(String::as_str)).flatten()
}

fn imports(source: &Path) -> Imports {
    let files = files(source);
    let is_root = |module: &[String]| module == ["lib"] || module == ["main"];
    let tops: BTreeSet<_> =
        files.iter().filter(|(_, module)| !is_root(module)).map(|(_, module)| &module[0]).collect();
    // A name at the root of the crate stands for the module that it is exported from.
    let mut aliases: BTreeMap<String, String> =
        tops.iter().map(|top| ((*top).clone(), (*top).clone())).collect();
    if let Ok(root) = std::fs::read_to_string(source.join("lib.rs")) {
        for statement in code(&root).split(';') {
            let Some((_, list)) = statement.split_once("pub use ") else { continue };
            let mut exported = Vec::new();
            let list = list.split_whitespace().collect::<Vec<_>>().join(" ");
            expand("", &list, &mut exported);
            for path in exported {
                let path = path.trim_start_matches("self::").trim_start_matches("crate::");
                let (Some(top), Some(name)) = (path.split("::").next(), path.rsplit("::").next())
                else {
                    continue;
                };
                if tops.contains(&top.to_string()) {
                    aliases.entry(name.to_string()).or_insert_with(|| top.to_string());
                }
            }
        }
    }
    let mut imports = Imports::new();
    for (path, module) in files.iter().filter(|(_, module)| !is_root(module)) {
        let text = std::fs::read_to_string(path).unwrap();
        for path in paths(&code(&text)) {
            if let Some(other) = named(&path, module, &aliases)
                && *other != module[0]
            {
                imports.entry(module[0].clone()).or_default().insert(other.to_string());
            }
        }
    }
    imports
}

/// The modules that `from` reaches.
fn reached(imports: &Imports, from: &str) -> BTreeSet<String> {
    let mut reached = BTreeSet::new();
    let mut next = vec![from.to_string()];
    while let Some(module) = next.pop() {
        for other in imports.get(&module).into_iter().flatten() {
            if reached.insert(other.clone()) {
                next.push(other.clone());
            }
        }
    }
    reached
}

/// Groups of modules each of which reaches every other.
fn circles(imports: &Imports) -> BTreeSet<Vec<String>> {
    let reached: BTreeMap<_, _> =
        imports.keys().map(|module| (module, self::reached(imports, module))).collect();
    let in_circle = |module: &&String| reached[*module].contains(*module);
    let circle = |module: &String| -> Vec<String> {
        let others = reached[module].iter();
        others
            .filter(|other| reached.get(other).is_some_and(|it| it.contains(module)))
            .cloned()
            .collect()
    };
    imports.keys().filter(in_circle).map(circle).collect()
}

#[test]
fn modules_import_in_one_direction() {
    let mut found = BTreeSet::new();
    let mut read = 0;
    for (name, source) in crates() {
        let imports = imports(&source);
        read += imports.len();
        found.extend(circles(&imports).into_iter().map(|circle| (name.clone(), circle)));
    }
    assert!(read > 100, "read the imports of only {read} modules");
    let listed: BTreeSet<(String, Vec<String>)> = CIRCLES
        .iter()
        .map(|(name, modules, _)| {
            (name.to_string(), modules.iter().map(|module| module.to_string()).collect())
        })
        .collect();
    let new: Vec<_> = found.difference(&listed).collect();
    assert!(new.is_empty(), "circles of modules that CIRCLES does not have: {new:#?}");
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(gone.is_empty(), "no such circles any more; delete them from CIRCLES: {gone:#?}");
}

#[test]
fn every_form_of_import_is_read() {
    let text = "
use crate::a::{b, c::{D, e}};
use super::f;
use super::super::g::H;
//! use crate::comment::X;
fn of() -> crate::i::J {}
#[cfg(test)]
mod tests {
    use crate::k;
}
pub(in crate::l) const M: u8 = $crate::n;
";
    let found = paths(&code(text));
    assert_eq!(
        found,
        [
            "crate::a::b",
            "crate::a::c::D",
            "crate::a::c::e",
            "super::f",
            "super::super::g::H",
            "crate::i::J",
            "crate::l"
        ]
    );
    let module = ["own".to_string(), "child".to_string()];
    let aliases = ["a", "f", "g", "i"].map(|name| (name.to_string(), name.to_string()));
    let aliases = BTreeMap::from(aliases);
    let named: Vec<_> = found.iter().filter_map(|path| named(path, &module, &aliases)).collect();
    assert_eq!(named, ["a", "a", "a", "g", "i"], "`super::f` is a module beside the child");
}

#[test]
fn a_circle_is_every_module_that_reaches_the_others() {
    let edges = [("a", "b"), ("b", "c"), ("c", "a"), ("c", "d"), ("e", "a"), ("d", "f")];
    let mut imports = Imports::new();
    for (from, to) in edges {
        imports.entry(from.into()).or_default().insert(to.into());
    }
    let expected = BTreeSet::from([["a", "b", "c"].map(String::from).to_vec()]);
    assert_eq!(circles(&imports), expected);
}
