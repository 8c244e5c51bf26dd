//! Who is served next: by priority, then by age, and nobody is passed over for ever.
//!
//! Bookkeeping alone. Its users (the arena, the turn, the host's budget) lock it, wait, and serve.

use crate::control::Priority;

/// How often younger tickets may be served before an older one. After that it counts as
/// [`Priority::Critical`], and being older it goes before every younger ticket.
pub const MAX_OVERTAKEN: u8 = 16;

/// A line of waiting tickets.
///
/// A ticket with `n` older ones in line is served after at most `n + MAX_OVERTAKEN` others,
/// whatever joins later: until it was overtaken so often, and then only older ones go before it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    /// Oldest first.
    waiting: Vec<Waiting>,
    next_ticket: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiting {
    ticket: u64,
    priority: Priority,
    /// Younger tickets served before it; counts no further than the limit.
    overtaken: u8,
}

impl Waiting {
    fn counts_as(&self) -> Priority {
        if self.overtaken < MAX_OVERTAKEN {
            self.priority
        } else {
            Priority::Critical
        }
    }
}

impl Line {
    /// A line in which nobody waits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes a place at the end of those of the same priority. Tickets are not used again.
    pub fn join(&mut self, priority: Priority) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push(Waiting {
            ticket,
            priority,
            overtaken: 0,
        });
        ticket
    }

    /// Gives a place up. Nobody was overtaken by that. No effect on a ticket that is not in line.
    pub fn leave(&mut self, ticket: u64) {
        self.waiting.retain(|w| w.ticket != ticket);
    }

    /// Who is served next: highest priority, oldest first.
    pub fn next(&self) -> Option<u64> {
        let mut best: Option<&Waiting> = None;
        for w in &self.waiting {
            if best.is_none_or(|b| w.counts_as() > b.counts_as()) {
                best = Some(w);
            }
        }
        best.map(|w| w.ticket)
    }

    /// Takes a ticket out of the line because it gets what it waited for; every older one that
    /// still waits was overtaken. No effect on a ticket that is not in line.
    pub fn serve(&mut self, ticket: u64) {
        let Some(at) = self.waiting.iter().position(|w| w.ticket == ticket) else {
            return;
        };
        for older in &mut self.waiting[..at] {
            older.overtaken = MAX_OVERTAKEN.min(older.overtaken + 1);
        }
        self.waiting.remove(at);
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn serve_all(line: &mut Line) -> Vec<u64> {
        let mut served = Vec::new();
        while let Some(ticket) = line.next() {
            line.serve(ticket);
            served.push(ticket);
        }
        served
    }

    #[test]
    fn priority_then_age() {
        let mut line = Line::new();
        let [low, normal, critical, high, normal_2, critical_2] = [
            Priority::Low,
            Priority::Normal,
            Priority::Critical,
            Priority::High,
            Priority::Normal,
            Priority::Critical,
        ]
        .map(|p| line.join(p));
        assert_eq!(line.len(), 6);
        assert_eq!(
            serve_all(&mut line),
            [critical, critical_2, high, normal, normal_2, low]
        );
        assert!(line.is_empty());
    }

    #[test]
    fn a_ticket_overtaken_often_goes_before_younger_critical_ones() {
        let mut line = Line::new();
        let low = line.join(Priority::Low);
        for _ in 0..MAX_OVERTAKEN {
            let critical = line.join(Priority::Critical);
            assert_eq!(line.next(), Some(critical));
            line.serve(critical);
        }
        line.join(Priority::Critical);
        assert_eq!(line.next(), Some(low));
    }

    #[test]
    fn who_is_not_in_line_changes_nothing() {
        let mut line = Line::new();
        let first = line.join(Priority::Normal);
        line.serve(first);
        let second = line.join(Priority::Normal);
        assert_ne!(first, second);
        let before = line.clone();
        line.serve(first);
        line.leave(first);
        assert_eq!(line, before);
    }

    /// What a state is, apart from the names of its tickets.
    fn shape(line: &Line) -> Vec<(Priority, u8)> {
        line.waiting
            .iter()
            .map(|w| (w.priority, w.overtaken))
            .collect()
    }

    /// Every state of up to three in line that joining, leaving and serving can reach: someone is
    /// next, and nobody waits for more than the limit.
    #[test]
    fn all_states_of_three() {
        let mut seen = HashSet::new();
        let mut todo = vec![Line::new()];
        while let Some(line) = todo.pop() {
            if !seen.insert(shape(&line)) {
                continue;
            }
            assert_eq!(line.next().is_none(), line.is_empty());
            if let Some(next) = line.next() {
                let at = line.waiting.iter().position(|w| w.ticket == next).unwrap();
                let overdue = |w: &Waiting| w.overtaken == MAX_OVERTAKEN;
                assert!(!line.waiting[..at].iter().any(overdue), "{line:?}");
                let mut after = line.clone();
                after.serve(next);
                todo.push(after);
            }
            for w in &line.waiting {
                let mut after = line.clone();
                after.leave(w.ticket);
                let rest: Vec<_> = line.waiting.iter().filter(|o| *o != w).collect();
                assert!(after.waiting.iter().eq(rest));
                todo.push(after);
            }
            if line.len() < 3 {
                for priority in Priority::ALL {
                    let mut after = line.clone();
                    after.join(priority);
                    todo.push(after);
                }
            }
        }
        assert!(seen.len() > 5_000, "{}", seen.len());
    }

    #[derive(Clone, Debug)]
    enum Step {
        Join(Priority),
        /// The one at this place, counted modulo their number.
        Leave(usize),
        Serve,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let priority = prop::sample::select(Priority::ALL.to_vec());
        let step = prop_oneof![
            3 => priority.prop_map(Step::Join),
            1 => (0..8usize).prop_map(Step::Leave),
            2 => Just(Step::Serve),
        ];
        prop::collection::vec(step, 0..300)
    }

    proptest! {
        /// Within a priority, first come first served; and no wait exceeds its bound.
        #[test]
        fn order_and_bound(steps in steps()) {
            let mut line = Line::new();
            // Ticket, priority, older ones when it joined, served since.
            let mut waiting: Vec<(u64, Priority, usize, usize)> = Vec::new();
            let serve = |line: &mut Line, waiting: &mut Vec<(u64, Priority, usize, usize)>| {
                let Some(ticket) = line.next() else { return };
                line.serve(ticket);
                let at = waiting.iter().position(|w| w.0 == ticket).unwrap();
                let (_, priority, older, served) = waiting.remove(at);
                assert!(served <= older + usize::from(MAX_OVERTAKEN));
                let overtook_equal = waiting[..at].iter().any(|w| w.1 == priority);
                assert!(!overtook_equal);
                waiting.iter_mut().for_each(|w| w.3 += 1);
            };
            for step in steps {
                match step {
                    Step::Join(priority) => {
                        let ticket = line.join(priority);
                        waiting.push((ticket, priority, waiting.len(), 0));
                    }
                    Step::Leave(at) if !waiting.is_empty() => {
                        let (ticket, ..) = waiting.remove(at % waiting.len());
                        line.leave(ticket);
                    }
                    Step::Leave(_) => {}
                    Step::Serve => serve(&mut line, &mut waiting),
                }
                prop_assert_eq!(line.len(), waiting.len());
            }
            while !line.is_empty() {
                serve(&mut line, &mut waiting);
            }
        }
    }
}
