//! The files of a run.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::experiment::Experiment;
use crate::row::{Row, Value};

/// NAME.csv: all columns of all rows.
pub(crate) fn write_csv(folder: &Path, name: &str, rows: &[Row]) -> Result<()> {
    let mut columns: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(Row::names) {
        if !columns.contains(&name) {
            columns.push(name);
        }
    }
    let mut text = columns.join(",") + "\n";
    for row in rows {
        let cells: Vec<String> = columns.iter().map(|column| cell(row.get(column))).collect();
        text += &(cells.join(",") + "\n");
    }
    write(folder, &format!("{name}.csv"), &text)
}

/// The rows of NAME.csv; none if there is no such file.
pub(crate) fn read_csv(folder: &Path, name: &str) -> Result<Vec<Row>> {
    let path = folder.join(format!("{name}.csv"));
    if !path.exists() {
        return Ok(Vec::new());
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next().unwrap_or_default().split(',').collect();
    let read = |line: &str| {
        let mut row = Row::new();
        for (column, cell) in
            columns.iter().zip(line.split(',')).filter(|(_, cell)| !cell.is_empty())
        {
            let word = || Value::Word(cell.to_string());
            row.set(column, cell.parse().map_or_else(|_| word(), Value::Number));
        }
        row
    };
    Ok(lines.map(read).collect())
}

/// Figures in full; words hold no commas.
fn cell(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Word(word)) => word.clone(),
    }
}

/// The section of an experiment: table, paper, plots, goals.
pub(crate) fn section(experiment: &Experiment, rows: &[Row]) -> String {
    let Experiment { title, paper, notes, table, .. } = experiment;
    let mut text = format!("## {title}\n\n");
    if !notes.is_empty() {
        text += &format!("{}\n\n", notes.trim());
    }
    let columns: Vec<&String> =
        table.iter().filter(|name| rows.iter().any(|row| row.get(name).is_some())).collect();
    let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
    text += &line(columns.iter().map(|name| name.replace('_', " ")).collect());
    text += &line(columns.iter().map(|_| "---".to_string()).collect());
    for row in rows {
        let shown = |name: &&String| row.get(name).map_or_else(String::new, Value::to_string);
        text += &line(columns.iter().map(shown).collect());
    }
    let _ = write!(text, "\nThe paper: {}\n", paper.trim());
    for plot in &experiment.plot {
        let _ = write!(text, "\n![{}]({}.svg)\n", plot.title, plot.name);
    }
    let verdicts: Vec<_> = experiment.goal.iter().filter_map(|goal| goal.judge(rows)).collect();
    if !verdicts.is_empty() {
        text += "\n| goal | demanded | worst here | |\n|---|---|---|---|\n";
    }
    for verdict in verdicts {
        let met = if verdict.met { "met" } else { "**missed**" };
        let worst = Value::Number(verdict.worst);
        text += &line(vec![verdict.goal, verdict.demanded, worst.to_string(), met.to_string()]);
    }
    if !experiment.conclusion.is_empty() {
        text += &format!("\n{}\n", experiment.conclusion.trim());
    }
    text + "\n"
}

pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}
