//! Errors of permission, with the user of this process and the owner of the file.

use std::fs::{self, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Adds to an error of permission as which user the process runs, to which user and group the file
/// belongs, and its mode; or those of the folder on the way to it that cannot be entered. Other
/// errors stay as they are, and the kind stays.
pub fn explain_denied(source: io::Error, path: &Path) -> io::Error {
    if source.kind() != io::ErrorKind::PermissionDenied {
        return source;
    }
    // The nearest ancestor of which the attributes can be read. Its entries cannot.
    let found = path.ancestors().find_map(|at| Some((at, fs::metadata(at).ok()?)));
    let Some((at, metadata)) = found else { return source };
    let object = if at == path { "the file".to_owned() } else { format!("{}", at.display()) };
    // SAFETY: geteuid reads a number of this process and cannot fail.
    let user = unsafe { libc::geteuid() };
    let explanation = explanation(user, &object, &metadata);
    io::Error::new(source.kind(), format!("{source}: {explanation}"))
}

fn explanation(user: u32, object: &str, metadata: &Metadata) -> String {
    format!(
        "this process runs as {}, and {object} belongs to {} and {}, with the mode {:04o}",
        named("user", "uid", user, "/etc/passwd"),
        named("user", "uid", metadata.uid(), "/etc/passwd"),
        named("group", "gid", metadata.gid(), "/etc/group"),
        metadata.mode() & 0o7777
    )
}

/// A user or group with its name, if the file of names has it.
fn named(kind: &str, number: &str, id: u32, names: &str) -> String {
    match fs::read_to_string(names).ok().and_then(|text| name(&text, id)) {
        Some(name) => format!("{kind} {name} ({number} {id})"),
        None => format!("{kind} {id}"),
    }
}

/// The name of an id, in the format of passwd(5) and group(5): `NAME:PASSWORD:ID:...`.
fn name(text: &str, id: u32) -> Option<String> {
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn denied(path: &Path) -> String {
        let error = explain_denied(io::Error::from_raw_os_error(libc::EACCES), path);
        assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
        error.to_string()
    }

    #[test]
    fn the_user_the_owner_and_the_mode_are_named() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("key.pem");
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        let metadata = fs::metadata(&file).unwrap();
        let text = denied(&file);
        assert!(text.starts_with("Permission denied (os error 13): this process runs as user "));
        assert!(text.contains(", and the file belongs to user "), "{text}");
        assert!(text.ends_with(", with the mode 0640"), "{text}");
        if (metadata.uid(), metadata.gid()) == (0, 0) {
            assert!(text.contains("user root (uid 0) and group root (gid 0)"), "{text}");
        }
        // As if its folder could not be searched.
        let hidden = denied(&file.join("x"));
        assert!(hidden.contains(&format!("and {} belongs to", file.display())), "{hidden}");
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let error = explain_denied(io::ErrorKind::NotFound.into(), Path::new("/etc"));
        assert_eq!(error.to_string(), "entity not found");
    }

    #[test]
    fn names_come_from_the_systems_files() {
        let text = "root:x:0:0:root:/root:/bin/sh\n# none\nequipoise:x:995:994::/:/bin/false\n";
        assert_eq!(name(text, 995).as_deref(), Some("equipoise"));
        assert_eq!(name(text, 994), None);
    }
}
