//! The account with the directory. Its key is the identity of this process or cluster there.

use instant_acme::{Account, AccountCredentials, NewAccount};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::home::Home;
use crate::options::Acme;
use crate::order_error::OrderError;

/// An account as it is kept.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// The address that the directory knows.
    email: Option<String>,
    credentials: AccountCredentials,
}

/// Opens the account that is kept, or creates one.
pub(crate) async fn open(
    options: &Acme,
    client: &Client,
    home: &Home<'_>,
) -> Result<Account, OrderError> {
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let Some(text) = home.load_account().await? else {
        return create(options, client, home).await;
    };
    // A damaged one costs a new account, and nothing else.
    let Ok(saved) = serde_json::from_str::<Saved>(&text) else {
        tracing::warn!("{} cannot be decoded; creating another account", home.account());
        return create(options, client, home).await;
    };
    let credentials = serde_json::to_value(&saved.credentials).unwrap_or_default();
    let account = builder.from_credentials(saved.credentials).await?;
    if saved.email != options.email {
        let contacts = contacts(options);
        let contacts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        account.update_contacts(&contacts).await?;
        let saved = serde_json::json!({ "email": options.email, "credentials": credentials });
        home.save_account(saved.to_string()).await?;
    }
    Ok(account)
}

/// Creates an account, in the place of any other.
pub(crate) async fn create(
    options: &Acme,
    client: &Client,
    home: &Home<'_>,
) -> Result<Account, OrderError> {
    let contact = contacts(options);
    let contact: Vec<&str> = contact.iter().map(String::as_str).collect();
    // `check` requires the operator's consent.
    let new = NewAccount {
        contact: &contact,
        terms_of_service_agreed: true,
        only_return_existing: false,
    };
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let (account, credentials) = builder.create(&new, options.directory.clone(), None).await?;
    let saved = Saved { email: options.email.clone(), credentials };
    let saved = serde_json::to_value(saved).unwrap_or_default();
    home.save_account(saved.to_string()).await?;
    tracing::info!(directory = options.directory, account = account.id(), "ACME account created");
    Ok(account)
}

fn contacts(options: &Acme) -> Vec<String> {
    options.email.iter().map(|email| format!("mailto:{email}")).collect()
}
