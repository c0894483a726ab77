//! The session level's configuration with the backends that sources report.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::Arc;

use equipoise_discovery::{Discover, Discovery, Found, HostPort};
use equipoise_session::config::{
    BackendConfig, Place, PoolConfig, Resolved, SessionConfig, stand_in,
};

/// `config` with the sets that are in use of these sources. Host names are not resolved yet.
pub(crate) fn with_discovered(
    discovery: &Discovery,
    sources: &[Discover],
    mut config: SessionConfig,
) -> SessionConfig {
    let sets = discovery.backends(sources);
    for pool in &mut config.pools {
        if let Some(set) = sets.get(&pool.name) {
            add(pool, set);
        }
    }
    config
}

/// Adds backends to those that the file lists. A listed backend counts if both have one address.
fn add(pool: &mut PoolConfig, set: &[Found]) {
    let listed: HashSet<_> = pool.backends.iter().map(|it| it.address).collect();
    let mut names: HashSet<Arc<str>> = pool.backends.iter().map(|it| it.name.clone()).collect();
    for found in set {
        let text: Arc<str> = found.address.to_string().into();
        let (address, place) = place(&found.address);
        if listed.contains(&address) {
            continue;
        }
        let own = found.name.as_deref().map(Arc::from).filter(|name| !names.contains(name));
        let name = own.unwrap_or(text);
        names.insert(Arc::clone(&name));
        let (weight, backup, concurrency) = (found.weight, found.backup, None);
        pool.backends.push(BackendConfig { name, address, place, weight, backup, concurrency });
    }
}

/// The address that identifies a backend, and where it is reached.
pub(crate) fn place(address: &HostPort) -> (SocketAddr, Place) {
    match address {
        HostPort::Ip(address) => (*address, Place::Address),
        HostPort::Host(host) => {
            let port = host.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            let (name, resolved) = (host.as_str().into(), Resolved::default());
            (stand_in(host.as_bytes(), port.unwrap_or_default()), Place::Host { name, resolved })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use equipoise_config::{Surroundings, parse};

    use super::*;

    fn found(address: &str, name: &str) -> Found {
        let name = Some(name).filter(|name| !name.is_empty()).map(ToString::to_string);
        Found { name, ..Found::at(address.parse().unwrap()) }
    }

    #[test]
    fn listed_backends_and_names_have_precedence() {
        let text = "[[session]]\nlisten = '127.0.0.1:1'\nprotocol = 'http'\npool = 'web'\n[[pool]]\nname = 'web'\n\
                    backends = [{ name = 'a', address = '10.0.0.1:80' }]";
        let config = parse(text, Path::new("t"), &Surroundings::here()).unwrap().config;
        let mut pool = config.session.pools.into_iter().next().unwrap();
        let set = [
            found("10.0.0.1:80", "b"),
            found("10.0.0.2:80", "a"),
            found("10.0.0.3:80", "c"),
            found("app.internal:80", ""),
        ];
        add(&mut pool, &set);
        let names: Vec<_> = pool.backends.iter().map(|it| &*it.name).collect();
        assert_eq!(names, ["a", "10.0.0.2:80", "c", "app.internal:80"]);
        assert_eq!(pool.backends[3].place.text(pool.backends[3].address), "app.internal:80");
    }
}
