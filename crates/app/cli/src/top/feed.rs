//! Asks the process again and again, also after it has restarted.

use std::time::Duration;

use equipoise_api::client::{Client, ClientError};
use equipoise_api::wire::events::EventsQuestion;
use tokio::sync::mpsc::UnboundedSender;

use super::reading::Reading;
use super::state::News;
use crate::watch::may_come_back;

/// Interval between readings, and between attempts to follow events.
const PERIOD: Duration = Duration::from_secs(1);

/// Sends what the process answers. Returns only an error that does not pass, such as a revoked
/// token.
pub(super) async fn start(client: &Client, news: &UnboundedSender<News>) -> ClientError {
    tokio::select! {
        error = readings(client, news) => error,
        error = events(client, news) => error,
    }
}

async fn readings(client: &Client, news: &UnboundedSender<News>) -> ClientError {
    loop {
        tokio::time::sleep(PERIOD).await;
        let arrived = match Reading::take(client).await {
            Ok(reading) => News::Reading(Box::new(reading)),
            Err(Some(error)) if !may_come_back(&error) => return error,
            Err(Some(ClientError::NotRunning { source, .. })) => News::Silent(source.to_string()),
            Err(Some(error)) => News::Silent(error.to_string()),
            Err(None) => News::Silent("it accepts connections, and sends nothing".into()),
        };
        // The page may have ended.
        let _ = news.send(arrived);
    }
}

async fn events(client: &Client, news: &UnboundedSender<News>) -> ClientError {
    let mut question = EventsQuestion::default();
    loop {
        match client.follow_events(&question).await {
            Ok(mut stream) => {
                while let Some(event) = stream.next().await {
                    let _ = news.send(News::Event(event));
                }
                if let Some(last) = stream.last() {
                    question.after = Some(last.to_owned());
                }
            }
            Err(error) if may_come_back(&error) => {}
            Err(error) => return error,
        }
        tokio::time::sleep(PERIOD).await;
    }
}
