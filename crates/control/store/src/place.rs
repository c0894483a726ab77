//! The places of an instance's state on this machine.

use std::path::{Path, PathBuf};

/// The folder of an instance, in the stated folder or in the user's state folder.
pub fn folder(stated: Option<&Path>, instance: &str) -> PathBuf {
    stated.map_or_else(state_folder, Path::to_path_buf).join(plain(instance))
}

/// The store's file of an instance.
pub fn store_file(stated: Option<&Path>, instance: &str) -> PathBuf {
    folder(stated, instance).join("controller.store")
}

/// The user's folder for state. systemd's `StateDirectory=equipoise` has precedence.
fn state_folder() -> PathBuf {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(folder) = set("STATE_DIRECTORY") {
        // systemd separates several folders with colons; ours is the first.
        let folder = folder.to_string_lossy().into_owned();
        return folder.split(':').next().unwrap_or_default().into();
    }
    if rustix::process::geteuid().is_root() {
        return "/var/lib/equipoise".into();
    }
    if let Some(folder) = set("XDG_STATE_HOME") {
        return Path::new(&folder).join("equipoise");
    }
    match set("HOME") {
        Some(home) => Path::new(&home).join(".local/state/equipoise"),
        None => {
            std::env::temp_dir().join(format!("equipoise-{}", rustix::process::geteuid().as_raw()))
        }
    }
}

/// Replaces characters of a host name that files or keys may not have.
pub fn plain(name: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let plain: String = name.chars().map(|c| if fits(c) { c } else { '_' }).take(64).collect();
    match plain.trim_start_matches('.') {
        "" => "equipoise".to_string(),
        _ => plain,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_name_is_sanitized_in_the_store_path() {
        let file = |name| store_file(Some(Path::new("/s")), name);
        assert_eq!(file("edge-1"), Path::new("/s/edge-1/controller.store"));
        assert_eq!(file("../../etc"), Path::new("/s/.._.._etc/controller.store"));
        for odd in ["", ".", ".."] {
            assert_eq!(file(odd), Path::new("/s/equipoise/controller.store"), "{odd:?}");
        }
    }
}
