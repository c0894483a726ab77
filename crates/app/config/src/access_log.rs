//! The form of the access log: `[log] access-format` and `access-fields`.

use equipoise_core::{LineForm, LineFormat, LogField, LogFields};
use equipoise_session::config::Protocol;

use super::LogFormat;
use super::problem::Findings;
use super::tables::{Door, File, Log, Nameserver, Session};
use super::view::View;

/// The form of lines, and their fields.
pub(super) fn format(log: View<'_, Log>) -> LineFormat {
    let usual = match log.get(Log::FORMAT) {
        LogFormat::Text => LineForm::Text,
        LogFormat::Json => LineForm::Json,
    };
    let form = log.get(Log::ACCESS_FORMAT).unwrap_or(usual);
    let fields = log.get(Log::ACCESS_FIELDS).map_or(LogFields::USUAL, |names| {
        names.iter().filter_map(|name| LogField::named(name)).collect()
    });
    LineFormat { form, fields }
}

/// Refuses the combined format beside options for which it has no place.
pub(super) fn check(file: View<'_, File>, findings: &mut Findings<'_>) {
    let log = file.get(File::LOG);
    if log.get(Log::ACCESS_FIELDS).is_some_and(<[String]>::is_empty) {
        let text = "an empty list; accepted: one field or more";
        findings.error(log.at(Log::ACCESS_FIELDS), &log.path_of(Log::ACCESS_FIELDS), text.into());
    }
    if log.get(Log::ACCESS_FORMAT) != Some(LineForm::Combined) {
        return;
    }
    if log.given(Log::ACCESS_FIELDS) {
        let text = "stated, and the combined format has its own; accepted: `access-format` \"text\" or \"json\"";
        findings.error(log.at(Log::ACCESS_FIELDS), &log.path_of(Log::ACCESS_FIELDS), text.into());
    }
    let text = "above 0.0, and the combined format has lines for HTTP requests only; accepted: `log.access-format` \
                \"text\" or \"json\"";
    let is_http = |door: &View<'_, Session>| {
        door.get(Session::PROTOCOL).is_none_or(|it| it == Protocol::Http)
    };
    for door in file.get(File::SESSION).iter().filter(|door| !is_http(door)) {
        if door.get(Door::ACCESS_LOG) > 0.0 {
            let (at, path) = (door.at(Door::ACCESS_LOG), door.path_of(Door::ACCESS_LOG));
            findings.error(at, &path, text.into());
        }
    }
    let server = file.get(File::NAMESERVER);
    if server.get(Nameserver::QUERY_LOG) > 0.0 {
        let (at, path) = (server.at(Nameserver::QUERY_LOG), server.path_of(Nameserver::QUERY_LOG));
        findings.error(at, &path, text.into());
    }
}
