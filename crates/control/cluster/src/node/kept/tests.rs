use std::os::unix::fs::PermissionsExt;

use equipoise_controller::{Enrolled, NodeKind, Roster};
use equipoise_planner::{NamePlan, NodePlan, PoolPlan, Standing};

use super::*;
use crate::Authority;

struct Bed {
    path: std::path::PathBuf,
    folder: StateFolder,
    name: Name,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

impl Bed {
    fn new(test: &str) -> Bed {
        let path = std::env::temp_dir().join(format!("eqp-kept-{test}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        let bed = Bed { folder: StateFolder::new(&path), path, name: "n1".parse().unwrap() };
        bed.join();
        bed
    }

    /// Joins a new cluster each time.
    fn join(&self) {
        let authority = Authority::new(&"test".parse().unwrap(), SystemTime::now()).unwrap();
        let pem = authority.certificate_pem();
        self.folder.replace(StateFile::AuthorityCertificate, &pem).unwrap();
    }

    fn put(&self, instructions: &Instructions) {
        put(&self.folder, self.name.clone(), instructions).unwrap();
    }

    fn file(&self) -> std::path::PathBuf {
        self.folder.path_of(StateFile::Instructions)
    }
}

fn instructions(term: u64, generation: u64) -> Instructions {
    let member = Enrolled {
        kind: NodeKind::Node,
        capacity: 2.0,
        first_capacity: None,
        dispatches: false,
        application_down: false,
        permits: None,
        endpoint: None,
        addresses: Vec::new(),
    };
    let members = [("n2".to_string(), member)].into();
    Instructions { term, generation, members, ..Instructions::default() }
}

#[test]
fn saved_instructions_load_for_a_day_on_their_node_and_cluster() {
    let bed = Bed::new("read");
    assert!(load(&bed.folder, &bed.name).is_none(), "nothing yet");
    bed.put(&instructions(3, 7));
    let mode = bed.file().metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "it has the secret that nodes sign with");
    let kept = load(&bed.folder, &bed.name).unwrap();
    assert_eq!(
        (&*kept.instructions, kept.floor),
        (&instructions(3, 7), kept.instructions.edition())
    );
    assert!(kept.age < Duration::from_secs(60));
    let later = |hours: u64| read(&bed.folder, &bed.name, unix_ms() + hours * 3_600_000);
    assert!(later(23).unwrap().age > Duration::from_secs(22 * 3600));
    assert!(matches!(later(25), Err(NotKept::Old(_))));
    assert!(matches!(read(&bed.folder, &"n2".parse().unwrap(), unix_ms()), Err(NotKept::Node(_))));
    bed.join();
    assert!(matches!(read(&bed.folder, &bed.name, unix_ms()), Err(NotKept::Cluster)));
    assert!(bed.file().exists(), "none of that is damage");
}

#[test]
fn a_damaged_instructions_file_is_moved_aside_and_never_loaded() {
    let bed = Bed::new("damaged");
    bed.put(&instructions(3, 7));
    let good = std::fs::read(bed.file()).unwrap();
    let aside = bed.path.join("instructions.json.bad");
    let cut = (0..good.len()).step_by(17).map(|at| good[..at].to_vec());
    let flipped = (0..good.len()).step_by(13).map(|at| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    });
    for bytes in cut.chain(flipped) {
        std::fs::write(bed.file(), &bytes).unwrap();
        std::fs::set_permissions(bed.file(), std::fs::Permissions::from_mode(0o600)).unwrap();
        let _ = std::fs::remove_file(&aside);
        match read(&bed.folder, &bed.name, unix_ms()) {
            // Another time or another name is also well-formed.
            Err(NotKept::Node(_) | NotKept::Cluster | NotKept::Old(_)) => {}
            Ok(kept) => assert_eq!(*kept.instructions, instructions(3, 7)),
            Err(error) => {
                assert!(error.is_damage(), "{error}");
                assert!(load(&bed.folder, &bed.name).is_none());
                assert_eq!(std::fs::read(&aside).unwrap(), bytes);
                assert!(!bed.file().exists());
            }
        }
    }
}

#[test]
fn a_newer_edition_file_raises_the_floor_of_saved_instructions() {
    let bed = Bed::new("floor");
    bed.put(&instructions(3, 7));
    let of = |term, generation| Edition { term, generation };
    for (text, floor) in [
        ("3.12", of(3, 12)),
        ("2.900", of(3, 7)),
        ("", of(3, 7)),
        ("3.", of(3, 7)),
        ("4.1                    \n", of(4, 1)),
    ] {
        std::fs::write(bed.folder.path_of(StateFile::Edition), text).unwrap();
        assert_eq!(load(&bed.folder, &bed.name).unwrap().floor, floor, "{text:?}");
    }
}

#[test]
fn a_new_term_member_set_roster_or_secret_is_saved_at_once_and_a_new_plan_is_not() {
    let (a, mut b) = (instructions(3, 7), instructions(3, 8));
    assert!(!matters_at_once(&a, &b));
    assert!(matters_at_once(&a, &instructions(4, 1)));
    b.members.clear();
    assert!(matters_at_once(&a, &b));
    b = Instructions { dispatch_secret: Some(equipoise_controller::Secret::random()), ..a.clone() };
    assert!(matters_at_once(&a, &b));
    let roster = |next_number| Roster { next_number, ..Roster::default() };
    let with = |roster| Instructions { rosters: [("web".into(), roster)].into(), ..a.clone() };
    assert!(matters_at_once(&a, &with(roster(1))));
    assert!(matters_at_once(&with(roster(1)), &with(roster(2))));
    assert!(!matters_at_once(&with(roster(1)), &with(roster(1))));
    // Shares and weights change with every plan.
    b = Instructions { generation: 8, ..a.clone() };
    b.plan.generation = equipoise_core::Generation(8);
    b.plan.nodes.insert("n2".to_string(), NodePlan::new(Standing::Joining, 0.5));
    b.plan.names.insert("www".to_string(), NamePlan::default());
    b.plan.pools.insert("web".to_string(), PoolPlan::default());
    assert!(!matters_at_once(&a, &b));
}
