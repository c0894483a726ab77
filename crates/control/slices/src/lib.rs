//! The leader's side of the slice level.
//!
//! **In**: workers' reports and messages over DDS, the store, requests of operators. **Out**:
//! messages to workers, the table of slices in the store, the state of the stream. **Fails** with
//! the errors of DDS and of the store; a candidate that cannot lead keeps trying.

mod controller;

pub use controller::*;
