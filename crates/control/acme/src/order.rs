//! One order, from the request to the certificate.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, Identifier, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::answer::Answer;
use crate::home::{Given, Home};
use crate::options::Method;
use crate::order_error::{OrderError, fault_of, kind, local, of_directory};
use crate::pace::Fault;

/// Waits between questions for the directory's progress, and their limit. Its `Retry-After` has
/// precedence.
const POLL: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .backoff(1.5)
    .timeout(Duration::from_secs(120));

/// Orders a certificate for `name`; returns its chain and key in PEM. `methods` has the preferred
/// one first; the first that the directory offers is used.
pub(crate) async fn order(
    account: &Account,
    name: &str,
    methods: &[Method],
    home: &Home<'_>,
) -> Result<String, OrderError> {
    let identifiers = [Identifier::Dns(name.into())];
    let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
    let answered = answer(&mut order, name, methods, home).await?;
    let status = order.poll_ready(&POLL).await;
    let is_invalid = match &status {
        Ok(OrderStatus::Invalid) => true,
        Err(Error::Api(problem)) => fault_of(problem) == Fault::Refused,
        Ok(_) | Err(_) => false,
    };
    // An order has one name, so one method at most.
    if let (true, Some((method, _))) = (is_invalid, answered.first()) {
        let reason = match (reason(&mut order).await, status) {
            (Some(reason), _) => reason,
            (None, Err(error)) => of_directory(&error),
            (None, Ok(_)) => "no details".into(),
        };
        return Err(OrderError::Unverified { method: *method, reason });
    }
    status?;
    drop(answered);
    let key = KeyPair::generate().map_err(local)?;
    let mut params = CertificateParams::new(vec![name.to_string()]).map_err(local)?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(local)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&POLL).await?;
    Ok(format!("{}\n{}", chain.trim_end(), key.serialize_pem()))
}

/// Answers the challenge of each name that is not verified yet, and notifies the directory.
async fn answer(
    order: &mut Order,
    name: &str,
    methods: &[Method],
    home: &Home<'_>,
) -> Result<Vec<(Method, Given)>, OrderError> {
    let mut answered = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if authorization.status == AuthorizationStatus::Valid {
            continue;
        }
        let offered = |method: &&Method| {
            authorization.challenges.iter().any(|it| it.r#type == kind_of(**method))
        };
        let method = *methods.iter().find(offered).ok_or(OrderError::NoMethod)?;
        let challenge = authorization.challenge(kind_of(method));
        let mut challenge = challenge.ok_or(OrderError::NoMethod)?;
        let expected = challenge.key_authorization();
        let answer = Answer::new(method, name, &challenge.token, &expected);
        answered.push((method, home.answer(name, &answer).await?));
        challenge.set_ready().await.map_err(|error| unready(method, error))?;
    }
    Ok(answered)
}

/// The error of a directory that does not begin to verify a name, for example because the name
/// does not exist.
fn unready(method: Method, error: Error) -> OrderError {
    match &error {
        Error::Api(problem) if fault_of(problem) == Fault::Refused => {
            OrderError::Unverified { method, reason: of_directory(&error) }
        }
        _ => error.into(),
    }
}

fn kind_of(method: Method) -> ChallengeType {
    match method {
        Method::Http01 => ChallengeType::Http01,
        Method::TlsAlpn01 => ChallengeType::TlsAlpn01,
        Method::Dns01 => ChallengeType::Dns01,
    }
}

/// The reason why the directory could not verify a name.
async fn reason(order: &mut Order) -> Option<String> {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        let state = authorization.refresh().await.ok()?;
        if let Some(problem) = state.challenges.iter().find_map(|it| it.error.as_ref()) {
            let detail = problem.detail.as_deref().unwrap_or("no details");
            return Some(format!("{detail} ({})", kind(problem)));
        }
    }
    None
}
