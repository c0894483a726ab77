//! Pools whose record of what was made is damaged.

use super::*;

fn record(instance: &Instance, more: &str) -> PathBuf {
    instance.store().with_file_name(format!("elastic-web.json{more}"))
}

/// Leaves the first half of a file.
fn halve(path: &std::path::Path) {
    let bytes = std::fs::read(path).expect("it is there");
    std::fs::write(path, &bytes[..bytes.len() / 2]).expect("the folder is ours");
}

#[test]
fn what_scripts_have_made_outlives_a_damaged_record() {
    let (mut instance, fleet, pool) = three_by_scripts("record");
    let before = (fleet.there(), serving(&instance));

    let rows: [(&[&str], _); 2] = [
        (&[""], "its copy, which says the same, is gone by"),
        (&["", ".copy"], "goes on with what `list` says there is"),
    ];
    for (damaged, done) in rows {
        instance.kill();
        damaged.iter().for_each(|more| halve(&record(&instance, more)));
        instance.start(&pool).wait_for_text(done);
        let mut now = Vec::new();
        let same = eventually(|| {
            now = serving(&instance);
            now.iter().collect::<BTreeSet<_>>() == before.1.iter().collect()
        });
        assert!(same, "{now:?} {}", instance.printed());
        assert_eq!(fleet.there(), before.0, "the same ones, none made again");
    }
    assert!(record(&instance, ".bad").exists() && record(&instance, ".bad.1").exists());
    let (worked, said) = instance.command(&["plan", "pin", "web", "1"]);
    assert!(worked, "{said}");
    let kinds = |word: &str| fleet.log().iter().filter(|line| line.starts_with(word)).count();
    assert!(eventually(|| kinds("removed") == 2), "{:?}", fleet.log());
    assert_eq!((kinds("made"), kinds("doubled")), (3, 0), "{:?}", fleet.log());
}

#[test]
fn a_pool_of_processes_whose_record_is_damaged_begins_anew_with_names_that_were_not_used() {
    let mut instance = Instance::new("record-anew");
    let pool = made_of_processes().replace("min = 1", "min = 2");
    instance.start(&pool);
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    let old = serving(&instance);
    instance.kill();
    ["", ".copy"].into_iter().for_each(|more| halve(&record(&instance, more)));
    let answers = |at: &std::net::SocketAddr| std::net::TcpStream::connect(at).is_ok();
    assert!(eventually(|| !old.iter().any(answers)), "children die with their parent");

    instance.start(&pool).wait_for_text("the pool begins anew; its processes have ended");
    assert!(eventually(|| serving(&instance).len() == 2), "{}", instance.printed());
    let status = instance.json("/v1/status").to_string();
    for (name, is_there) in
        [("web-e1", false), ("web-e2", false), ("web-e3", true), ("web-e4", true)]
    {
        assert_eq!(status.contains(&format!("\"{name}\"")), is_there, "{name} {status}");
    }
}
