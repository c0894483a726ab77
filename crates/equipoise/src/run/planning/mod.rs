//! Assembles planning: its configuration, and the session level that it measures and steers.

mod joined;
mod level;

use std::net::IpAddr;
use std::sync::Arc;

use anyhow::Context;
use async_trait::async_trait;
use equipoise_cluster::{CertificateDesk, Journal};
use equipoise_config::{Config, declared_pool};
use equipoise_planner::elastic::Elasticity;
use equipoise_planning::{Maker, Planner, PlannerOptions, PlanningConfig, ReadDeclaration};
use equipoise_session::config::{PoolConfig, Protocol};
use equipoise_session::registry::RegistryHandle;

pub(crate) use self::joined::with_joined;
use self::level::Level;

/// Starts the planning side of this process.
pub(crate) async fn start(
    config: &Config,
    registry: RegistryHandle,
    desks: (Arc<dyn Journal>, Arc<dyn CertificateDesk>),
) -> anyhow::Result<Arc<Planner>> {
    let doors = config.session.front_doors.iter();
    let doors = doors.filter(|door| door.protocol != Protocol::Udp);
    // A front door that accepts delegated requests is preferred.
    let front_door = doors.min_by_key(|door| door.dispatch.is_none()).map(|door| door.listen);
    let options = PlannerOptions {
        instance: Arc::clone(&config.instance.name),
        config: planning_config(config),
        cluster: config.cluster.clone(),
        front_door,
        level: Arc::new(Level(registry)),
        declarations: Arc::new(Declarations),
        desks,
    };
    Planner::start(options).await.context("cannot start planning")
}

/// The part of the configuration that concerns planning.
pub(crate) fn planning_config(config: &Config) -> PlanningConfig {
    let weighed = config.session.pools.iter().filter(|pool| pool.weights_by_load);
    let weighed = weighed.map(|pool| pool.name.to_string()).collect();
    let forwarded = config.packet.vips.iter().map(|vip| vip.pool.to_string());
    let named = config.dns.zones.iter().flat_map(|zone| {
        let made = zone.names.iter().filter_map(|name| Some(&name.elastic.as_ref()?.pool));
        made.chain(zone.nodes.iter().map(|node| &node.pool)).map(ToString::to_string)
    });
    let forwarded = forwarded.chain(named).collect();
    let doors = config.session.front_doors.iter();
    let served = doors.flat_map(|door| door.pools()).map(ToString::to_string).collect();
    let pools = config.session.pools.iter();
    let listed = |pool: &PoolConfig| {
        let names = pool.backends.iter().map(|it| it.name.to_string());
        (pool.name.to_string(), names.collect())
    };
    let listed = pools.map(listed).collect();
    let node = config.session.front_doors.iter().find(|door| door.dispatch.is_some());
    let application = node.map(|door| Arc::clone(&door.pool));
    let answers = !config.dns.zones.is_empty();
    let planning = config.planning.clone();
    PlanningConfig { planning, weighed, forwarded, served, listed, answers, application }
}

/// Reads declarations as parts of a configuration file.
struct Declarations;

#[async_trait]
impl ReadDeclaration for Declarations {
    async fn read(
        &self,
        pool: &str,
        text: &str,
        own: Option<IpAddr>,
    ) -> Result<(Elasticity, Maker), String> {
        declared_pool(pool, text, own).await
    }
}
