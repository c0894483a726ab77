//! Elastic pools that the controllers' files declare for all nodes of a cluster. Instructions carry
//! the text of `[pool.elastic]`.

use std::io;
use std::net::IpAddr;

use equipoise_planning::Declaration;
use toml::{Table, Value};

use super::Surroundings;
use super::driver::maker;
use super::problem::Findings;
use super::tables::{Cluster, Declared, Elastic, File};
use super::view::View;

/// Whether the controllers' files declare this `[pool.elastic]` table.
pub(super) fn by_controllers(elastic: View<'_, Elastic>) -> bool {
    elastic.get(Elastic::DECLARED) == Declared::Controllers
}

/// Whether this is a controller's file.
pub(super) fn is_controller(file: View<'_, File>) -> bool {
    file.get(File::CLUSTER).is_some_and(|cluster| cluster.given(Cluster::STORE))
}

/// Builds the declaration from a pool in a controller's file. `None` if the pool has no driver,
/// which is an error.
pub(super) fn declaration(
    pool: &str,
    elastic: View<'_, Elastic>,
    findings: &mut Findings<'_>,
) -> Option<(String, Declaration)> {
    // The controller does not need the secrets of nodes.
    let around = Surroundings {
        host_name: String::new(),
        api_socket: Default::default(),
        read: &|_, _| Ok(String::new()),
        mode: &|_| Err(io::ErrorKind::NotFound.into()),
    };
    let limits = maker(elastic, true, &around, findings)?.limits;
    let document: Table = toml::from_str(findings.source()).ok()?;
    let is_it = |table: &&Value| table.get("name").and_then(Value::as_str) == Some(pool);
    let mut table = document.get("pool")?.as_array()?.iter().find(is_it)?.get("elastic")?.clone();
    table.as_table_mut()?.remove("declared");
    Some((pool.to_string(), Declaration { text: text(pool, table)?, limits }))
}

/// The declaration for a node with the address `own`. A process without a stated `address` gets
/// this address, which other nodes can reach. `None` if the text is not a valid [`Declaration`].
pub(super) fn text_for(text_of_all: &str, own: Option<IpAddr>) -> Option<String> {
    let document: Table = toml::from_str(text_of_all).ok()?;
    let pool = document.get("pool")?.as_array()?.first()?;
    let (name, mut elastic) = (pool.get("name")?.as_str()?, pool.get("elastic")?.clone());
    let process = elastic.get_mut("process").and_then(Value::as_table_mut);
    if let (Some(process), Some(own)) = (process, own) {
        process.entry("address").or_insert_with(|| own.to_string().into());
    }
    text(name, elastic)
}

fn text(pool: &str, elastic: Value) -> Option<String> {
    let name = ("name".to_string(), Value::from(pool));
    let pool: Table = [name, ("elastic".to_string(), elastic)].into_iter().collect();
    let document: Table = [("pool".to_string(), Value::from(vec![pool]))].into_iter().collect();
    toml::to_string(&document).ok()
}
