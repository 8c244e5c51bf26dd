//! The budget of host memory that the proofs of one prover share.
//!
//! A proof reserves what it will allocate before it starts, whole or not at all, so that nobody
//! holds a part while waiting for the rest. What a key takes is its owner's and is not counted.

use crate::control::Priority;
use crate::cpu;
use crate::device::line::Line;
use crate::error::{Error, Result};
use crate::lane::upload_bytes;
use crate::proving_key::ProvingKey;
use crate::with_curve;
use crate::witness::Witness;
use serde::Serialize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Name of the host in errors.
const HOST: &str = "host memory";
/// Results of a device, stacks, the proof and its report.
const CONSTANT_BYTES: u64 = 4 << 20;
/// Staging buffers that one proof uses at a time, at most.
const STAGING_BYTES: u64 = 128 << 20;

/// Use of the budget, now and at its highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct HostReport {
    pub limit: Option<u64>,
    pub in_use: u64,
    pub peak: u64,
    /// Reservations that wait.
    pub waiting: usize,
}

/// Bytes of host memory that reservations may take together.
#[derive(Debug, Default)]
pub struct HostBudget {
    limit: Option<u64>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    in_use: u64,
    peak: u64,
    line: Line,
}

impl HostBudget {
    /// A budget of `limit` bytes; without a limit, reservations are counted and never wait.
    pub fn new(limit: Option<u64>) -> Arc<Self> {
        Arc::new(Self {
            limit,
            ..Self::default()
        })
    }

    /// Takes `bytes`, waiting in line while others hold what is missing. `check` runs now and then
    /// while waiting; its error ends the wait.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at once for more than the limit, and what `check` returns.
    pub fn reserve(
        self: &Arc<Self>,
        bytes: u64,
        priority: Priority,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<HostReservation> {
        let mut reservation = HostReservation {
            budget: self.clone(),
            bytes: 0,
        };
        reservation.replace(bytes, priority, check)?;
        Ok(reservation)
    }

    /// Figures for reports.
    pub fn report(&self) -> HostReport {
        let state = self.lock();
        HostReport {
            limit: self.limit,
            in_use: state.in_use,
            peak: state.peak,
            waiting: state.line.len(),
        }
    }

    /// The state is consistent after every statement, so a panic elsewhere does not matter.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(
        &self,
        bytes: u64,
        priority: Priority,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let limit = self.limit.unwrap_or(u64::MAX);
        if bytes > limit {
            return Err(Error::OutOfMemory {
                device: HOST.into(),
                needed: bytes,
                available: limit,
            });
        }
        let place = Place {
            budget: self,
            ticket: self.lock().line.join(priority),
        };
        loop {
            check()?;
            let mut state = self.lock();
            let free = limit.saturating_sub(state.in_use);
            if state.line.next() == Some(place.ticket) && bytes <= free {
                state.line.serve(place.ticket);
                state.in_use += bytes;
                state.peak = state.peak.max(state.in_use);
                return Ok(());
            }
            // The time-out is for `check` alone.
            let wait = self.changed.wait_timeout(state, Duration::from_millis(20));
            drop(wait.unwrap_or_else(PoisonError::into_inner));
        }
    }
}

/// A place in the line, left when dropped.
struct Place<'a> {
    budget: &'a HostBudget,
    ticket: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // If it was served, the next one may fit as well.
        self.budget.lock().line.leave(self.ticket);
        self.budget.changed.notify_all();
    }
}

/// A part of the budget; goes back when dropped, by a panic too.
#[derive(Debug)]
pub struct HostReservation {
    budget: Arc<HostBudget>,
    bytes: u64,
}

impl HostReservation {
    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Gives everything back, then takes `bytes` as [`HostBudget::reserve`] does. In this order
    /// nobody holds memory while waiting for more. After an error nothing is held.
    ///
    /// # Errors
    /// As [`HostBudget::reserve`].
    pub fn replace(
        &mut self,
        bytes: u64,
        priority: Priority,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        self.give_back();
        self.budget.wait_for(bytes, priority, check)?;
        self.bytes = bytes;
        Ok(())
    }

    fn give_back(&mut self) {
        self.budget.lock().in_use -= std::mem::take(&mut self.bytes);
        self.budget.changed.notify_all();
    }
}

impl Drop for HostReservation {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Where a proof's sums are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPlace {
    Cpu,
    Device {
        /// Whether the key goes to the device first.
        load_key: bool,
    },
}

/// Host memory that one proof takes beside its key, estimated:
/// * the witness, unless it lies in a mapped file; one that is not known yet counts;
/// * on the CPU, the vectors of the quotient or the points and buckets of the sums, whichever take
///   more ([`cpu::working_bytes`]);
/// * on a device, staging buffers: what a device is given of the key shares the key's bytes;
/// * a constant.
pub fn job_bytes(key: &ProvingKey, place: JobPlace, witness: Option<&Witness>) -> u64 {
    let witness_bytes = 32 * key.n_vars as u64;
    let mapped = witness.is_some_and(|w| w.values.file_offset().is_some());
    let work = match place {
        JobPlace::Cpu => with_curve!(key.curve, C => cpu::working_bytes::<C>(key)),
        JobPlace::Device { load_key } => {
            let of_key = if load_key { upload_bytes(key) } else { 0 };
            STAGING_BYTES.min(witness_bytes + of_key)
        }
    };
    work + CONSTANT_BYTES + if mapped { 0 } else { witness_bytes }
}

/// Host memory that a key takes: matrices and points that are not mapped from a file.
pub fn key_bytes(key: &ProvingKey) -> u64 {
    let matrices = [&key.a, &key.b];
    let tables = matrices.map(|m| [&m.row_starts, &m.entries, &m.coefficients]);
    let queries = [
        &key.a_query,
        &key.b_g1_query,
        &key.b_g2_query,
        &key.l_query,
        &key.h_query,
    ];
    let all = tables.iter().flatten().chain(&queries);
    let owned = all.filter(|bytes| bytes.file_offset().is_none());
    owned.map(|bytes| bytes.len() as u64).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::CancelToken;
    use std::thread;

    fn go() -> Result<()> {
        Ok(())
    }

    fn reserve(budget: &Arc<HostBudget>, bytes: u64) -> HostReservation {
        budget.reserve(bytes, Priority::Normal, &go).unwrap()
    }

    #[test]
    fn without_a_limit_it_counts() {
        let budget = HostBudget::new(None);
        let (one, two) = (reserve(&budget, 10), reserve(&budget, u64::MAX / 2));
        drop(one);
        drop(two);
        let report = budget.report();
        assert_eq!((report.in_use, report.peak), (0, 10 + u64::MAX / 2));
    }

    #[test]
    fn more_than_the_limit_is_an_error_at_once() {
        let budget = HostBudget::new(Some(100));
        let _held = reserve(&budget, 100);
        let error = budget.reserve(101, Priority::Normal, &go).unwrap_err();
        assert_eq!(error.class(), "out_of_memory");
        let text = error.to_string();
        for part in ["host memory", "101", "100"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(budget.report().waiting, 0);
    }

    /// A large reservation at the front is not starved by small ones behind it.
    #[test]
    fn first_come_first_served() {
        let budget = HostBudget::new(Some(100));
        let held = reserve(&budget, 60);
        let order = Arc::new(Mutex::new(Vec::new()));
        let threads: Vec<_> = [70, 10, 100]
            .into_iter()
            .enumerate()
            .map(|(i, bytes)| {
                let (b, o) = (budget.clone(), order.clone());
                let thread = thread::spawn(move || {
                    let _held = reserve(&b, bytes);
                    o.lock().unwrap().push(bytes);
                });
                while budget.report().waiting < i + 1 {
                    thread::yield_now();
                }
                thread
            })
            .collect();
        assert!(order.lock().unwrap().is_empty());
        drop(held);
        threads.into_iter().for_each(|t| t.join().unwrap());
        // 70 and 10 fit together, so that either may be first to say so.
        assert_eq!(order.lock().unwrap()[2], 100);
        assert_eq!(budget.report().in_use, 0);
        assert!(budget.report().peak <= 100);
    }

    #[test]
    fn cancelling_leaves_the_line() {
        let budget = HostBudget::new(Some(100));
        let held = reserve(&budget, 60);
        let cancel = CancelToken::new();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let check = || cancel.check();
                budget.reserve(60, Priority::Critical, &check).map(drop)
            });
            while budget.report().waiting == 0 {
                thread::yield_now();
            }
            cancel.cancel();
            assert_eq!(waiting.join().unwrap().unwrap_err().class(), "cancelled");
        });
        drop(reserve(&budget, 40));
        drop(held);
        assert_eq!((budget.report().in_use, budget.report().waiting), (0, 0));
    }

    #[test]
    fn replacing_gives_back_first() {
        let budget = HostBudget::new(Some(100));
        let mut held = reserve(&budget, 80);
        held.replace(90, Priority::Normal, &go).unwrap();
        assert_eq!((held.bytes(), budget.report().in_use), (90, 90));
        assert!(held.replace(101, Priority::Normal, &go).is_err());
        assert_eq!((held.bytes(), budget.report().in_use), (0, 0));
    }

    #[test]
    fn p64_a_panic_gives_it_back() {
        let budget = HostBudget::new(Some(100));
        let b = budget.clone();
        let panicked = thread::spawn(move || {
            let _held = reserve(&b, 100);
            panic!("injected");
        });
        assert!(panicked.join().is_err());
        drop(reserve(&budget, 100));
    }
}
