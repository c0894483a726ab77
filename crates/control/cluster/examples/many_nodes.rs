//! The cost of many nodes for a controller: CPU, memory and bytes, with a period of one second.
//!
//!     cargo run --profile dist -p equipoise-cluster --example many_nodes -- 200 30
//!
//! The controller with an embedded store is this process; the nodes are another, so that its CPU is
//! not counted.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_trait::async_trait;
use equipoise_cluster::{
    Authority, ClusterServer, JoinToken, Name, NodeClient, NodeOptions, ServerOptions, StateFolder,
    TokenSource, TokenWish, Tokens,
};
use equipoise_controller::{
    Controller, ControllerOptions, Intake, NodeReport, Premises, Recorder, Source,
};
use equipoise_core::load::Reported;
use equipoise_store::{Embedded, EmbeddedOptions, Store};

type Failed = Box<dyn std::error::Error>;

struct Nothing;

#[async_trait]
impl Source for Nothing {
    async fn premises(&self) -> Premises {
        Premises::default()
    }
}

/// CPU time of this process, in seconds, and resident memory in MiB.
fn usage() -> Result<(f64, f64), Failed> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("stat has a name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    let status = std::fs::read_to_string("/proc/self/status")?;
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let resident = resident.and_then(|text| text.split_whitespace().next()).ok_or("VmRSS")?;
    // USER_HZ is 100 on every Linux that we know of.
    Ok((ticks / 100.0, resident.parse::<f64>()? / 1024.0))
}

async fn controller(count: usize, seconds: u64, folder: &Path) -> Result<(), Failed> {
    let store = Embedded::open(EmbeddedOptions::new(folder.join("store"))).await?;
    let store: Arc<dyn Store> = Arc::new(store);
    let options =
        ControllerOptions { write_every: Duration::from_secs(10), ..ControllerOptions::new("c") };
    let recorder = Arc::new(Recorder::default());
    let controller = Controller::start(options, Arc::clone(&store), Arc::new(Nothing), recorder)?;
    let name: Name = "c".parse()?;
    let now = SystemTime::now();
    let authority = Authority::new(&"bench".parse()?, now)?;
    let wish = TokenWish { time_to_live: Duration::from_secs(3600), single_use: false, node: None };
    let fingerprint = authority.fingerprint();
    let (token, _) = Tokens::new(Arc::clone(&store)).create(&wish, fingerprint, now).await?;
    let listen = ([127, 0, 0, 1], 0).into();
    let mut options = ServerOptions::new(listen, name, vec!["127.0.0.1".to_string()]);
    // All nodes are on one address here.
    options.limits.attempts.burst = count as f64 * 2.0;
    let intake = Arc::new(controller.handle());
    let server = ClusterServer::start(options, authority, store, intake.clone()).await?;

    let began = Instant::now();
    let mut nodes = std::process::Command::new(std::env::current_exe()?)
        .args([&server.address().to_string(), &token.reveal(), &count.to_string()])
        .arg(folder)
        .spawn()?;
    let reporting = || {
        let members = intake.cluster().members;
        members.iter().filter(|member| member.report_age.is_some()).count()
    };
    while reporting() < count && began.elapsed() < Duration::from_secs(120) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    println!("{} of {count} nodes joined and reported after {:.1?}", reporting(), began.elapsed());
    let (cpu, _) = usage()?;
    println!("joining cost {cpu:.2} s of CPU");
    let reports = || server.counts().get("reports").copied().unwrap_or(0);
    let sent = || server.sent_bytes();
    let (before, sent_before, start) = (reports(), sent(), Instant::now());
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let (later, resident) = usage()?;
    let passed = start.elapsed().as_secs_f64();
    let event = serde_json::to_vec(&**intake.instructions().borrow())?.len();
    println!(
        "{:.0} reports/s: {:.1} % of a core, {resident:.0} MiB resident; instructions have {event} bytes, \
         {:.0} are sent to each node each second",
        (reports() - before) as f64 / passed,
        100.0 * (later - cpu) / passed,
        (sent() - sent_before) as f64 / passed / count as f64
    );
    println!("counts: {:?}", server.counts());
    nodes.kill()?;
    nodes.wait()?;
    Ok(())
}

async fn nodes(address: &str, token: &str, count: usize, folder: &Path) -> Result<(), Failed> {
    let token: JoinToken = token.parse()?;
    let mut clients = Vec::new();
    for number in 0..count {
        let name = format!("node-{number}");
        let folder = StateFolder::new(folder.join(&name));
        let token = Some(TokenSource::Given(token.clone()));
        let options = NodeOptions::new(name.parse()?, vec![address.parse()?], token, folder);
        clients.push(NodeClient::start(options));
    }
    let mut turns = tokio::time::interval(Duration::from_secs(1));
    loop {
        turns.tick().await;
        for client in &clients {
            let load = Some(Reported { cpu: 40.0, memory: 30.0, net: Some(10.0) });
            let applied = client.status().edition;
            client.report(&NodeReport {
                version: "many_nodes".into(),
                capacity: 2.0,
                load,
                applied,
                ..NodeReport::default()
            });
            // A period is spread over its second, as on machines that started at different times.
            tokio::time::sleep(Duration::from_secs(1) / (2 * count as u32)).await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [address, token, count, folder] => {
            nodes(address, token, count.parse()?, Path::new(folder)).await
        }
        [count, seconds] => {
            let folder: PathBuf =
                std::env::temp_dir().join(format!("many-nodes-{}", std::process::id()));
            std::fs::create_dir_all(&folder)?;
            let measured = controller(count.parse()?, seconds.parse()?, &folder).await;
            std::fs::remove_dir_all(&folder)?;
            measured
        }
        _ => Err("how many nodes, and for how many seconds?".into()),
    }
}
