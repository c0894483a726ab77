//! The configuration that a translation builds.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use toml::Value;

use crate::report::{Report, Verdict, plain};

/// Options of a table, in the order in which they are written.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Options(Vec<(&'static str, Value)>);

impl Options {
    /// Sets an option, or replaces its value.
    pub(crate) fn set(&mut self, key: &'static str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.0.iter_mut().find(|(it, _)| *it == key) {
            Some((_, old)) => *old = value,
            None => self.0.push((key, value)),
        }
        self
    }

    /// Adds a value to a list, once.
    pub(crate) fn push(&mut self, key: &'static str, value: impl Into<Value>) {
        let value = value.into();
        match self.0.iter_mut().find(|(it, _)| *it == key) {
            Some((_, Value::Array(all))) if all.contains(&value) => {}
            Some((_, Value::Array(all))) => all.push(value),
            Some((_, one)) => *one = Value::Array(vec![one.clone(), value]),
            None => self.0.push((key, Value::Array(vec![value]))),
        }
    }

    pub(crate) fn get(&self, key: &str) -> Option<&Value> {
        self.0.iter().find(|(it, _)| *it == key).map(|(_, value)| value)
    }

    /// The value of an option that is a text.
    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.get(key)?.as_str()
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn remove(&mut self, key: &str) {
        self.0.retain(|(it, _)| *it != key);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds the options of `other` that are not set.
    pub(crate) fn fill(&mut self, other: &Options) {
        for (key, value) in &other.0 {
            if !self.has(key) {
                self.0.push((key, value.clone()));
            }
        }
    }

    fn lines(&self) -> String {
        self.0.iter().map(|(key, value)| format!("{key} = {}\n", written(value))).collect()
    }

    /// As an inline table.
    fn inline(&self) -> String {
        let all: Vec<_> =
            self.0.iter().map(|(key, it)| format!("{key} = {}", written(it))).collect();
        if all.is_empty() { "{}".to_string() } else { format!("{{ {} }}", all.join(", ")) }
    }
}

/// A value as TOML. A list of one string is written as that string.
fn written(value: &Value) -> String {
    match value {
        Value::Array(all) if all.len() == 1 && all[0].is_str() => all[0].to_string(),
        _ => value.to_string(),
    }
}

/// A pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pool {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) backends: Vec<Options>,
    pub(crate) queue: Options,
    pub(crate) health: Options,
    pub(crate) passive: Options,
    pub(crate) sticky: Option<Options>,
    pub(crate) tls: Option<Options>,
    /// `[pool.discover.dns]`.
    pub(crate) names: Option<Options>,
}

/// A front door.
#[derive(Clone, Debug, Default)]
pub(crate) struct Door {
    pub(crate) name: String,
    pub(crate) options: Options,
    pub(crate) hsts: Option<Options>,
    pub(crate) tls: Option<Options>,
    /// Certificates that have their key in a file of its own: `chain` and `key`; otherwise `chain`.
    pub(crate) certificates: Vec<Options>,
    pub(crate) clients: Option<Options>,
    pub(crate) limits: Vec<Options>,
    pub(crate) sni: Vec<Options>,
    pub(crate) routes: Vec<Route>,
    /// Remarks for the reader of the translation.
    pub(crate) remarks: Vec<String>,
    /// Lines of the old file that have the address.
    pub(crate) listen_lines: Vec<usize>,
    /// Whether the old proxy asks for passwords.
    pub(crate) has_passwords: bool,
}

impl Door {
    /// Reports a line that asks for passwords, before all other lines. The front door will listen
    /// for this machine alone ([`Config::keep_to_this_machine`]), because the translation does not
    /// ask for them.
    pub(crate) fn without_passwords(&mut self, number: usize, report: &mut Report) {
        report.lost(
            number,
            "PASSWORDS ARE NOT CHECKED: whoever reaches the front door is served, also requests \
             that the old proxy answers 401. It therefore listens on 127.0.0.1 only. Before it has \
             its public address, let the application ask for passwords, or a proxy in front of it",
        );
        report.alarm(number);
        self.has_passwords = true;
    }
}

/// A route of a front door.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Route {
    pub(crate) options: Options,
    pub(crate) pools: Vec<Options>,
    pub(crate) redirect: Options,
    pub(crate) answer: Options,
    pub(crate) rewrite: Options,
    pub(crate) mirror: Options,
    pub(crate) request: Options,
    pub(crate) response: Options,
    pub(crate) limits: Vec<Options>,
}

impl Route {
    /// A route with these conditions.
    pub(crate) fn of(conditions: &Options) -> Route {
        Route { options: conditions.clone(), ..Route::default() }
    }

    /// True if the route answers by itself.
    pub(crate) fn is_terminal(&self) -> bool {
        !self.redirect.is_empty() || !self.answer.is_empty()
    }
}

/// A VIP of the packet level.
#[derive(Clone, Debug, Default)]
pub(crate) struct Vip {
    pub(crate) options: Options,
}

/// A whole configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) pools: Vec<Pool>,
    pub(crate) doors: Vec<Door>,
    pub(crate) vips: Vec<Vip>,
    pub(crate) flows: Options,
    pub(crate) log: Options,
    pub(crate) shutdown: Options,
}

impl Config {
    /// Gives front doors that asked for passwords addresses of loopback, which no other front door
    /// has, and reports it.
    pub(crate) fn keep_to_this_machine(&mut self, report: &mut Report) {
        let listens = |door: &Door| door.options.text("listen").unwrap_or_default().to_string();
        let others = self.doors.iter().filter(|it| !it.has_passwords);
        let mut taken: BTreeSet<String> = others.map(listens).collect();
        for door in self.doors.iter_mut().filter(|it| it.has_passwords) {
            let before = listens(door);
            let port = before.rsplit(':').next().unwrap_or_default();
            let first = u32::from(Ipv4Addr::LOCALHOST);
            let mut addresses = (first..).map(|it| format!("{}:{port}", Ipv4Addr::from(it)));
            let Some(listen) = addresses.find(|it| taken.insert(it.clone())) else { continue };
            door.remarks.push(
                "PASSWORDS ARE NOT CHECKED. It is for this machine alone, until the application \
                 asks for them."
                    .to_string(),
            );
            if listen == before {
                continue;
            }
            for &line in &door.listen_lines {
                report.changes(
                    line,
                    format!(
                        "the front door listens on {listen} instead of {before}, because \
                         passwords are not checked; set `listen` when the application or a proxy \
                         asks for them"
                    ),
                );
                report.alarm(line);
            }
            door.options.set("listen", listen);
        }
    }

    /// The file's text, with the lines that are not carried as comments at its top.
    pub(crate) fn text(&self, from: &str, report: &Report) -> String {
        let mut text = format!("# Translated from {from}. {}.\n", report.summary());
        for line in report.worst() {
            let (what, why) = match &line.verdict {
                Verdict::Lost(why) => ("not carried", why),
                Verdict::Changes(why) => ("changes", why),
                Verdict::Carried | Verdict::NeedsNothing => continue,
            };
            text.push_str(&format!(
                "#\n# line {}: {}\n#   {what}: {why}\n",
                line.number, line.text
            ));
        }
        for pool in &self.pools {
            text.push_str(&pool.text());
        }
        for door in &self.doors {
            text.push_str(&door.text());
        }
        for vip in &self.vips {
            text.push_str(&format!("\n[[packet]]\n{}", vip.options.lines()));
        }
        for (table, options) in
            [("flows", &self.flows), ("log", &self.log), ("shutdown", &self.shutdown)]
        {
            if !options.is_empty() {
                text.push_str(&format!("\n[{table}]\n{}", options.lines()));
            }
        }
        text
    }
}

impl Pool {
    fn text(&self) -> String {
        let mut text = format!(
            "\n[[pool]]\nname = {}\n{}",
            Value::from(self.name.clone()),
            self.options.lines()
        );
        if !self.backends.is_empty() {
            let all: String =
                self.backends.iter().map(|it| format!("  {},\n", it.inline())).collect();
            text.push_str(&format!("backends = [\n{all}]\n"));
        }
        for (key, options) in
            [("queue", &self.queue), ("health", &self.health), ("passive", &self.passive)]
        {
            if !options.is_empty() {
                text.push_str(&format!("{key} = {}\n", options.inline()));
            }
        }
        for (key, options) in [("sticky", &self.sticky), ("tls", &self.tls)] {
            if let Some(options) = options {
                text.push_str(&format!("{key} = {}\n", options.inline()));
            }
        }
        if let Some(names) = &self.names {
            text.push_str(&format!("[pool.discover.dns]\n{}", names.lines()));
        }
        text
    }
}

impl Door {
    fn text(&self) -> String {
        let mut text = String::from("\n");
        for remark in &self.remarks {
            text.push_str(&format!("# {}\n", plain(remark)));
        }
        text.push_str(&format!(
            "[[session]]\nname = {}\n{}",
            Value::from(self.name.clone()),
            self.options.lines()
        ));
        if let Some(hsts) = &self.hsts {
            text.push_str(&format!("hsts = {}\n", hsts.inline()));
        }
        if let Some(tls) = &self.tls {
            let certificates: Vec<_> = self.certificates.iter().map(Options::inline).collect();
            text.push_str(&format!(
                "\n[session.tls]\ncertificates = [{}]\n{}",
                certificates.join(", "),
                tls.lines()
            ));
            if let Some(clients) = &self.clients {
                text.push_str(&format!("clients = {}\n", clients.inline()));
            }
        }
        for limit in &self.limits {
            text.push_str(&format!("\n[[session.limit]]\n{}", limit.lines()));
        }
        for sni in &self.sni {
            text.push_str(&format!("\n[[session.sni]]\n{}", sni.lines()));
        }
        for route in &self.routes {
            text.push_str(&route.text());
        }
        text
    }
}

impl Route {
    fn text(&self) -> String {
        let mut text = format!("\n[[session.route]]\n{}", self.options.lines());
        let tables = [
            ("redirect", &self.redirect),
            ("answer", &self.answer),
            ("rewrite", &self.rewrite),
            ("mirror", &self.mirror),
            ("request-headers", &self.request),
            ("response-headers", &self.response),
        ];
        if !self.pools.is_empty() {
            let all: Vec<_> = self.pools.iter().map(Options::inline).collect();
            text.push_str(&format!("pools = [{}]\n", all.join(", ")));
        }
        for (key, options) in tables {
            if !options.is_empty() {
                text.push_str(&format!("{key} = {}\n", options.inline()));
            }
        }
        for limit in &self.limits {
            text.push_str(&format!("\n[[session.route.limit]]\n{}", limit.lines()));
        }
        text
    }
}

/// A name that equipoise accepts, made of any text.
pub(crate) fn name(text: &str) -> String {
    let fits = |it: char| it.is_ascii_alphanumeric() || ".-_".contains(it);
    let name: String = text.chars().map(|it| if fits(it) { it } else { '-' }).take(64).collect();
    let name = name.trim_start_matches(['.', '-', '_']);
    if name.is_empty() { "unnamed".to_string() } else { name.to_string() }
}

/// True if an address has a port; that of IPv6 is in brackets then.
pub(crate) fn has_port(address: &str) -> bool {
    let parts = address.rsplit_once(':');
    parts.is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    })
}

/// A duration in milliseconds as a configuration has it: the largest unit that divides it.
pub(crate) fn duration(milliseconds: u64) -> String {
    let units = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1000, "s")];
    let unit =
        units.iter().find(|(size, _)| milliseconds >= *size && milliseconds.is_multiple_of(*size));
    unit.map_or_else(
        || format!("{milliseconds}ms"),
        |(size, unit)| format!("{}{unit}", milliseconds / size),
    )
}

/// A rate: `count` in each `seconds`.
pub(crate) fn rate(count: u64, seconds: u64) -> Option<String> {
    if count == 0 || seconds == 0 {
        return None;
    }
    let units = [(1, "s"), (60, "m"), (3600, "h")];
    let exact = units.iter().find(|(length, _)| (count * length).is_multiple_of(seconds));
    let (length, unit) = exact.unwrap_or(&units[2]);
    let number = (count * length / seconds).max(1);
    (number <= 1_000_000_000).then(|| format!("{number}/{unit}"))
}
