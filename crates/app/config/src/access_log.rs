//! The form of the access log: `[log] access-format` and `access-fields`.

use equipoise_core::{LineForm, LineFormat, LogField, LogFields};
use equipoise_session::config::Protocol;

use super::LogFormat;
use super::problem::Findings;
use super::tables;
use super::values::{Values, chosen};

/// The form of lines, and their fields.
pub(super) fn format(log: &Values) -> LineFormat {
    let usual = match chosen(log, "format", &tables::LOG_FORMAT) {
        LogFormat::Text => LineForm::Text,
        LogFormat::Json => LineForm::Json,
    };
    let form = log.choice("access-format", &tables::ACCESS_FORMAT).unwrap_or(usual);
    let fields = log.texts("access-fields").map_or(LogFields::USUAL, |names| {
        names.iter().filter_map(|name| LogField::named(name)).collect()
    });
    LineFormat { form, fields }
}

/// Refuses the combined format beside options for which it has no place.
pub(super) fn check(file: &Values, findings: &mut Findings<'_>) {
    let Some(log) = file.table("log") else { return };
    if log.texts("access-fields").is_some_and(<[String]>::is_empty) {
        let text = "an empty list; accepted: one field or more";
        findings.error(log.at("access-fields"), &log.path_of("access-fields"), text.into());
    }
    if log.choice("access-format", &tables::ACCESS_FORMAT) != Some(LineForm::Combined) {
        return;
    }
    if log.given("access-fields") {
        let text = "stated, and the combined format has its own; accepted: `access-format` \"text\" or \"json\"";
        findings.error(log.at("access-fields"), &log.path_of("access-fields"), text.into());
    }
    let text = "above 0.0, and the combined format has lines for HTTP requests only; accepted: `log.access-format` \
                \"text\" or \"json\"";
    let is_http = |door: &&Values| {
        door.choice("protocol", &tables::PROTOCOL).is_none_or(|it| it == Protocol::Http)
    };
    let mut refuse = |table: &Values, option: &str| {
        if table.share(option) > 0.0 {
            findings.error(table.at(option), &table.path_of(option), text.into());
        }
    };
    for door in file.tables("session").iter().filter(|door| !is_http(door)) {
        refuse(door, "access-log");
    }
    if let Some(server) = file.table("nameserver") {
        refuse(server, "query-log");
    }
}
