//! Messages about a configuration.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part")]

use std::io;
use std::path::Path;

use equipoise_config::{ConfigErrors, FileKind, Loaded, Surroundings, parse};

/// The warnings of a configuration, or its errors.
pub fn said(outcome: Result<Loaded, ConfigErrors>) -> String {
    match outcome {
        Ok(loaded) => {
            let lines = loaded.warnings.iter().map(|warning| warning.in_file(Path::new("f")));
            lines.collect::<Vec<_>>().join("\n")
        }
        Err(errors) => errors.to_string(),
    }
}

/// The messages about `text`, if only these files exist. Each has a path and a content.
pub fn said_among(files: &[(&str, &str)], text: &str) -> String {
    let read =
        |file: &Path, _: FileKind| match files.iter().find(|(path, _)| Path::new(path) == file) {
            Some((_, text)) => Ok(text.to_string()),
            None => Err(io::Error::other("No such file or directory")),
        };
    let around = Surroundings {
        host_name: "h".into(),
        api_socket: "/run/s".into(),
        read: &read,
        mode: &|_| Ok(0o600),
    };
    said(parse(text, Path::new("f"), &around))
}
