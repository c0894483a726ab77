//! What each word of the command line does, `run` and `demo` apart.

pub(crate) mod change;
pub(crate) mod check;
pub(crate) mod reload;
pub(crate) mod schema;
pub(crate) mod status;
mod table;
pub(crate) mod weight;
