//! From a peer's death until no request is delegated to it any more: the dispatch level's part of
//! [`crate::death`].

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use equipoise_lab_runner::Case;
use equipoise_netns::{Site, SiteShape};

use crate::death::{DOOR, EVERY, QUIET, moment};
use crate::place::{Equipoise, Place};
use crate::probe::{self, Outcome, Question};

/// The effects of a death.
pub(crate) struct Death {
    /// From the death until the last request was given to the peer, as the giver counts them.
    pub(crate) last: Duration,
    /// Requests that were given to it since.
    pub(crate) given: usize,
    /// Clients that were not answered at once.
    pub(crate) unanswered: usize,
}

/// Between two looks at what the giver counts, besides the time of a look.
const LOOK_EVERY: Duration = Duration::from_millis(2);
/// For the taker to be seen by the giver's checks.
const PATIENCE: Duration = Duration::from_secs(30);

/// Requests given to the peer by then.
#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    given: u64,
}

/// A node that keeps nothing, and its only peer, which dies at a random moment. Both have an
/// application of their own. `None` if it was disturbed.
pub(crate) fn death(place: &Place, case: &Case, seed: u64) -> Result<Option<Death>> {
    let site = Site::new(SiteShape { backends: 1, two_arms: true })?;
    let folder = place.fresh("death")?;
    let secret = folder.join("secret");
    fs::write(&secret, "0123456789abcdef0123456789abcdef\n")?;
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600))?;
    let applications =
        [place.backend(&site.balancer, "here")?, place.backend(&site.backends[0], "there")?];
    let taker_at = site.backend_address(0, false).to_string();
    let node = |name: &str, at: &str, peer: &str, peer_at: &str, keep: f64| {
        config(name, at, (peer, peer_at), keep, &secret)
    };
    let taker = place.run(
        &site.backends[0],
        "death/taker",
        &node("taker", &taker_at, "giver", DOOR, 1.0),
    )?;
    let giver =
        place.run(&site.balancer, "death/giver", &node("giver", DOOR, "taker", &taker_at, 0.0))?;
    seen(&giver)?;
    let stop = Arc::new(AtomicBool::new(false));
    let clients = {
        let question = Question::Http(format!("{DOOR}:8080").parse()?);
        let stop = Arc::clone(&stop);
        site.client.spawn_thread(move || probe::run(&question, EVERY, &stop))
    };
    let (how, observe) = (case.word("how")?, Duration::from_secs_f64(case.number("observe_s")?));
    // Clients and watcher are stopped whatever the result.
    let (dead, died, looks) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&giver, &stop));
        thread::sleep(moment(case, seed));
        let died = Instant::now();
        let dead = dies(how, &taker, &site);
        thread::sleep(observe);
        stop.store(true, Relaxed);
        match watching.join() {
            Ok(looks) => (dead, died, looks),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let asked = match clients.join() {
        Ok(asked) => asked?,
        Err(panic) => std::panic::resume_unwind(panic),
    };
    let log = giver.printed();
    drop((giver, taker, applications));
    dead?;
    let Some((last, given)) = judge(&looks?, died) else {
        eprintln!(
            "a round is repeated, in which nothing was delegated at the death, or something until the end:\n{log}"
        );
        return Ok(None);
    };
    let unanswered = asked.iter().filter(|one| one.outcome != Outcome::Answered).count();
    Ok(Some(Death { last, given, unanswered }))
}

fn dies(how: &str, taker: &Equipoise, site: &Site) -> Result<()> {
    match how {
        "killed" => taker.kill(),
        "silent" => drop(site.backends[0].ip("link set eth0 down")?),
        how => bail!("nothing dies `{how}`: accepted are `killed` and `silent`"),
    }
    Ok(())
}

fn config(name: &str, at: &str, peer: (&str, &str), keep: f64, secret: &Path) -> String {
    let (peer, peer_at) = peer;
    format!(
        "[instance]\nname = \"{name}\"\n[[pool]]\nname = \"app\"\nbackends = [\"{at}:80\"]\n\
         [[dispatch]]\nlisten = \"{at}:8080\"\npool = \"app\"\nkeep = {keep:?}\nsecret = {secret:?}\n\
         peers = [{{ node = \"{peer}\", address = \"{peer_at}:8080\" }}]\n"
    )
}

/// The source's status of its peer.
fn peer(giver: &Equipoise) -> Result<serde_json::Value> {
    let status = giver.get("/v1/status")?;
    let pools = status["pools"].as_array().into_iter().flatten();
    let peers = pools.into_iter().find(|pool| pool["name"] == "app.peers");
    peers.map(|pool| pool["backends"][0].clone()).context("the giver has no pool of peers")
}

/// Waits until the giver's checks have seen its peer.
fn seen(giver: &Equipoise) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while peer(giver)?["health"] != "healthy" {
        ensure!(Instant::now() < end, "the peer was never seen:\n{}", giver.printed());
        thread::sleep(LOOK_EVERY);
    }
    Ok(())
}

fn watch(giver: &Equipoise, stop: &AtomicBool) -> Result<Vec<Look>> {
    let mut looks = Vec::new();
    while !stop.load(Relaxed) {
        let given = peer(giver)?["requests_total"].as_u64().context("the peer has no count")?;
        looks.push(Look { at: Instant::now(), given });
        thread::sleep(LOOK_EVERY);
    }
    Ok(looks)
}

/// When the count had risen for the last time, after the death, and by how much since. `None`: it
/// had not risen before, or not after, or it rose until the end.
fn judge(looks: &[Look], died: Instant) -> Option<(Duration, usize)> {
    let before = looks.iter().rev().find(|look| look.at <= died)?.given;
    let end = looks.last()?;
    let last = looks.windows(2).rev().find(|pair| pair[1].given > pair[0].given)?[1].at;
    let is_whole = before > 0 && last > died && end.at > last + QUIET;
    is_whole.then(|| (last - died, (end.given - before) as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_request_that_was_delegated_to_the_dead_peer_is_found() {
        let begin = Instant::now();
        let look = |ms: u64, given| Look { at: begin + Duration::from_millis(ms), given };
        let at = |ms: u64| begin + Duration::from_millis(ms);
        let all = [look(0, 0), look(10, 5), look(20, 7), look(30, 9), look(40, 9), look(500, 9)];
        let (last, given) = judge(&all, at(15)).expect("it was noticed");
        assert_eq!((last.as_millis(), given), (15, 4));
        assert!(judge(&all, at(5)).is_none(), "nothing was delegated before");
        assert!(judge(&all, at(35)).is_none(), "nothing was delegated after");
        assert!(judge(&all[..5], at(15)).is_none(), "the end is too near");
    }
}
