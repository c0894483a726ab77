//! Questions of nodes that are not controllers.

use equipoise_tls::{TicketKeys, TicketNames, Tickets};
use serde::{Deserialize, Serialize};

/// A node's question: for keys of front doors with these names, in any order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TicketQuestion {
    ticket_names: Vec<TicketNames>,
}

/// The answer to it: for each front door of the question its keys, or none.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TicketAnswer {
    ticket_keys: Vec<Option<TicketKeys>>,
}

impl TicketQuestion {
    /// Asks for the keys of front doors with these names. `None`: there is no front door.
    pub fn new(mut names: Vec<TicketNames>) -> Option<TicketQuestion> {
        names.sort();
        names.dedup();
        (!names.is_empty()).then_some(TicketQuestion { ticket_names: names })
    }

    /// Answers it. A node gets keys for a front door if it may have the private keys of all its
    /// names, and then keys that are of no use for other names.
    pub fn answer(&self, tickets: &Tickets, may_have: impl Fn(&str) -> bool) -> TicketAnswer {
        let keys = |names: &TicketNames| {
            let is_given = !names.is_empty() && names.iter().all(|name| may_have(name));
            is_given.then(|| tickets.for_names(names)).flatten()
        };
        TicketAnswer { ticket_keys: self.ticket_names.iter().map(keys).collect() }
    }

    /// Uses the keys of the answer from now on. Returns the number of front doors that got some;
    /// the others use those that they have.
    pub fn use_answer(self, answer: TicketAnswer, tickets: &Tickets) -> usize {
        let all = self.ticket_names.into_iter().zip(answer.ticket_keys);
        let given: Vec<_> = all.filter_map(|(names, keys)| Some((names, keys?))).collect();
        let count = given.len();
        tickets.share_for(given);
        count
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

    use std::time::SystemTime;

    use super::*;

    fn names(all: &[&str]) -> TicketNames {
        all.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn ticket_keys_are_given_only_if_every_name_is_permitted() {
        let tickets = Tickets::new().unwrap();
        tickets.share(TicketKeys::default().rotated(SystemTime::now()).unwrap().unwrap());
        let doors = vec![names(&["b"]), names(&[]), names(&["a"]), names(&["a", "c"])];
        let question = TicketQuestion::new(doors).unwrap();
        let answer = question.answer(&tickets, |name| name != "c");
        assert_eq!(
            answer.ticket_keys,
            [None, tickets.for_names(&names(&["a"])), None, tickets.for_names(&names(&["b"])),]
        );
        assert_ne!(answer.ticket_keys[1], answer.ticket_keys[3]);
        assert!(answer.ticket_keys[1].is_some());
        assert_eq!(question.use_answer(answer, &Tickets::new().unwrap()), 2);
        assert_eq!(TicketQuestion::new(Vec::new()), None);
    }
}
