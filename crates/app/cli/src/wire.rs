//! A controller's answers as types of the API. `equipoise cluster` prints them, and `equipoise run`
//! serves them.

use std::collections::BTreeMap;

use equipoise_api::wire::cluster::{ClusterMembers, ClusterToken, MadeBackend};
use equipoise_api::wire::plan::{NodeStatus, Nodes};
use equipoise_cluster::wire::{ListedToken, Members};
use equipoise_controller::{ClusterView, MemberView, Wanted};
use equipoise_core::AdminState;

/// Converts the members that a controller knows to the API's form. `admins` has the admin states
/// that are not `up`.
pub fn members(members: Members, admins: &BTreeMap<String, AdminState>) -> ClusterMembers {
    let Members { cluster, authority, view, counts } = members;
    let nodes = nodes(&view, admins);
    ClusterMembers {
        cluster: cluster.to_string(),
        authority: authority.to_string(),
        controller: view.controller.clone(),
        leader: nodes.leader,
        term: view.term,
        controllers: nodes.controllers,
        instructions: view.instructions.map(|edition| edition.to_string()),
        instructions_age_seconds: view.instructions_age.map(|age| age.as_secs_f64()),
        period_seconds: view.period.as_secs_f64(),
        store_failing_seconds: view.store.failing_for.map(|time| time.as_secs_f64()),
        store_failure: view.store.failure.clone(),
        problem: view.problem.clone(),
        members: nodes.nodes,
        elastic: made(&view),
        counts,
    }
}

/// Converts a token to the API's form.
pub fn token(listed: ListedToken) -> ClusterToken {
    ClusterToken {
        id: listed.id.to_string(),
        created_at_unix_seconds: listed.created_at,
        expires_at_unix_seconds: listed.expires_at,
        single_use: listed.single_use,
        node: listed.node.map(|name| name.to_string()),
        used_by: listed.used.map(|used| used.node.to_string()),
    }
}

/// Members as a controller knows them.
pub fn nodes(view: &ClusterView, admins: &BTreeMap<String, AdminState>) -> Nodes {
    let node = |member: &MemberView| NodeStatus {
        name: member.name.clone(),
        kind: member.kind.to_string(),
        state: member.state.name().to_string(),
        version: member.version.clone(),
        capacity: member.capacity,
        claimed_capacity: member.claimed_capacity,
        admin: admins.get(&member.name).copied().unwrap_or(AdminState::Up).into(),
        standing: member.standing.map(|standing| standing.to_string()),
        shares: member.shares.clone(),
        cpu_percent: member.load.map(|load| load.cpu),
        machine_cpu_percent: member.machine_cpu,
        memory_percent: member.load.map(|load| load.memory),
        net_percent: member.load.and_then(|load| load.net),
        l1: member.planned.map(|planned| planned.l1),
        l2: member.planned.map(|planned| planned.l2),
        keep: member.keep.filter(|_| member.dispatches),
        takes: member.takes,
        report_age_seconds: member.report_age.map(|age| age.as_secs_f64()),
        applied: member.applied.map(|edition| edition.to_string()),
        refused_total: member.refused,
    };
    Nodes {
        leader: view.leader.clone(),
        controllers: view.controllers.clone(),
        nodes: view.members.iter().map(node).collect(),
    }
}

fn made(view: &ClusterView) -> Vec<MadeBackend> {
    let rosters = view.rosters.iter();
    let all = rosters.flat_map(|(pool, roster)| roster.backends.iter().map(move |it| (pool, it)));
    let one = |(pool, (name, entry)): (&String, (&String, &equipoise_controller::Entry))| {
        let wanted = match entry.wanted {
            Wanted::Serve => "serve",
            Wanted::Drain => "drain",
            Wanted::Leave => "leave",
        };
        MadeBackend {
            pool: pool.clone(),
            name: name.clone(),
            wanted: wanted.to_string(),
            state: entry.state.name().to_string(),
            executor: entry.executor.clone(),
            address: entry.address.map(|address| address.to_string()),
            problem: entry.problem.clone(),
        }
    };
    all.map(one).collect()
}
