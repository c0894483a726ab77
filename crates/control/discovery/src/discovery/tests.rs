#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::path::Path;

use equipoise_testkit::LogBuffer;

use super::*;
use crate::options::SourceOptions;

const PATIENCE: Duration = Duration::from_secs(60);

fn of_file(path: &Path, labels: &[&str]) -> Discover {
    Discover {
        pool: "web".into(),
        source: SourceOptions::File(path.into()),
        labels: labels.iter().map(ToString::to_string).collect(),
        backends_max: 10,
        empty_after: None,
    }
}

fn addresses(discovery: &Discovery, wanted: &[Discover]) -> Vec<String> {
    let sets = discovery.backends(wanted);
    sets.get("web")
        .map(|set| set.iter().map(|it| it.address.to_string()).collect())
        .unwrap_or_default()
}

#[tokio::test]
async fn another_source_of_a_pool_begins_with_its_set_and_the_old_one_stays_until_it_is_forgotten()
{
    let folder = tempfile::tempdir().unwrap();
    let (first, second) = (folder.path().join("a.json"), folder.path().join("b.json"));
    std::fs::write(&first, r#"{"backends": ["10.0.0.1:80"]}"#).unwrap();
    let (before, after) = ([of_file(&first, &[])], [of_file(&second, &[])]);
    let discovery = Discovery::new(Some(folder.path()), "i");
    discovery.learn(&before, PATIENCE).await;
    assert_eq!(addresses(&discovery, &before), ["10.0.0.1:80"]);
    discovery.learn(&after, PATIENCE).await;
    assert_eq!(addresses(&discovery, &after), ["10.0.0.1:80"], "its own file does not exist");
    assert_eq!(addresses(&discovery, &before), ["10.0.0.1:80"]);
    discovery.forget_others(&after);
    assert!(discovery.backends(&before).is_empty());
    let state = discovery.states().remove(0);
    assert!(state.problem.unwrap().contains("No such file"), "{}", state.source);
    std::fs::write(&second, r#"[{"targets": ["10.0.0.2:80"]}]"#).unwrap();
    discovery.learn(&after, PATIENCE).await;
    let mut changes = discovery.changes();
    while addresses(&discovery, &after) != ["10.0.0.2:80"] {
        changes.changed().await.unwrap();
    }
}

#[tokio::test]
async fn a_set_that_is_too_large_is_a_failure() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.toml");
    let all: Vec<_> = (0..11).map(|last| format!("'10.0.0.{last}:80'")).collect();
    std::fs::write(&path, format!("backends = [{}]", all.join(","))).unwrap();
    let (discovery, wanted) = (Discovery::new(Some(folder.path()), "i"), [of_file(&path, &[])]);
    discovery.learn(&wanted, PATIENCE).await;
    let state = discovery.states().remove(0);
    assert_eq!((state.backends, state.failures_total, state.age), (0, 1, None));
    assert!(state.problem.unwrap().starts_with("11 backends, and `backends-max` is 10"));
}

#[tokio::test(start_paused = true)]
async fn the_last_state_of_a_source_that_changes_often_is_logged() {
    let written = LogBuffer::default();
    let writer = written.clone();
    let log =
        tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _guard = tracing::subscriber::set_default(log);
    let folder = tempfile::tempdir().unwrap();
    let discovery = Discovery::new(Some(folder.path()), "i");
    let wanted = [of_file(&folder.path().join("none.json"), &[])];
    discovery.add(&wanted);
    let options = Arc::clone(&lock(&discovery.0.pools)[0].options);
    // The test takes the place of the task that reads the source.
    lock(&discovery.0.pools)[0].task.abort();
    for change in 0..11 {
        let backend = |last| Found::at(format!("10.0.0.{last}:80").parse().unwrap());
        let backends = (0..2 + change % 2).map(backend).collect();
        discovery.0.note(&options, Ok(Read { backends, missing: None }));
    }
    let at_once = written.take();
    assert_eq!(at_once.matches(" backends event=").count(), 5, "{at_once}");
    sleep(Duration::from_secs(61)).await;
    let at_end = written.take();
    assert!(at_end.contains("pool web: 6 lines about its source left out"), "{at_end}");
    assert!(at_end.contains("none.json has 2 backends event="), "{at_end}");
    assert_eq!(at_end.lines().count(), 2, "{at_end}");
}
