//! The drivers of a pool, by number: of an earlier process those that have made something, and the one that adds.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::mpsc;

use super::record::Record;
use crate::options::{DriverOptions, OptionRefused};
use crate::{Driver, Event};

/// Drivers that are open; the last one adds.
pub(super) struct Makers {
    pub(super) drivers: BTreeMap<u32, Arc<dyn Driver>>,
    /// As [`Record::drivers`] has them.
    pub(super) options: BTreeMap<u32, Option<DriverOptions>>,
}

impl Makers {
    /// A driver of a caller's own: what is recorded is its business.
    pub(super) fn own(driver: Arc<dyn Driver>, record: Option<&Record>) -> Makers {
        let maker = record.map_or(0, |record| record.maker);
        Makers { drivers: [(maker, driver)].into(), options: BTreeMap::new() }
    }

    /// Opens the one that adds, and those of the record that have something to take away.
    ///
    /// # Errors
    /// [`OptionRefused`] of any of them: without it, what it made could not be taken away.
    pub(super) fn open(
        pool: &str,
        now: &DriverOptions,
        record: Option<&Record>,
        events: &mpsc::Sender<Event>,
    ) -> Result<Makers, OptionRefused> {
        let open = |options: &DriverOptions| options.clone().open(pool, events.clone());
        let kept = Some(now.clone()).filter(DriverOptions::outlives_us);
        let (mut drivers, mut options) = (BTreeMap::new(), BTreeMap::new());
        let mut maker = 0;
        if let Some(record) = record {
            maker = next(record, &kept);
            let has_some = |maker: &u32| record.backends.iter().any(|one| one.maker == *maker);
            let earlier = record.drivers.iter().filter(|(it, _)| **it != maker && has_some(it));
            for (number, earlier) in earlier {
                if let Some(earlier) = earlier {
                    drivers.insert(*number, open(earlier)?);
                    options.insert(*number, Some(earlier.clone()));
                }
            }
        }
        drivers.insert(maker, open(now)?);
        options.insert(maker, kept);
        Ok(Makers { drivers, options })
    }
}

/// The number of the driver that adds now: the one that added before, if it is the same.
fn next(record: &Record, now: &Option<DriverOptions>) -> u32 {
    match record.drivers.get(&record.maker) {
        // A record that does not say knows one driver.
        None => record.maker,
        Some(before) if before == now => record.maker,
        Some(_) => record.maker + 1,
    }
}

#[cfg(test)]
mod tests {
    use std::slice::from_ref;

    use super::*;
    use crate::{ExecOptions, ProcessOptions, Recorded, RecordedState};

    fn scripts(name: &str) -> DriverOptions {
        let words = || vec![name.to_string()];
        DriverOptions::Exec(ExecOptions { add: words(), remove: words(), ..ExecOptions::default() })
    }

    fn process() -> DriverOptions {
        let command = vec!["app".to_string(), "{port}".to_string()];
        DriverOptions::Process(ProcessOptions { command, ..ProcessOptions::default() })
    }

    fn record(drivers: &[Option<DriverOptions>], of: &[u32]) -> Record {
        let backend = |maker: &u32| Recorded {
            name: format!("web-e{maker}"),
            size: None,
            key: String::new(),
            state: RecordedState::Ready,
            address: None,
            id: None,
            maker: *maker,
        };
        Record {
            maker: drivers.len().saturating_sub(1) as u32,
            drivers: (0..).zip(drivers.iter().cloned()).collect(),
            backends: of.iter().map(backend).collect(),
            ..Record::empty("web")
        }
    }

    #[test]
    fn who_adds_is_who_added_before_unless_it_is_another_and_who_made_something_is_there() {
        let (a, b) = (Some(scripts("a")), Some(scripts("b")));
        // The record, the driver now, and the numbers of those that are open.
        for (record, now, open) in [
            (None, scripts("a"), vec![0]),
            (Some(record(&[], &[0])), scripts("a"), vec![0]),
            (Some(record(from_ref(&a), &[0])), scripts("a"), vec![0]),
            (Some(record(from_ref(&a), &[0])), scripts("b"), vec![0, 1]),
            (Some(record(from_ref(&a), &[])), scripts("b"), vec![1]),
            (Some(record(&[a.clone(), b.clone()], &[0, 1])), scripts("b"), vec![0, 1]),
            (Some(record(&[a.clone(), b.clone()], &[0, 1])), scripts("a"), vec![0, 1, 2]),
            // What was made by processes died with them.
            (Some(record(&[None], &[0])), process(), vec![0]),
            (Some(record(&[None], &[0])), scripts("a"), vec![1]),
            (Some(record(&[a.clone(), None], &[0, 1])), process(), vec![0, 1]),
        ] {
            let (events, _) = mpsc::channel(1);
            let makers = Makers::open("web", &now, record.as_ref(), &events).unwrap();
            let numbers: Vec<u32> = makers.drivers.keys().copied().collect();
            assert_eq!(numbers, open, "{record:?} {now:?}");
            let last = makers.options.values().last().unwrap();
            assert_eq!(last.as_ref(), Some(&now).filter(|now| now.outlives_us()));
        }
    }
}
