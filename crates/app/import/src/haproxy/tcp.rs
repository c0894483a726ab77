//! `tcp-request` rules, refusals and names of TLS of a front door.

use super::condition::{Conjunction, Test, split};
use super::frontend::Building;
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
                // After the hello of TLS was awaited, connections without one are refused.
                let is_final = condition == [Vec::new()];
                if is_final || self.refuses(number, &condition) {
                    self.report.carried(number);
                } else {
                    self.report.lost(number, "a front door has allow, deny and limit: connections that HAProxy refuses are served");
                }
            }
            [_, "accept", ..] => {
                let condition = self.proxy.acls.condition(condition);
                let is_hello = |it: &Conjunction| {
                    it.iter().flat_map(|(_, tests)| tests).all(
                        |it| matches!(it, Test::Unknown(text) if text.contains("ssl_hello_type")),
                    )
                };
                if condition.iter().all(is_hello) {
                    self.report.carried(number);
                } else {
                    self.report
                        .lost(number, "allow and deny of a front door: the longest prefix decides");
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

    /// Refuses clients by `allow`, `deny`, `trusted` or a limit. False if the condition is another.
    pub(super) fn refuses(&mut self, number: usize, condition: &[Conjunction]) -> bool {
        let [conjunction] = condition else {
            return condition.iter().all(|it| self.refuses(number, std::slice::from_ref(it)));
        };
        let [(is_met, tests)] = &conjunction[..] else { return false };
        let sources = |test: &Test| match test {
            Test::Any(all) if all.iter().all(|(key, _)| *key == "source") => Some(all.clone()),
            _ => None,
        };
        if let [test] = &tests[..]
            && let Some(all) = sources(test)
        {
            let is_proxy = self.door.options.has("accept-proxy");
            let key = match (is_met, is_proxy) {
                (true, _) => "deny",
                (false, true) => "trusted",
                (false, false) => "allow",
            };
            all.into_iter().for_each(|(_, prefix)| self.door.options.push(key, prefix));
            return true;
        }
        let [Test::Counter { name, above }] = &tests[..] else { return false };
        let (name, above) = (name.clone(), *above);
        *is_met && self.limit(number, &name, above)
    }

    fn limit(&mut self, number: usize, counter: &str, above: u64) -> bool {
        let mut limit = Options::default();
        if counter == "conn_cur" {
            limit.set("connections", i64::try_from(above.max(1)).unwrap_or(i64::MAX));
            self.door.limits.push(limit);
            return true;
        }
        let tables = std::iter::once(self.proxy).chain(self.all);
        let stored = tables.filter_map(|it| it.stick_table.as_ref()).find_map(|table| {
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
