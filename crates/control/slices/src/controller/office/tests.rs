use equipoise_dds::Settings;
use equipoise_store::{Embedded, EmbeddedOptions};

use super::*;
use equipoise_slice_dds::worker::{self, Threads, Worker};

#[test]
fn a_leader_rejoins_dds_and_leads_again_when_its_reader_thread_ends() {
    let runtime = tokio::runtime::Runtime::new().expect("threads");
    let folder = equipoise_testkit::Folder::new("slice-deaf");
    let store = EmbeddedOptions::new(folder.root().join("store"));
    let store: Arc<dyn Store> = Arc::new(runtime.block_on(Embedded::open(store)).expect("a store"));
    // A busy machine must not lead to a lost worker.
    let lease = Duration::from_secs(30);
    let dds = Settings { interfaces: vec!["lo".into()], lease, ..Settings::default() };
    let stream = Stream { domain: 57, dds, ..Stream::default() };
    let options = Options::new("deaf", 4);
    let key = Key::new("slice/deaf/record").expect("a key");
    let (observed, leadership) = (store.clone(), options.leadership);
    let election = Election::new(store.clone(), "slice-deaf", leadership);
    let election = election.expect("an office");
    let mut wires = Wires::connect(&stream).expect("DDS");
    // In place of the thread that reads: it receives nothing, and ends when the test says so.
    let (reading, mail) = mpsc::channel(1);
    wires.mail = mail;
    let (_asks, asked) = mpsc::channel(1);
    let (told, mut status) = watch::channel(Status::default());
    let (stream_too, strangers) = (stream.clone(), Arc::default());
    let connections = Connections::listen(&stream, None, &strangers);
    let office = Office {
        options,
        stream: stream_too,
        store,
        key,
        wires,
        connections,
        strangers,
        asked,
        told,
    };
    let office = runtime.spawn(office.run(election));
    let nothing = Threads::new(1, |_: &equipoise_dds::items::DataItem<'_>| Vec::new());
    let worker = Worker::start(&stream, worker::Options::new("one", 4), nothing).expect("DDS");
    let observer = Election::new(observed, "slice-deaf", leadership).expect("an office");
    let term = || runtime.block_on(observer.leader()).expect("the store").map(|it| it.term);
    let mut until = |what: &str, holds: fn(&Status) -> bool| {
        let found = status.wait_for(holds);
        let found = async { tokio::time::timeout(Duration::from_secs(60), found).await.is_ok() };
        assert!(runtime.block_on(found), "{what}");
    };
    until("it does not lead", |status| status.leading);
    let before = term();
    assert!(before.is_some());
    drop(reading);
    until("it receives no reports", |status| status.leading && !status.workers.is_empty());
    let after = term();
    assert!(after > before, "it leads in another term: {after:?} after {before:?}");
    office.abort();
    worker.stop().expect("it has not ended before");
}
