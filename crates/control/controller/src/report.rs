use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use equipoise_core::concurrency::Tally;
use equipoise_core::load::{ClassRates, Measurement, Occupancy, Reported};
use equipoise_monitor::Utilisation;
use equipoise_planner::Permits;
use equipoise_planner::elastic::PoolSample;
use serde::{Deserialize, Serialize};

use crate::edition::Edition;
use crate::fault::{Fault, ReportRefused};
use crate::kind::NodeKind;
use crate::making::Making;
use crate::pressure::{Pressure, check_percent};
use crate::sources::{SOURCES_REPORTED_MAX, SourceRates};

/// A node's report about itself and its observations, once a period. It is also the heartbeat.
///
/// Unknown fields are ignored, so that controllers understand reports of newer nodes and plan as if
/// the field were absent. Instructions differ: a node follows all of them or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NodeReport {
    /// Node or agent.
    pub kind: NodeKind,
    /// Its version of equipoise.
    pub version: String,
    /// Capacity in cores, above 0, not necessarily whole.
    pub capacity: f64,
    /// The load of its resources; absent while its monitor has no values (in the first period, or
    /// if the kernel does not report them).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load: Option<Reported>,
    /// CPU utilisation of its whole machine, in per cent. It is shown beside `load`; no plan uses
    /// it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine_cpu: Option<f64>,
    /// The time for which its work waits for resources. It is shown; no plan uses it.
    #[serde(default, skip_serializing_if = "Pressure::is_unknown")]
    pub pressure: Pressure,
    /// Its requests of the period by class; zeros if it does not dispatch.
    #[serde(default)]
    pub classes: ClassRates,
    /// True if it has a dispatch level: it may delegate, and peers may delegate to it.
    #[serde(default)]
    pub dispatches: bool,
    /// True if it has a dispatch level and no backend of its application can take a request. It
    /// then gets no clients from names, however idle it is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub application_down: bool,
    /// The permits of its application; absent without a dispatch level or a concurrency limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub permits: Option<Permits>,
    /// Use of its application's concurrency limit in the period; absent under the same conditions,
    /// and in reports of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub occupancy: Option<Occupancy>,
    /// Address at which peers delegate to it and check whether it is alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<SocketAddr>,
    /// Its own addresses. Backends at these addresses run on this machine, and have its load.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<IpAddr>,
    /// Observations of its balancer in the period, by pool.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pools: BTreeMap<String, PoolSample>,
    /// Peers that it probed in the period, and whether they answered.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub reachable: BTreeMap<String, bool>,
    /// Peers whose kernel refused a connection in the period.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refused: BTreeSet<String>,
    /// True if it leaves: its process ends, and with it the process's backends.
    #[serde(default, skip_serializing_if = "is_false")]
    pub leaves: bool,
    /// The instructions that it follows; absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<Edition>,
    /// Elastic pools for which the node can create backends, and the backends that it has created.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub making: BTreeMap<String, Making>,
    /// For each pool here that has a roster: draining backends that get no new work from this node
    /// and have none of its work left.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub drained: BTreeMap<String, BTreeSet<String>>,
    /// Names for which the node spreads answers by load, each with the members in its answers.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub names: BTreeMap<String, BTreeSet<String>>,
    /// Rates of its clients by prefix, for the prefixes with the highest rates.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sources: SourceRates,
    /// Tallies of its balancer for backends with a learnt limit, by [`SharedBackend`], and demands
    /// for limits on clients, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tallies: BTreeMap<SharedBackend, Tally>,
}

/// A backend that several balancers of a cluster may share: its pool's name, and an address that
/// means the same on all of their machines.
pub type SharedBackend = String;

impl NodeReport {
    /// Greatest number of pools in a report.
    pub const POOLS_MAX: usize = 1000;
    /// Greatest number of backends of all its pools.
    pub const BACKENDS_MAX: usize = 10_000;
    /// Greatest number of names.
    pub const NAMES_MAX: usize = 1000;
    /// Greatest number of peers.
    pub const PEERS_MAX: usize = 64;
    /// Greatest number of own addresses.
    pub const ADDRESSES_MAX: usize = 64;
    /// Greatest number of tallies.
    pub const TALLIES_MAX: usize = 1000;
    /// Longest name of a node, pool or backend, in bytes.
    pub const NAME_BYTES_MAX: usize = 255;
    /// Longest description of a failure, and longest id of a driver, in bytes.
    pub const PROBLEM_BYTES_MAX: usize = 2048;
    /// Greatest capacity of a node in cores: the number that Linux supports.
    pub const CAPACITY_MAX: f64 = 8192.0;
    /// Longest mean response time of a backend.
    pub const RESPONSE_MAX: Duration = Duration::from_secs(86_400);
    /// Largest report that a transport must accept, in bytes of JSON.
    pub const BYTES_MAX: usize = 2 << 20;

    /// The values that the planner uses, if the monitor has them.
    pub fn load_of(used: &Utilisation) -> Option<Reported> {
        let (cpu, memory) = (used.cpu_percent?, used.memory_percent?);
        Some(Reported { cpu, memory, net: used.net_percent })
    }

    /// Checks that the report is credible.
    ///
    /// # Errors
    /// [`ReportRefused`] with the first fault.
    pub fn check(&self) -> Result<(), ReportRefused> {
        if let Some(load) = &self.load {
            Measurement::checked(load)?;
        }
        self.pressure.check()?;
        check_percent("the machine's cpu", self.machine_cpu)?;
        let capacity = self.capacity;
        if !(capacity > 0.0 && capacity <= NodeReport::CAPACITY_MAX) {
            let most = NodeReport::CAPACITY_MAX;
            let what = format!("capacity is {capacity:?} cores; accepted: above 0, at most {most}");
            return Err(wrong(Fault::Number, what));
        }
        if let Some(occupancy) = self.occupancy.filter(|it| !it.is_sane()) {
            let what = format!("occupancy is {occupancy:?}; accepted: 0 and more, a limit above 0");
            return Err(wrong(Fault::Number, what));
        }
        at_most("pools", self.pools.len(), NodeReport::POOLS_MAX)?;
        at_most("peers", self.reachable.len(), NodeReport::PEERS_MAX)?;
        at_most("peers", self.refused.len(), NodeReport::PEERS_MAX)?;
        at_most("addresses", self.addresses.len(), NodeReport::ADDRESSES_MAX)?;
        at_most("pools", self.making.len().max(self.drained.len()), NodeReport::POOLS_MAX)?;
        let backends = self.pools.values().map(|pool| pool.backends.len()).sum();
        at_most("backends", backends, NodeReport::BACKENDS_MAX)?;
        let made = self.making.values().map(|pool| pool.backends.len()).sum();
        at_most("made backends", made, NodeReport::BACKENDS_MAX)?;
        let drained = self.drained.values().map(BTreeSet::len).sum();
        at_most("drained backends", drained, NodeReport::BACKENDS_MAX)?;
        check_text("version", &self.version)?;
        let peers = self.reachable.keys().chain(&self.refused);
        peers.into_iter().try_for_each(|peer| check_text("peer", peer))?;
        at_most("names", self.names.len(), NodeReport::NAMES_MAX)?;
        let answered = self.names.values().map(BTreeSet::len).sum();
        at_most("members of names", answered, NodeReport::BACKENDS_MAX)?;
        for (name, members) in &self.names {
            check_text("name", name)?;
            members.iter().try_for_each(|member| check_text("member", member))?;
        }
        at_most("sources", self.sources.len(), SOURCES_REPORTED_MAX)?;
        self.sources.values().try_for_each(|rate| not_negative("the rate of a source", *rate))?;
        self.check_classes()?;
        at_most("shared backends", self.tallies.len(), NodeReport::TALLIES_MAX)?;
        self.tallies.iter().try_for_each(|(backend, tally)| check_tally(backend, tally))?;
        self.making.iter().try_for_each(|(name, making)| check_making(name, making))?;
        self.pools.iter().try_for_each(|(name, sample)| check_pool(name, sample))
    }

    fn check_classes(&self) -> Result<(), ReportRefused> {
        use equipoise_core::load::RequestClass;
        for class in RequestClass::ALL {
            let rate = &self.classes[class];
            for value in [rate.arrived, rate.delegated, rate.refused, rate.taken, rate.bytes] {
                not_negative(&format!("a rate of class {class}"), value)?;
            }
        }
        Ok(())
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn check_pool(name: &str, sample: &PoolSample) -> Result<(), ReportRefused> {
    check_text("pool", name)?;
    within(&format!("pool {name}: queued"), sample.queued, REQUESTS_MAX)?;
    within(&format!("pool {name}: excess, up or down"), sample.excess.abs(), REQUESTS_MAX)?;
    for (backend, one) in &sample.backends {
        check_text("backend", backend)?;
        let what = |of: &str| format!("backend {name}/{backend}: {of}");
        within(&what("in flight"), one.in_flight, REQUESTS_MAX)?;
        within(&what("limit"), one.limit.unwrap_or(0.0), REQUESTS_MAX)?;
        within(&what("open"), f64::from(one.open), REQUESTS_MAX)?;
        let longest = NodeReport::RESPONSE_MAX;
        if let Some(response) = one.response.filter(|response| *response > longest) {
            let what = what("response");
            let text = format!(
                "{what} is {} s; accepted: at most {} s",
                response.as_secs(),
                longest.as_secs()
            );
            return Err(wrong(Fault::Number, text));
        }
        one.size.iter().try_for_each(|size| check_text("size", size))?;
    }
    Ok(())
}

fn check_tally(backend: &str, tally: &Tally) -> Result<(), ReportRefused> {
    at_most("bytes of a shared backend", backend.len(), NodeReport::PROBLEM_BYTES_MAX)?;
    if tally.is_sound() {
        return Ok(());
    }
    let what = format!("the tally of {backend:?} has a negative number, or one that is not finite");
    Err(wrong(Fault::Number, what))
}

fn check_making(name: &str, making: &Making) -> Result<(), ReportRefused> {
    check_text("pool", name)?;
    making.driver.iter().try_for_each(|driver| check_text("driver", driver))?;
    for (backend, made) in &making.backends {
        check_text("backend", backend)?;
        made.size.iter().try_for_each(|size| check_text("size", size))?;
        made.driver.iter().try_for_each(|driver| check_text("driver", driver))?;
        made.replaces.iter().try_for_each(|older| check_text("backend", older))?;
        let key = made.key.as_ref().map_or(0, String::len);
        at_most("bytes of a key", key, NodeReport::PROBLEM_BYTES_MAX)?;
        let id = made.id.as_ref().map_or(0, String::len);
        at_most("bytes of an id", id, NodeReport::PROBLEM_BYTES_MAX)?;
        let problem = made.problem.as_ref().map_or(0, String::len);
        at_most("bytes of a problem", problem, NodeReport::PROBLEM_BYTES_MAX)?;
    }
    Ok(())
}

fn wrong(fault: Fault, what: String) -> ReportRefused {
    ReportRefused { fault, what }
}

/// No balancer reaches this number; a larger one is a fault.
const LARGEST: f64 = 1e12;

/// Greatest number of requests at a balancer. Its memory would not suffice for more.
const REQUESTS_MAX: f64 = 1e8;

fn not_negative(what: &str, value: f64) -> Result<(), ReportRefused> {
    within(what, value, LARGEST)
}

fn within(what: &str, value: f64, most: f64) -> Result<(), ReportRefused> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(wrong(Fault::Number, format!("{what} is {value:?}; accepted: 0 to {most:e}")))
}

fn at_most(what: &str, count: usize, most: usize) -> Result<(), ReportRefused> {
    if count <= most {
        return Ok(());
    }
    Err(wrong(Fault::TooMany, format!("{count} {what}; accepted: at most {most}")))
}

/// True if the text is valid as a name.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty() && text.len() <= NodeReport::NAME_BYTES_MAX && !text.contains(char::is_control)
}

fn check_text(what: &str, text: &str) -> Result<(), ReportRefused> {
    if is_name(text) {
        return Ok(());
    }
    let start: String = text.chars().take(40).collect();
    let most = NodeReport::NAME_BYTES_MAX;
    let what = format!("{what} {start:?}; accepted: 1 to {most} bytes, no control characters");
    Err(wrong(Fault::Name, what))
}

#[cfg(test)]
mod tests {
    use equipoise_planner::elastic::BackendSample;

    use super::*;

    fn fine() -> NodeReport {
        let load = Some(Reported { cpu: 20.0, memory: 30.0, net: None });
        let backend = BackendSample {
            in_flight: 1.5,
            response: Some(Duration::from_millis(3)),
            ..BackendSample::default()
        };
        let backends = [("10.0.0.1:80".to_string(), backend)].into();
        let pools = [("web".to_string(), PoolSample { backends, ..PoolSample::default() })].into();
        let pressure = Pressure { cpu: Some(5.0), ..Pressure::default() };
        let version = "0.1.0".into();
        NodeReport { version, capacity: 2.0, load, pressure, pools, ..NodeReport::default() }
    }

    #[test]
    fn a_valid_report_passes_the_check_and_survives_serialization() {
        assert_eq!(fine().check(), Ok(()));
        let text = serde_json::to_string(&fine()).unwrap();
        assert_eq!(serde_json::from_str::<NodeReport>(&text).unwrap(), fine());
    }

    #[test]
    fn unknown_fields_in_a_report_are_ignored() {
        let mut report = fine();
        report.permits = Some(Permits { free: 1, queued: 2 });
        report.occupancy = Some(Occupancy { in_flight: 3.0, queued: 2.0, limit: 4.0 });
        report.making = [("web".to_string(), Making::default())].into();
        let mut value = serde_json::to_value(&report).unwrap();
        let places = ["", "/load", "/pressure", "/classes/light", "/permits", "/occupancy"];
        for place in places.into_iter().chain(["/making/web"]) {
            value.pointer_mut(place).unwrap()["surprise"] = 1.into();
        }
        let pool = value.pointer_mut("/pools/web").unwrap();
        pool["surprise"] = 1.into();
        pool["backends"]["10.0.0.1:80"]["surprise"] = serde_json::json!({"of": ["any", "kind"]});
        assert_eq!(serde_json::from_value::<NodeReport>(value).unwrap(), report);
    }

    #[test]
    fn a_tally_with_an_invalid_number_is_refused() {
        for demand in [-1.0, f64::NAN, f64::INFINITY] {
            let mut report = fine();
            let tally = Tally { demand, ..Tally::default() };
            report.tallies.insert("web 10.0.0.1:80".to_string(), tally);
            let refused = report.check().unwrap_err();
            assert_eq!(refused.fault, Fault::Number);
            assert!(refused.to_string().contains("the tally of \"web 10.0.0.1:80\""), "{refused}");
        }
    }

    #[test]
    fn an_occupancy_without_a_limit_is_refused() {
        let report = NodeReport { occupancy: Some(Occupancy::default()), ..fine() };
        let refused = report.check().unwrap_err();
        assert_eq!(refused.fault, Fault::Number);
        assert!(refused.to_string().contains("accepted: 0 and more, a limit above 0"), "{refused}");
    }

    #[test]
    fn an_invalid_report_is_refused_with_the_field_and_value() {
        let with = |change: fn(&mut NodeReport)| {
            let mut report = fine();
            change(&mut report);
            let refused = report.check().unwrap_err();
            (refused.fault, refused.to_string())
        };
        fn cpu(report: &mut NodeReport, cpu: f64) {
            report.load = Some(Reported { cpu, ..Reported::default() });
        }
        fn backend(report: &mut NodeReport) -> &mut BackendSample {
            let pool = report.pools.get_mut("web").unwrap();
            pool.backends.get_mut("10.0.0.1:80").unwrap()
        }
        let rows = [
            (with(|r| cpu(r, f64::NAN)), Fault::Load, "cpu is NaN"),
            (with(|r| cpu(r, -1.0)), Fault::Load, "cpu is -1"),
            (with(|r| cpu(r, 1e9)), Fault::Load, "cpu is 1000000000"),
            (with(|r| r.pressure.io = Some(f64::NAN)), Fault::Load, "io pressure is NaN"),
            (with(|r| r.pressure.cpu = Some(100.5)), Fault::Load, "cpu pressure is 100.5"),
            (with(|r| r.machine_cpu = Some(101.0)), Fault::Load, "the machine's cpu is 101"),
            (with(|r| r.capacity = 0.0), Fault::Number, "capacity is 0"),
            (with(|r| r.capacity = f64::NAN), Fault::Number, "capacity is NaN"),
            (
                with(|r| r.capacity = 1e308),
                Fault::Number,
                "capacity is 1e308 cores; accepted: above 0, at most 8192",
            ),
            (
                with(|r| backend(r).response = Some(Duration::MAX)),
                Fault::Number,
                "backend web/10.0.0.1:80: response is 18446744073709551615 s; accepted: at most 86400 s",
            ),
            (with(|r| backend(r).in_flight = 1e9), Fault::Number, "in flight is 1000000000"),
            (
                with(|r| r.pools.get_mut("web").unwrap().excess = f64::NAN),
                Fault::Number,
                "pool web: excess, up or down is NaN",
            ),
            (with(|r| r.classes.light.arrived = -1.0), Fault::Number, "class light is -1"),
            (with(|r| backend(r).in_flight = f64::INFINITY), Fault::Number, "in flight is inf"),
            (with(|r| r.version = "\n".into()), Fault::Name, "version \"\\n\""),
            (
                with(|r| {
                    let source = equipoise_core::SourcePrefix::of([192, 0, 2, 1].into());
                    r.sources.insert(source, f64::NAN);
                }),
                Fault::Number,
                "rate of a source is NaN",
            ),
            (
                with(|r| r.reachable = (0..65).map(|n| (n.to_string(), true)).collect()),
                Fault::TooMany,
                "65 peers; accepted: at most 64",
            ),
            (
                with(|r| {
                    let pool = r.pools["web"].clone();
                    r.pools = (0..1001).map(|n| (n.to_string(), pool.clone())).collect();
                }),
                Fault::TooMany,
                "1001 pools",
            ),
        ];
        for ((fault, text), expected, words) in rows {
            assert_eq!(fault, expected, "{text}");
            assert!(text.contains(words), "{text:?} lacks {words:?}");
        }
    }
}
