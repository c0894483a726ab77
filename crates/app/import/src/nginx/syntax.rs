//! Directives and blocks of nginx.

use crate::ImportError;
use crate::report::Report;

/// A directive with its arguments, and its block if it has one.
#[derive(Clone, Debug, Default)]
pub(super) struct Directive {
    pub(super) number: usize,
    pub(super) name: String,
    pub(super) args: Vec<String>,
    pub(super) block: Vec<Directive>,
}

impl Directive {
    /// The argument at `at`, or an empty text.
    pub(super) fn arg(&self, at: usize) -> &str {
        self.args.get(at).map_or("", String::as_str)
    }

    /// The value of an argument `key=value`.
    pub(super) fn value(&self, key: &str) -> Option<&str> {
        self.args.iter().find_map(|it| it.strip_prefix(key)?.strip_prefix('='))
    }

    pub(super) fn has(&self, arg: &str) -> bool {
        self.args.iter().any(|it| it == arg)
    }
}

/// One file in the output of `nginx -T`.
struct File {
    path: String,
    directives: Vec<Directive>,
}

const DEPTH_MAX: usize = 64;

/// The directives of a text: one file, or the output of `nginx -T`, with the included files in
/// their place.
pub(super) fn parse(text: &str, report: &mut Report) -> Result<Vec<Directive>, ImportError> {
    let marker = |line: &str| {
        line.strip_prefix("# configuration file ")?.strip_suffix(':').map(str::to_string)
    };
    let mut parts: Vec<(String, usize, String)> = vec![(String::new(), 0, String::new())];
    for (at, line) in text.lines().enumerate() {
        if let Some(path) = marker(line) {
            parts.push((path, at + 1, String::new()));
        } else if let Some((_, _, part)) = parts.last_mut() {
            part.push_str(line);
            part.push('\n');
        }
    }
    if parts.len() > 1 {
        parts.remove(0);
    }
    let mut files = Vec::new();
    for (path, before, part) in parts {
        let tokens = tokens(&part, before)?;
        let mut rest = tokens.as_slice();
        let directives = block(&mut rest, false, 0)?;
        files.push(File { path, directives });
    }
    let lines: Vec<&str> = text.lines().collect();
    let main = std::mem::take(&mut files[0].directives);
    let all = included(main, &files, 0, report);
    note(&all, &lines, report);
    Ok(all)
}

fn note(all: &[Directive], lines: &[&str], report: &mut Report) {
    for directive in all {
        report.open(directive.number, lines.get(directive.number - 1).unwrap_or(&""));
        note(&directive.block, lines, report);
    }
}

/// The directives with those of included files.
fn included(
    all: Vec<Directive>,
    files: &[File],
    depth: usize,
    report: &mut Report,
) -> Vec<Directive> {
    let mut out = Vec::new();
    for mut directive in all {
        if directive.name == "include" && depth < DEPTH_MAX {
            let found: Vec<_> =
                files.iter().filter(|it| is_named(directive.arg(0), &it.path)).collect();
            report.open(directive.number, &format!("include {};", directive.arg(0)));
            let is_harmless =
                ["mime.types", "fastcgi", "uwsgi", "scgi", "proxy_params", "modules-enabled"];
            if found.is_empty() && !is_harmless.iter().any(|it| directive.arg(0).contains(it)) {
                report.lost(
                    directive.number,
                    "the file is not in the text: translate the output of nginx -T",
                );
            }
            for file in found {
                out.extend(included(file.directives.clone(), files, depth + 1, report));
            }
            continue;
        }
        directive.block = included(std::mem::take(&mut directive.block), files, depth + 1, report);
        out.push(directive);
    }
    out
}

/// True if a path meets a pattern of `include`, in which `*` stands for any text. Relative patterns
/// are those of nginx's own folder.
fn is_named(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = (if first.starts_with('/') {
        path.strip_prefix(first)
    } else {
        path.find(first).map(|at| &path[at + first.len()..])
    }) else {
        return false;
    };
    let all: Vec<_> = parts.collect();
    if all.is_empty() {
        return rest.is_empty() && !path.is_empty();
    }
    for (at, part) in all.iter().enumerate() {
        if at + 1 == all.len() {
            return rest.ends_with(part);
        }
        let Some(found) = rest.find(part) else { return false };
        rest = &rest[found + part.len()..];
    }
    false
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    End,
    Open,
    Close,
}

fn tokens(text: &str, before: usize) -> Result<Vec<(usize, Token)>, ImportError> {
    let mut all = Vec::new();
    let mut number = before + 1;
    let mut rest = text.chars().peekable();
    while let Some(it) = rest.next() {
        match it {
            '\n' => number += 1,
            it if it.is_whitespace() => {}
            '#' => {
                while rest.peek().is_some_and(|it| *it != '\n') {
                    rest.next();
                }
            }
            ';' => all.push((number, Token::End)),
            '{' => all.push((number, Token::Open)),
            '}' => all.push((number, Token::Close)),
            quote @ ('"' | '\'') => {
                let (begin, mut word) = (number, String::new());
                loop {
                    match rest.next() {
                        Some(it) if it == quote => break,
                        Some('\\') => escaped(rest.next(), &mut word),
                        Some(it) => {
                            number += usize::from(it == '\n');
                            word.push(it);
                        }
                        None => {
                            let problem = "a quotation mark is not closed".to_string();
                            return Err(ImportError::Syntax { line: begin, problem });
                        }
                    }
                }
                all.push((begin, Token::Word(word)));
            }
            it => {
                let mut word = String::from(it);
                if it == '\\' {
                    word.extend(rest.next());
                }
                while let Some(next) = rest.peek().copied() {
                    // `${name}` belongs to the word.
                    if next == '{' && word.ends_with('$') {
                        for it in rest.by_ref() {
                            word.push(it);
                            if it == '}' {
                                break;
                            }
                        }
                        continue;
                    }
                    if next.is_whitespace() || next == ';' || next == '{' {
                        break;
                    }
                    word.push(next);
                    rest.next();
                    if next == '\\' {
                        word.extend(rest.next());
                    }
                }
                all.push((number, Token::Word(word)));
            }
        }
    }
    Ok(all)
}

fn escaped(it: Option<char>, word: &mut String) {
    match it {
        Some('n') => word.push('\n'),
        Some('t') => word.push('\t'),
        Some('r') => word.push('\r'),
        Some(it @ ('"' | '\'' | '\\' | '$' | ' ')) => word.push(it),
        Some(it) => word.extend(['\\', it]),
        None => word.push('\\'),
    }
}

fn block(
    rest: &mut &[(usize, Token)],
    is_inner: bool,
    depth: usize,
) -> Result<Vec<Directive>, ImportError> {
    let mut all = Vec::new();
    let mut words: Vec<(usize, String)> = Vec::new();
    let syntax = |line, problem: &str| ImportError::Syntax { line, problem: problem.to_string() };
    while let Some(((number, token), after)) = rest.split_first() {
        *rest = after;
        let number = *number;
        let directive = |words: &mut Vec<(usize, String)>, block| {
            let mut all = std::mem::take(words).into_iter();
            let (number, name) = all.next()?;
            Some(Directive { number, name, args: all.map(|it| it.1).collect(), block })
        };
        match token {
            Token::Word(word) => words.push((number, word.clone())),
            Token::End => all.extend(directive(&mut words, Vec::new())),
            Token::Open => {
                if words.is_empty() {
                    return Err(syntax(number, "a block without a name"));
                }
                if depth >= DEPTH_MAX {
                    return Err(syntax(number, "more than 64 blocks in one another"));
                }
                let inner = block(rest, true, depth + 1)?;
                all.extend(directive(&mut words, inner));
            }
            Token::Close if !is_inner => return Err(syntax(number, "`}` without a block")),
            Token::Close if !words.is_empty() => {
                return Err(syntax(number, "`;` is missing before `}`"));
            }
            Token::Close => return Ok(all),
        }
    }
    match (is_inner, words.first()) {
        (true, _) => {
            Err(syntax(all.last().map_or(1, |it: &Directive| it.number), "a block is not closed"))
        }
        (false, Some((number, _))) => Err(syntax(*number, "`;` is missing")),
        (false, None) => Ok(all),
    }
}

/// Milliseconds of a time such as `60`, `60s`, `1h 30m`.
pub(super) fn milliseconds(text: &str) -> Option<u64> {
    let mut sum = 0_u64;
    for part in text.split_whitespace() {
        let end = part.find(|it: char| !it.is_ascii_digit()).unwrap_or(part.len());
        let number: u64 = part[..end].parse().ok()?;
        let unit = match &part[end..] {
            "" | "s" => 1000,
            "ms" => 1,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 7 * 86_400_000,
            _ => return None,
        };
        sum = sum.checked_add(number.checked_mul(unit)?)?;
    }
    (!text.is_empty()).then_some(sum)
}

/// Bytes of a size such as `10m`, as a configuration has it.
pub(super) fn size(text: &str) -> Option<String> {
    let (number, unit) = match text.to_ascii_lowercase().strip_suffix(['k', 'm', 'g']) {
        Some(number) => (number.to_string(), text.chars().last()?.to_ascii_lowercase()),
        None => (text.to_string(), 'b'),
    };
    let number: u64 = number.parse().ok()?;
    let unit = match unit {
        'k' => "KiB",
        'm' => "MiB",
        'g' => "GiB",
        _ => "B",
    };
    Some(format!("{number}{unit}"))
}
