//! The subcommands, each with its arguments and a `run`.

pub mod check;
pub mod schema;
