//! Scale-out: from a step until a new backend has answered its first request.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use equipoise_lab_runner::measure::median;
use equipoise_lab_runner::{Case, Row};
use equipoise_netns::Host;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::place::{Equipoise, Place};

const DOOR: &str = "127.0.0.1:8080";
/// For a step to be planned and to serve.
const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at the plan.
const LOOK: Duration = Duration::from_millis(5);

/// Commands to the clients on the host, and their results.
#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    in_flight: AtomicUsize,
    /// Backends by their first answer.
    first: Mutex<Vec<(String, Instant)>>,
}

/// From the step: the plan says so; the new backend has answered.
struct Times {
    planned: Duration,
    served: Duration,
}

pub(crate) fn measure(place: &Place, case: &Case, row: &mut Row) -> Result<()> {
    let mut all = Vec::new();
    for _ in 0..case.count("rounds")? {
        all.push(once(place, case)?);
    }
    let ms = |of: fn(&Times) -> Duration| -> Vec<f64> {
        all.iter().map(|times| 1e3 * of(times).as_secs_f64()).collect()
    };
    let most = |figures: &[f64]| figures.iter().copied().fold(0.0, f64::max);
    let (planned, served) = (ms(|it| it.planned), ms(|it| it.served));
    let driven = ms(|it| it.served.saturating_sub(it.planned));
    row.figure("planned_ms_median", median(&planned))
        .figure("planned_ms_max", most(&planned))
        .figure("serving_ms_median", median(&served))
        .figure("serving_ms_max", most(&served))
        .figure("planned_to_serving_ms_median", median(&driven));
    Ok(())
}

fn once(place: &Place, case: &Case) -> Result<Times> {
    let host = Host::new("scale")?;
    let folder = place.fresh("scale")?;
    let state = folder.join("state").display().to_string();
    let equipoise = place.run(&host, "scale", &config(place, case, &state)?)?;
    let shared = Arc::new(Shared::default());
    shared.in_flight.store(case.count("in_flight_before")?, Relaxed);
    let clients = {
        let (shared, runtime) = (
            Arc::clone(&shared),
            tokio::runtime::Builder::new_current_thread().enable_all().build()?,
        );
        host.spawn_thread(move || LocalSet::new().block_on(&runtime, load(shared)))
    };
    let outcome = step(place, case, &host, &equipoise, &shared);
    shared.stop.store(true, Relaxed);
    if let Err(panic) = clients.join() {
        std::panic::resume_unwind(panic);
    }
    outcome.map_err(|error| error.context(equipoise.printed()))
}

/// Makes the step, and waits for what follows.
fn step(
    place: &Place,
    case: &Case,
    host: &Host,
    equipoise: &Equipoise,
    shared: &Shared,
) -> Result<Times> {
    until(|| Ok(seen(shared).len() == 1), "the first backend answers")?;
    // It shows its speed.
    std::thread::sleep(Duration::from_secs_f64(case.number("before_s")?));
    ensure!(seen(shared).len() == 1, "the pool grew before the step");
    let stepped = Instant::now();
    match case.word("step")? {
        "load" => shared.in_flight.store(case.count("in_flight_after")?, Relaxed),
        "pin" => {
            let socket = equipoise.socket();
            place.command(host, &["plan", "pin", "web", "2", "--api", &socket])?;
        }
        other => bail!("no step `{other}`: accepted are `load` and `pin`"),
    }
    let mut planned = None;
    until(
        || {
            if planned.is_none() && is_planned(equipoise)? {
                planned = Some(stepped.elapsed());
            }
            Ok(seen(shared).len() > 1)
        },
        "a second backend answers",
    )?;
    let served = seen(shared)[1].1.saturating_duration_since(stepped);
    Ok(Times { planned: planned.unwrap_or(served).min(served), served })
}

/// Whether the plan has, or adds, a second backend.
fn is_planned(equipoise: &Equipoise) -> Result<bool> {
    let plan = equipoise.get("/v1/plan")?;
    let scaling = &plan["pools"][0]["scaling"];
    Ok(scaling["action"] == "out" || scaling["backends"].as_u64() > Some(1))
}

fn seen(shared: &Shared) -> Vec<(String, Instant)> {
    shared.first.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

fn until(mut holds: impl FnMut() -> Result<bool>, what: &str) -> Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds()? {
        ensure!(Instant::now() < end, "never came: {what}");
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// A pool that begins with one process; `cpus` above 0 holds each to a share of a core.
fn config(place: &Place, case: &Case, state: &str) -> Result<String> {
    let cpus = case.number("cpus")?;
    let sizes = match cpus > 0.0 {
        true => format!("[[pool.elastic.sizes]]\nname = \"small\"\ncpus = {cpus}\n"),
        false => String::new(),
    };
    Ok(format!(
        "[instance]\nname = \"control-lab\"\n[load]\nperiod = \"{}ms\"\n[controller]\nstate = \"{state}\"\n\
         [[session]]\nlisten = \"{DOOR}\"\nprotocol = \"http\"\npool = \"web\"\n\
         [[pool]]\nname = \"web\"\nconcurrency = 4\nqueue = {{ wait = \"1m\" }}\n[pool.elastic]\nmin = 1\nmax = 2\nwarm-up = \"1s\"\nout-cool-down = \"1s\"\n[pool.elastic.process]\n\
         command = [\"{}\", \"sample-backend\", \"--name\", \"{{name}}\", \"--http\", \"{{port}}\"]\n{sizes}",
        case.count("period_ms")?,
        place.equipoise
    ))
}

/// Keeps so many requests in flight as are wanted, each client on a connection of its own.
async fn load(shared: Arc<Shared>) {
    let mut started = 0;
    while !shared.stop.load(Relaxed) {
        while started < shared.in_flight.load(Relaxed) {
            started += 1;
            tokio::task::spawn_local(client(Arc::clone(&shared)));
        }
        tokio::time::sleep(LOOK).await;
    }
}

async fn client(shared: Arc<Shared>) {
    let mut known = BTreeSet::new();
    while !shared.stop.load(Relaxed) {
        match answering().await {
            Ok(Some(name)) if known.insert(name.clone()) => {
                let mut first = shared.first.lock().unwrap_or_else(PoisonError::into_inner);
                if !first.iter().any(|(one, _)| *one == name) {
                    first.push((name, Instant::now()));
                }
            }
            Ok(Some(_)) => {}
            // The first backend is not there yet.
            _ => tokio::time::sleep(LOOK).await,
        }
    }
}

/// The name of the backend that answers a request.
async fn answering() -> Result<Option<String>> {
    let address: SocketAddr = DOOR.parse()?;
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET / HTTP/1.1\r\nhost: control\r\nconnection: close\r\n\r\n").await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let Some((_, body)) =
        answer.split_once("\r\n\r\n").filter(|_| answer.starts_with("HTTP/1.1 200"))
    else {
        return Ok(None);
    };
    let value: serde_json::Value = serde_json::from_str(body)?;
    Ok(value["backend"].as_str().map(str::to_string))
}
