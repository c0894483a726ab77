//! `tcp-request` rules, refusals and names of TLS of a front door.

use super::condition::{Conjunction, Test, split};
use super::frontend::Building;
use super::rules::SERVED;
use super::words::{Line, milliseconds};
use crate::model::{Options, name, rate};

impl Building<'_> {
    /// `tcp-request`.
    pub(super) fn tcp_rule(&mut self, line: &Line) {
        let number = line.number;
        let (rule, condition) = split(line.from(1));
        let words: Vec<&str> = rule.iter().map(String::as_str).collect();
        match words[..] {
            ["inspect-delay", time] => {
                if let Some(time) = milliseconds(time) {
                    self.door
                        .options
                        .set("header-timeout", crate::model::duration(time.clamp(100, 3_600_000)));
                }
                self.report.carried(number);
            }
            [_, "reject" | "silent-drop", ..] => {
                let condition = self.proxy.acls.condition(condition);
                let is_done = match condition == [Vec::new()] {
                    true => self.refuses_the_rest(),
                    false => self.refuses(number, &condition),
                };
                if is_done {
                    self.report.carried(number);
                } else {
                    self.report
                        .lost(number, format!("a front door has allow, deny and limit: {SERVED}"));
                }
            }
            [_, "accept", ..] => {
                let condition = self.proxy.acls.condition(condition);
                match self.accepted(&condition) {
                    Some(sources) if self.is_closed() => {
                        sources.into_iter().for_each(|it| self.door.options.push("allow", it));
                        self.report.carried(number);
                    }
                    _ if condition.iter().all(is_hello) => self.report.carried(number),
                    _ => self
                        .report
                        .lost(number, "allow and deny of a front door: the longest prefix decides"),
                }
            }
            [_, "expect-proxy", ..] => {
                self.door.options.set("accept-proxy", true);
                self.report.carried(number);
            }
            [_, track, "src", ..] if track.starts_with("track-sc") => self.report.carried(number),
            [_, track, ..] if track.starts_with("track-sc") => {
                self.report.lost(number, "[[session.limit]] counts by source or by header");
            }
            _ => self
                .report
                .lost(number, format!("a front door has no tcp-request {}", words.join(" "))),
        }
    }

    /// True if connections that no rule accepts are refused.
    fn is_closed(&self) -> bool {
        let is_final = |line: &Line| line.word(2) == "reject" && line.words.len() == 3;
        self.proxy.tcp_rules.iter().any(is_final)
    }

    /// The sources of a rule that accepts by source alone.
    fn accepted(&self, condition: &[Conjunction]) -> Option<Vec<String>> {
        let mut all = Vec::new();
        for conjunction in condition {
            let [(true, tests)] = &conjunction[..] else { return None };
            for test in tests {
                all.extend(sources(test)?);
            }
        }
        Some(all)
    }

    /// A rejection of all other connections: after rules that accept the hello of TLS, or sources.
    fn refuses_the_rest(&mut self) -> bool {
        let accepts = self.proxy.tcp_rules.iter().filter(|it| it.word(2) == "accept");
        let conditions: Vec<_> =
            accepts.map(|it| self.proxy.acls.condition(split(it.from(1)).1)).collect();
        let has_hello = conditions.iter().any(|it| it.iter().any(is_hello));
        let has_sources = conditions.iter().any(|it| self.accepted(it).is_some());
        if conditions.is_empty() {
            self.door.options.push("deny", "0.0.0.0/0");
            self.door.options.push("deny", "::/0");
            return true;
        }
        let is_known =
            |it: &Vec<Conjunction>| it.iter().all(is_hello) || self.accepted(it).is_some();
        conditions.iter().all(is_known) && has_hello != has_sources
    }

    /// Refuses clients by `allow`, `deny`, `trusted` or a limit. False if the condition is another,
    /// or does not go with those before: a longest prefix decides, and HAProxy's first rule.
    pub(super) fn refuses(&mut self, number: usize, condition: &[Conjunction]) -> bool {
        let mut rules: Vec<(&'static str, Vec<String>)> = Vec::new();
        let is_proxy = self.door.options.has("accept-proxy");
        for conjunction in condition {
            let [(is_met, tests)] = &conjunction[..] else { return false };
            if let [Test::Counter { name, track, table, above }] = &tests[..] {
                let (name, track, table, above) =
                    (name.clone(), track.clone(), table.clone(), *above);
                return *is_met
                    && condition.len() == 1
                    && self.limit(number, &name, track, &table, above);
            }
            let [test] = &tests[..] else { return false };
            let Some(all) = sources(test) else { return false };
            let key = match (is_met, is_proxy) {
                (true, _) => "deny",
                (false, true) => "trusted",
                (false, false) => "allow",
            };
            rules.push((key, all));
        }
        let has = |key: &str| self.door.options.has(key);
        let kinds =
            ["deny", "allow", "trusted"].map(|key| rules.iter().filter(|it| it.0 == key).count());
        let is_mixed = kinds[0] > 0 && has("allow")
            || kinds[1] > 0 && (has("allow") || has("deny"))
            || kinds[2] > 0 && has("trusted")
            || kinds[1] + kinds[2] > 1
            || kinds[0] > 0 && kinds[1] > 0;
        if is_mixed || rules.is_empty() {
            return false;
        }
        for (key, all) in rules {
            all.into_iter().for_each(|prefix| self.door.options.push(key, prefix));
        }
        true
    }

    /// A limit for a counter. `track`, `table`: as in [`Test::Counter`].
    fn limit(
        &mut self,
        number: usize,
        counter: &str,
        track: Option<String>,
        table: &str,
        above: u64,
    ) -> bool {
        let own = self.proxy.tracks.iter().find(|it| Some(&it.0) == track.as_ref());
        let mut name = Some(table.to_string()).filter(|it| !it.is_empty());
        if track.is_some() {
            // A counter that is kept for some requests alone is no limit of the front door.
            let Some((_, table, false)) = own else { return false };
            name = name.or(table.clone());
        }
        let mut limit = Options::default();
        if counter == "conn_cur" {
            limit.set("connections", i64::try_from(above.max(1)).unwrap_or(i64::MAX));
            self.door.limits.push(limit);
            return true;
        }
        let keeper = match &name {
            Some(name) => self.all.iter().find(|it| it.name == *name),
            None => Some(self.proxy),
        };
        let stored = keeper.and_then(|it| it.stick_table.as_ref()).and_then(|table| {
            let text = table.words.join(" ");
            let at = text.find(&format!("{counter}("))?;
            let time = text[at..].split(['(', ')']).nth(1)?;
            Some((table.number, milliseconds(time)?))
        });
        let Some((table, time)) = stored else { return false };
        let Some(rate) = rate(above, time.div_ceil(1000)) else { return false };
        limit.set("rate", rate).set("burst", i64::try_from(above.clamp(1, 1_000_000)).unwrap_or(1));
        self.door.limits.push(limit);
        self.report.carried(table);
        self.report.changes(
            number,
            "after `burst` at once, the next ones come at the pace of `rate`, not by windows",
        );
        true
    }

    pub(super) fn sni(&mut self, line: &Line) {
        let (_, condition) = split(line.from(2));
        let condition = self.proxy.acls.condition(condition);
        let names = condition.iter().map(|it| match &it[..] {
            [(true, tests)] => match &tests[..] {
                [Test::Sni(names)] => Some(names.clone()),
                _ => None,
            },
            _ => None,
        });
        let Some(names) = names.collect::<Option<Vec<_>>>() else {
            self.report.lost(
                line.number,
                "a tcp front door chooses by names of TLS alone ([[session.sni]])",
            );
            return;
        };
        self.report.carried(line.number);
        let mut sni = Options::default();
        names.into_iter().flatten().for_each(|name| sni.push("names", name));
        sni.set("pool", name(line.word(1)));
        if !self.door.options.has("pool") {
            self.door.options.set("pool", name(line.word(1)));
            self.report.changes(
                line.number,
                "clients with other names come to this pool, too; HAProxy refuses them",
            );
        }
        self.door.sni.push(sni);
    }
}

/// True if a rule waits for the hello of TLS.
fn is_hello(conjunction: &Conjunction) -> bool {
    let mut tests = conjunction.iter().flat_map(|(_, tests)| tests);
    !conjunction.is_empty()
        && tests.all(|it| matches!(it, Test::Unknown(text) if text.contains("ssl_hello_type")))
}

/// The prefixes of a test of the client's address.
fn sources(test: &Test) -> Option<Vec<String>> {
    let Test::Any(all) = test else { return None };
    all.iter().all(|(key, _)| *key == "source").then(|| all.iter().map(|it| it.1.clone()).collect())
}
