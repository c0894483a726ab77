//! `global`: the process of HAProxy.

use super::words::{Line, Section, milliseconds};
use crate::model::{Config, duration};
use crate::report::Report;

/// Settings of `global` that front doors take.
#[derive(Clone, Debug, Default)]
pub(super) struct Global {
    maxconn: Option<(usize, i64)>,
}

/// Keywords about the process, its resources and its tests.
const NOTHING: &[&str] = &[
    "user",
    "group",
    "uid",
    "gid",
    "daemon",
    "nbproc",
    "nbthread",
    "cpu-map",
    "chroot",
    "pidfile",
    "master-worker",
    "mworker-max-reloads",
    "quiet",
    "zero-warning",
    "ulimit-n",
    "fd-hard-limit",
    "node",
    "description",
    "spread-checks",
    "max-spread-checks",
    "localpeer",
    "strict-limits",
    "set-dumpable",
    "unix-bind",
    "busy-polling",
    "noepoll",
    "nokqueue",
    "noevports",
    "nopoll",
    "nosplice",
    "nogetaddrinfo",
    "noreuseport",
    "numa-cpu-mapping",
    "thread-groups",
    "thread-group",
    "profiling.tasks",
    "profiling.memory",
    "log-send-hostname",
    "maxpipes",
    "maxcompcpuusage",
    "maxcomprate",
    "maxzlibmem",
    "external-check",
    "insecure-fork-wanted",
    "insecure-setuid-wanted",
    "server-state-base",
    "server-state-file",
    "ssl-dh-param-file",
    "ssl-engine",
    "ssl-mode-async",
    "grace",
    "cluster-secret",
    "anonkey",
    "crt-base",
    "ca-base",
    "pp2-never-send-local",
    "expose-experimental-directives",
    "no",
];

/// Reads the lines of `global`, and resolves file names by `crt-base` and `ca-base`.
pub(super) fn read(sections: &mut [Section], config: &mut Config, report: &mut Report) -> Global {
    let mut global = Global::default();
    let lines: Vec<Line> =
        sections.iter().filter(|it| it.kind == "global").flat_map(|it| it.lines.clone()).collect();
    for line in &lines {
        match line.word(0) {
            "log" => destination(line, config, report),
            "maxconn" => global.maxconn = line.word(1).parse().ok().map(|it| (line.number, it)),
            "hard-stop-after" => {
                if let Some(time) = milliseconds(line.word(1)) {
                    config.shutdown.set("grace", duration(time.clamp(1000, 86_400_000)));
                    report.carried(line.number);
                }
            }
            "crt-base" | "ca-base" => {
                below(sections, line);
                report.carried(line.number);
            }
            _ => other(line, report),
        }
    }
    global
}

/// The results of lines that set no option.
fn other(line: &Line, report: &mut Report) {
    let number = line.number;
    let has = |word: &str| line.words.iter().any(|it| it == word);
    match line.word(0) {
        "ssl-default-bind-options" | "ssl-default-server-options" => {
            if line.words.windows(2).any(|it| it[0] == "ssl-min-ver" && it[1] == "TLSv1.3") {
                report.changes(number, "tls = { profile = \"modern\" } is for TLS 1.3 alone");
            }
            if has("no-tlsv12") || has("force-tlsv12") || has("ssl-max-ver") || has("no-tlsv13") {
                report.changes(number, "versions are those of profile: TLS 1.2 and 1.3, or 1.3");
            }
            if has("TLSv1.0") || has("TLSv1.1") || has("SSLv3") {
                report.changes(number, "TLS 1.2 is the oldest version");
            }
        }
        word if word.starts_with("ssl-default-") => {
            report.changes(number, "suites are those of `profile`");
        }
        "ssl-server-verify" if line.word(1) == "none" => report.changes(
            number,
            "pools verify their backends; tls = { verify = false } of a pool does not",
        ),
        "ssl-server-verify" => {}
        "stats" if line.word(1) == "socket" => report.changes(
            number,
            "programs that write to this socket need `equipoise` commands or the API",
        ),
        "stats" => {}
        "log-tag" => report.changes(number, "the program in syslog is `equipoise`"),
        "maxconnrate" | "maxsessrate" | "maxsslconn" | "maxsslrate" => report.lost(
            number,
            "[[session.limit]] with by = \"front-door\" has `rate` and `connections`",
        ),
        "setenv" | "presetenv" | "resetenv" | "unsetenv" => {
            report.changes(number, "the translation replaces no variables: write their values");
        }
        "tune.bufsize" | "tune.maxrewrite" => {
            report.changes(number, "head-max of a front door is the largest head (32KiB)");
        }
        "tune.http.maxhdr" => {
            report.changes(number, "headers-max of a front door has the number (100)");
        }
        "tune.h2.max-concurrent-streams" | "tune.h2.fe.max-concurrent-streams" => {
            report.changes(number, "streams-max of a front door has the number (100)");
        }
        "lua-load" | "lua-load-per-thread" | "lua-prepend-path" => {
            report.lost(number, "equipoise runs no scripts");
        }
        word if NOTHING.contains(&word) || word.starts_with("tune.") => {}
        word => report.lost(number, format!("equipoise has no {word}")),
    }
}

/// `crt-base` and `ca-base`: the folder of names that are not absolute.
fn below(sections: &mut [Section], base: &Line) {
    let keys: &[&str] = if base.word(0) == "crt-base" {
        &["crt"]
    } else {
        &["ca-file", "ca-verify-file", "crl-file"]
    };
    let folder = base.word(1).trim_end_matches('/');
    for line in sections.iter_mut().flat_map(|it| &mut it.lines) {
        for at in 1..line.words.len() {
            let word = &line.words[at];
            if keys.contains(&line.word(at - 1)) && !word.starts_with(['/', '@']) {
                line.words[at] = format!("{folder}/{word}");
            }
        }
    }
}

/// `log`: the destination of the access log. `global` names that of the section `global`.
pub(super) fn destination(line: &Line, config: &mut Config, report: &mut Report) {
    const OTHER: &str = "lines have equipoise's fields and facility local0; events of the process \
                         go to standard error";
    let number = line.number;
    let address = line.word(1);
    if address == "global" {
        report.carried(number);
        return;
    }
    let host_and_port = || {
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "514"));
        let ip: std::net::IpAddr = host.trim_matches(['[', ']']).parse().ok()?;
        let port: u16 = port.parse().ok()?;
        Some(format!("syslog:{}", std::net::SocketAddr::new(ip, port)))
    };
    let to = match address {
        "/dev/log" => Some("syslog".to_string()),
        "stdout" | "fd@1" => Some("stdout".to_string()),
        "stderr" | "fd@2" => Some("stderr".to_string()),
        path if path.starts_with('/') => Some(format!("syslog:{path}")),
        _ => host_and_port(),
    };
    match to {
        None => {
            report.lost(number, "access-log of [log] has IP:PORT or a socket of a syslog server")
        }
        Some(to) if config.log.get("access-log").is_some_and(|it| it.as_str() != Some(&to)) => {
            report.lost(number, "the access log has one destination: that of an earlier line");
        }
        Some(to) => {
            config.log.set("access-log", to);
            report.carried(number);
            report.changes(number, OTHER);
        }
    }
}

impl Global {
    /// `maxconn` is the limit of each front door that has none.
    pub(super) fn apply(&self, config: &mut Config, report: &mut Report) {
        let Some((number, limit)) = self.maxconn.filter(|it| it.1 > 0) else { return };
        for door in config.doors.iter_mut().filter(|it| !it.options.has("connections-max")) {
            door.options.set("connections-max", limit.min(10_000_000));
        }
        report.carried(number);
        report.changes(
            number,
            "the limit is connections-max of each front door without its own, for each data-plane \
             thread, and not one of the process",
        );
    }
}
