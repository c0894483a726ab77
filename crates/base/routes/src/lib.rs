//! Routes of HTTP requests. In: conditions of routes, in the file's order, and a request's head.
//! Out: the first route with all its conditions met, and for each earlier one why not.
//!
//! Everything is pure. [`normal`] has the one form of hosts and paths that conditions are compared
//! with, so that another spelling of a path is not another path. [`Table`] decides without looking
//! at every route: hosts are in a hash map, paths in a trie of segments, and regular expressions
//! in one set each host. [`explain`](Table::explain) looks at every route, as the definition has
//! it, and tests compare both. [`Split`] divides requests over pools by weight.

mod condition;
mod cover;
mod index;
pub mod normal;
mod query;
mod split;
mod table;

pub use condition::{
    ConditionError, Conditions, Expression, FieldCondition, HostCondition, PathCondition, Source,
    ValueCondition,
};
pub use split::Split;
pub use table::{Fields, RequestParts, Table, TooLarge, Unmet};
