//! Directed graphs whose edges have labels, and the cycles in them.

use std::collections::{HashSet, VecDeque};

/// Nodes are numbers from 0 on.
pub struct Graph<L>(Vec<Vec<(usize, L)>>);

/// Each edge with the node that it comes from.
pub type Path<L> = Vec<(usize, L)>;

impl<L: Copy> Graph<L> {
    pub fn new(nodes: usize) -> Self {
        Self((0..nodes).map(|_| Vec::new()).collect())
    }

    /// An edge from a node to itself is left out.
    pub fn add(&mut self, from: usize, to: usize, label: L) {
        if from != to {
            self.0[from].push((to, label));
        }
    }

    /// The edges of some nodes that lead to one of them: where it comes from, where it goes to, and what it is.
    pub fn edges_within(&self, nodes: &[usize]) -> Vec<(usize, usize, L)> {
        let inside: HashSet<usize> = nodes.iter().copied().collect();
        let of = |from: usize| self.0[from].iter().map(move |(to, label)| (from, *to, *label));
        nodes.iter().flat_map(|from| of(*from)).filter(|(_, to, _)| inside.contains(to)).collect()
    }

    /// The strongly connected components of more than one node, along edges with some labels (Tarjan, 1972).
    pub fn components(&self, follows: impl Fn(L) -> bool) -> Vec<Vec<usize>> {
        const NONE: usize = usize::MAX;
        let nodes = self.0.len();
        let (mut index, mut low, mut is_open) = (vec![NONE; nodes], vec![NONE; nodes], vec![false; nodes]);
        let (mut open, mut found, mut next) = (Vec::new(), Vec::new(), 0);
        for root in 0..nodes {
            if index[root] != NONE {
                continue;
            }
            // Nodes under way, each with the number of its edge that is looked at next: a recursion would be too deep.
            let mut way = vec![(root, 0)];
            while let Some((node, edge)) = way.pop() {
                if edge == 0 {
                    (index[node], low[node], is_open[node]) = (next, next, true);
                    open.push(node);
                    next += 1;
                }
                let Some((to, label)) = self.0[node].get(edge) else {
                    if let Some((parent, _)) = way.last() {
                        low[*parent] = low[*parent].min(low[node]);
                    }
                    if low[node] == index[node] {
                        let at = open.iter().rposition(|other| *other == node).expect("it is open");
                        let component = open.split_off(at);
                        component.iter().for_each(|member| is_open[*member] = false);
                        found.extend((component.len() > 1).then_some(component));
                    }
                    continue;
                };
                way.push((node, edge + 1));
                if !follows(*label) {
                    continue;
                }
                if index[*to] == NONE {
                    way.push((*to, 0));
                } else if is_open[*to] {
                    low[node] = low[node].min(index[*to]);
                }
            }
        }
        found
    }

    /// The shortest path along edges with some labels. From a node to itself, that is the shortest cycle through it.
    pub fn shortest_path(&self, from: usize, to: usize, follows: impl Fn(L) -> bool) -> Option<Path<L>> {
        let mut came_by: Vec<Option<(usize, L)>> = vec![None; self.0.len()];
        let mut todo = VecDeque::from([from]);
        while let Some(node) = todo.pop_front() {
            for (next, label) in self.0[node].iter().filter(|(_, label)| follows(*label)) {
                if came_by[*next].is_some() {
                    continue;
                }
                came_by[*next] = Some((node, *label));
                if *next == to {
                    let mut path = vec![came_by[to]?];
                    while path[0].0 != from {
                        path.insert(0, came_by[path[0].0]?);
                    }
                    return Some(path);
                }
                todo.push_back(*next);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn graph(nodes: usize, edges: &[(usize, usize, u8)]) -> Graph<u8> {
        let mut graph = Graph::new(nodes);
        edges.iter().for_each(|(from, to, label)| graph.add(*from, *to, *label));
        graph
    }

    #[test]
    fn a_path_is_the_shortest_one_with_the_labels() {
        let graph = graph(5, &[(0, 1, 1), (1, 2, 1), (2, 0, 1), (0, 2, 2), (3, 4, 1)]);
        assert_eq!(graph.shortest_path(0, 0, |_| true), Some(vec![(0, 2), (2, 1)]));
        assert_eq!(graph.shortest_path(0, 0, |label| label == 1), Some(vec![(0, 1), (1, 1), (2, 1)]));
        assert_eq!(graph.shortest_path(3, 3, |_| true), None);
    }

    proptest! {
        /// Two nodes are in one component exactly if there are paths between them in both directions.
        #[test]
        fn components_are_where_paths_lead_back(edges in prop::collection::vec((0..9_usize, 0..9_usize, 0..3_u8), 0..30)) {
            let (graph, follows) = (graph(9, &edges), |label| label != 0);
            let components = graph.components(follows);
            for (one, other) in (0..9).flat_map(|one| (0..9).map(move |other| (one, other))).filter(|(a, b)| a != b) {
                let leads_back = graph.shortest_path(one, other, follows).is_some()
                    && graph.shortest_path(other, one, follows).is_some();
                let together = components.iter().any(|nodes| nodes.contains(&one) && nodes.contains(&other));
                prop_assert_eq!(leads_back, together, "{} and {}", one, other);
            }
            prop_assert!(components.iter().all(|nodes| nodes.len() > 1));
        }
    }
}
