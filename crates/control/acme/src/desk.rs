//! The controllers' side of certificates for nodes that are not controllers.
//!
//! A node asks one controller, again and again. A question says which edition of the answer the
//! node has and uses. The controller answers when there is another one, or after [`HOLD`]. So it
//! knows which nodes answer a challenge, before it confirms that to the member that orders.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::answer::Answer;
use crate::shared::Record;

/// Longest time for which a question waits for something new. A node waits for longer.
const HOLD: Duration = Duration::from_secs(2);

/// A node that has not asked for so long is not waited for.
const LATELY: Duration = Duration::from_secs(3 * HOLD.as_secs());

/// Which answer it is. Another process counts anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Edition {
    process: u64,
    number: u64,
}

/// A node's question.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeQuestion {
    pub(crate) names: Vec<String>,
    /// The answer that it uses.
    pub(crate) has: Option<Edition>,
}

/// The answer to it.
#[derive(Clone, Serialize, Deserialize)]
pub struct NodeAnswer {
    pub(crate) edition: Edition,
    /// The state of each name that was asked for, and that the controllers give to nodes.
    pub(crate) names: BTreeMap<String, Record>,
    /// Answers to challenges of names that the controllers give to nodes.
    pub(crate) answers: Vec<Answer>,
}

/// The content of answers.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Given {
    pub(crate) names: BTreeMap<String, Record>,
    pub(crate) answers: Vec<Answer>,
}

/// Answers nodes. A member of the cluster keeps it up to date.
pub struct NodeDesk {
    process: u64,
    given: watch::Sender<(u64, Given)>,
    /// The last question of each node.
    asked: watch::Sender<BTreeMap<String, Asked>>,
}

/// The last question of a node.
pub(crate) struct Asked {
    at: Instant,
    number: u64,
}

impl NodeDesk {
    /// A desk without names.
    pub fn new() -> Arc<NodeDesk> {
        let process = rand::random();
        let given = watch::Sender::new((0, Given::default()));
        Arc::new(NodeDesk { process, given, asked: watch::Sender::default() })
    }

    /// Answers a question of this node, once there is something new.
    pub async fn answer(&self, node: &str, question: NodeQuestion) -> NodeAnswer {
        let NodeQuestion { names, has } = question;
        let has = has.filter(|has| has.process == self.process).map_or(0, |has| has.number);
        self.note(node, has);
        let mut changes = self.given.subscribe();
        let newer = changes.wait_for(|(number, _)| *number > has);
        // Without news, the same answer says that the controller is there.
        drop(timeout(HOLD, newer).await);
        let (number, given) = self.given.borrow().clone();
        let asked_for = |name: &String| names.contains(name);
        let names = given.names.into_iter().filter(|(name, _)| asked_for(name)).collect();
        let edition = Edition { process: self.process, number };
        NodeAnswer { edition, names, answers: given.answers }
    }

    /// Whether nodes get the certificate and the private key of this name.
    pub fn gives(&self, name: &str) -> bool {
        self.given.borrow().1.names.contains_key(name)
    }

    fn note(&self, node: &str, number: u64) {
        let at = Instant::now();
        self.asked.send_if_modified(|asked| {
            asked.retain(|_, it| it.at.elapsed() < LATELY);
            let before = asked.insert(node.into(), Asked { at, number });
            before.is_none_or(|before| before.number != number)
        });
    }

    /// Gives this to nodes from now on.
    pub(crate) fn give(&self, new: Given) {
        self.given.send_if_modified(|(number, given)| {
            let differs = *given != new;
            if differs {
                (*number, *given) = (*number + 1, new);
            }
            differs
        });
    }

    /// Whether every node that has asked lately uses what is given now.
    pub(crate) fn is_used(&self) -> bool {
        let number = self.given.borrow().0;
        let asked = self.asked.borrow();
        asked.values().all(|it| it.number >= number || it.at.elapsed() >= LATELY)
    }

    /// Changes when a node uses another answer.
    pub(crate) fn uses(&self) -> watch::Receiver<BTreeMap<String, Asked>> {
        self.asked.subscribe()
    }
}

impl std::fmt::Debug for NodeDesk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NodeDesk").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asks(names: &[&str], has: Option<Edition>) -> NodeQuestion {
        NodeQuestion { names: names.iter().map(ToString::to_string).collect(), has }
    }

    fn record(pem: &str) -> Record {
        Record { pem: Some(pem.into()), ..Record::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_receives_its_names_at_once_and_then_only_changes() {
        let desk = NodeDesk::new();
        let empty = desk.answer("n1", asks(&["a"], None)).await;
        assert!(empty.names.is_empty() && desk.is_used());
        let given = |pem: &str| Given {
            names: [("a", record(pem)), ("b", record("other"))].map(|(k, v)| (k.into(), v)).into(),
            answers: Vec::new(),
        };
        desk.give(given("first"));
        let first = desk.answer("n1", asks(&["a"], Some(empty.edition))).await;
        assert_eq!(first.names, BTreeMap::from([("a".into(), record("first"))]));
        // The same again is nothing new, and takes its time.
        desk.give(given("first"));
        let begun = Instant::now();
        let same = desk.answer("n1", asks(&["a"], Some(first.edition))).await;
        assert!(same.edition == first.edition && begun.elapsed() >= HOLD);
        let waiting = desk.answer("n1", asks(&["a"], Some(first.edition)));
        let (second, ()) = tokio::join!(waiting, async { desk.give(given("second")) });
        assert_eq!(second.names, BTreeMap::from([("a".into(), record("second"))]));
        // An edition of another process is unknown here.
        let other = NodeDesk::new().answer("n1", asks(&[], None)).await;
        let again = desk.answer("n1", asks(&["a"], Some(other.edition))).await;
        assert_eq!(again.edition, second.edition);
    }

    #[tokio::test(start_paused = true)]
    async fn an_edition_is_in_use_once_every_recent_node_confirms_it() {
        let desk = NodeDesk::new();
        for node in ["n1", "n2"] {
            desk.answer(node, asks(&[], None)).await;
        }
        desk.give(Given { names: [("a".into(), record("x"))].into(), ..Given::default() });
        assert!(!desk.is_used());
        let newest = desk.answer("n1", asks(&[], None)).await.edition;
        desk.answer("n1", asks(&[], Some(newest))).await;
        assert!(!desk.is_used());
        // The other one has left.
        tokio::time::advance(LATELY).await;
        assert!(desk.is_used());
    }
}
