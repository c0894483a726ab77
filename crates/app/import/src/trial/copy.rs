//! The copy of a translation that a trial runs.

use std::net::SocketAddr;
use std::path::Path;

use toml::{Table, Value};

use super::Trial;

/// Tables that the copy does not have: packets, and logs that others read.
const LEFT_OUT: [&str; 4] = ["packet", "flows", "log", "shutdown"];

impl Trial {
    /// The translation as it runs beside the old proxy. `listen` has an address for each of
    /// [`Trial::doors`]; `folder` is for the API's socket and the state.
    pub fn copy(&self, listen: &[SocketAddr], folder: &Path) -> String {
        let mut config = self.config.clone();
        LEFT_OUT.iter().for_each(|key| drop(config.remove(*key)));
        let doors = self.config.get("session").and_then(Value::as_array);
        let doors = doors.into_iter().flatten().enumerate().filter_map(|(number, door)| {
            let mine = self.doors.iter().zip(listen).filter(|(it, _)| it.table == number);
            let mine: Vec<_> = mine.map(|(_, at)| Value::from(at.to_string())).collect();
            let mut door = door.as_table().filter(|_| !mine.is_empty())?.clone();
            door.insert("listen".into(), Value::Array(mine));
            Some(Value::Table(door))
        });
        config.insert("session".into(), Value::Array(doors.collect()));
        let path = |name: &str| Value::from(folder.join(name).display().to_string());
        for (table, options) in [
            ("api", vec![("socket", path("api.sock")), ("listen", Value::from("off"))]),
            ("controller", vec![("state", path("state"))]),
            ("instance", vec![("threads", Value::from(1))]),
        ] {
            let options = options.into_iter().map(|(key, value)| (key.to_string(), value));
            config.insert(table.into(), Value::Table(options.collect::<Table>()));
        }
        config.to_string()
    }
}
