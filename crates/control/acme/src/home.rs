//! The place of account, certificates and answers: a folder of this machine, or the store of the
//! cluster.

use equipoise_store::Transaction;
use equipoise_tls::{ChallengeAnswer, Challenges};

use crate::answer::Answer;
use crate::folder::AcmeFolder;
use crate::names::NameState;
use crate::options::TextRecords;
use crate::order_error::{OrderError, local};
use crate::shared::Shared;
use crate::thread::on_thread;

/// The place of account, certificates and answers.
pub(crate) enum Home<'h> {
    /// A folder, and the answers of this process.
    Folder { folder: &'h AcmeFolder, challenges: &'h Challenges, names: &'h dyn TextRecords },
    /// The store, while this member orders: `fence` has the condition.
    Cluster { shared: &'h Shared, fence: Transaction },
}

/// An answer that is given. Dropping it withdraws that of a single machine; members of a cluster
/// withdraw one when it leaves the store.
pub(crate) type Given = Option<ChallengeAnswer>;

impl Home<'_> {
    /// The name of the account's place.
    pub(crate) fn account(&self) -> String {
        match self {
            Home::Folder { folder, .. } => format!("\"{}\"", folder.account().display()),
            Home::Cluster { .. } => "the ACME account in the cluster's store".into(),
        }
    }

    /// Reads the account. `None`: there is none yet.
    pub(crate) async fn load_account(&self) -> Result<Option<String>, OrderError> {
        match self {
            Home::Folder { folder, .. } => {
                let (folder, path) = ((*folder).clone(), folder.account());
                let read = on_thread(move || folder.load_account()).await.flatten();
                read.map_err(|error| OrderError::file("read", &path, &error))
            }
            Home::Cluster { shared, .. } => shared.account().await.map_err(local),
        }
    }

    /// Replaces the account.
    pub(crate) async fn save_account(&self, text: String) -> Result<(), OrderError> {
        match self {
            Home::Folder { folder, .. } => {
                let (folder, path) = ((*folder).clone(), folder.account());
                let written = on_thread(move || folder.save_account(&text)).await.flatten();
                written.map_err(|error| OrderError::file("written", &path, &error))
            }
            Home::Cluster { shared, fence } => {
                shared.put_account(fence.clone(), &text).await.map_err(local)
            }
        }
    }

    /// Gives the answer to a challenge of `name`, at every member.
    pub(crate) async fn answer(&self, name: &str, answer: &Answer) -> Result<Given, OrderError> {
        match self {
            Home::Folder { challenges, names, .. } => {
                let given = answer.give(challenges).map_err(local)?;
                names.publish().await;
                Ok(Some(given))
            }
            Home::Cluster { shared, fence } => {
                shared.answer(fence.clone(), name, answer).await.map_err(local)?;
                Ok(None)
            }
        }
    }

    /// Keeps the outcome of an attempt, in the place of any answer: the certificate, if there is a
    /// new one, and in a cluster the state.
    pub(crate) async fn save(
        &self,
        name: &str,
        pem: Option<&str>,
        state: &NameState,
    ) -> Result<(), OrderError> {
        match (self, pem) {
            (Home::Folder { .. }, None) => Ok(()),
            (Home::Folder { folder, .. }, Some(pem)) => {
                let path = folder.certificate(name).chain;
                let (folder, name, pem) = ((*folder).clone(), name.to_string(), pem.to_string());
                let saved = on_thread(move || folder.save(&name, &pem)).await.flatten();
                saved.map_err(|error| OrderError::file("written", &path, &error))
            }
            (Home::Cluster { shared, fence }, pem) => {
                shared.save(fence.clone(), name, pem, state).await.map_err(local)
            }
        }
    }
}
