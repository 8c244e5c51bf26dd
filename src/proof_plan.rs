//! How much device memory a proof takes: the same proof in variants, from a key that is wholly on
//! the device down to one that is brought in chunks, and the choice between them.

use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::allocator::ALIGNMENT;
use crate::device::recording::{Command, Recording};
use crate::device::set_aside;
use crate::device::{GpuDevice, MemoryPlan, PlanLimits, RunOptions};
use crate::error::{Error, Result};
use crate::gpu_proof::ProofDownloads;
use crate::key_layout::{KeyLayout, LEVELS, QueryName};
use crate::witness::Witness;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

/// Bytes a second to a device, for comparing variants: what a PCIe 4 card gets of staging that the
/// host fills.
const UPLOAD_RATE: f64 = 1e10;
/// Rate in field multiplications a second where it is not known.
const NOMINAL_RATE: f64 = 1e10;
/// What it costs if no second proof fits beside the first: the device idles while the host ends
/// one and prepares the next.
const ALONE: f64 = 1.1;
/// Bytes a second of memory that the driver provides for one proof and takes back when the process
/// ends: 4 GB take an NVIDIA driver a quarter of a second.
const MEMORY_RATE: f64 = 1.5e10;
/// Least size of the largest buffer, as part of a vector of the domain: the vectors are there
/// anyway, and more chunks would save nothing.
const MIN_BUFFER_PART: u64 = 10;
/// Smaller buffers than this are not worth planning for.
const MIN_BUFFER: u64 = 256 << 10;

/// One way to compute a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Variant {
    /// How much of the key stays on the device: 0 nothing, 1 the tables of rows and transforms, and
    /// from 2 on also the queries h, a, b_g1, l, b_g2, one after the other.
    pub level: usize,
    /// Largest buffer for the multi-scalar multiplications: longer ones are cut into chunks.
    pub max_buffer: u64,
    /// Whether the witness stays until the end, or is brought a second time in chunks.
    pub hold_witness: bool,
    /// Tables of multiples of each query, all resident; 1: the queries alone.
    pub tables: u32,
}

impl Variant {
    /// Largest table of roots for the transforms: of the whole domain, at half a vector, unless
    /// memory is tight.
    pub(crate) fn max_roots(&self, domain_size: usize) -> u64 {
        let all = 16 * domain_size as u64;
        match self.level {
            0 => all.min(64 << 20),
            _ => all.min(512 << 20),
        }
        .min(self.max_buffer)
    }
    /// What stays on the device, in words.
    pub fn name(&self) -> String {
        let queries = QueryName::ALL.map(QueryName::label);
        let kept = match self.level {
            0 => "nothing resident".to_owned(),
            1 => "tables resident".to_owned(),
            LEVELS if self.tables > 1 => format!("all resident, up to {} multiples", self.tables),
            LEVELS => "all resident".to_owned(),
            n => format!("tables, {} resident", queries[..n - 1].join(", ")),
        };
        match self.hold_witness {
            true => kept,
            false => kept + ", witness twice",
        }
    }
}

/// A variant with what it takes.
#[derive(Clone, Debug, Serialize)]
pub struct PlannedVariant {
    pub name: String,
    #[serde(flatten)]
    pub variant: Variant,
    /// Bytes that stay between proofs, and that one proof takes besides.
    pub resident: u64,
    pub transient: u64,
    /// Bytes that each proof brings to the device.
    pub uploaded: u64,
    /// Estimated milliseconds; for comparison.
    pub estimate_ms: f64,
}

impl PlannedVariant {
    /// Device memory of one proof.
    pub fn bytes(&self) -> u64 {
        self.resident + self.transient
    }
}

/// A recording with its memory plan.
pub(crate) struct PlannedProof {
    pub variant: Variant,
    pub recording: Recording,
    pub plan: MemoryPlan,
}

/// Plans a key's proofs for devices with such limits.
pub struct Planner<'a> {
    pub layout: &'a KeyLayout,
    pub limits: PlanLimits,
    /// Field multiplications a second, if known.
    pub rate: Option<f64>,
    /// Whether memory is for one proof alone, so that what it takes to get it counts.
    once: bool,
    /// What is to be proved; without one, a witness without zeros and ones.
    witness: Option<&'a Witness>,
    /// Nothing but a length: no byte of it is touched.
    dense: Witness,
}

impl<'a> Planner<'a> {
    pub fn new(layout: &'a KeyLayout, limits: PlanLimits, rate: Option<f64>) -> Self {
        let values = Bytes::from(vec![0; 32 * layout.n_vars]);
        Self {
            layout,
            limits,
            rate,
            once: false,
            witness: None,
            dense: Witness {
                curve: layout.curve,
                values,
            },
        }
    }

    /// Plans for this witness.
    pub fn for_witness(self, witness: &'a Witness) -> Self {
        Self {
            witness: Some(witness),
            ..self
        }
    }

    /// Plans for one proof in all, if `once`.
    pub fn once(self, once: bool) -> Self {
        Self { once, ..self }
    }

    /// As if the device had all the memory of the world.
    fn endless(&self) -> Self {
        Self {
            layout: self.layout,
            limits: PlanLimits {
                memory: u64::MAX,
                ..self.limits
            },
            rate: self.rate,
            once: self.once,
            witness: self.witness,
            dense: self.dense.clone(),
        }
    }

    /// What a variant takes.
    ///
    /// # Errors
    /// `OutOfMemory` if its buffers are too small for anything.
    pub fn plan<C: GpuCurve>(&self, variant: Variant) -> Result<PlannedVariant> {
        let (recording, _) = match self.witness {
            Some(witness) => self.layout.record_proof::<C>(witness, &variant)?,
            None => {
                let all = |r: Range<usize>| r.len();
                self.layout.record_sums::<C>(&self.dense, &all, &variant)?
            }
        };
        let plan = MemoryPlan::new(&recording, &self.limits, "device")?;
        let kept = self.layout.kept(&variant);
        let work = recording.commands.iter().map(|c| match c {
            Command::Dispatch(d) => d.groups as f64 * d.work_per_group as f64,
            _ => 0.0,
        });
        let seconds = work.sum::<f64>() / self.rate.unwrap_or(NOMINAL_RATE)
            + plan.uploaded as f64 / UPLOAD_RATE;
        Ok(PlannedVariant {
            name: variant.name(),
            variant,
            resident: kept
                .parts
                .iter()
                .map(|p| p.size.next_multiple_of(256))
                .sum(),
            transient: plan.regions_with(&kept.computed).sum(),
            uploaded: plan.uploaded,
            estimate_ms: seconds * 1e3,
        })
    }

    /// Sizes of the largest buffer to consider, the largest first.
    fn buffers(&self) -> Vec<u64> {
        let vector = 32 * self.layout.domain_size.max(self.layout.n_vars) as u64;
        let least = (vector / MIN_BUFFER_PART).max(MIN_BUFFER);
        let mut sizes = vec![self.limits.max_binding];
        while let Some(&last) = sizes.last()
            && last / 2 >= least
        {
            sizes.push((last / 2) & !255);
        }
        // Also where halving does not meet it: small limits need it.
        let least = least & !255;
        if sizes.last().is_some_and(|&last| least < last) {
            sizes.push(least);
        }
        sizes
    }

    /// The variant with so many multiples.
    fn tabled(&self, tables: u32) -> Variant {
        Variant {
            level: LEVELS,
            max_buffer: self.limits.max_binding,
            hold_witness: true,
            tables,
        }
    }

    /// The smallest variant, whatever memory there is.
    fn smallest<C: GpuCurve>(&self) -> Result<PlannedVariant> {
        let endless = self.endless();
        let mut smallest: Result<PlannedVariant> = Err(Error::Usage("no buffers to plan".into()));
        for max_buffer in endless.buffers() {
            let planned = endless.plan::<C>(Variant {
                level: 0,
                max_buffer,
                hold_witness: false,
                tables: 1,
            });
            let better = match (&smallest, &planned) {
                (Ok(found), Ok(new)) => new.bytes() < found.bytes(),
                (found, _) => found.is_err(),
            };
            if better {
                smallest = planned;
            }
        }
        smallest
    }

    /// The variants that are worth anything, the largest first: for each part of the key that may
    /// stay, the one with the largest buffers, down to the smallest of all.
    ///
    /// # Errors
    /// As [`Self::plan`].
    pub fn list<C: GpuCurve>(&self) -> Result<Vec<PlannedVariant>> {
        if self.limits.memory != u64::MAX {
            return self.endless().list::<C>();
        }
        let sizes = self.buffers();
        let mut list = Vec::new();
        for multiples in &self.layout.multiples {
            list.push(self.plan::<C>(self.tabled(multiples.count))?);
        }
        for level in (0..=LEVELS).rev() {
            list.push(self.plan::<C>(Variant {
                level,
                max_buffer: sizes[0],
                hold_witness: true,
                tables: 1,
            })?);
        }
        for &max_buffer in &sizes[1..] {
            if let Ok(planned) = self.plan::<C>(Variant {
                level: 0,
                max_buffer,
                hold_witness: false,
                tables: 1,
            }) && list
                .last()
                .is_none_or(|last| planned.bytes() < last.bytes())
            {
                list.push(planned);
            }
        }
        Ok(list)
    }

    /// Milliseconds, for comparing: of proofs one after the other, or of one from its start to the
    /// end of its process. `two` says whether a second one fits beside it.
    fn cost(&self, planned: &PlannedVariant, two: bool) -> f64 {
        match (self.once, two) {
            (true, _) => planned.estimate_ms + planned.bytes() as f64 / MEMORY_RATE * 1e3,
            (false, true) => planned.estimate_ms,
            (false, false) => planned.estimate_ms * ALONE,
        }
    }

    /// The variant with the least estimated time that fits `budget` bytes.
    ///
    /// # Errors
    /// `OutOfMemory` with the bytes of the smallest one.
    pub fn choose<C: GpuCurve>(&self, budget: u64, device: &str) -> Result<PlannedVariant> {
        // Who asks for multiples gets as many as leave room for two proofs: they are for many.
        for multiples in &self.layout.multiples {
            let planned = self.plan::<C>(self.tabled(multiples.count));
            let fits = |p: &PlannedVariant| p.resident + 2 * p.transient <= budget;
            if let Some(planned) = planned.ok().filter(fits) {
                return Ok(planned);
            }
        }
        let sizes = self.buffers();
        let mut best: Option<(f64, PlannedVariant)> = None;
        for level in (0..=LEVELS).rev() {
            for hold_witness in [true, false] {
                let mut last = f64::INFINITY;
                for &max_buffer in &sizes {
                    let variant = Variant {
                        level,
                        max_buffer,
                        hold_witness,
                        tables: 1,
                    };
                    // What has a buffer larger than the memory has no plan.
                    let planned = self.plan::<C>(variant);
                    let fits = |p: &PlannedVariant| p.bytes() <= budget;
                    let Some(planned) = planned.ok().filter(fits) else {
                        continue;
                    };
                    let two = planned.resident + 2 * planned.transient <= budget;
                    let cost = self.cost(&planned, two);
                    if best.as_ref().is_none_or(|(least, _)| cost < *least) {
                        best = Some((cost, planned));
                    }
                    if two && (!self.once || cost > last) {
                        // Smaller buffers only cost more.
                        break;
                    }
                    last = cost;
                }
                if best
                    .as_ref()
                    .is_some_and(|(_, b)| b.variant.level == level && b.variant.hold_witness)
                    && hold_witness
                {
                    // The witness a second time is for where it does not fit.
                    break;
                }
            }
            if let Some((_, found)) = &best
                && found.variant.level > level
                && found.resident + 2 * found.transient <= budget
            {
                // Keeping less only costs more.
                break;
            }
        }
        if let Some((_, planned)) = best {
            return Ok(planned);
        }
        // In terms of what a user can set: with what is set aside for moving data.
        let needed = self.smallest::<C>()?.bytes() + ALIGNMENT;
        let mut limit = needed;
        while limit < needed + set_aside(limit) {
            limit = needed + set_aside(limit);
        }
        Err(Error::OutOfMemory {
            device: device.to_owned(),
            needed: limit,
            available: (budget + set_aside(limit)).min(limit - 1),
        })
    }
}

/// Bytes for a key and the plan of a proof beside it. A run takes a little more than its plan, for
/// the token that comes back.
pub(crate) fn room(device: &GpuDevice) -> u64 {
    plan_room(device.limits().memory_budget)
}

/// As for a device with so many bytes for slabs.
pub fn plan_room(bytes: u64) -> u64 {
    bytes.saturating_sub(ALIGNMENT)
}

/// Field multiplications a second for planning. A card's is not known before its first submissions,
/// and the cautious guess for those would make uploads look cheap.
fn rate(device: &GpuDevice) -> Option<f64> {
    device.info().software.then(|| device.work_per_second())
}

/// The choice for each key on one device, remembered.
#[derive(Debug, Default)]
pub struct MemoryBudget {
    /// See [`Planner::once`].
    once: bool,
    /// By key, and by the bytes that the choice was made for.
    chosen: Mutex<HashMap<(u64, u64), Variant>>,
}

impl MemoryBudget {
    /// `once` as in [`Planner::once`].
    pub fn new(once: bool) -> Self {
        Self {
            once,
            chosen: Mutex::default(),
        }
    }

    /// The variant for a key on a device of which it may take `bytes`.
    ///
    /// # Errors
    /// `OutOfMemory` if not even the smallest fits.
    pub(crate) fn choose<C: GpuCurve>(
        &self,
        layout: &KeyLayout,
        device: &GpuDevice,
        bytes: u64,
    ) -> Result<Variant> {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(variant) = chosen.get(&(layout.id(), bytes)) {
            return Ok(*variant);
        }
        let planner = Planner::new(layout, device.limits().plan(), rate(device)).once(self.once);
        let planned = planner.choose::<C>(bytes, &device.info().to_string())?;
        log::info!(
            "{}: {}, {} bytes resident and {} a proof, of {bytes}",
            device.info(),
            planned.name,
            planned.resident,
            planned.transient
        );
        chosen.insert((layout.id(), bytes), planned.variant);
        Ok(planned.variant)
    }

    /// A key is not used any more.
    pub(crate) fn forget(&self, layout: &KeyLayout) {
        let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
        chosen.retain(|(id, _), _| *id != layout.id());
    }

    /// Brings to the device what of a key is to stay there.
    ///
    /// # Errors
    /// As [`GpuDevice::run`].
    pub(crate) fn preload<C: GpuCurve>(
        &self,
        layout: &KeyLayout,
        device: &GpuDevice,
        options: &RunOptions,
    ) -> Result<()> {
        let bytes = room(device);
        let kept = layout.kept(&self.choose::<C>(layout, device, bytes)?);
        let nothing = Recording::new();
        device
            .run_with(&nothing, device.plan(&nothing)?, Some(&kept), options)
            .map(|_| ())
    }

    /// The recording of a proof in the chosen variant, or in the best one for this witness if it
    /// needs more than one without zeros and ones.
    ///
    /// # Errors
    /// `OutOfMemory` if not even the smallest fits.
    pub(crate) fn fit<C: GpuCurve>(
        &self,
        layout: &KeyLayout,
        device: &GpuDevice,
        (mut variant, bytes): (Variant, u64),
        witness: &Witness,
    ) -> Result<(PlannedProof, ProofDownloads)> {
        let record = |variant: &Variant| -> Result<_> {
            let (recording, downloads) = layout.record_proof::<C>(witness, variant)?;
            let plan = device.plan(&recording)?;
            let kept = layout.kept(variant);
            let bytes = kept.bytes() + plan.regions_with(&kept.computed).sum::<u64>();
            Ok((recording, downloads, plan, bytes))
        };
        let mut recorded = record(&variant);
        if !matches!(&recorded, Ok(r) if r.3 <= bytes) {
            let limits = device.limits().plan();
            let planner = Planner::new(layout, limits, rate(device)).once(self.once);
            let name = device.info().to_string();
            variant = planner
                .for_witness(witness)
                .choose::<C>(bytes, &name)?
                .variant;
            recorded = record(&variant);
            // The next witness is probably of the same kind.
            let mut chosen = self.chosen.lock().unwrap_or_else(PoisonError::into_inner);
            chosen.insert((layout.id(), bytes), variant);
        }
        let (recording, downloads, plan, _) = recorded?;
        let planned = PlannedProof {
            variant,
            recording,
            plan,
        };
        Ok((planned, downloads))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::curve::Bls12381;
    use crate::proving_key::QapReduction;
    use crate::setup::setup_insecure_as;
    use crate::synthetic::circuit;
    use crate::tuning::{MsmTuning, MsmTunings};

    /// The memory of a single proof counts, and nothing else changes.
    #[test]
    fn a_single_proof_takes_less_memory() {
        let (r1cs, _) = circuit::<Bls12381>(1 << 11, 0.0, 3);
        let key = setup_insecure_as(&r1cs, QapReduction::Circom).unwrap();
        let tuning = MsmTuning {
            pairs_g1: true,
            pairs_g2: true,
            window_shift: 0,
            pairs_from: 0,
        };
        let limits = PlanLimits {
            max_binding: 1 << 30,
            memory: 1 << 34,
            max_storage_buffers: 8,
            msm: MsmTunings {
                bls12_381: tuning,
                bn254: tuning,
            },
            tables: 1,
        };
        let layout = KeyLayout::new::<Bls12381>(&key, &limits, "test").unwrap();
        let choose = |rate, once, budget| {
            let planner = Planner::new(&layout, limits, Some(rate)).once(once);
            planner.choose::<Bls12381>(budget, "test").unwrap()
        };
        // A device that computes in no time: only memory counts.
        let (many, single) = (choose(1e15, false, 1 << 34), choose(1e15, true, 1 << 34));
        assert!(single.bytes() < many.bytes() / 2, "{single:?} {many:?}");
        // A slow one: memory does not count.
        assert_eq!(choose(1e7, true, 1 << 34).variant, many.variant);
        // Whatever there is must do.
        let tight = single.bytes() - 1;
        assert!(choose(1e15, true, tight).bytes() <= tight);
    }
}
