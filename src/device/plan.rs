//! Where each buffer of a recording goes: lifetimes, and offsets that let buffers share memory.

use crate::device::allocator::{ALIGNMENT, align};
use crate::device::recording::{BufferId, BufferKind, BufferSlice, Command, Recording};
use crate::error::{Error, Result};
use crate::tuning::MsmTunings;
use serde::Serialize;
use std::collections::HashSet;
use std::ops::Range;

/// Blocks into which a recording's commands are cut to find the buffers that live together.
const BLOCKS: usize = 64;
/// No region grows beyond this, so that slabs are easily found for it; a larger buffer has a region
/// of its own.
const MAX_GROWN_REGION: u64 = 512 << 20;

/// What a device allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanLimits {
    /// Largest buffer of a recording, and largest contiguous region of a plan, in bytes.
    pub max_binding: u64,
    /// What a plan may take of the device's memory.
    pub memory: u64,
    /// Storage bindings of one dispatch.
    pub max_storage_buffers: u32,
    /// How multi-scalar multiplications go.
    pub msm: MsmTunings,
    /// Most tables of multiples of a key's bases, the bases themselves among them.
    pub tables: u32,
}

impl PlanLimits {
    /// Largest buffer that the memory has room for.
    pub fn largest(&self) -> u64 {
        self.max_binding.min(self.memory & !(ALIGNMENT - 1))
    }
}

/// Place of a transient buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Index into [`MemoryPlan::regions`].
    pub region: usize,
    /// Multiple of 256.
    pub offset: u64,
}

/// The device memory of one recording, decided before any of it runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MemoryPlan {
    /// Device memory to reserve: the sum of `regions`.
    pub bytes: u64,
    /// Contiguous pieces to reserve.
    pub regions: Vec<u64>,
    /// What is alive at the same time at the most: no packing can need less.
    pub peak_live: u64,
    /// Resident buffers and kept parts that the recording uses, each once; not part of `bytes`.
    pub resident: u64,
    /// Host to device and back.
    pub uploaded: u64,
    pub downloaded: u64,
    /// By buffer; `None` for resident buffers and those that no command uses.
    #[serde(skip)]
    pub placements: Vec<Option<Placement>>,
    /// Ranges by region that hold secrets at some time, disjoint and in order.
    #[serde(skip)]
    pub secrets: Vec<(usize, Range<u64>)>,
}

/// Buffers that one command touches.
fn touched(command: &Command) -> impl Iterator<Item = &BufferSlice> {
    let (one, many): ([Option<&BufferSlice>; 2], &[BufferSlice]) = match command {
        Command::Upload { dst, .. } | Command::Clear { dst } => ([Some(dst), None], &[]),
        Command::Copy { src, dst } => ([Some(src), Some(dst)], &[]),
        Command::Dispatch(d) => ([None, None], &d.bindings),
        Command::Download { src, .. } => ([Some(src), None], &[]),
    };
    one.into_iter().flatten().chain(many)
}

/// First and last command of each buffer.
pub fn lifetimes(recording: &Recording) -> Vec<Option<(usize, usize)>> {
    let mut lives = vec![None; recording.buffers.len()];
    for (i, command) in recording.commands.iter().enumerate() {
        for slice in touched(command) {
            let life = &mut lives[slice.buffer.0 as usize];
            *life = Some((life.map_or(i, |(first, _)| first), i));
        }
    }
    lives
}

/// Checks what an executor relies on.
///
/// # Errors
/// [`Error::Usage`]: a plan built this recording wrongly.
pub fn check(recording: &Recording, limits: &PlanLimits) -> Result<()> {
    let wrong =
        |i: usize, what: String| Err(Error::Usage(format!("recording, command {i}: {what}")));
    for (i, command) in recording.commands.iter().enumerate() {
        for slice in touched(command) {
            let Some(buffer) = recording.buffers.get(slice.buffer.0 as usize) else {
                return wrong(i, format!("{:?} is not declared", slice.buffer));
            };
            let label = buffer.label;
            let end = slice.offset.checked_add(slice.size);
            if slice.size == 0 || end.is_none_or(|end| end > buffer.size) {
                return wrong(i, format!("{slice:?} exceeds `{label}` of {}", buffer.size));
            }
            if !slice.offset.is_multiple_of(4) || !slice.size.is_multiple_of(4) {
                return wrong(i, format!("{slice:?} of `{label}` is not in whole words"));
            }
        }
        match command {
            Command::Copy { src, dst } => {
                let apart =
                    src.offset + src.size <= dst.offset || dst.offset + dst.size <= src.offset;
                if src.buffer == dst.buffer && !apart {
                    return wrong(i, format!("copies {src:?} onto itself, {dst:?}"));
                }
                if src.size != dst.size {
                    return wrong(i, format!("copies {src:?} to {dst:?}"));
                }
            }
            Command::Upload { dst, data } if dst.size != data.len() as u64 => {
                return wrong(i, format!("uploads {} bytes to {dst:?}", data.len()));
            }
            Command::Dispatch(d) => {
                if d.bindings.len() > limits.max_storage_buffers as usize {
                    return wrong(
                        i,
                        format!("{:?} has {} bindings", d.kernel, d.bindings.len()),
                    );
                }
                for slice in &d.bindings {
                    if !slice.offset.is_multiple_of(ALIGNMENT) {
                        return wrong(i, format!("{:?} binds {slice:?}, not aligned", d.kernel));
                    }
                }
            }
            _ => {}
        }
    }
    Ok(())
}

impl MemoryPlan {
    /// Regions for this plan and for others that run before it in the same memory.
    pub fn regions_with(&self, others: &[(Recording, MemoryPlan)]) -> impl Iterator<Item = u64> {
        let mut regions = self.regions.clone();
        for (_, other) in others {
            regions.resize(regions.len().max(other.regions.len()), 0);
            for (region, other) in regions.iter_mut().zip(&other.regions) {
                *region = (*region).max(*other);
            }
        }
        regions.into_iter()
    }

    /// Plans `recording` for a device.
    ///
    /// Buffers are placed largest first, each at the lowest offset that is free during its whole
    /// life, in the region that grows least by it. Regions are kept below the largest binding, so
    /// that each fits a slab, and below half a gigabyte if no single buffer is larger.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if one buffer exceeds the largest binding; [`Error::Usage`] as
    /// [`check`].
    pub fn new(recording: &Recording, limits: &PlanLimits, device: &str) -> Result<Self> {
        check(recording, limits)?;
        let lives = lifetimes(recording);
        let mut plan = Self {
            placements: vec![None; recording.buffers.len()],
            peak_live: peak_live(recording, &lives),
            resident: resident(recording),
            ..Default::default()
        };
        for command in &recording.commands {
            match command {
                Command::Upload { dst, .. } => plan.uploaded += dst.size,
                Command::Download { src, .. } => plan.downloaded += src.size,
                _ => {}
            }
        }
        let transient = |i: &usize| matches!(recording.buffers[*i].kind, BufferKind::Transient);
        let mut order: Vec<usize> = (0..lives.len()).filter(transient).collect();
        // Among equals the longer life first: it constrains more.
        order.sort_by_key(|&i| {
            let length = lives[i].map_or(0, |(first, last)| last - first);
            (std::cmp::Reverse((recording.buffers[i].size, length)), i)
        });
        // Only buffers whose lives meet matter to each other: each is listed in the blocks of
        // commands that it lives in.
        let block = |command: usize| command * BLOCKS / recording.commands.len();
        let mut by_block: Vec<Vec<usize>> = vec![Vec::new(); BLOCKS];
        let region_limit = limits.largest().min(MAX_GROWN_REGION);
        let mut placed: Vec<(usize, Placement)> = Vec::new();
        for i in order {
            let (Some(life), size) = (lives[i], align(recording.buffers[i].size)) else {
                continue;
            };
            if recording.buffers[i].size > limits.largest() {
                return Err(Error::OutOfMemory {
                    device: device.to_owned(),
                    needed: recording.buffers[i].size,
                    available: limits.largest(),
                });
            }
            let blocks = block(life.0)..=block(life.1);
            let mut taken: Vec<Vec<(u64, u64)>> = vec![Vec::new(); plan.regions.len()];
            for &at in by_block[blocks.clone()].iter().flatten() {
                let (j, p) = placed[at];
                let (first, last) = lives[j].expect("placed buffers are used");
                if first <= life.1 && life.0 <= last {
                    let end = p.offset + align(recording.buffers[j].size);
                    taken[p.region].push((p.offset, end));
                }
            }
            let place = (0..plan.regions.len())
                .map(|region| {
                    let offset = lowest_gap(&mut taken[region], size);
                    let growth = (offset + size).saturating_sub(plan.regions[region]);
                    (growth, region, offset)
                })
                .filter(|&(growth, region, _)| {
                    growth == 0 || plan.regions[region] + growth <= region_limit
                })
                .min();
            let placement = match place {
                Some((growth, region, offset)) => {
                    plan.regions[region] += growth;
                    Placement { region, offset }
                }
                None => {
                    plan.regions.push(size);
                    let region = plan.regions.len() - 1;
                    Placement { region, offset: 0 }
                }
            };
            plan.placements[i] = Some(placement);
            blocks.for_each(|b| by_block[b].push(placed.len()));
            placed.push((i, placement));
        }
        plan.bytes = plan.regions.iter().sum();
        plan.secrets = secrets(recording, &placed);
        Ok(plan)
    }

    /// Place of a transient buffer that some command uses.
    pub fn placement(&self, buffer: BufferId) -> Option<Placement> {
        self.placements[buffer.0 as usize]
    }
}

/// Lowest offset at which `size` bytes are free among `taken`.
fn lowest_gap(taken: &mut [(u64, u64)], size: u64) -> u64 {
    taken.sort_unstable();
    let mut offset = 0;
    for &(start, end) in taken.iter() {
        if start >= offset + size {
            break;
        }
        offset = offset.max(end);
    }
    offset
}

fn peak_live(recording: &Recording, lives: &[Option<(usize, usize)>]) -> u64 {
    let mut change = vec![0i128; recording.commands.len() + 1];
    for (buffer, life) in recording.buffers.iter().zip(lives) {
        if let (BufferKind::Transient, Some((first, last))) = (&buffer.kind, life) {
            change[*first] += i128::from(align(buffer.size));
            change[*last + 1] -= i128::from(align(buffer.size));
        }
    }
    let live = change.iter().scan(0, |sum, c| {
        *sum += c;
        Some(*sum)
    });
    live.max().unwrap_or(0) as u64
}

fn resident(recording: &Recording) -> u64 {
    let mut buffers = HashSet::new();
    let mut parts = HashSet::new();
    let once = recording.buffers.iter().filter(|b| match &b.kind {
        BufferKind::Resident(r) => buffers.insert((r.arena_id(), r.slice())),
        BufferKind::Kept(part) => parts.insert(*part),
        BufferKind::Transient => false,
    });
    once.map(|b| b.size).sum()
}

fn secrets(recording: &Recording, placed: &[(usize, Placement)]) -> Vec<(usize, Range<u64>)> {
    let mut ranges: Vec<(usize, Range<u64>)> = placed
        .iter()
        .filter(|(i, _)| recording.buffers[*i].secret)
        .map(|(i, p)| {
            (
                p.region,
                p.offset..p.offset + align(recording.buffers[*i].size),
            )
        })
        .collect();
    ranges.sort_unstable_by_key(|(region, range)| (*region, range.start));
    let mut merged: Vec<(usize, Range<u64>)> = Vec::new();
    for (region, range) in ranges {
        match merged.last_mut() {
            Some((r, last)) if *r == region && last.end >= range.start => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push((region, range)),
        }
    }
    merged
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::MsmTuning;
    use proptest::prelude::*;

    const NO_PAIRS: MsmTuning = MsmTuning {
        pairs_g1: false,
        pairs_g2: false,
        window_shift: 0,
        pairs_from: 0,
    };
    const LIMITS: PlanLimits = PlanLimits {
        max_binding: 1 << 20,
        tables: 1,
        memory: u64::MAX,
        max_storage_buffers: 8,
        msm: MsmTunings {
            bls12_381: NO_PAIRS,
            bn254: NO_PAIRS,
        },
    };

    /// Buffers with (size, first, last, secret); commands only clear them.
    fn recording(buffers: &[(u64, usize, usize, bool)]) -> Recording {
        let mut recording = Recording::new();
        let ids: Vec<_> = buffers
            .iter()
            .map(|&(size, _, _, secret)| match secret {
                true => recording.secret("b", size),
                false => recording.transient("b", size),
            })
            .collect();
        let mut events: Vec<(usize, usize)> = Vec::new();
        for (i, &(_, first, last, _)) in buffers.iter().enumerate() {
            events.extend([(first, i), (last, i)]);
        }
        events.sort_unstable();
        for (_, i) in events {
            recording.clear(recording.whole(ids[i]));
        }
        recording
    }

    fn plan(recording: &Recording) -> Result<MemoryPlan> {
        MemoryPlan::new(recording, &LIMITS, "test")
    }

    #[test]
    fn lives_that_do_not_meet_share_memory() {
        let chain = recording(&[
            (4096, 0, 2, false),
            (4096, 1, 4, true),
            (4096, 3, 6, false),
            (4096, 5, 7, false),
        ]);
        let plan = plan(&chain).unwrap();
        assert_eq!((plan.bytes, plan.peak_live), (8192, 8192));
        assert_eq!(plan.secrets.len(), 1);
        assert_eq!(plan.secrets[0].1.end - plan.secrets[0].1.start, 4096);
    }

    #[test]
    fn unused_buffers_take_nothing() {
        let mut r = Recording::new();
        r.transient("unused", 1 << 30);
        assert_eq!(plan(&r).unwrap().bytes, 0);
    }

    #[test]
    fn p41_limits_hold() {
        let fits = recording(&[(1 << 20, 0, 2, false), (1 << 20, 1, 3, false)]);
        assert_eq!(plan(&fits).unwrap().regions, [1 << 20, 1 << 20]);
        let too_large = recording(&[((1 << 20) + 4, 0, 1, false)]);
        let error = plan(&too_large).unwrap_err();
        assert!(matches!(
            error,
            Error::OutOfMemory { needed, available, .. } if needed == (1 << 20) + 4 && available == 1 << 20
        ));
        for max_binding in [128 << 20, (1 << 31) - 256, 1 << 40] {
            let limits = PlanLimits {
                max_binding,
                ..LIMITS
            };
            let r = recording(&[(max_binding, 0, 1, false), (4, 0, 1, false)]);
            let plan = MemoryPlan::new(&r, &limits, "test").unwrap();
            assert!(plan.regions.iter().all(|&r| r <= max_binding));
        }
    }

    #[test]
    fn wrong_recordings_are_refused() {
        let mut r = Recording::new();
        let a = r.transient("a", 1024);
        let part = |offset, size| BufferSlice {
            buffer: a,
            offset,
            size,
        };
        for (offset, size) in [
            (0, 1028),
            (1024, 4),
            (2, 4),
            (0, 0),
            (0, 6),
            (u64::MAX - 3, 4),
        ] {
            let mut r = r.clone();
            r.clear(part(offset, size));
            assert_eq!(plan(&r).unwrap_err().class(), "usage", "{offset} {size}");
        }
        let mut onto_itself = r.clone();
        onto_itself.copy(part(0, 512), part(256, 512));
        assert!(plan(&onto_itself).is_err());
        r.copy(part(0, 512), part(512, 512));
        assert!(plan(&r).is_ok());
    }

    proptest! {
        /// Buffers alive together never overlap, and no plan is below what is alive at once.
        #[test]
        fn live_buffers_are_disjoint(
            buffers in prop::collection::vec((1u64..3000, 0usize..40, 0usize..40, any::<bool>()), 1..40)
        ) {
            let buffers: Vec<_> = buffers
                .into_iter()
                .map(|(words, a, b, secret)| (words * 4, a.min(b), a.max(b), secret))
                .collect();
            let recording = recording(&buffers);
            let plan = plan(&recording).unwrap();
            let lives = lifetimes(&recording);
            let span = |i: usize| {
                let p = plan.placements[i].unwrap();
                (p.region, p.offset, p.offset + align(buffers[i].0))
            };
            for i in 0..buffers.len() {
                let (region, start, end) = span(i);
                prop_assert!(end <= plan.regions[region] && start.is_multiple_of(ALIGNMENT));
                let covered = plan.secrets.iter().any(|(r, s)| *r == region && s.start <= start && end <= s.end);
                prop_assert!(covered || !buffers[i].3);
                for j in 0..i {
                    let (a, b) = (lives[i].unwrap(), lives[j].unwrap());
                    let (other, from, to) = span(j);
                    let meet = a.0 <= b.1 && b.0 <= a.1;
                    prop_assert!(!meet || region != other || end <= from || to <= start);
                }
            }
            prop_assert!(plan.bytes >= plan.peak_live);
            prop_assert!(plan.bytes <= buffers.iter().map(|b| align(b.0)).sum());
        }
    }
}
