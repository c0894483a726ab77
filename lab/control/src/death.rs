//! From a backend's death until no client is sent there any more, level by level.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};
use equipoise_netns::{Site, SiteShape};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::delegation;
use crate::place::Place;
use crate::probe::{self, Asked, Outcome, Question};

/// Between two clients: half a second of this many is what a level has until the death.
pub(crate) const EVERY: Duration = Duration::from_millis(2);
pub(crate) const DOOR: &str = "192.0.2.2";
const VIP: u8 = 10;

/// Two backends behind a balancer, of which the first dies at a random moment between two checks.
pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let (mut last_ms, mut counts, mut unanswered) = (Vec::new(), Vec::new(), Vec::new());
    let mut repeated = 0;
    for round in 0..case.count("rounds")? {
        let seed = round as u64;
        let (last, count) = if case.word("level")? == "dispatch" {
            let death = undisturbed(&mut repeated, || delegation::death(place, case, seed))?;
            unanswered.push(death.unanswered as f64);
            (death.last, death.given)
        } else {
            undisturbed(&mut repeated, || death(place, case, seed))?
        };
        last_ms.push(1e3 * last.as_secs_f64());
        counts.push(count as f64);
    }
    row.figure("last_ms_median", median(&last_ms))
        .figure("last_ms_max", last_ms.iter().copied().fold(0.0, f64::max))
        .figure("sent_to_dead_median", median(&counts))
        .figure("repeated", f64::from(repeated));
    if !unanswered.is_empty() {
        row.figure("unanswered_median", median(&unanswered));
    }
    if let Ok(interval_ms) = case.number("interval_ms") {
        // Checks are a tenth early or late; one that began before the death may have passed. Silent
        // ones wait for their time.
        let waits = if case.word("how")? == "silent" { case.number("timeout_ms")? } else { 0.0 };
        row.figure("bound_ms", case.number("fall")? * 1.1 * interval_ms + waits);
    }
    Ok(())
}

/// Tries of one round.
const TRIES: u32 = 5;

/// Repeats a round that other programs on the machine disturb: it has no result.
fn undisturbed<T>(repeated: &mut u32, mut round: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    for _ in 0..TRIES {
        if let Some(found) = round()? {
            return Ok(found);
        }
        *repeated += 1;
    }
    bail!(
        "in each of {TRIES} tries requests failed or were late without a death, or until the end: the machine is too busy, or \
         equipoise does not notice the death"
    )
}

/// How long after the death the last client was sent to the dead backend, and how many were; `None`
/// if it was disturbed.
fn death(place: &Place, case: &Case, seed: u64) -> Result<Option<(Duration, usize)>> {
    let site = Site::new(SiteShape { backends: 2, two_arms: true })?;
    let mut dies = Some(place.backend(&site.backends[0], "dies")?);
    let lives = place.backend(&site.backends[1], "lives")?;
    place.fresh("death")?;
    let equipoise = place.run(&site.balancer, "death", &config(&site, case)?)?;
    let question = question(&site, case)?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = {
        let (question, stop) = (question.clone(), Arc::clone(&stop));
        site.client.spawn_thread(move || probe::run(&question, EVERY, &stop))
    };
    std::thread::sleep(moment(case, seed));
    let died = Instant::now();
    match case.word("how")? {
        "killed" => drop(dies.take()),
        "silent" => drop(site.backends[0].ip("link set eth0 down")?),
        how => bail!("nothing dies `{how}`: accepted are `killed` and `silent`"),
    }
    std::thread::sleep(Duration::from_secs_f64(case.number("observe_s")?));
    stop.store(true, Relaxed);
    let asked = match clients.join() {
        Ok(asked) => asked?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let log = equipoise.printed();
    drop((equipoise, lives));
    let judge = Judge {
        // Clients of names are sent to the first backend before it dies, too, and nothing is wrong
        // with that.
        before_counts: case.word("level")? != "dns",
        is_silent: case.word("how")? == "silent",
    };
    let last = judge.last(&asked, died);
    if last.is_none() {
        eprintln!(
            "a round is repeated, in which requests failed or were late without a death, or until the end:\n{log}"
        );
    }
    Ok(last)
}

/// How long clients ask before something dies: at any moment between two checks.
pub(crate) fn moment(case: &Case, seed: u64) -> Duration {
    let interval = case.number("interval_ms").unwrap_or(500.0) / 1e3;
    Duration::from_secs_f64(1.0 + StdRng::seed_from_u64(seed).random_range(0.0..interval))
}

/// Time without a client at the dead backend at the end; with a shorter one the level has not
/// reacted.
pub(crate) const QUIET: Duration = Duration::from_millis(400);

/// Which clients were sent to the dead backend.
#[derive(Clone, Copy)]
struct Judge {
    /// No client may fail before the death.
    before_counts: bool,
    /// A client that was sent to the dead backend gets no answer. Otherwise it gets a failure at
    /// once, and one that is late only shows that the machine is busy.
    is_silent: bool,
}

impl Judge {
    /// How long after the death the last client was sent to the dead backend, and how many were
    /// since. `None`: none was, or requests failed or were late before the death, too, or until the
    /// end.
    fn last(self, asked: &[Asked], died: Instant) -> Option<(Duration, usize)> {
        let is_to_dead = |one: &Asked| match one.outcome {
            Outcome::Answered => false,
            Outcome::Failed => true,
            Outcome::Late => self.is_silent,
        };
        if self.before_counts && asked.iter().any(|one| is_to_dead(one) && one.ended < died) {
            return None;
        }
        let to_dead: Vec<&Asked> =
            asked.iter().filter(|one| one.at >= died && is_to_dead(one)).collect();
        let last = to_dead.last()?.at;
        let end = asked.last()?.at;
        (end > last + QUIET).then(|| (last - died, to_dead.len()))
    }
}

fn question(site: &Site, case: &Case) -> Result<Question> {
    let dead = site.backend_address(0, false);
    Ok(match (case.word("level")?, dead) {
        ("session", _) => Question::Http(format!("{DOOR}:8080").parse()?),
        ("packet", _) => Question::Http((Site::vip(VIP, false), 1080).into()),
        ("dns", std::net::IpAddr::V4(dead)) => Question::Dns {
            server: format!("{DOOR}:53").parse()?,
            name: "www.cluster.example".to_string(),
            dead: dead.octets(),
        },
        (level, _) => {
            bail!("no level `{level}`: accepted are `session`, `packet`, `dns` and `dispatch`")
        }
    })
}

/// A pool of both, with what shall notice, and the level's table. `retries = 0` shows each client
/// where it was sent.
fn config(site: &Site, case: &Case) -> Result<String> {
    let backend = |index: usize| format!("\"{}:80\"", site.backend_address(index, false));
    let notices = match case.word("detect")? {
        "passive" => String::new(),
        "active" => format!(
            "passive = {{ failures = 0 }}\nhealth = {{ http = \"/healthz\", interval = \"{}ms\", timeout = \"{}ms\", fall = {} }}\n",
            case.number("interval_ms")?,
            case.number("timeout_ms")?,
            case.number("fall")?
        ),
        other => bail!("nothing detects by `{other}`: accepted are `active` and `passive`"),
    };
    let level = match case.word("level")? {
        "session" => {
            format!("[[session]]\nlisten = \"{DOOR}:8080\"\nprotocol = \"http\"\npool = \"web\"\n")
        }
        "packet" => format!(
            "[[packet]]\nvip = \"{}:1080/tcp\"\ninterface = \"eth0\"\nreply-interface = \"eth1\"\nforward = \"nat\"\npool = \"web\"\n\
             [flows]\nmax = 65536\npins-max = 16384\nvips-max = 32\n",
            Site::vip(VIP, false)
        ),
        _ => format!(
            "[[dns]]\nzone = \"cluster.example.\"\nlisten = \"{DOOR}:53\"\npool = \"web\"\nns = [{{ name = \"ns1\", addresses = \"{DOOR}\" }}]\n\
             names = [{{ name = \"www\", mode = \"single\" }}]\n[nameserver]\nrate-limit = 0\n"
        ),
    };
    Ok(format!(
        "[instance]\nname = \"control-lab-{}\"\n[[pool]]\nname = \"web\"\nscheduler = \"round-robin\"\nretries = 0\nbackends = [{}, {}]\n{notices}{level}",
        std::process::id(),
        backend(0),
        backend(1)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_client_that_was_sent_to_the_dead_backend_is_found() {
        use Outcome::{Answered, Failed, Late};
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let asked = |ms: u64, outcome| Asked { at: at(ms), ended: at(ms + 25), outcome };
        let all = [
            asked(0, Answered),
            asked(480, Failed),
            asked(510, Failed),
            asked(520, Answered),
            asked(600, Failed),
            asked(700, Answered),
            asked(1100, Answered),
        ];
        let killed = Judge { before_counts: true, is_silent: false };
        let last = |judge: Judge, asked: &[Asked], died| {
            judge.last(asked, at(died)).map(|(last, count)| (last.as_millis(), count))
        };
        assert_eq!(last(killed, &all, 500), Some((100, 2)), "one was in flight");
        assert_eq!(last(killed, &all, 540), None, "two failed before anything had died");
        let name = Judge { before_counts: false, ..killed };
        assert_eq!(last(name, &all, 540), Some((60, 1)), "a name may say it");
        assert_eq!(last(killed, &all[..6], 500), None, "the end is too near");
        assert_eq!(last(name, &all, 650), None, "no client was sent there");

        let late = all.map(|one| match one.outcome {
            Failed => Asked { outcome: Late, ..one },
            _ => one,
        });
        let silent = Judge { is_silent: true, ..killed };
        assert_eq!(last(silent, &late, 500), Some((100, 2)));
        assert_eq!(last(silent, &late, 540), None, "the machine is busy");
        assert_eq!(last(killed, &late, 500), None, "a killed backend makes no client late");
    }
}
