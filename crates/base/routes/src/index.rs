//! Routes by path: those of one host condition, found without a look at each.

use std::collections::HashMap;

use regex::bytes::{RegexSet, RegexSetBuilder};

use crate::condition::{Expression, PathCondition};

/// Routes by their path conditions. Lists of routes ascend.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathIndex {
    /// Segments of paths; the first node is the root.
    nodes: Vec<Node>,
    /// Routes without a condition of the path.
    any: Vec<u32>,
    patterns: Vec<(Expression, u32)>,
    set: Option<RegexSet>,
}

/// A segment of paths.
#[derive(Clone, Debug, Default)]
struct Node {
    children: HashMap<Box<[u8]>, u32>,
    /// Routes for exactly this path.
    exact: Vec<u32>,
    /// Routes for this path and those below.
    prefix: Vec<u32>,
}

/// Memory that the compiled expressions of one host may take, bytes.
const SET_BYTES_MAX: usize = 256 << 20;

impl PathIndex {
    /// Adds a route, which comes after those added before.
    pub(crate) fn add(&mut self, route: u32, paths: &[PathCondition]) {
        if paths.is_empty() {
            self.any.push(route);
        }
        for path in paths {
            match path {
                PathCondition::Exact(text) => {
                    let node = self.node(text.as_bytes().get(1..).unwrap_or_default());
                    push(&mut node.exact, route);
                }
                // The root, which every path is below.
                PathCondition::Prefix(text) if text.is_empty() => {
                    push(&mut self.root().prefix, route);
                }
                PathCondition::Prefix(text) => {
                    push(&mut self.node(&text.as_bytes()[1..]).prefix, route);
                }
                PathCondition::Regex(pattern) => self.patterns.push((pattern.clone(), route)),
            }
        }
    }

    /// Compiles the expressions into one set.
    ///
    /// # Errors
    /// Together they are too large.
    pub(crate) fn finish(&mut self) -> Result<(), regex::Error> {
        if self.patterns.len() > 1 {
            let texts = self.patterns.iter().map(|(pattern, _)| pattern.as_str());
            let set = RegexSetBuilder::new(texts).unicode(false).size_limit(SET_BYTES_MAX).build();
            self.set = Some(set?);
        }
        Ok(())
    }

    fn root(&mut self) -> &mut Node {
        if self.nodes.is_empty() {
            self.nodes.push(Node::default());
        }
        &mut self.nodes[0]
    }

    /// The node of a path without its first slash.
    fn node(&mut self, path: &[u8]) -> &mut Node {
        self.root();
        let mut at = 0;
        for segment in path.split(|byte| *byte == b'/') {
            let next = self.nodes.len() as u32;
            let child = *self.nodes[at].children.entry(segment.into()).or_insert(next);
            if child == next {
                self.nodes.push(Node::default());
            }
            at = child as usize;
        }
        &mut self.nodes[at]
    }

    /// Gives `consider` the lists of routes with a path condition that `path` meets.
    pub(crate) fn candidates(&self, path: &[u8], mut consider: impl FnMut(&[u32])) {
        consider(&self.any);
        let Some(rest) = path.strip_prefix(b"/") else { return };
        if let Some(root) = self.nodes.first() {
            consider(&root.prefix);
            self.walk(root, rest, &mut consider);
        }
        match (&self.set, &self.patterns[..]) {
            (Some(set), patterns) => {
                set.matches(path).iter().for_each(|at| consider(&[patterns[at].1]));
            }
            (None, [(pattern, route)]) if pattern.is_match(path) => consider(&[*route]),
            (None, _) => {}
        }
    }

    fn walk(&self, root: &Node, path: &[u8], consider: &mut impl FnMut(&[u32])) {
        let mut node = root;
        for segment in path.split(|byte| *byte == b'/') {
            let Some(&child) = node.children.get(segment) else { return };
            node = &self.nodes[child as usize];
            consider(&node.prefix);
        }
        consider(&node.exact);
    }
}

/// Adds a route to an ascending list, once.
fn push(list: &mut Vec<u32>, route: u32) {
    if list.last() != Some(&route) {
        list.push(route);
    }
}
