//! Follows the instructions of one controller, and of another when it fails.

use std::sync::Arc;
use std::time::Duration;

use equipoise_basics::with_causes;
use equipoise_controller::Instructions;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use rand::RngExt;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::Inner;
use super::credentials::Credentials;
use crate::ControllerAddress;
use crate::backoff::Backoff;
use crate::changes::{Listener, OutOfStep};
use crate::client::{ClientError, Connection};
use crate::evicted::Evictions;
use crate::sse::{Event, Parser};
use crate::wire::{ANSWER_BYTES_MAX, EVICTED_EVENT, INSTRUCTIONS, INSTRUCTIONS_EVENT, TOLD_EVENT};

/// The reason for leaving a stream.
enum Left {
    /// It failed.
    Failed(ClientError),
    /// The node has a new certificate, or other parameters. It returns to the same controller.
    Renewed,
    /// No newer instructions for too long, although the connection lives. The controller may be cut
    /// off from the others.
    Stale(Duration),
}

/// Periods without new instructions after which another controller is asked.
const PERIODS_QUIET: u32 = 5;
const QUIET_MIN: Duration = Duration::from_secs(5);
const QUIET_MAX: Duration = Duration::from_secs(60);

/// Interval between log lines about missing controllers.
const SAY_EVERY: Duration = Duration::from_secs(30);

/// The state of one stream.
struct Reading {
    parser: Parser,
    listener: Listener,
}

impl Reading {
    fn new() -> Reading {
        Reading { parser: Parser::new(ANSWER_BYTES_MAX), listener: Listener::default() }
    }

    /// `None` for events of other names.
    fn instructions(
        &mut self,
        event: &Event,
        own: &str,
    ) -> Result<Option<Instructions>, OutOfStep> {
        Ok(match event.name.as_str() {
            TOLD_EVENT => Some(self.listener.hear(&event.data, own)?),
            INSTRUCTIONS_EVENT => Some(serde_json::from_str(&event.data)?),
            _ => None,
        })
    }
}

struct Follower {
    inner: Arc<Inner>,
    /// Index of the present controller.
    place: usize,
    /// Controllers in a row that had nothing new.
    fruitless: u32,
    said_at: Option<Instant>,
}

/// Follows controllers as long as the node lives.
pub(crate) async fn keep_following(inner: Arc<Inner>) {
    let count = inner.options.controllers.len();
    if count == 0 {
        return;
    }
    let (first, longest) = inner.options.pauses;
    let mut backoff = Backoff::new(first, longest);
    // Nodes spread over the controllers.
    let place = rand::rng().random_range(0..count);
    let mut credentials = inner.credentials.subscribe();
    let mut follower = Follower { inner, place, fruitless: 0, said_at: None };
    loop {
        let Ok(shown) = credentials.wait_for(Option::is_some).await.map(|one| one.clone()) else {
            return;
        };
        let Some(shown) = shown else { continue };
        let address = follower.inner.options.controllers[follower.place % count].clone();
        let before = follower.fruitless;
        let left = follower.follow(&address, shown).await;
        if let Left::Failed(error) = &left {
            follower.inner.note_refusal(&address, error);
        }
        if follower.fruitless == 0 && before > 0 {
            backoff.reset();
        }
        if matches!(left, Left::Renewed) {
            continue;
        }
        follower.place += 1;
        follower.fruitless = follower.fruitless.saturating_add(1);
        follower.say(&address, &left);
        // A controller that failed is left at once. After all have failed there is a pause.
        if follower.fruitless as usize >= count && matches!(left, Left::Failed(_)) {
            let pause = backoff.pause(&mut rand::rng());
            sleep(pause).await;
        }
    }
}

impl Follower {
    async fn follow(&mut self, address: &ControllerAddress, shown: Arc<Credentials>) -> Left {
        let inner = Arc::clone(&self.inner);
        let mut credentials = inner.credentials.subscribe();
        let mut names = inner.wants_names.subscribe();
        names.mark_unchanged();
        inner.note_tried(address);
        let opened = async {
            let patience = inner.options.patience;
            let mut connection = Connection::open(address, &shown.tls, patience).await?;
            let edition = inner.instructions.borrow().edition();
            let names = u8::from(*inner.wants_names.borrow());
            let path = format!("{INSTRUCTIONS}?changes=1&names={names}");
            let body = connection.stream(&path, Some(edition.to_string())).await?;
            Ok((connection, body))
        };
        let (_connection, mut body) = match opened.await {
            Ok(opened) => opened,
            Err(error) => return Left::Failed(error),
        };
        inner.note_let_in(address);
        inner.note(|status| {
            (status.following, status.follow_problem) = (Some(address.to_string()), None);
        });
        self.said_at = None;
        tracing::info!(event = "cluster.follows", controller = %address, "following instructions");
        let mut reading = Reading::new();
        let mut newest_at = Instant::now();
        loop {
            let quiet_max = self.quiet_max();
            tokio::select! {
                read = self.read(address, &mut body, &mut reading) => match read {
                    Ok(true) => newest_at = Instant::now(),
                    Ok(false) => {}
                    Err(error) => return Left::Failed(error),
                },
                () = renewed(&mut credentials, &shown) => return Left::Renewed,
                Ok(()) = names.changed() => return Left::Renewed,
                () = sleep_until(newest_at + quiet_max), if inner.options.controllers.len() > 1 => {
                    return Left::Stale(quiet_max);
                }
            }
        }
    }

    /// The longest wait for new instructions. It increases with each controller that had nothing
    /// new.
    fn quiet_max(&self) -> Duration {
        let period = self.inner.instructions.borrow().period;
        let usual = period.saturating_mul(PERIODS_QUIET).max(QUIET_MIN);
        usual.saturating_mul(1 << self.fruitless.min(5)).min(QUIET_MAX.max(usual))
    }

    /// Reads one chunk of the stream. Returns whether it had newer instructions.
    async fn read(
        &mut self,
        address: &ControllerAddress,
        body: &mut Incoming,
        reading: &mut Reading,
    ) -> Result<bool, ClientError> {
        let silence = self.inner.options.silence;
        let ended = |what: String| ClientError::Ended { address: address.clone(), what };
        let frame = match timeout(silence, body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Err(ended(with_causes(&error))),
            Ok(None) => return Err(ended("it stops".to_string())),
            Err(_) => {
                let address = address.clone();
                return Err(ClientError::TimedOut { address, step: "stream", within: silence });
            }
        };
        self.inner.note_heard(address);
        let Ok(bytes) = frame.into_data() else { return Ok(false) };
        let mut events = Vec::new();
        reading.parser.feed(&bytes, |event| events.push(event)).map_err(|error| {
            let (address, what) = (address.clone(), error.to_string());
            ClientError::NotUnderstood { address, what }
        })?;
        let mut is_news = false;
        for event in events {
            if event.name == EVICTED_EVENT {
                self.shut_out(address, &event.data);
                continue;
            }
            match reading.instructions(&event, self.inner.options.name.as_str()) {
                Ok(Some(instructions)) => is_news |= self.inner.offer(instructions),
                Ok(None) => {}
                Err(OutOfStep::Other) => {
                    let (address, what) = (address.clone(), OutOfStep::Other.to_string());
                    return Err(ClientError::NotUnderstood { address, what });
                }
                Err(OutOfStep::Json(error)) => self.not_understood(address, &error),
            }
        }
        if is_news {
            self.fruitless = 0;
        }
        Ok(is_news)
    }

    /// Stores the evicted nodes, which peers refuse.
    fn shut_out(&self, address: &ControllerAddress, data: &str) {
        match serde_json::from_str(data).map(Evictions::new) {
            Ok(told) => drop(self.inner.evicted.send_replace(told)),
            Err(error) => {
                tracing::error!(controller = %address, %error, "cannot decode the list of evicted nodes; keeping the known one");
            }
        }
    }

    fn not_understood(&self, address: &ControllerAddress, error: &serde_json::Error) {
        let mut count = 0;
        self.inner.note(|status| {
            status.not_understood += 1;
            count = status.not_understood;
        });
        // One line per period would fill the log.
        if count.is_power_of_two() {
            tracing::error!(controller = %address, count, %error, "cannot decode instructions, possibly of a newer controller; keeping the last ones");
        }
    }

    fn say(&mut self, address: &ControllerAddress, left: &Left) {
        let why = match left {
            Left::Failed(error) => with_causes(error),
            Left::Stale(quiet) => format!("{address}: nothing new for {quiet:?}"),
            Left::Renewed => return,
        };
        self.inner.note(|status| {
            (status.following, status.follow_problem) = (None, Some(why.clone()));
        });
        let all = self.fruitless as usize >= self.inner.options.controllers.len();
        let now = Instant::now();
        if !all {
            tracing::info!("changing to another controller: {why}");
        } else if self.said_at.is_none_or(|at| now - at >= SAY_EVERY) {
            self.said_at = Some(now);
            let edition = self.inner.instructions.borrow().edition();
            match self.inner.age() {
                Some(age) => {
                    tracing::warn!(event = "cluster.alone", %edition, ?age, "no controller has newer instructions; continuing with the last: {why}");
                    if let Some(file) =
                        self.inner.kept_in().filter(|_| matches!(left, Left::Stale(_)))
                    {
                        tracing::warn!(
                            "controllers are reachable, but have no newer instructions than this node saved; if their store \
                             was created again, remove {} and restart this node",
                            file.display()
                        );
                    }
                }
                None => {
                    tracing::warn!(event = "cluster.alone", "no controller has instructions: {why}")
                }
            }
        }
    }
}

async fn renewed(
    credentials: &mut tokio::sync::watch::Receiver<Option<Arc<Credentials>>>,
    shown: &Arc<Credentials>,
) {
    let is_other =
        |now: &Option<Arc<Credentials>>| now.as_ref().is_some_and(|now| !Arc::ptr_eq(now, shown));
    if credentials.wait_for(is_other).await.is_err() {
        std::future::pending().await
    }
}
