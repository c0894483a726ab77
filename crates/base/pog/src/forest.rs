//! The controller's acyclic bipartite graph: a vertex per cell, an edge per key.
//!
//! Adjacency lists use indices instead of pointers: 4 bytes per vertex for the first edge, and 8
//! bytes per edge for the next edge at either end. The ends are not stored: they follow from the
//! key's hash. The list at a vertex is also the index of keys, so that no hash table is needed.

use crate::memory;

/// Marks the end of a list.
pub(crate) const NONE: u32 = u32::MAX;

/// The two vertices of an edge: a cell of A, a cell of B.
pub(crate) type Ends = (u32, u32);

#[derive(Clone, Debug)]
pub(crate) struct Forest {
    /// First edge at each vertex.
    heads: Vec<u32>,
    /// Next edge at the end in A, next edge at the end in B.
    links: Vec<[u32; 2]>,
}

/// An end of an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    A,
    B,
}

impl End {
    pub(crate) fn other(self) -> End {
        match self {
            End::A => End::B,
            End::B => End::A,
        }
    }

    pub(crate) fn of(self, ends: Ends) -> u32 {
        match self {
            End::A => ends.0,
            End::B => ends.1,
        }
    }
}

impl Forest {
    pub(crate) fn new(vertices: usize, edges: usize) -> Forest {
        Forest { heads: memory::filled(vertices, NONE), links: memory::reserved(edges) }
    }

    /// Returns the memory of the heads for other uses until [`Self::clear`].
    pub(crate) fn scratch(&mut self) -> &mut [u32] {
        &mut self.heads
    }

    /// Removes all edges.
    pub(crate) fn clear(&mut self) {
        self.heads.fill(NONE);
        self.links.clear();
    }

    /// Removes all edges, and resizes to `vertices` vertices with capacity for `edges`.
    pub(crate) fn resize(&mut self, vertices: usize, edges: usize) {
        if vertices != self.heads.len() {
            self.heads = Vec::new();
            self.heads = memory::filled(vertices, NONE);
        }
        self.links.clear();
        let room = self.links.capacity();
        if room < edges || room > edges + edges / 2 + 64 {
            self.links = Vec::new();
            self.links = memory::reserved(edges);
        }
    }

    #[inline(always)]
    pub(crate) fn first(&self, vertex: u32) -> u32 {
        self.heads[vertex as usize]
    }

    #[inline(always)]
    pub(crate) fn next(&self, edge: u32, end: End) -> u32 {
        self.links[edge as usize][end as usize]
    }

    /// Adds an edge. Its number is the previous number of edges.
    #[inline(always)]
    pub(crate) fn push(&mut self, (a, b): Ends) {
        memory::grow_for_one(&mut self.links);
        let edge = self.links.len() as u32;
        self.links.push([self.heads[a as usize], self.heads[b as usize]]);
        self.heads[a as usize] = edge;
        self.heads[b as usize] = edge;
    }

    /// Removes an edge. The last edge takes over its number.
    pub(crate) fn swap_remove(&mut self, edge: u32, ends: Ends, last_ends: Ends) {
        let last = self.links.len() as u32 - 1;
        let [next_a, next_b] = self.links[edge as usize];
        *self.link_to(edge, End::A, ends.0) = next_a;
        *self.link_to(edge, End::B, ends.1) = next_b;
        if edge != last {
            *self.link_to(last, End::A, last_ends.0) = edge;
            *self.link_to(last, End::B, last_ends.1) = edge;
        }
        self.links.swap_remove(edge as usize);
    }

    /// Returns the link to `edge` in the list at `vertex`.
    fn link_to(&mut self, edge: u32, end: End, vertex: u32) -> &mut u32 {
        let mut at = self.heads[vertex as usize];
        if at == edge {
            return &mut self.heads[vertex as usize];
        }
        loop {
            let next = self.links[at as usize][end as usize];
            if next == edge {
                return &mut self.links[at as usize][end as usize];
            }
            at = next;
        }
    }

    #[inline(always)]
    pub(crate) fn prefetch_vertex(&self, vertex: u32) {
        memory::prefetch(&self.heads, vertex as usize);
    }

    #[inline(always)]
    pub(crate) fn prefetch_edge(&self, edge: u32) {
        memory::prefetch(&self.links, edge as usize);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.heads.capacity() * size_of::<u32>() + self.links.capacity() * size_of::<[u32; 2]>()
    }
}

/// A walk over one component, edge by edge, from one vertex.
///
/// The graph is a forest: if a walk never returns along the edge it came from, it visits no vertex
/// twice.
#[derive(Clone, Debug, Default)]
pub(crate) struct Walk {
    /// Reached vertices, each with the edge that led to it.
    reached: Vec<(u32, u32)>,
    /// Index of the vertex with the edges being visited.
    at: usize,
    /// The next edge to visit.
    edge: u32,
}

/// Result of a step.
pub(crate) enum Step {
    /// A new vertex.
    Reached(u32),
    /// No new vertex.
    Going,
    /// The component is complete.
    Done,
}

impl Walk {
    /// Starts at `vertex`. Does not follow the edge `except`.
    pub(crate) fn start(&mut self, forest: &Forest, vertex: u32, except: u32) {
        self.reached.clear();
        self.reached.push((vertex, except));
        self.at = 0;
        self.edge = forest.first(vertex);
    }

    /// Visits one more edge. `ends` returns an edge's vertices, `side` tells which end a vertex is.
    #[inline]
    pub(crate) fn step(
        &mut self,
        forest: &Forest,
        ends: impl Fn(u32) -> Ends,
        side: impl Fn(u32) -> End,
    ) -> Step {
        while self.edge == NONE {
            self.at += 1;
            let Some(&(vertex, _)) = self.reached.get(self.at) else { return Step::Done };
            self.edge = forest.first(vertex);
        }
        let (vertex, came_by) = self.reached[self.at];
        let (edge, end) = (self.edge, side(vertex));
        self.edge = forest.next(edge, end);
        if edge == came_by {
            return Step::Going;
        }
        let other = end.other().of(ends(edge));
        // The vertex is needed after this vertex's edges, and the other walk's steps come in
        // between.
        forest.prefetch_vertex(other);
        self.reached.push((other, edge));
        Step::Reached(other)
    }

    pub(crate) fn vertices(&self) -> impl Iterator<Item = u32> {
        self.reached.iter().map(|&(vertex, _)| vertex)
    }
}
