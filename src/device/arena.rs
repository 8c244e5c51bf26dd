//! The buffer arena: slabs taken from the driver once and handed out in slices.
//!
//! Nothing else creates device buffers. A user *reserves* everything that it will need before it
//! starts, whole or not at all, first come first served. So nobody holds memory while waiting for
//! more (no deadlock), and nothing is handed out twice (no out-of-memory in mid-proof).

use crate::device::allocator::{Allocator, End, Slice, align};
use crate::error::{Error, Result};
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a buffer is for; the driver is asked for a matching kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BufferUse {
    /// Storage, in device memory.
    Slab,
    /// Mapped for writing: on its way to the device.
    Upload,
    /// Mapped for reading: on its way back.
    Download,
}

/// Where an arena gets its memory from.
pub trait Memory: Send + Sync + 'static {
    type Buffer: Clone + Send + Sync;
    /// What a submission needs besides: kernel parameters, timestamps.
    type Page: Send;
    /// # Errors
    /// [`Error::OutOfMemory`] if the driver refuses.
    fn buffer(&self, usage: BufferUse, size: u64) -> Result<Self::Buffer>;
    /// # Errors
    /// As [`Self::buffer`].
    fn page(&self) -> Result<Self::Page>;
}

/// Sizes that an arena keeps to, in bytes.
#[derive(Clone, Debug)]
pub struct ArenaConfig {
    /// Device name, for errors.
    pub device: String,
    /// All slabs together.
    pub budget: u64,
    /// Largest slab; a slice never straddles two.
    pub max_slab: u64,
    /// Smallest slab, unless the budget is smaller.
    pub min_slab: u64,
    /// Size of a staging buffer.
    pub chunk: u64,
    /// Staging buffers for each direction.
    pub max_chunks: u32,
}

/// What one user needs, to be reserved at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Sizes of contiguous regions.
    pub regions: Vec<u64>,
    /// Staging buffers to the device, and back. Capped to what there is.
    pub uploads: u32,
    pub downloads: u32,
}

/// Use of memory, now and at its highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArenaReport {
    /// What slabs may take together.
    pub budget: u64,
    /// What they take.
    pub allocated: u64,
    pub peak_allocated: u64,
    /// Bytes in slices.
    pub in_use: u64,
    pub peak_in_use: u64,
    /// The part of `in_use` that stays between proofs.
    pub resident: u64,
    /// The part of `in_use` lost to alignment.
    pub padding: u64,
    /// Largest contiguous piece free in the slabs.
    pub largest_gap: u64,
    /// Staging buffers kept for reuse, both directions.
    pub staging: u64,
    /// Reservations held, and waiting.
    pub held: usize,
    pub waiting: usize,
}

/// The arena of one device.
pub struct BufferArena<M: Memory> {
    memory: M,
    config: ArenaConfig,
    state: Mutex<State<M>>,
    changed: Condvar,
}

struct State<M: Memory> {
    allocator: Allocator,
    slabs: Vec<Option<M::Buffer>>,
    /// Tickets of waiting reservations, oldest first.
    line: VecDeque<u64>,
    next_ticket: u64,
    /// Counts every return of memory, so that a waiter retries only when something changed.
    returns: u64,
    uploads: Pool<M::Buffer>,
    downloads: Pool<M::Buffer>,
    pages: Vec<M::Page>,
    report: ArenaReport,
}

/// Staging buffers of one direction.
struct Pool<B> {
    free: Vec<B>,
    reserved: u32,
}

/// How an attempt ended that did not get its memory.
enum Refusal {
    /// Others hold what is missing.
    Busy,
    /// The driver has no more.
    Driver(Error),
}

impl<M: Memory> BufferArena<M> {
    /// An arena without slabs; they come with the first reservations and stay.
    pub fn new(memory: M, config: ArenaConfig) -> Arc<Self> {
        let pool = || Pool {
            free: Vec::new(),
            reserved: 0,
        };
        let report = ArenaReport {
            budget: config.budget,
            ..Default::default()
        };
        Arc::new(Self {
            memory,
            config,
            state: Mutex::new(State {
                allocator: Allocator::default(),
                slabs: Vec::new(),
                line: VecDeque::new(),
                next_ticket: 0,
                returns: 0,
                uploads: pool(),
                downloads: pool(),
                pages: Vec::new(),
                report,
            }),
            changed: Condvar::new(),
        })
    }

    /// The sizes that this arena keeps to.
    pub fn config(&self) -> &ArenaConfig {
        &self.config
    }

    /// Figures for reports.
    pub fn report(&self) -> ArenaReport {
        let state = self.lock();
        ArenaReport {
            allocated: state.allocator.capacity(),
            in_use: state.allocator.in_use(),
            largest_gap: state.allocator.largest_gap(),
            waiting: state.line.len(),
            staging: (state.uploads.free.len() + state.downloads.free.len()) as u64
                * self.config.chunk,
            ..state.report
        }
    }

    /// Reserves all of `request`, waiting in line while others hold what is missing. `check` runs
    /// now and then while waiting; its error ends the wait.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] at once if the request exceeds the budget or can not be met although
    /// nobody else holds a reservation; and what `check` returns.
    pub fn reserve(
        self: &Arc<Self>,
        request: &Request,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Reservation<M>> {
        let request = &Request {
            uploads: request.uploads.min(self.config.max_chunks),
            downloads: request.downloads.min(self.config.max_chunks),
            ..request.clone()
        };
        let slices = self.wait_for(&request.regions, request, End::Front, check)?;
        let state = self.lock();
        let buffer = |s: &Slice| state.slabs[s.slab].clone().expect("slab of a live slice");
        Ok(Reservation {
            buffers: slices.iter().map(buffer).collect(),
            padding: padding(&request.regions),
            slices,
            uploads: request.uploads,
            downloads: request.downloads,
            arena: self.clone(),
        })
    }

    /// Takes `size` bytes that stay until the last clone of the result drops.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn resident(
        self: &Arc<Self>,
        size: u64,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<ResidentBuffer> {
        let slices = self.wait_for(&[size], &Request::default(), End::Back, check)?;
        Ok(ResidentBuffer(Arc::new(Resident {
            size,
            slice: slices[0],
            owner: self.clone(),
        })))
    }

    /// Device buffer behind a slice in use.
    pub fn slab(&self, slice: Slice) -> M::Buffer {
        let state = self.lock();
        state.slabs[slice.slab]
            .clone()
            .expect("slab of a live slice")
    }

    /// Identifies this arena among those of other devices.
    pub fn id(self: &Arc<Self>) -> usize {
        Arc::as_ptr(self).cast::<()>() as usize
    }

    /// A staging buffer of a reservation that counted it, mapped if it is for uploads.
    pub(super) fn take_chunk(&self, usage: BufferUse) -> Result<M::Buffer> {
        let mut state = self.lock();
        if let Some(chunk) = state.pool(usage).free.pop() {
            return Ok(chunk);
        }
        drop(state);
        self.memory.buffer(usage, self.config.chunk)
    }

    /// Gives a staging buffer back, mapped if it is for uploads.
    pub(super) fn return_chunk(&self, usage: BufferUse, chunk: M::Buffer) {
        self.lock().pool(usage).free.push(chunk);
    }

    pub(super) fn take_page(&self) -> Result<M::Page> {
        let page = self.lock().pages.pop();
        page.map_or_else(|| self.memory.page(), Ok)
    }

    pub(super) fn return_page(&self, page: M::Page) {
        self.lock().pages.push(page);
    }

    /// A panic while the lock was held left the bookkeeping consistent: each step of it ends
    /// before anything that can panic begins.
    fn lock(&self) -> MutexGuard<'_, State<M>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait_for(
        &self,
        regions: &[u64],
        request: &Request,
        end: End,
        check: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<Slice>> {
        let needed: u64 = regions.iter().map(|&r| align(r)).sum();
        let largest = regions.iter().copied().max().unwrap_or(0);
        if needed > self.config.budget || largest > self.config.max_slab {
            let available = if needed > self.config.budget {
                self.config.budget
            } else {
                self.config.max_slab
            };
            return Err(self.out_of_memory(needed, available));
        }
        let ticket = Ticket::new(self);
        let mut tried = None;
        loop {
            check()?;
            let mut state = self.lock();
            if state.line.front() == Some(&ticket.0) && tried != Some(state.returns) {
                tried = Some(state.returns);
                let alone = state.report.held == 0;
                match self.attempt(&mut state, regions, request, end) {
                    Ok(slices) => return Ok(slices),
                    Err(Refusal::Driver(error)) if alone => return Err(error),
                    Err(Refusal::Busy) if alone => {
                        let free = self.config.budget - state.allocator.in_use();
                        return Err(self.out_of_memory(needed, free.min(needed - 1)));
                    }
                    Err(_) => {}
                }
            }
            // The time-out is for `check` alone.
            let wait = self.changed.wait_timeout(state, Duration::from_millis(20));
            drop(wait.unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// One try, under the lock.
    fn attempt(
        &self,
        state: &mut State<M>,
        regions: &[u64],
        request: &Request,
        end: End,
    ) -> Result<Vec<Slice>, Refusal> {
        let room = |pool: &Pool<M::Buffer>, n: u32| pool.reserved + n <= self.config.max_chunks;
        if !room(&state.uploads, request.uploads) || !room(&state.downloads, request.downloads) {
            return Err(Refusal::Busy);
        }
        // Largest first: small ones fill the gaps that are left.
        let mut order: Vec<usize> = (0..regions.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(regions[i]));
        let mut slices = vec![None; regions.len()];
        for i in order {
            let mut slice = state.allocator.allocate(regions[i], end);
            if slice.is_none() {
                match self.grow(state, align(regions[i])) {
                    Ok(()) => slice = state.allocator.allocate(regions[i], end),
                    Err(refusal) => {
                        let taken = slices.iter().flatten();
                        taken.for_each(|&s| state.allocator.free(s));
                        return Err(refusal);
                    }
                }
            }
            slices[i] = slice;
        }
        state.uploads.reserved += request.uploads;
        state.downloads.reserved += request.downloads;
        let report = &mut state.report;
        match end {
            End::Front => report.held += 1,
            End::Back => report.resident += regions.iter().map(|&r| align(r)).sum::<u64>(),
        }
        report.padding += padding(regions);
        report.peak_in_use = report.peak_in_use.max(state.allocator.in_use());
        Ok(slices.into_iter().flatten().collect())
    }

    /// Adds a slab that has room for `need` bytes.
    fn grow(&self, state: &mut State<M>, need: u64) -> Result<(), Refusal> {
        if self.config.budget - state.allocator.capacity() < need {
            // Slabs that hold nothing may make room for one that is large enough.
            for i in state.allocator.remove_unused() {
                log::debug!("{}: slab {i} replaced by a larger one", self.config.device);
                state.slabs[i] = None;
            }
        }
        let capacity = state.allocator.capacity();
        let left = (self.config.budget - capacity) & !(align(1) - 1);
        if left < need {
            return Err(Refusal::Busy);
        }
        // Doubling keeps the number of slabs small without taking what is never used.
        let wish = capacity.max(self.config.min_slab).min(self.config.max_slab);
        let wish = align(wish).max(need).min(left);
        let created = match self.memory.buffer(BufferUse::Slab, wish) {
            Err(Error::OutOfMemory { .. }) if wish > need => {
                let exact = self.memory.buffer(BufferUse::Slab, need);
                exact.map(|b| (b, need))
            }
            other => other.map(|b| (b, wish)),
        };
        let (buffer, size) = created.map_err(|error| {
            Refusal::Driver(match error {
                Error::OutOfMemory { .. } => self.out_of_memory(capacity + need, capacity),
                other => other,
            })
        })?;
        let index = state.allocator.add(size);
        if index == state.slabs.len() {
            state.slabs.push(None);
        }
        state.slabs[index] = Some(buffer);
        let peak = &mut state.report.peak_allocated;
        *peak = (*peak).max(capacity + size);
        Ok(())
    }

    fn out_of_memory(&self, needed: u64, available: u64) -> Error {
        Error::OutOfMemory {
            device: self.config.device.clone(),
            needed,
            available,
        }
    }
}

impl<M: Memory> State<M> {
    fn pool(&mut self, usage: BufferUse) -> &mut Pool<M::Buffer> {
        match usage {
            BufferUse::Upload => &mut self.uploads,
            BufferUse::Download => &mut self.downloads,
            BufferUse::Slab => unreachable!("slabs are not pooled"),
        }
    }
}

fn padding(regions: &[u64]) -> u64 {
    regions.iter().map(|&r| align(r) - r).sum()
}

/// A place in the line, left when dropped.
struct Ticket<'a, M: Memory>(u64, &'a BufferArena<M>);

impl<'a, M: Memory> Ticket<'a, M> {
    fn new(arena: &'a BufferArena<M>) -> Self {
        let mut state = arena.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(ticket);
        Self(ticket, arena)
    }
}

impl<M: Memory> Drop for Ticket<'_, M> {
    fn drop(&mut self) {
        self.1.lock().line.retain(|&t| t != self.0);
        self.1.changed.notify_all();
    }
}

/// Memory of one user; goes back when dropped, so only after the device is done with it.
pub struct Reservation<M: Memory> {
    arena: Arc<BufferArena<M>>,
    /// One a region, in the order of the request.
    pub slices: Vec<Slice>,
    /// Slab of each slice.
    pub buffers: Vec<M::Buffer>,
    pub uploads: u32,
    pub downloads: u32,
    padding: u64,
}

impl<M: Memory> Drop for Reservation<M> {
    fn drop(&mut self) {
        let mut state = self.arena.lock();
        self.slices.iter().for_each(|&s| state.allocator.free(s));
        state.uploads.reserved -= self.uploads;
        state.downloads.reserved -= self.downloads;
        state.report.held -= 1;
        state.report.padding -= self.padding;
        state.returns += 1;
        drop(state);
        self.arena.changed.notify_all();
    }
}

/// An arena as the owner of resident memory, whatever its device.
trait Owner: Send + Sync {
    fn release(&self, slice: Slice, size: u64);
    fn id(&self) -> usize;
}

impl<M: Memory> Owner for BufferArena<M> {
    fn release(&self, slice: Slice, size: u64) {
        let mut state = self.lock();
        state.allocator.free(slice);
        state.report.resident -= slice.size;
        state.report.padding -= slice.size - size;
        state.returns += 1;
        drop(state);
        self.changed.notify_all();
    }
    fn id(&self) -> usize {
        std::ptr::from_ref(self).cast::<()>() as usize
    }
}

/// Memory that stays on the device between proofs; freed when the last clone goes.
#[derive(Clone)]
pub struct ResidentBuffer(Arc<Resident>);

struct Resident {
    size: u64,
    slice: Slice,
    owner: Arc<dyn Owner>,
}

impl ResidentBuffer {
    /// Bytes, a multiple of 4.
    pub fn size(&self) -> u64 {
        self.0.size
    }
    pub(super) fn slice(&self) -> Slice {
        self.0.slice
    }
    /// [`BufferArena::id`] of the arena that it belongs to.
    pub(super) fn arena_id(&self) -> usize {
        self.0.owner.id()
    }
}

impl fmt::Debug for ResidentBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "ResidentBuffer({} bytes, {:?})",
            self.0.size, self.0.slice
        )
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        self.owner.release(self.slice, self.size);
    }
}

#[cfg(test)]
mod tests;
