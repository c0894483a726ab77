//! A client of controllers for operators' requests.

use std::sync::Arc;
use std::time::SystemTime;

use hyper::Method;
use hyper::body::Bytes;
use rustls::ClientConfig;
use serde::de::DeserializeOwned;

use crate::client::{ClientError, Connection, Patience, json};
use crate::node::load_credentials;
use crate::tls::{TlsError, Trust, client};
use crate::token::TokenId;
use crate::wire::{
    CreateToken, CreatedToken, ListedNodes, ListedTokens, MEMBERS, Members, NODES, TOKENS,
};
use crate::{Authority, AuthorityError, ControllerAddress, Name, StateFolder};

/// Asks the first controller that answers.
pub struct Asker {
    tls: Arc<ClientConfig>,
    controllers: Vec<ControllerAddress>,
}

/// The reason why no controller can be asked from this machine.
#[derive(Debug, thiserror::Error)]
pub enum CannotAsk {
    /// No certificate can be made.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// TLS does not accept it.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The node's own certificate is not usable.
    #[error("{0}")]
    Node(String),
}

impl Asker {
    /// As an operator, on a controller's machine: with a certificate for a few minutes, made here.
    ///
    /// # Errors
    /// [`CannotAsk`].
    pub fn operator(
        authority: &Authority,
        name: &Name,
        controllers: Vec<ControllerAddress>,
    ) -> Result<Asker, CannotAsk> {
        let issued = authority.issue_operator(name, SystemTime::now())?;
        let trust = Trust::Authority(authority.certificate().clone());
        let tls = client(&trust, Some((issued.chain, issued.key)))?;
        Ok(Asker { tls, controllers })
    }

    /// As the node that owns this folder: it may only read the members.
    ///
    /// # Errors
    /// [`CannotAsk::Node`].
    pub fn node(
        folder: &StateFolder,
        name: &Name,
        controllers: Vec<ControllerAddress>,
    ) -> Result<Asker, CannotAsk> {
        match load_credentials(folder, name) {
            Ok(Some(credentials)) => Ok(Asker { tls: credentials.tls, controllers }),
            Ok(None) => {
                let text = "this node has not joined a cluster: start it with a join token";
                Err(CannotAsk::Node(text.to_string()))
            }
            Err(error) => Err(CannotAsk::Node(error.to_string())),
        }
    }

    /// The state of the cluster.
    ///
    /// # Errors
    /// [`ClientError`] of the controller that refused, or of each that could not be asked.
    pub async fn members(&self) -> Result<Members, ClientError> {
        self.ask(Method::GET, MEMBERS, Bytes::new()).await
    }

    /// Makes a join token.
    ///
    /// # Errors
    /// As [`Asker::members`].
    pub async fn create_token(&self, wish: &CreateToken) -> Result<CreatedToken, ClientError> {
        self.ask(Method::POST, TOKENS, json(wish)).await
    }

    /// The existing tokens.
    ///
    /// # Errors
    /// As [`Asker::members`].
    pub async fn tokens(&self) -> Result<ListedTokens, ClientError> {
        self.ask(Method::GET, TOKENS, Bytes::new()).await
    }

    /// Revokes a token.
    ///
    /// # Errors
    /// As [`Asker::members`].
    pub async fn revoke_token(&self, id: &TokenId) -> Result<(), ClientError> {
        self.ask(Method::DELETE, &format!("{TOKENS}/{id}"), Bytes::new()).await
    }

    /// The nodes that ever joined, evicted ones included.
    ///
    /// # Errors
    /// As [`Asker::members`].
    pub async fn nodes(&self) -> Result<ListedNodes, ClientError> {
        self.ask(Method::GET, NODES, Bytes::new()).await
    }

    /// Evicts a node.
    ///
    /// # Errors
    /// As [`Asker::members`].
    pub async fn evict(&self, node: &Name) -> Result<(), ClientError> {
        self.ask(Method::DELETE, &format!("{NODES}/{node}"), Bytes::new()).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let mut failed = Vec::new();
        for address in &self.controllers {
            let asked = async {
                let mut connection =
                    Connection::open(address, &self.tls, Patience::default()).await?;
                connection.ask(method.clone(), path, body.clone()).await
            };
            match asked.await {
                Ok(answer) => return Ok(answer),
                // Another controller would answer the same.
                Err(error) if matches!(error.status(), Some(400..=499)) => return Err(error),
                Err(error) => failed.push(error),
            }
        }
        Err(match <[ClientError; 1]>::try_from(failed) {
            Ok([one]) => one,
            Err(all) => ClientError::Nobody(all),
        })
    }
}

impl std::fmt::Debug for Asker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Asker").field("controllers", &self.controllers).finish_non_exhaustive()
    }
}
