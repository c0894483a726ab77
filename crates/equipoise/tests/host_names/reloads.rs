//! Names that come with a reload.

use std::sync::{Arc, Mutex};

use serde_json::json;

use crate::bed::{Instance, may_mount, serve_at};
use crate::resolver::{A, Answer, Resolver};

/// A process with a backend that has an address, and its resolver.
struct Bed {
    instance: Instance,
    port: u16,
    /// Names of which the IPv4 addresses were asked for.
    asked: Arc<Mutex<Vec<String>>>,
}

impl Bed {
    /// Names that begin with `slow` get no answer.
    fn start(test: &str) -> Bed {
        let port = serve_at(&[("127.0.0.1", "a")]);
        let asked = Arc::new(Mutex::new(Vec::new()));
        let noted = Arc::clone(&asked);
        let resolver = Resolver::start(move |question| {
            if question.kind == A {
                noted.lock().unwrap().push(question.name.clone());
            }
            match question.name.starts_with("slow") {
                true => Answer::Silence,
                false => Answer::of(&["127.0.0.1"], 60),
            }
        });
        let pool = format!("backends = ['127.0.0.1:{port}']");
        Bed { instance: Instance::start(test, resolver.address, &pool), port, asked }
    }

    /// Adds backends with these names to the file.
    fn add(&self, names: &[&str]) {
        let file = std::fs::read_to_string(&self.instance.file).unwrap();
        let more = names.iter().map(|name| format!("'{name}.names.test:{}', ", self.port));
        let more = format!("backends = [{}", more.collect::<String>());
        std::fs::write(&self.instance.file, file.replace("backends = [", &more)).unwrap();
    }

    fn command(&self, args: &[&str]) -> String {
        let (worked, said) = self.instance.command(args);
        assert!(worked, "{said}");
        said
    }

    fn asked_for(&self, name: &str) -> usize {
        let name = format!("{name}.names.test");
        self.asked.lock().unwrap().iter().filter(|it| **it == name).count()
    }
}

#[test]
fn names_that_a_reload_has_resolved_stay_resolved_while_it_waits_for_others() {
    if !may_mount() {
        return;
    }
    let bed = Bed::start("names-kept");
    // The first answer makes the process follow the names of the running configuration.
    bed.add(&["fast", "slow"]);
    bed.command(&["reload"]);
    let resolved = bed.instance.backend()["resolved"].clone();
    assert_eq!(resolved, json!([format!("127.0.0.1:{}", bed.port)]));
    assert_eq!(bed.asked_for("fast"), 1, "its first answer was forgotten");
}

#[test]
fn a_dry_run_resolves_no_names() {
    if !may_mount() {
        return;
    }
    let bed = Bed::start("names-dry-run");
    bed.add(&["new"]);
    let would = bed.command(&["reload", "--dry-run"]);
    assert!(would.contains("new.names.test"), "{would}");
    assert_eq!(bed.asked_for("new"), 0);
    bed.command(&["reload"]);
    assert_eq!(bed.asked_for("new"), 1);
}
