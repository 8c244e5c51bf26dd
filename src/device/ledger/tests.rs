//! All interleavings of a few users of a small ledger.

use super::*;
use std::collections::{HashMap, HashSet, VecDeque};

const UNIT: u64 = 256;

/// A driver with so many bytes, and no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Driver(u64);

impl Slabs<u64> for Driver {
    fn make(&mut self, size: u64) -> Result<u64, Error> {
        match self.0.checked_sub(size) {
            Some(left) => {
                self.0 = left;
                Ok(size)
            }
            None => Err(Error::OutOfMemory {
                device: "model".into(),
                needed: size,
                available: self.0,
            }),
        }
    }
    fn free(&mut self, slab: u64) {
        self.0 += slab;
    }
}

/// What one user does, again and again, `rounds` times.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct User {
    request: Request,
    priority: Priority,
    rounds: u8,
    /// Whether it may give up while it waits, and may fail to fill its key.
    gives_up: bool,
    state: Stage,
    /// Served while this one waited, younger ones alone.
    overtaken: u32,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Stage {
    Idle,
    Waiting(u64),
    Holding(Hold),
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    ledger: Ledger<u64>,
    driver: Driver,
    users: Vec<User>,
    /// Evictions by name that may still come from outside.
    evictions: u8,
}

fn user(units: &[u64], key: Option<(u64, &[u64])>) -> User {
    let bytes = |u: &[u64]| u.iter().map(|u| u * UNIT).collect();
    User {
        request: Request {
            regions: bytes(units),
            uploads: 1,
            kept: key.map(|(id, sizes)| KeptSizes {
                id,
                sizes: bytes(sizes),
            }),
            ..Default::default()
        },
        priority: Priority::Normal,
        rounds: 2,
        gives_up: false,
        state: Stage::Idle,
        overtaken: 0,
    }
}

fn world(budget: u64, users: Vec<User>) -> World {
    World {
        ledger: Ledger::new(LedgerLimits {
            budget: budget * UNIT,
            max_slab: budget * UNIT,
            min_slab: 2 * UNIT,
            uploads: 2,
            downloads: 0,
            pages: 0,
        }),
        driver: Driver(budget * UNIT),
        users,
        evictions: 0,
    }
}

impl World {
    /// What may happen next: each outcome, and whether it is progress (waiting in vain is not).
    fn next(&self) -> Vec<World> {
        let mut out = Vec::new();
        for i in 0..self.users.len() {
            match &self.users[i].state {
                Stage::Done => {}
                Stage::Idle => {
                    let mut w = self.clone();
                    let ticket = w.ledger.join(w.users[i].priority);
                    w.users[i].state = Stage::Waiting(ticket);
                    w.users[i].overtaken = 0;
                    out.push(w);
                }
                Stage::Waiting(ticket) => {
                    let ticket = *ticket;
                    let mut w = self.clone();
                    let request = w.users[i].request.clone();
                    match w.ledger.attempt(ticket, &request, &mut w.driver) {
                        Ok(hold) => {
                            w.users[i].state = Stage::Holding(hold);
                            w.note_overtaking(ticket);
                            out.push(w);
                        }
                        Err(Refusal::Busy) => {
                            // A refusal takes nothing, and neither do slabs that it made.
                            assert_eq!(w.ledger.held, self.ledger.held);
                        }
                        Err(refusal) => panic!("{refusal:?} of {request:?} in {self:#?}"),
                    }
                    if self.users[i].gives_up {
                        let mut w = self.clone();
                        w.ledger.leave(ticket);
                        w.end_round(i);
                        out.push(w);
                    }
                }
                Stage::Holding(hold) => {
                    let kept = hold.kept.as_ref().map(|k| k.0);
                    let fills = kept.filter(|&s| self.ledger.fill(s) == Fill::Empty);
                    let mut w = self.clone();
                    match fills {
                        Some(serial) => w.ledger.set_ready(serial),
                        None => w.release(i),
                    }
                    out.push(w);
                    if self.users[i].gives_up {
                        let mut w = self.clone();
                        w.release(i);
                        out.push(w);
                    }
                }
            }
        }
        if self.evictions > 0 {
            let mut w = self.clone();
            w.evictions -= 1;
            w.ledger.evict(1);
            out.push(w);
        }
        out
    }

    fn note_overtaking(&mut self, served: u64) {
        for user in &mut self.users {
            if matches!(user.state, Stage::Waiting(t) if t < served) {
                user.overtaken += 1;
            }
        }
    }

    fn release(&mut self, i: usize) {
        if let Stage::Holding(hold) = std::mem::replace(&mut self.users[i].state, Stage::Idle) {
            self.ledger.release(&hold);
        }
        self.end_round(i);
    }

    fn end_round(&mut self, i: usize) {
        let user = &mut self.users[i];
        user.rounds -= 1;
        user.state = if user.rounds == 0 {
            Stage::Done
        } else {
            Stage::Idle
        };
    }

    fn check(&self) {
        let l = &self.ledger;
        let held = self.users.iter().filter_map(|u| match &u.state {
            Stage::Holding(hold) => Some(hold),
            _ => None,
        });
        let held: Vec<&Hold> = held.collect();
        // Nothing is handed out twice, and kept sets overlap with nothing.
        let kept = l.kept.iter().flat_map(|k| &k.slices);
        let mut all: Vec<Slice> = held
            .iter()
            .flat_map(|h| &h.slices)
            .chain(kept)
            .copied()
            .collect();
        all.sort_by_key(|s| (s.slab, s.offset));
        for pair in all.windows(2) {
            let apart =
                pair[0].slab != pair[1].slab || pair[0].offset + pair[0].size <= pair[1].offset;
            assert!(apart, "{pair:?} overlap in {self:#?}");
        }
        let sum: u64 = all.iter().map(|s| s.size).sum();
        assert_eq!(sum, l.allocator.in_use());
        // The driver's view and the ledger's agree, within the budget.
        assert!(l.allocator.capacity() <= l.limits.budget);
        assert_eq!(l.limits.budget - self.driver.0, l.allocator.capacity());
        assert!(l.uploads <= l.limits.uploads);
        // Every holder's key is there, with as many pins as holders.
        for k in &l.kept {
            let users = held
                .iter()
                .filter(|h| h.kept.as_ref().is_some_and(|s| s.0 == k.serial));
            assert_eq!(users.count(), k.pins as usize);
        }
        // Of two holders of one key none sees it unfilled, except one that fills it.
        for k in l.kept.iter().filter(|k| k.fill == Fill::Empty) {
            assert!(k.pins <= 1);
        }
        for user in &self.users {
            assert!(user.overtaken <= u32::from(crate::device::line::MAX_OVERTAKEN));
        }
    }
}

/// Visits every state that can be reached; from each, something can happen until all are done.
fn explore(start: World) -> usize {
    let mut seen = HashSet::from([start.clone()]);
    let mut open = VecDeque::from([start]);
    let mut ends = HashMap::new();
    while let Some(world) = open.pop_front() {
        world.check();
        let next = world.next();
        let done = world.users.iter().all(|u| u.state == Stage::Done);
        assert!(done || !next.is_empty(), "a deadlock: {world:#?}");
        if done {
            assert_eq!(world.ledger.held, 0);
            assert_eq!(world.ledger.line.len(), 0);
            assert_eq!(world.ledger.resident, world.ledger.allocator.in_use());
            ends.insert(world.ledger.resident, ());
        }
        for mut w in next {
            // Counters that only grow, or only inform, do not tell states apart.
            w.ledger.changes = 0;
            w.ledger.evictions = 0;
            w.ledger.peak_in_use = 0;
            w.ledger.peak_allocated = 0;
            if seen.insert(w.clone()) {
                open.push_back(w);
            }
        }
    }
    assert!(!ends.is_empty());
    seen.len()
}

#[test]
fn three_users_without_keys() {
    let users = vec![user(&[3], None), user(&[2, 2], None), user(&[1], None)];
    assert!(explore(world(4, users)) > 100);
}

/// Two keys that do not fit together: the old way of loading a key first and then waiting for the
/// rest stopped here.
#[test]
fn two_keys_that_exclude_each_other() {
    let mut users = vec![
        user(&[2], Some((1, &[3]))),
        user(&[2], Some((2, &[3]))),
        user(&[2], Some((1, &[3]))),
    ];
    users[1].gives_up = true;
    let mut start = world(6, users);
    start.evictions = 2;
    assert!(explore(start) > 1000);
}

/// Users that give up while they wait, or end without having filled their key.
#[test]
fn giving_up_leaves_nothing_behind() {
    let mut users = vec![
        user(&[1, 1], Some((1, &[1, 1]))),
        user(&[1, 1], Some((1, &[1, 1]))),
        user(&[4], None),
    ];
    users.iter_mut().for_each(|u| u.gives_up = true);
    assert!(explore(world(5, users)) > 1000);
}

/// Regions that fill the budget to the last byte, however slabs were cut before.
#[test]
fn what_fits_by_its_bytes_is_granted_in_the_end() {
    let users = vec![
        user(&[3, 3], None),
        user(&[2, 2, 2], None),
        user(&[4], Some((1, &[1, 1]))),
    ];
    assert!(explore(world(6, users)) > 100);
}

/// A low priority is passed over, but not for ever.
#[test]
fn priorities_do_not_starve() {
    let mut users = vec![user(&[4], None), user(&[4], None), user(&[4], None)];
    users[0].priority = Priority::Low;
    users[0].rounds = 1;
    users[1].priority = Priority::Critical;
    users[1].rounds = 12;
    users[2].rounds = 12;
    assert!(explore(world(4, users)) > 100);
}
