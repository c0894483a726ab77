mod answer;
mod backend;

pub use answer::{Answer, Intake, Step};
pub use backend::{HttpBackend, Received, Request};
