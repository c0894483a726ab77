//! The settings of a `frontend`, `backend` or `listen`, with those of its `defaults`.

use super::condition::Acls;
use super::rules::SERVED;
use super::words::{Line, Section, milliseconds};
use crate::model::{Config, duration};
use crate::report::Report;

/// Settings of a proxy of HAProxy.
#[derive(Clone, Debug, Default)]
pub(super) struct Proxy {
    pub(super) name: String,
    pub(super) has_front: bool,
    pub(super) has_back: bool,
    pub(super) is_tcp: bool,
    pub(super) acls: Acls,
    pub(super) binds: Vec<Line>,
    pub(super) maxconn: Option<Line>,
    pub(super) timeouts: Vec<(String, u64, usize)>,
    pub(super) forwards: bool,
    pub(super) retries: Option<Line>,
    pub(super) retry_on: Option<Line>,
    pub(super) balance: Option<Line>,
    pub(super) cookie: Option<Line>,
    pub(super) check: Option<Line>,
    pub(super) check_rules: Vec<Line>,
    pub(super) server_defaults: Vec<Line>,
    pub(super) servers: Vec<Line>,
    pub(super) templates: Vec<Line>,
    pub(super) stick_table: Option<Line>,
    pub(super) tcp_rules: Vec<Line>,
    pub(super) request_rules: Vec<Line>,
    pub(super) response_rules: Vec<Line>,
    pub(super) switches: Vec<Line>,
    pub(super) default_backend: Option<Line>,
    pub(super) monitor: Option<Line>,
    logs: Vec<Line>,
    pub(super) is_disabled: bool,
    has_statistics: bool,
    /// The counters that rules keep: number, table and whether under a condition.
    pub(super) tracks: Vec<(String, Option<String>, bool)>,
}

/// Keywords that need no counterpart: resources of HAProxy itself, names, and defaults.
const NOTHING: &[&str] = &[
    "description",
    "fullconn",
    "id",
    "load-server-state-from-file",
    "backlog",
    "max-keep-alive-queue",
    "bind-process",
    "guid",
    "clitcpka-cnt",
    "clitcpka-idle",
    "clitcpka-intvl",
    "srvtcpka-cnt",
    "srvtcpka-idle",
    "srvtcpka-intvl",
    "max-session-srv-conns",
    "tune",
    "enabled",
];

const NOTHING_OPTIONS: &[&str] = &[
    "dontlognull",
    "httplog",
    "tcplog",
    "http-keep-alive",
    "redispatch",
    "log-health-checks",
    "clitcpka",
    "srvtcpka",
    "tcpka",
    "tcp-smart-accept",
    "tcp-smart-connect",
    "splice-auto",
    "splice-request",
    "splice-response",
    "contstats",
    "socket-stats",
    "abortonclose",
    "http-use-htx",
    "idle-close-on-response",
    "http-ignore-probes",
    "http-no-delay",
    "independent-streams",
    "nolinger",
    "http-pretend-keepalive",
    "allbackups",
    "tcp-check",
    "forwardfor",
    "httpchk",
];

impl Proxy {
    /// Reads a section after its defaults.
    pub(super) fn read(section: &Section, defaults: &[Line], report: &mut Report) -> Proxy {
        let mut proxy = Proxy {
            name: section.name.clone(),
            has_front: section.kind != "backend",
            has_back: section.kind != "frontend",
            ..Proxy::default()
        };
        for line in defaults.iter().chain(&section.lines) {
            proxy.line(line, report);
        }
        proxy
    }

    /// Keeps a rule of requests or connections. False for other lines.
    fn keeps(&mut self, line: &Line) -> bool {
        match line.word(0) {
            "tcp-request" | "tcp-response" => self.tcp_rules.push(line.clone()),
            "http-request" | "redirect" => self.request_rules.push(line.clone()),
            "block" => {
                let words = ["http-request", "deny"].map(str::to_string).to_vec();
                let words = [words, line.from(1).to_vec()].concat();
                self.request_rules.push(Line { number: line.number, words });
            }
            _ => return false,
        }
        self.track(line);
        true
    }

    /// Lines about the log, reuse and defaults that are taken back. False for other lines.
    fn aside(&mut self, line: &Line, report: &mut Report) -> bool {
        let number = line.number;
        match line.word(0) {
            "log" => self.logs.push(line.clone()),
            "log-format" | "log-format-sd" | "error-log-format" => {
                report.changes(number, "access-fields of [log] chooses the fields of a line")
            }
            "log-tag" => report.changes(number, "the program in syslog is `equipoise`"),
            "unique-id-format" | "unique-id-header" => report
                .lost(number, "[tracing] sends traceparent; X-Request-ID of clients is logged"),
            "capture" => report.changes(
                number,
                "access-fields of [log] chooses among its fields, such as user_agent and referer",
            ),
            "hash-balance-factor" => report
                .changes(number, "concurrency bounds the requests of a backend that is hashed to"),
            "http-reuse" if line.word(1) == "never" => report.changes(
                number,
                "connections to backends are used for requests of several clients",
            ),
            "http-reuse" => {}
            "no" if line.word(1) == "log" => self.logs.clear(),
            "no" if line.word(1) == "option" && line.word(2) == "httpchk" => self.check = None,
            "no" if line.word(1) == "option" && line.word(2) == "redispatch" => {
                report.changes(number, "a request is tried again at another backend")
            }
            "no" => {}
            _ => return false,
        }
        true
    }

    fn line(&mut self, line: &Line, report: &mut Report) {
        if self.keeps(line) || self.aside(line, report) {
            return;
        }
        let kept = line.clone();
        let number = line.number;
        match line.word(0) {
            "mode" => match line.word(1) {
                mode @ ("http" | "tcp") => {
                    self.is_tcp = mode == "tcp";
                    report.carried(number);
                }
                other => report.lost(number, format!("equipoise has no mode {other}")),
            },
            "bind" => self.binds.push(kept),
            "maxconn" => self.maxconn = Some(kept),
            "timeout" => self.timeout(line, report),
            "retries" => self.retries = Some(kept),
            "retry-on" => self.retry_on = Some(kept),
            "balance" => self.balance = Some(kept),
            "hash-type" => {
                if line.word(1) == "consistent" {
                    report.carried(number);
                } else {
                    report.changes(number, "source-hash is consistent when backends change");
                }
            }
            "cookie" => self.cookie = Some(kept),
            "http-check" | "tcp-check" => self.check_rules.push(kept),
            "default-server" => self.server_defaults.push(kept),
            "server" => self.servers.push(kept),
            "server-template" => self.templates.push(kept),
            "stick-table" => self.stick_table = Some(kept),
            "http-response" | "http-after-response" => self.response_rules.push(kept),
            "use_backend" => self.switches.push(kept),
            "default_backend" => self.default_backend = Some(kept),
            "monitor-uri" => self.monitor = Some(kept),
            "acl" => {
                self.acls.read(line);
                report.carried(number);
            }
            "errorfile" => errorfile(line, report),
            "option" => self.option(line, report),
            "stick" => report.lost(
                number,
                "a pool has sticky = { cookie = ... } or scheduler = \"source-hash\"",
            ),
            "compression" | "filter" => {
                report.lost(number, "equipoise does not compress; the backend does")
            }
            "disabled" => {
                self.is_disabled = true;
                report.lost(number, "a front door that is stated serves: it is left out");
            }
            "stats" => {
                self.has_statistics |= ["enable", "uri"].contains(&line.word(1));
                report.changes(
                    number,
                    "equipoise status, /metrics and the dashboard show the figures",
                );
            }
            "email-alert" => {
                report.lost(number, "equipoise events --follow, and rules on /metrics")
            }
            "use-server" => report.lost(number, "a pool for these backends, and a route to it"),
            word if NOTHING.contains(&word) => {}
            word => report.lost(number, format!("equipoise has no {word}")),
        }
    }

    /// `track-sc0 src table NAME if ...`.
    fn track(&mut self, line: &Line) {
        let Some(at) = line.words.iter().position(|it| it.starts_with("track-sc")) else { return };
        let number = line.words[at].trim_start_matches("track-sc").to_string();
        let table = line.words.windows(2).find(|it| it[0] == "table").map(|it| it[1].clone());
        let has_condition = line.words.iter().any(|it| it == "if" || it == "unless");
        self.tracks.push((number, table, has_condition));
    }

    /// True if it only shows statistics, or only has a table of counters.
    pub(super) fn is_empty(&self) -> bool {
        let has_target = !self.switches.is_empty() || self.default_backend.is_some();
        let has_servers = !self.servers.is_empty() || !self.templates.is_empty();
        let is_aside = self.has_statistics || (self.stick_table.is_some() && !self.has_front);
        is_aside && !has_target && !has_servers
    }

    /// True if its connections are logged.
    pub(super) fn is_logged(&self) -> bool {
        !self.logs.is_empty()
    }

    /// The destination of its lines.
    pub(super) fn log(&self, config: &mut Config, report: &mut Report) {
        self.logs.iter().for_each(|line| super::global::destination(line, config, report));
    }

    /// Notes the rules to which no front door came, and the time-outs that have no option.
    pub(super) fn unused(&self, report: &mut Report) {
        for (name, _, number) in &self.timeouts {
            match name.as_str() {
                "http-keep-alive" => report.changes(
                    *number,
                    "idle-timeout, which is `timeout client`, is also the time between requests",
                ),
                "client-fin" | "server-fin" => {
                    report.changes(*number, "idle-timeout bounds half-closed connections, too")
                }
                _ => {}
            }
        }
        let is_harmless = |line: &Line| ["inspect-delay", "set-nice"].contains(&line.word(1));
        let all = self.request_rules.iter().chain(&self.response_rules).chain(&self.tcp_rules);
        for line in all
            .filter(|it| !is_harmless(it) && report.is_open(it.number))
            .cloned()
            .collect::<Vec<_>>()
        {
            let refuses = ["deny", "reject", "tarpit", "silent-drop", "auth"];
            let is_refusal = line.words.iter().any(|it| refuses.contains(&it.as_str()));
            let served = if is_refusal { format!(": {SERVED}") } else { String::new() };
            report.lost(line.number, format!("no route of a front door has this rule{served}"));
        }
    }

    fn option(&mut self, line: &Line, report: &mut Report) {
        let number = line.number;
        match line.word(1) {
            "forwardfor" => {
                self.forwards = true;
                report.carried(number);
                if line.words.iter().any(|it| it == "header") {
                    report.changes(number, "the header is X-Forwarded-For");
                }
            }
            "httpchk" => self.check = Some(line.clone()),
            "tcp-check" | "redispatch" => report.carried(number),
            "dontlog-normal" => report.changes(
                number,
                "requests without errors are logged, too; access-log is the share that is logged",
            ),
            "log-separate-errors" => {
                report.changes(number, "all lines have the severity informational")
            }
            "logasap" => report.changes(number, "requests are logged at their end"),
            "http-buffer-request" => {
                report.changes(number, "a body is sent to the backend as it arrives")
            }
            "prefer-last-server" => report.changes(
                number,
                "requests of one connection are balanced each by itself, or by `sticky`",
            ),
            "checkcache" => report.lost(number, "responses that may be cached are not examined"),
            "h1-case-adjust-bogus-client" | "h1-case-adjust-bogus-server" => {
                report.lost(number, "names of headers are not changed")
            }
            "originalto" => report.lost(number, "backends receive no X-Original-To"),
            "httpclose" | "forceclose" | "http-tunnel" | "http-server-close" => {
                report.changes(number, "equipoise keeps connections open");
            }
            "accept-invalid-http-request" | "accept-unsafe-violations-in-http-request" => {
                report.lost(number, "equipoise refuses requests that are not HTTP");
            }
            "transparent" => {
                report.lost(number, "[[packet]] keeps the client's address; send-proxy states it")
            }
            "mysql-check" | "pgsql-check" | "redis-check" | "ldap-check" | "smtpchk"
            | "ssl-hello-chk" | "spop-check" | "external-check" => {
                report.changes(number, "the check opens a connection (health = { tcp = true })")
            }
            "allbackups" => report.carried(number),
            it if NOTHING_OPTIONS.contains(&it) => {}
            it => report.lost(number, format!("equipoise has no option {it}")),
        }
    }

    fn timeout(&mut self, line: &Line, report: &mut Report) {
        let Some(time) = milliseconds(line.word(2)) else {
            report.lost(line.number, format!("{:?} is no time", line.word(2)));
            return;
        };
        self.timeouts.retain(|(name, ..)| name != line.word(1));
        self.timeouts.push((line.word(1).to_string(), time, line.number));
    }

    /// A time-out as a duration between `least` and `most` milliseconds, and notes its line as
    /// carried.
    pub(super) fn time(
        &self,
        name: &str,
        least: u64,
        most: u64,
        report: &mut Report,
    ) -> Option<String> {
        let (_, time, number) = self.timeouts.iter().find(|(it, ..)| it == name)?;
        let taken = (*time).clamp(least, most);
        if taken == *time {
            report.carried(*number);
        } else {
            report.changes(*number, format!("the time is {}", duration(taken)));
        }
        Some(duration(taken))
    }
}

fn errorfile(line: &Line, report: &mut Report) {
    let how = format!(
        "set error-pages = \"/etc/equipoise/errors\" in [[session]], and put the body of the file, without its head, \
         there as {}.html",
        line.word(1)
    );
    report.changes(line.number, how);
}
