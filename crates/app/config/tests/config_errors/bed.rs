//! Invalid files, and the messages about them.

use std::io;
use std::path::Path;

use equipoise_config::{ConfigErrors, FileKind, Loaded, Surroundings, parse};

/// Reads a configuration; a few files exist.
pub(crate) fn read(text: &str) -> Result<Loaded, ConfigErrors> {
    let read = |file: &Path, _: FileKind| match file.to_str() {
        Some("/seed") => Ok("0123456789abcdef\n".to_string()),
        Some("/short") => Ok("0123456789\n".to_string()),
        Some("/token" | "/open") => Ok("0123456789abcdef0123456789abcdef\n".to_string()),
        _ => Err(io::Error::other("No such file or directory")),
    };
    let around = Surroundings {
        host_name: "h".into(),
        api_socket: "/run/s".into(),
        read: &read,
        mode: &|file| Ok(if file == Path::new("/open") { 0o100644 } else { 0o100640 }),
    };
    parse(text, Path::new("f"), &around)
}

/// The warnings of a configuration, or its errors.
pub(crate) fn said(text: &str) -> String {
    crate::common::said(read(text))
}

/// A pool `p` with additional lines, behind an HTTP front door. The additional text is line 8.
pub(crate) fn in_pool(more: &str) -> String {
    format!(
        "[[session]]\nlisten = '0.0.0.0:80'\nprotocol = 'http'\npool = 'p'\n\
         [[pool]]\nname = 'p'\nbackends = ['10.0.0.1:80']\n{more}\n"
    )
}

/// A front door with additional lines, after a pool `p`. The additional text is line 5.
pub(crate) fn in_session(more: &str) -> String {
    format!(
        "pool = [{{ name = 'p', backends = ['10.0.0.1:80'] }}]\n\
         [[session]]\nlisten = '0.0.0.0:80'\npool = 'p'\n{more}\n"
    )
}

/// The pool of [`in_pool`] with other backends.
pub(crate) fn with_backends(backends: &str) -> String {
    in_pool("").replace("'10.0.0.1:80'", backends)
}

/// A front door.
pub(crate) fn door(listen: &str, protocol: &str, pool: &str) -> String {
    format!("[[session]]\nlisten = '{listen}'\nprotocol = '{protocol}'\npool = '{pool}'\n")
}

/// Checks all messages about each case, which is a file of its own.
pub(crate) fn assert_said<T: AsRef<str>>(cases: &[(T, &str)], file: impl Fn(&str) -> String) {
    for (text, expected) in cases {
        assert_eq!(said(&file(text.as_ref())), *expected, "{}", text.as_ref());
    }
}

/// A valid pool.
pub(crate) const WEB: &str = "[[pool]]\nname = 'web'\nbackends = ['10.0.0.1:80']\n";
