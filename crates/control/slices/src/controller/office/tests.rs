use equipoise_dds::Settings;
use equipoise_store::{Embedded, EmbeddedOptions};

use super::*;
use equipoise_slice_dds::worker::{self, Threads, Worker};

#[test]
fn an_office_that_hears_nothing_any_more_joins_anew_and_leads_again() {
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
    let election = Election::new(store.clone(), "slice-deaf", options.leadership);
    let election = election.expect("an office");
    let mut wires = Wires::connect(&stream).expect("DDS");
    // As if the thread that reads had ended.
    wires.mail = mpsc::channel(1).1;
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
    let heard = status.wait_for(|status| status.leading && !status.workers.is_empty());
    let heard = async { tokio::time::timeout(Duration::from_secs(60), heard).await.is_ok() };
    assert!(runtime.block_on(heard), "it receives no reports");
    office.abort();
    worker.stop().expect("it has not ended before");
}
