//! The scheduler of a pool, its times, its cookie and its retries.

use super::proxy::Proxy;
use super::server::Parameters;
use super::words::{Line, milliseconds};
use crate::model::{Options, Pool, duration, name};
use crate::report::Report;

pub(super) fn schedule(
    pool: &mut Pool,
    proxy: &Proxy,
    all: &[(&Line, Parameters)],
    report: &mut Report,
) {
    let weights: Vec<_> = all
        .iter()
        .filter(|(_, it)| !it.contains_key("backup"))
        .map(|(_, it)| it.get("weight"))
        .collect();
    let is_srv = pool
        .names
        .as_ref()
        .and_then(|it| it.get("type"))
        .is_some_and(|it| it.as_str() == Some("srv"));
    let is_weighted =
        weights.iter().any(|it| *it != weights[0]) || is_srv || pool.options.has("slow-start");
    let turns = if is_weighted { "weighted-round-robin" } else { "round-robin" };
    let fewest = if is_weighted { "weighted-least-connection" } else { "least-connection" };
    let Some(line) = &proxy.balance else {
        if pool.backends.len() > 1 || pool.names.is_some() {
            pool.options.set("scheduler", turns);
        }
        return;
    };
    let number = line.number;
    report.carried(number);
    let (how, argument) = line
        .word(1)
        .strip_suffix(')')
        .and_then(|it| it.split_once('('))
        .unwrap_or((line.word(1), ""));
    let hash_by = |part: &str, name: &str| format!("{part}:{name}");
    let scheduler = match how {
        "roundrobin" | "static-rr" => turns,
        "leastconn" => fewest,
        "source" => "source-hash",
        "random" => "power-of-two",
        "hdr" if !argument.is_empty() => {
            pool.options.set("hash-by", hash_by("header", argument));
            "source-hash"
        }
        "url_param" => {
            pool.options.set("hash-by", hash_by("query", line.word(2)));
            "source-hash"
        }
        "hash" if argument.is_empty() && line.word(2) == "src" => "source-hash",
        "first" => {
            report
                .lost(number, "\"least-connection\", and an elastic pool that keeps few backends");
            fewest
        }
        _ => {
            report.lost(number, "scheduler = \"source-hash\" hashes a header, a cookie, a parameter or the client's address");
            turns
        }
    };
    if proxy.is_tcp && pool.options.has("hash-by") {
        report.lost(number, "a tcp front door hashes the client's address");
    }
    pool.options.set("scheduler", scheduler);
}

pub(super) fn times(pool: &mut Pool, proxy: &Proxy, report: &mut Report) {
    if let Some(time) = proxy.time("connect", 10, 600_000, report) {
        pool.options.set("connect-timeout", time);
    }
    let has_limit =
        pool.options.has("concurrency") || pool.backends.iter().any(|it| it.has("concurrency"));
    let mut wait = proxy.time("queue", 10, 600_000, report);
    if has_limit {
        wait = wait.or_else(|| proxy.time("connect", 10, 600_000, report));
    }
    if let Some(wait) = wait {
        pool.queue.set("wait", wait);
    }
    if !proxy.is_tcp
        && let Some(time) = proxy.time("server", 10, 86_400_000, report)
    {
        pool.options.set("response-timeout", time);
    }
}

pub(super) fn cookie(pool: &mut Pool, proxy: &Proxy, report: &mut Report) {
    let Some(line) = &proxy.cookie else { return };
    let number = line.number;
    let words = line.from(2);
    if !words.iter().any(|it| it == "insert") {
        report.lost(number, "sticky = { cookie = ... } sets a cookie of its own (as `insert`)");
        return;
    }
    report.carried(number);
    let mut sticky = Options::default();
    sticky.set("cookie", name(line.word(1)));
    if let Some(at) = words.iter().position(|it| it == "maxlife") {
        if let Some(time) = words.get(at + 1).and_then(|it| milliseconds(it)) {
            sticky.set("max-age", duration(time.max(1000)));
        }
        report.changes(number, "max-age counts from the response that sets the cookie");
    }
    pool.sticky = Some(sticky);
}

pub(super) fn retries(pool: &mut Pool, proxy: &Proxy, report: &mut Report) {
    if let Some(line) = &proxy.retries
        && let Ok(number) = line.word(1).parse::<i64>()
    {
        report.carried(line.number);
        pool.options.set("retries", number.clamp(0, 10));
        if number > 10 {
            report.changes(line.number, "at most 10 retries");
        }
    }
    let Some(line) = &proxy.retry_on else { return };
    report.carried(line.number);
    let mut statuses: Vec<u16> = Vec::new();
    for word in line.from(1) {
        match word.as_str() {
            "none" => {
                pool.options.set("retries", 0);
            }
            "conn-failure" => pool.options.push("retry-on", "connect"),
            "empty-response" => pool.options.push("retry-on", "reset"),
            "all-retryable-errors" => {
                pool.options.push("retry-on", "connect");
                pool.options.push("retry-on", "reset");
                pool.options.push("retry-on", "500-504");
                report.changes(
                    line.number,
                    "time-outs of a response are not retried: the backend may be at work on it",
                );
            }
            "response-timeout" => {
                report.changes(
                    line.number,
                    "time-outs of a response are not retried: the backend may be at work on it",
                );
            }
            word => match word.parse() {
                Ok(status) => statuses.push(status),
                Err(_) => report.lost(line.number, format!("{word} is no failure that is retried")),
            },
        }
    }
    statuses.sort_unstable();
    let mut at = 0;
    while at < statuses.len() {
        let mut end = at;
        while end + 1 < statuses.len() && statuses[end + 1] == statuses[end] + 1 {
            end += 1;
        }
        let range = if at == end {
            statuses[at].to_string()
        } else {
            format!("{}-{}", statuses[at], statuses[end])
        };
        pool.options.push("retry-on", range);
        at = end + 1;
    }
}
