//! The account with the directory. Its key is this process's identity there.

use instant_acme::{Account, AccountCredentials, NewAccount};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::options::Acme;
use crate::order::OrderError;
use crate::thread::on_thread;

/// The file of an account.
#[derive(Serialize, Deserialize)]
struct Saved {
    /// The address that the directory knows.
    email: Option<String>,
    credentials: AccountCredentials,
}

/// Opens the account in the folder, or creates one there.
pub(crate) async fn open(options: &Acme, client: &Client) -> Result<Account, OrderError> {
    let folder = options.folder.clone();
    let read = on_thread(move || folder.load_account()).await.flatten();
    let read = read.map_err(|error| OrderError::file("read", &options.folder.account(), &error))?;
    let builder = Account::builder_with_http(Box::new(client.clone()));
    let Some(text) = read else { return create(options, client).await };
    // A damaged file costs a new account, and nothing else.
    let Ok(saved) = serde_json::from_str::<Saved>(&text) else {
        let path = options.folder.account();
        tracing::warn!("\"{}\" cannot be decoded; creating another account", path.display());
        return create(options, client).await;
    };
    let credentials = serde_json::to_value(&saved.credentials).unwrap_or_default();
    let account = builder.from_credentials(saved.credentials).await?;
    if saved.email != options.email {
        let contacts = contacts(options);
        let contacts: Vec<&str> = contacts.iter().map(String::as_str).collect();
        account.update_contacts(&contacts).await?;
        save(options, serde_json::json!({ "email": options.email, "credentials": credentials }))
            .await?;
    }
    Ok(account)
}

/// Creates an account, in the place of any other.
pub(crate) async fn create(options: &Acme, client: &Client) -> Result<Account, OrderError> {
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
    save(options, serde_json::to_value(saved).unwrap_or_default()).await?;
    tracing::info!(directory = options.directory, account = account.id(), "ACME account created");
    Ok(account)
}

fn contacts(options: &Acme) -> Vec<String> {
    options.email.iter().map(|email| format!("mailto:{email}")).collect()
}

async fn save(options: &Acme, saved: serde_json::Value) -> Result<(), OrderError> {
    let (folder, text) = (options.folder.clone(), saved.to_string());
    let written = on_thread(move || folder.save_account(&text)).await.flatten();
    written.map_err(|error| OrderError::file("written", &options.folder.account(), &error))
}
