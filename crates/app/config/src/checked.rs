//! The outcome of a check in the API's words.

use std::path::Path;

use equipoise_api::wire::config::{Checked, ConfigProblem};

use super::{ConfigErrors, Loaded, Loader, Problem, Severity};

/// Checks the text that the API received, or the file if there is none.
pub async fn asked(loader: &Loader, file: &Path, toml: Option<String>) -> Checked {
    match toml {
        Some(text) => {
            let name = Path::new("(sent)");
            checked(name, &loader.check(name, text).await)
        }
        None => checked(file, &loader.load(file).await),
    }
}

/// The answer of the API, which `--json` prints.
pub fn checked(file: &Path, outcome: &Result<Loaded, ConfigErrors>) -> Checked {
    let problems = match outcome {
        Ok(loaded) => &loaded.warnings,
        Err(errors) => &errors.problems,
    };
    let problems = problems.iter().map(problem).collect();
    Checked { file: file.display().to_string(), valid: outcome.is_ok(), problems }
}

fn problem(problem: &Problem) -> ConfigProblem {
    let severity = match problem.severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
    };
    let (line, column) = problem.position.unzip();
    ConfigProblem {
        severity: severity.into(),
        line,
        column,
        option: problem.option.clone(),
        text: problem.text.clone(),
    }
}
