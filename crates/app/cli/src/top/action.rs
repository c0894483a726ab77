//! Changes by an operator, each with its effect and its command.

use equipoise_api::Operation;
use equipoise_api::client::{Client, ClientError};
use equipoise_api::routes::backends::{DRAIN, ENABLE, UNDRAIN, WEIGHT};
use equipoise_api::routes::plan::{DRAIN_NODE, UNDRAIN_NODE};
use equipoise_api::routes::slice::{DRAIN_WORKER, UNDRAIN_WORKER};
use equipoise_api::wire::plan::NodeStatus;
use equipoise_api::wire::slice::SliceWorker;
use equipoise_api::wire::{Admin, Changed, SetWeight};

use crate::change;

/// An object that can be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Backend { pool: String, backend: String, weight: u16, admin: Admin },
    Node { name: String, admin: Admin },
    Worker { stream: String, name: String, is_drained: bool },
}

/// A change that waits for a confirmation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Action {
    /// The question.
    pub(super) words: String,
    pub(super) effect: &'static str,
    /// The command that does the same.
    pub(super) command: String,
    change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Backend(Operation<(), Changed>),
    Weight { pool: String, backend: String, before: u16, weight: u16 },
    Node(Operation<(), NodeStatus>),
    Worker { stream: String, operation: Operation<(), SliceWorker> },
}

impl Target {
    /// Its name, as commands state it.
    pub(super) fn name(&self) -> String {
        match self {
            Target::Backend { pool, backend, .. } => format!("{pool}/{backend}"),
            Target::Node { name, .. } => name.clone(),
            Target::Worker { stream, name, .. } => format!("{stream}/{name}"),
        }
    }

    /// Drains it.
    ///
    /// # Errors
    /// The reason why not.
    pub(super) fn drain(&self) -> Result<Action, String> {
        let (is_drained, effect, change) = match self {
            Target::Backend { pool, backend, admin, .. } => (
                *admin != Admin::Up,
                "It gets no new work, and finishes its current work.",
                Change::Backend(DRAIN.of([pool, backend])),
            ),
            Target::Node { name, admin } => (
                *admin != Admin::Up,
                "Names' answers leave it out, and no request is delegated to it.",
                Change::Node(DRAIN_NODE.of([name])),
            ),
            Target::Worker { stream, name, is_drained } => (
                *is_drained,
                "Its slices move to other workers.",
                Change::worker(DRAIN_WORKER, stream, name),
            ),
        };
        if is_drained {
            return Err(format!("{} is drained already: u takes it back", self.name()));
        }
        Ok(self.action("Drain", "drain", effect, change))
    }

    /// Takes a drain back, or enables it.
    ///
    /// # Errors
    /// There is nothing to take back.
    pub(super) fn undo(&self) -> Result<Action, String> {
        let nothing = || Err(format!("{} is not drained: nothing to take back", self.name()));
        let undo = |effect, change| Ok(self.action("Undo the drain of", "undrain", effect, change));
        match self {
            Target::Backend { pool, backend, admin: Admin::Down, .. } => {
                let change = Change::Backend(ENABLE.of([pool, backend]));
                Ok(self.action("Enable", "enable", "It gets new work again.", change))
            }
            Target::Backend { pool, backend, admin: Admin::Drain, .. } => {
                undo("It gets new work again.", Change::Backend(UNDRAIN.of([pool, backend])))
            }
            Target::Backend { weight: 0, .. } => {
                Err(format!("{} drains because its weight is 0: w sets it", self.name()))
            }
            Target::Backend { .. } => nothing(),
            Target::Node { admin: Admin::Up, .. } => nothing(),
            Target::Node { name, .. } => {
                undo("It gets new clients again.", Change::Node(UNDRAIN_NODE.of([name])))
            }
            Target::Worker { is_drained: false, .. } => nothing(),
            Target::Worker { stream, name, .. } => {
                undo("It gets slices again.", Change::worker(UNDRAIN_WORKER, stream, name))
            }
        }
    }

    /// `command` is the word of the command line.
    fn action(&self, verb: &str, command: &str, effect: &'static str, change: Change) -> Action {
        let words = format!("{verb} {}?", self.name());
        let command = match self {
            Target::Backend { .. } | Target::Node { .. } => {
                format!("equipoise {command} {}", quoted(&self.name()))
            }
            Target::Worker { stream, name, .. } => {
                format!("equipoise slice {command} {} --stream {}", quoted(name), quoted(stream))
            }
        };
        Action { words, effect, command, change }
    }

    /// The weight now.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn weight(&self) -> Result<u16, String> {
        match self {
            Target::Backend { weight, .. } => Ok(*weight),
            Target::Node { .. } | Target::Worker { .. } => {
                Err("only backends have a weight that can be set".into())
            }
        }
    }

    /// Sets the weight of a backend.
    pub(super) fn set_weight(&self, weight: u16) -> Option<Action> {
        let Target::Backend { pool, backend, weight: now, .. } = self else { return None };
        let name = self.name();
        Some(Action {
            words: format!("Set the weight of {name} from {now} to {weight}?"),
            effect: if weight == 0 {
                "A weight of 0 drains it."
            } else {
                "It is its share relative to the pool's other backends."
            },
            command: format!("equipoise weight {} {weight}", quoted(&name)),
            change: Change::Weight {
                pool: pool.clone(),
                backend: backend.clone(),
                before: *now,
                weight,
            },
        })
    }
}

impl Change {
    fn worker(operation: Operation<(), SliceWorker>, stream: &str, name: &str) -> Change {
        Change::Worker { stream: stream.to_owned(), operation: operation.of([stream, name]) }
    }
}

impl Action {
    /// Of a change of a weight: the backend, and its weight before.
    pub(super) fn weight_before(&self) -> Option<(String, u16)> {
        match &self.change {
            Change::Weight { pool, backend, before, .. } => {
                Some((format!("{pool}/{backend}"), *before))
            }
            _ => None,
        }
    }

    /// Performs the change. Returns the new state in words.
    ///
    /// # Errors
    /// The process does not answer, or refuses.
    pub(super) async fn perform(self, client: &Client) -> Result<String, ClientError> {
        let text = match self.change {
            Change::Backend(operation) => change::text(&client.ask(operation, &()).await?),
            Change::Weight { pool, backend, weight, .. } => {
                let operation = WEIGHT.of([&pool, &backend]);
                change::text(&client.ask(operation, &SetWeight { weight }).await?)
            }
            Change::Node(operation) => change::node_text(&client.ask(operation, &()).await?),
            Change::Worker { stream, operation } => {
                let worker = client.ask(operation, &()).await?;
                format!("{stream}/{}: {}", worker.name, worker.state.word())
            }
        };
        Ok(text.lines().next().unwrap_or_default().to_owned())
    }
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./:@%+=,-".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backend(admin: Admin, weight: u16) -> Target {
        Target::Backend { pool: "web".into(), backend: "[::1]:80".into(), weight, admin }
    }

    #[test]
    fn an_action_has_the_command_that_does_the_same() {
        let drain = backend(Admin::Up, 1).drain().unwrap();
        assert_eq!(drain.words, "Drain web/[::1]:80?");
        assert_eq!(drain.command, "equipoise drain 'web/[::1]:80'");
        let weight = backend(Admin::Up, 1).set_weight(5).unwrap();
        assert_eq!(weight.command, "equipoise weight 'web/[::1]:80' 5");
        let worker = Target::Worker { stream: "s".into(), name: "w".into(), is_drained: true };
        assert_eq!(worker.undo().unwrap().command, "equipoise slice undrain w --stream s");
        assert_eq!(quoted("a'b"), "'a'\\''b'");
    }

    #[test]
    fn undo_depends_on_the_state() {
        assert_eq!(
            backend(Admin::Down, 1).undo().unwrap().command,
            "equipoise enable 'web/[::1]:80'"
        );
        assert!(backend(Admin::Drain, 1).undo().unwrap().command.contains(" undrain "));
        assert!(backend(Admin::Up, 0).undo().unwrap_err().contains("weight is 0"));
        assert!(backend(Admin::Up, 1).undo().unwrap_err().contains("nothing to take back"));
        assert!(backend(Admin::Drain, 1).drain().unwrap_err().contains("already"));
        let node = Target::Node { name: "n1".into(), admin: Admin::Up };
        assert!(node.weight().is_err() && node.undo().is_err() && node.drain().is_ok());
    }
}
