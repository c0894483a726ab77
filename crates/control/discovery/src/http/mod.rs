//! A list at a URL, which is requested again and again.

mod client;

use std::time::Duration;

use async_trait::async_trait;
use hyper::header::AUTHORIZATION;
use tokio::time::sleep;

pub(crate) use client::Client;

use crate::list::{self, BYTES_MAX};
use crate::options::HttpOptions;
use crate::source::{Read, Source, SourceError};

/// Longest time until the head of a response, and then until the end of its body.
const WITHIN: Duration = Duration::from_secs(10);

/// A list at a URL, in our form or that of Prometheus.
pub(crate) struct HttpSource {
    client: Client,
    interval: Duration,
}

impl HttpSource {
    pub(crate) fn new(options: HttpOptions) -> HttpSource {
        let client = Client::new(options.access, (AUTHORIZATION, "Bearer "));
        HttpSource { client, interval: options.interval }
    }
}

#[async_trait]
impl Source for HttpSource {
    async fn read(&mut self) -> Result<Read, SourceError> {
        let url = self.client.url().to_string();
        let body = self.client.get(&url, WITHIN).await?.body(BYTES_MAX, WITHIN).await?;
        Ok(list::json(&body)?.into())
    }

    async fn changed(&mut self) -> Result<(), SourceError> {
        sleep(self.interval).await;
        Ok(())
    }

    fn retry_max(&self) -> Duration {
        self.interval.max(Duration::from_secs(1))
    }
}
