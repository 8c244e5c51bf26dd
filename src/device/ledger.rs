//! Who holds what of a device's memory: the arena's bookkeeping, without locks and without a
//! device, so that all of its interleavings can be explored.
//!
//! Two kinds of memory are handed out. A *hold* is everything that one run needs, granted whole or
//! not at all to the front of the line. A *kept set* (the parts of a key that stay on the device)
//! outlives the hold that brought it: it is pinned while holds use it, and evicted, the least
//! recently used first, when room is short. A hold is granted together with the kept set that it
//! needs, so that a waiter has nothing that others wait for, not even its key.

use crate::control::Priority;
use crate::device::allocator::{Allocator, End, Slice, align};
use crate::device::line::Line;
use crate::error::Error;
use serde::Serialize;

/// Holds for which slabs are made and keys evicted: one that runs and one that is ready behind it
/// keep a device busy. More of them are welcome to what is free.
const GROWING_HOLDS: usize = 2;

/// Sizes that a ledger keeps to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LedgerLimits {
    /// Bytes of all slabs together.
    pub budget: u64,
    /// Largest slab; a slice never straddles two.
    pub max_slab: u64,
    /// Smallest slab, unless the budget is smaller.
    pub min_slab: u64,
    /// Staging buffers for each direction, and pages.
    pub uploads: u32,
    pub downloads: u32,
    pub pages: u32,
}

/// A key's parts on the device, as asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct KeptSizes {
    /// The same number for the same content.
    pub id: u64,
    /// Bytes of each part.
    pub sizes: Vec<u64>,
}

/// What one run needs, to be reserved at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Request {
    /// Sizes of contiguous regions.
    pub regions: Vec<u64>,
    /// Staging buffers to the device, and back. Capped to what there is.
    pub uploads: u32,
    pub downloads: u32,
    pub pages: u32,
    /// What must be on the device besides, and stays there.
    pub kept: Option<KeptSizes>,
}

impl Request {
    /// Bytes of regions, and of kept parts.
    pub fn bytes(&self) -> (u64, u64) {
        let sum = |sizes: &[u64]| sizes.iter().map(|&s| align(s)).sum();
        let kept = self.kept.as_ref().map_or(0, |k| sum(&k.sizes));
        (sum(&self.regions), kept)
    }
    fn largest(&self) -> u64 {
        let kept = self.kept.iter().flat_map(|k| &k.sizes);
        self.regions.iter().chain(kept).copied().max().unwrap_or(0)
    }
}

/// Whether a kept set has its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fill {
    /// The hold that has it pinned is to fill it; nobody else gets it meanwhile.
    Empty,
    Ready,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeptSet {
    id: u64,
    /// Tells a set from earlier ones of the same id.
    serial: u64,
    sizes: Vec<u64>,
    slices: Vec<Slice>,
    pins: u32,
    fill: Fill,
    /// To be freed when the last pin goes.
    evicted: bool,
}

impl KeptSet {
    fn is(&self, wish: &KeptSizes) -> bool {
        self.id == wish.id && !self.evicted && self.sizes == wish.sizes
    }
}

/// What a request was granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// One a region, in the order of the request.
    pub slices: Vec<Slice>,
    /// Serial number and slices of the kept set.
    pub kept: Option<(u64, Vec<Slice>)>,
    pub uploads: u32,
    pub downloads: u32,
    pages: u32,
    padding: u64,
}

/// How an attempt ended that did not get its memory.
#[derive(Debug)]
pub enum Refusal {
    /// It is not this ticket's turn, or others hold what is missing.
    Busy,
    /// It can not be had even though nobody holds anything: bytes needed and available.
    TooLarge { needed: u64, available: u64 },
    /// The driver has no more, even though nobody holds anything.
    Driver(Error),
}

/// How to get memory that is in no slab yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Growth {
    None,
    /// Slabs with room for more.
    Slabs,
    /// Slabs of exactly the sizes needed.
    Exact,
}

/// Use of memory, now and at its highest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct ArenaReport {
    /// What slabs, staging buffers and pages may take together.
    pub budget: u64,
    /// What slabs take.
    pub allocated: u64,
    pub peak_allocated: u64,
    /// The most that slabs, staging buffers and pages took together.
    pub peak_total: u64,
    /// Bytes in slices.
    pub in_use: u64,
    pub peak_in_use: u64,
    /// The part of `in_use` that stays between runs.
    pub resident: u64,
    /// The part of `in_use` lost to alignment.
    pub padding: u64,
    /// Largest contiguous piece free in the slabs.
    pub largest_gap: u64,
    /// Staging buffers and pages kept for reuse.
    pub staging: u64,
    /// Kept sets, and how many were evicted so far.
    pub kept_sets: usize,
    pub evictions: u64,
    /// Reservations held, and waiting.
    pub held: usize,
    pub waiting: usize,
}

/// Where slabs come from.
pub trait Slabs<B> {
    /// # Errors
    /// [`Error::OutOfMemory`] if there is no more.
    fn make(&mut self, size: u64) -> Result<B, Error>;
    /// Gives an unused slab back, at once: the next one may need its room.
    fn free(&mut self, slab: B);
}

/// The bookkeeping. `B` is what a slab is to the driver.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ledger<B> {
    limits: LedgerLimits,
    allocator: Allocator,
    slabs: Vec<Option<B>>,
    line: Line,
    /// The most recently used last.
    kept: Vec<KeptSet>,
    next_serial: u64,
    uploads: u32,
    downloads: u32,
    pages: u32,
    held: usize,
    resident: u64,
    padding: u64,
    peak_in_use: u64,
    peak_allocated: u64,
    evictions: u64,
    /// Counts every change that may help a waiter.
    changes: u64,
}

impl<B: Clone> Ledger<B> {
    /// A ledger without slabs; they come with the first requests and stay.
    pub fn new(limits: LedgerLimits) -> Self {
        Self {
            limits,
            allocator: Allocator::default(),
            slabs: Vec::new(),
            line: Line::default(),
            kept: Vec::new(),
            next_serial: 0,
            uploads: 0,
            downloads: 0,
            pages: 0,
            held: 0,
            resident: 0,
            padding: 0,
            peak_in_use: 0,
            peak_allocated: 0,
            evictions: 0,
            changes: 0,
        }
    }

    /// What the ledger keeps to.
    pub fn limits(&self) -> &LedgerLimits {
        &self.limits
    }

    /// Figures; what concerns staging is the arena's to add.
    pub fn report(&self) -> ArenaReport {
        ArenaReport {
            allocated: self.allocator.capacity(),
            peak_allocated: self.peak_allocated,
            in_use: self.allocator.in_use(),
            peak_in_use: self.peak_in_use,
            resident: self.resident,
            padding: self.padding,
            largest_gap: self.allocator.largest_gap(),
            kept_sets: self.kept.len(),
            evictions: self.evictions,
            held: self.held,
            waiting: self.line.len(),
            ..Default::default()
        }
    }

    /// Changes with everything that may help a waiter: whoever was refused as busy need not try
    /// again before.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// Device buffer behind a slice in use.
    pub fn slab(&self, slice: Slice) -> B {
        let slab = self.slabs[slice.slab].clone();
        slab.expect("the slab of a slice in use stays")
    }

    /// A request with staging that there is.
    pub fn cap(&self, request: &Request) -> Request {
        Request {
            uploads: request.uploads.min(self.limits.uploads),
            downloads: request.downloads.min(self.limits.downloads),
            pages: request.pages.min(self.limits.pages),
            ..request.clone()
        }
    }

    /// Bytes needed and available if the request can never be met.
    pub fn never_fits(&self, request: &Request) -> Option<(u64, u64)> {
        let (regions, kept) = request.bytes();
        let (needed, largest) = (regions + kept, request.largest());
        if needed > self.limits.budget {
            Some((needed, self.limits.budget))
        } else if largest > self.limits.max_slab {
            Some((largest, self.limits.max_slab))
        } else {
            None
        }
    }

    /// A place in the line.
    pub fn join(&mut self, priority: Priority) -> u64 {
        self.line.join(priority)
    }

    /// Leaves the line; nothing happens if the ticket was served.
    pub fn leave(&mut self, ticket: u64) {
        self.line.leave(ticket);
        self.changes += 1;
    }

    /// Whose turn it is.
    pub fn next(&self) -> Option<u64> {
        self.line.next()
    }

    /// Tries to serve a ticket; `driver` makes slabs.
    ///
    /// # Errors
    /// See [`Refusal`]; nothing is held then.
    pub fn attempt(
        &mut self,
        ticket: u64,
        request: &Request,
        driver: &mut dyn Slabs<B>,
    ) -> Result<Hold, Refusal> {
        if self.line.next() != Some(ticket) {
            return Err(Refusal::Busy);
        }
        let room = |used: u32, more: u32, limit: u32| used + more <= limit;
        if !room(self.uploads, request.uploads, self.limits.uploads)
            || !room(self.downloads, request.downloads, self.limits.downloads)
            || !room(self.pages, request.pages, self.limits.pages)
        {
            return Err(Refusal::Busy);
        }
        if request
            .kept
            .as_ref()
            .is_some_and(|wish| self.is_being_filled(wish))
        {
            // Rather in line with nothing than with memory that others could use meanwhile.
            return Err(Refusal::Busy);
        }
        // A set that is there must not be evicted to make room for the regions beside it.
        let mut known = request.kept.as_ref().and_then(|wish| self.pin(wish));
        let sizes = request.kept.as_ref().map_or(&[][..], |wish| &wish.sizes);
        let new_kept = if known.is_some() { &[][..] } else { sizes };
        let mut taken = self.take(&request.regions, new_kept, driver);
        if let (Err(refusal), Some(serial)) = (&taken, known) {
            self.unpin(serial);
            if self.held > 0 || matches!(refusal, Refusal::Busy) {
                return Err(Refusal::Busy);
            }
            // It lies where it leaves no room for the regions, although there is enough.
            known = None;
            taken = self.take(&request.regions, sizes, driver);
        }
        let (slices, new_slices) = taken?;
        let kept = match (known, &request.kept) {
            (Some(serial), _) => Some((serial, self.touch(serial))),
            (None, Some(wish)) => Some(self.add_kept(wish, new_slices)),
            (None, None) => None,
        };
        self.line.serve(ticket);
        self.uploads += request.uploads;
        self.downloads += request.downloads;
        self.pages += request.pages;
        self.held += 1;
        let padding = padding(&request.regions);
        self.padding += padding;
        self.peak_in_use = self.peak_in_use.max(self.allocator.in_use());
        self.changes += 1;
        Ok(Hold {
            slices,
            kept,
            uploads: request.uploads,
            downloads: request.downloads,
            pages: request.pages,
            padding,
        })
    }

    /// Takes one slice that stays, apart from kept sets. Not for use beside runs that wait.
    ///
    /// # Errors
    /// As [`Self::attempt`].
    pub fn attempt_resident(
        &mut self,
        ticket: u64,
        size: u64,
        driver: &mut dyn Slabs<B>,
    ) -> Result<Slice, Refusal> {
        if self.line.next() != Some(ticket) {
            return Err(Refusal::Busy);
        }
        let (_, slices) = self.take(&[], &[size], driver)?;
        self.line.serve(ticket);
        self.resident += slices[0].size;
        self.padding += slices[0].size - size;
        self.peak_in_use = self.peak_in_use.max(self.allocator.in_use());
        self.changes += 1;
        Ok(slices[0])
    }

    /// Gives a slice of [`Self::attempt_resident`] back.
    pub fn release_resident(&mut self, slice: Slice, size: u64) {
        self.allocator.free(slice);
        self.resident -= slice.size;
        self.padding -= slice.size - size;
        self.changes += 1;
    }

    /// Gives a hold back, and unpins its kept set.
    pub fn release(&mut self, hold: &Hold) {
        hold.slices.iter().for_each(|&s| self.allocator.free(s));
        if let Some((serial, _)) = hold.kept {
            self.unpin(serial);
        }
        self.uploads -= hold.uploads;
        self.downloads -= hold.downloads;
        self.pages -= hold.pages;
        self.held -= 1;
        self.padding -= hold.padding;
        self.changes += 1;
    }

    /// State of a pinned set.
    pub fn fill(&self, serial: u64) -> Fill {
        self.kept[self.position(serial)].fill
    }

    /// A pinned set has its content.
    pub fn set_ready(&mut self, serial: u64) {
        let at = self.position(serial);
        self.kept[at].fill = Fill::Ready;
        self.changes += 1;
    }

    /// Frees the sets of an id: at once, or when the last hold that uses one ends. Returns whether
    /// there was one.
    pub fn evict(&mut self, id: u64) -> bool {
        let mut found = false;
        while let Some(at) = self.kept.iter().position(|k| k.id == id && !k.evicted) {
            found = true;
            self.kept[at].evicted = true;
            if self.kept[at].pins == 0 {
                self.free_kept(at);
            }
        }
        self.changes += 1;
        found
    }

    /// Whether a set of this id is there, with its content.
    pub fn has(&self, id: u64) -> bool {
        let ready = |k: &KeptSet| k.id == id && !k.evicted && k.fill == Fill::Ready;
        self.kept.iter().any(ready)
    }

    fn is_being_filled(&self, wish: &KeptSizes) -> bool {
        let set = self.kept.iter().find(|k| k.is(wish));
        set.is_some_and(|k| k.fill != Fill::Ready && k.pins > 0)
    }

    /// Pins the set that is asked for, if it is there.
    fn pin(&mut self, wish: &KeptSizes) -> Option<u64> {
        let set = self.kept.iter_mut().find(|k| k.is(wish))?;
        set.pins += 1;
        Some(set.serial)
    }

    fn unpin(&mut self, serial: u64) {
        let at = self.position(serial);
        self.kept[at].pins -= 1;
        if self.kept[at].pins == 0 && self.kept[at].evicted {
            self.free_kept(at);
        }
    }

    /// Makes a set the most recently used one.
    fn touch(&mut self, serial: u64) -> Vec<Slice> {
        let set = self.kept.remove(self.position(serial));
        let slices = set.slices.clone();
        self.kept.push(set);
        slices
    }

    fn position(&self, serial: u64) -> usize {
        let at = self.kept.iter().position(|k| k.serial == serial);
        at.expect("a pinned set stays")
    }

    fn add_kept(&mut self, wish: &KeptSizes, slices: Vec<Slice>) -> (u64, Vec<Slice>) {
        let serial = self.next_serial;
        self.next_serial += 1;
        self.resident += slices.iter().map(|s| s.size).sum::<u64>();
        self.padding += padding(&wish.sizes);
        self.kept.push(KeptSet {
            id: wish.id,
            serial,
            sizes: wish.sizes.clone(),
            slices: slices.clone(),
            pins: 1,
            fill: Fill::Empty,
            evicted: false,
        });
        (serial, slices)
    }

    fn free_kept(&mut self, at: usize) {
        let set = self.kept.remove(at);
        for &slice in &set.slices {
            self.allocator.free(slice);
            self.resident -= slice.size;
        }
        self.padding -= padding(&set.sizes);
    }

    /// Frees the least recently used set that nobody has pinned.
    fn evict_one(&mut self) -> bool {
        let Some(at) = self.kept.iter().position(|k| k.pins == 0) else {
            return false;
        };
        self.free_kept(at);
        self.evictions += 1;
        true
    }

    /// Slices for all of `front` and `back`, evicting and growing as it must.
    fn take(
        &mut self,
        front: &[u64],
        back: &[u64],
        driver: &mut dyn Slabs<B>,
    ) -> Result<(Vec<Slice>, Vec<Slice>), Refusal> {
        let all = || front.iter().chain(back);
        let needed: u64 = all().map(|&s| align(s)).sum();
        let evictable = self.kept.iter().filter(|k| k.pins == 0);
        let evictable: u64 = evictable.flat_map(|k| &k.slices).map(|s| s.size).sum();
        let free = self.limits.budget - self.allocator.in_use();
        let alone = self.held == 0;
        if needed > free + evictable {
            // Waiting helps only where a hold will end.
            return Err(match alone {
                false => Refusal::Busy,
                true => Refusal::TooLarge {
                    needed,
                    available: free + evictable,
                },
            });
        }
        let growth = match self.held < GROWING_HOLDS {
            true => Growth::Slabs,
            false => Growth::None,
        };
        let mut refused = None;
        loop {
            match self.try_take(front, back, growth, driver) {
                Ok(taken) => return Ok(taken),
                Err(e) => refused = e.or(refused),
            }
            if growth == Growth::None || !self.evict_one() {
                break;
            }
        }
        if !alone {
            return Err(Refusal::Busy);
        }
        // The bytes are there, but cut badly: with slabs of exactly the sizes needed, they fit.
        self.drop_unused(driver);
        match self.try_take(front, back, Growth::Exact, driver) {
            Ok(taken) => Ok(taken),
            Err(Some(error)) => Err(Refusal::Driver(error)),
            Err(None) => Err(refused.map_or(
                Refusal::TooLarge {
                    needed,
                    available: free.min(needed - 1),
                },
                Refusal::Driver,
            )),
        }
    }

    /// One try; nothing stays taken if it fails. The error is the driver's.
    fn try_take(
        &mut self,
        front: &[u64],
        back: &[u64],
        growth: Growth,
        driver: &mut dyn Slabs<B>,
    ) -> Result<(Vec<Slice>, Vec<Slice>), Option<Error>> {
        let wishes = |sizes: &[u64], end| -> Vec<(u64, End)> {
            sizes.iter().map(|&size| (size, end)).collect()
        };
        let mut wanted = wishes(front, End::Front);
        wanted.extend(wishes(back, End::Back));
        // Largest first: small ones fill the gaps that are left.
        let mut order: Vec<usize> = (0..wanted.len()).collect();
        order.sort_by_key(|&i| std::cmp::Reverse(wanted[i].0));
        let mut slices: Vec<Option<Slice>> = vec![None; wanted.len()];
        for i in order {
            let (size, end) = wanted[i];
            let mut slice = self.allocator.allocate(size, end);
            if slice.is_none() {
                // Large parts of keys get slabs of their own, which go when they are evicted.
                let own = end == End::Back && size >= self.limits.min_slab / 4;
                let exact = growth == Growth::Exact || own;
                let grown = match growth {
                    Growth::None => Ok(false),
                    _ => self.grow(align(size), exact, driver),
                };
                if matches!(grown, Ok(true)) {
                    slice = self.allocator.allocate(size, end);
                } else {
                    let taken = slices.iter().flatten();
                    taken.for_each(|&s| self.allocator.free(s));
                    return Err(grown.err());
                }
            }
            slices[i] = slice;
        }
        let mut slices: Vec<Slice> = slices.into_iter().flatten().collect();
        let kept = slices.split_off(front.len());
        Ok((slices, kept))
    }

    fn drop_unused(&mut self, driver: &mut dyn Slabs<B>) {
        for i in self.allocator.remove_unused() {
            self.slabs[i]
                .take()
                .into_iter()
                .for_each(|slab| driver.free(slab));
        }
    }

    /// Adds a slab that has room for `need` bytes; false if the budget has none.
    fn grow(&mut self, need: u64, exact: bool, driver: &mut dyn Slabs<B>) -> Result<bool, Error> {
        if self.limits.budget - self.allocator.capacity() < need {
            // Slabs that hold nothing may make room for one that is large enough.
            self.drop_unused(driver);
        }
        let capacity = self.allocator.capacity();
        let left = (self.limits.budget - capacity) & !(align(1) - 1);
        if left < need {
            return Ok(false);
        }
        // Doubling keeps the number of slabs small without taking what is never used.
        let wish = capacity.max(self.limits.min_slab).min(self.limits.max_slab);
        let wish = match exact {
            true => need,
            false => align(wish).max(need).min(left),
        };
        let (slab, size) = match driver.make(wish) {
            Err(Error::OutOfMemory { .. }) if wish > need => (driver.make(need)?, need),
            other => (other?, wish),
        };
        let index = self.allocator.add(size);
        if index == self.slabs.len() {
            self.slabs.push(None);
        }
        self.slabs[index] = Some(slab);
        self.peak_allocated = self.peak_allocated.max(capacity + size);
        Ok(true)
    }
}

fn padding(sizes: &[u64]) -> u64 {
    sizes.iter().map(|&s| align(s) - s).sum()
}

#[cfg(test)]
mod tests;
