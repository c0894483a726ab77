//! Reads a declaration of an elastic pool that the controllers sent.

use std::net::IpAddr;
use std::path::Path;

use equipoise_planner::elastic::Elasticity;
use equipoise_planning::Maker;

use super::declared::text_for;
use super::{Loader, Severity};

/// Reads the declaration of a pool, for a member with the address `own`. The error is the reason
/// why it cannot be used.
pub async fn declared_pool(
    pool: &str,
    text: &str,
    own: Option<IpAddr>,
) -> Result<(Elasticity, Maker), String> {
    let refused = |why: &str| {
        format!("the controllers' [pool.elastic] of pool {pool} cannot be used here: {why}")
    };
    let text = text_for(text, own).ok_or_else(|| refused("it is not the TOML of a pool"))?;
    let loaded = Loader::default().check(Path::new("instructions"), text).await;
    let planning = loaded.map(|loaded| loaded.config.planning).map_err(|errors| {
        let errors = errors.problems.iter().filter(|it| it.severity == Severity::Error);
        let all: Vec<String> = errors.map(|it| format!("{}: {}", it.option, it.text)).collect();
        refused(&all.join("; "))
    });
    let mut planning = planning?;
    let options = planning.elastic.remove(pool).zip(planning.makers.remove(pool));
    options.ok_or_else(|| refused("it has no driver"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROCESS: &str = "[[pool]]\nname = \"web\"\n[pool.elastic]\nmax = 3\n\
                           [pool.elastic.process]\ncommand = [\"/bin/app\", \"{port}\"]\n";

    #[tokio::test]
    async fn a_declared_process_listens_where_other_nodes_reach_it() {
        let own = "192.0.2.7".parse().unwrap();
        let options = declared_pool("web", PROCESS, Some(own)).await.unwrap();
        assert_eq!(options.0.max, 3);
        let equipoise_driver::DriverOptions::Process(process) = &options.1.driver else {
            panic!("{options:?}")
        };
        assert_eq!(process.address, own);
    }

    #[tokio::test]
    async fn a_declaration_that_this_version_cannot_read_is_refused_with_its_reason() {
        let later = PROCESS.replace("max = 3", "max = 3\nsurprise = 1");
        let refused = declared_pool("web", &later, None).await.unwrap_err();
        assert!(refused.contains("elastic.surprise: unknown option"), "{refused}");
        assert!(declared_pool("web", "no = ", None).await.is_err());
        let no_table = "[[pool]]\nname = \"web\"\nelastic = 1\n";
        assert!(declared_pool("web", no_table, None).await.is_err());
    }
}
