//! The dashboard: a page with its program and its style, embedded by the build.
//!
//! The files have no state, so no role is needed to read them: a browser cannot send a token before
//! it has the page. The program asks the other routes, with the token that the operator enters.

use axum::http::header;
use axum::response::IntoResponse;

use super::Routes;
use crate::Operator;

/// The page may load its own two files and answers of this API. No other site may embed it.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
    connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

#[cfg(has_dashboard)]
macro_rules! built {
    ($file:literal) => {
        include_str!(concat!("../../../../../web/dist/", $file))
    };
}

#[cfg(has_dashboard)]
const PAGE: &str = built!("index.html");
#[cfg(has_dashboard)]
const PROGRAM: &str = built!("dashboard.js");
#[cfg(has_dashboard)]
const STYLE: &str = built!("dashboard.css");

#[cfg(not(has_dashboard))]
const PAGE: &str = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\">\
    <title>equipoise</title><h1>equipoise</h1>\
    <p>This build has no dashboard, because Node and npm were missing when it was built. Run \
    <code>make web</code> in the source folder, then build again.</p>\
    <p>The API works without it: <a href=\"/v1/status\">/v1/status</a>, \
    <a href=\"/v1/openapi.json\">/v1/openapi.json</a>. So does the command \
    <code>equipoise status</code>.</p></html>\n";
#[cfg(not(has_dashboard))]
const PROGRAM: &str = "";
#[cfg(not(has_dashboard))]
const STYLE: &str = "";

pub(super) fn routes<O: Operator>() -> Routes<O> {
    Routes::default()
        .file("/", || async { file("text/html; charset=utf-8", PAGE) })
        .file("/dashboard.js", || async { file("text/javascript; charset=utf-8", PROGRAM) })
        .file("/dashboard.css", || async { file("text/css; charset=utf-8", STYLE) })
}

fn file(media_type: &'static str, content: &'static str) -> impl IntoResponse {
    let head = [
        (header::CONTENT_TYPE, media_type),
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        // After an upgrade the page has to be that of the new program.
        (header::CACHE_CONTROL, "no-store"),
    ];
    (head, content)
}
