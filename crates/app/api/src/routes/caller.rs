//! Identity of the caller.

use std::convert::Infallible;

use aide::OperationInput;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::Routes;
use crate::Operator;
use crate::answer::Answer;
use crate::auth::{Caller, Role, Who};
use crate::wire::caller::CallerIdentity;

operations! {
    /// The identity and role that the caller's token, certificate or socket gives it
    CALLER = GET "/v1/caller", READ, () => CallerIdentity;
}

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default().serve(CALLER, caller)
}

async fn caller(Admitted(Caller { who, role }): Admitted) -> Answer<CallerIdentity> {
    Answer::new(CallerIdentity { who: who.to_string(), role: role.unwrap_or(Role::Read) })
}

/// The caller, as [`crate::admit`] identified it.
struct Admitted(Caller);

impl<S: Send + Sync> FromRequestParts<S> for Admitted {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let anonymous = || Caller { who: Who::Anonymous, role: None };
        Ok(Admitted(parts.extensions.get::<Caller>().cloned().unwrap_or_else(anonymous)))
    }
}

impl OperationInput for Admitted {}
