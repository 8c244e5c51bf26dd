//! A proof's five sums on a device: one recording from the witness to the window sums, in the
//! variant that the memory plan chose.

use crate::curve::{G1, G2, GpuCurve};
use crate::device::allocator::ALIGNMENT;
use crate::device::recording::{BufferSlice, DownloadId, Recording};
use crate::device::{GpuDevice, RunOptions, RunOutput};
use crate::error::{Error, Result};
use crate::key_layout::{KeyLayout, PartSource, QueryName};
use crate::key_tables::KeyTables;
use crate::msm::{self, Bases, Geometry, Group, WindowSums};
use crate::parts::Parts;
use crate::proof::ProofSums;
use crate::proof_plan::{MemoryBudget, Variant, room};
use crate::witness::Witness;
use ark_ff::Zero;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Fewest scalars that a multi-scalar multiplication is cut down to.
const MIN_CHUNK: usize = 1 << 10;

/// The queries over the witness. G2 first: its host tail is the longest.
const WITNESS_QUERIES: [QueryName; 4] =
    [QueryName::BG2, QueryName::A, QueryName::BG1, QueryName::L];

/// The largest chunk of at most `n` scalars whose buffers all fit `max_buffer` bytes.
///
/// # Errors
/// `OutOfMemory` if not even a short one fits.
#[doc(hidden)]
pub fn chunk_size<C: GpuCurve>(n: usize, max_buffer: u64) -> Result<usize> {
    let bits = msm::scalar_bits::<C>();
    let point = Group::G2.point_bytes(C::ID);
    let mut chunk = n.max(1);
    loop {
        let bases = chunk as u64 * Group::G2.affine_bytes(C::ID);
        if bases <= max_buffer && Geometry::new(chunk, chunk, bits, point, max_buffer).is_some() {
            return Ok(chunk);
        }
        if chunk <= MIN_CHUNK {
            return Err(Error::OutOfMemory {
                device: "device".into(),
                needed: bases,
                available: max_buffer,
            });
        }
        // Chunks begin at multiples of a binding's alignment, 256 bytes or 8 scalars.
        chunk = chunk.div_ceil(2).next_multiple_of(8);
    }
}

/// Where a proof's window sums arrive.
#[derive(Debug, Default)]
pub(crate) struct ProofDownloads {
    h: Vec<WindowSums>,
    /// In the order of [`WITNESS_QUERIES`].
    witness: [Vec<WindowSums>; 4],
}

/// Scalars of queries: on the device, or brought chunk by chunk.
#[derive(Clone, Copy)]
enum Scalars<'a> {
    Device(&'a Parts),
    Host(&'a Witness),
}

impl KeyLayout {
    /// Records a proof's sums in a variant.
    ///
    /// # Errors
    /// `OutOfMemory` if the variant's buffers are too small for anything.
    pub(crate) fn record_proof<C: GpuCurve>(
        &self,
        witness: &Witness,
        variant: &Variant,
    ) -> Result<(Recording, ProofDownloads)> {
        self.record_sums::<C>(witness, &|r| witness.dense(r), variant)
    }

    /// As [`Self::record_proof`] for a witness of which `dense` says how many values of a range
    /// are neither 0 nor 1.
    pub(crate) fn record_sums<C: GpuCurve>(
        &self,
        witness: &Witness,
        dense: &dyn Fn(Range<usize>) -> usize,
        variant: &Variant,
    ) -> Result<(Recording, ProofDownloads)> {
        assert_eq!(self.curve, C::ID);
        let mut rec = Recording::new();
        let mut parts = self.source(variant.level);
        let w = Parts::secret(&mut rec, "witness", self.n_vars, self.witness_part);
        rec.phase("upload");
        for (range, part) in w.iter() {
            let bytes = 32 * range.start..32 * range.end;
            rec.upload(part, witness.values.slice(bytes));
        }
        let h = self.record_quotient::<C>(
            &mut rec,
            &mut parts,
            &w,
            variant.max_roots(self.domain_size),
        );
        let h_len = self.h_len();
        let mut downloads = ProofDownloads::default();
        let longest = self.n_vars.max(h_len);
        let chunk = chunk_size::<C>(longest, variant.max_buffer)?.min(self.piece);
        let mut queries = QueryRecorder {
            layout: self,
            parts: &mut parts,
            chunk,
            max_buffer: variant.max_buffer,
            multiples: self.multiples_of(variant),
        };
        if h_len > 0 {
            let all = |r: Range<usize>| r.len();
            let sums = [&mut downloads.h];
            queries.record::<C>(
                &mut rec,
                Scalars::Device(&h),
                h_len,
                &all,
                &[QueryName::H],
                sums,
            );
        }
        let scalars = match variant.hold_witness {
            true => Scalars::Device(&w),
            false => Scalars::Host(witness),
        };
        let sums = downloads.witness.each_mut();
        queries.record::<C>(
            &mut rec,
            scalars,
            self.n_vars,
            dense,
            &WITNESS_QUERIES,
            sums,
        );
        Ok((rec, downloads))
    }

    /// Computes the proof's sums for one witness, in the fastest variant that fits `budget`.
    ///
    /// # Errors
    /// As [`GpuDevice::run`]; `DeviceFault` if the device returns what is no point.
    pub fn proof_sums<C: GpuCurve>(
        &self,
        device: &Arc<GpuDevice>,
        budget: &MemoryBudget,
        witness: &Witness,
        options: &RunOptions,
    ) -> Result<(ProofSums<C>, RunOutput, Variant)> {
        let mut bytes = room(device);
        loop {
            let start = Instant::now();
            let chosen = budget.choose::<C>(self, device, bytes)?;
            let (planned, downloads) = budget.fit::<C>(self, device, (chosen, bytes), witness)?;
            options.span("plan", start, Instant::now());
            device.verify_kernels(&planned.recording.kernels())?;
            let kept = self.kept(&planned.variant);
            let kept = Some(&kept).filter(|k| !k.parts.is_empty());
            let output = match device.run_with(&planned.recording, planned.plan, kept, options) {
                Ok(output) => output,
                Err(Error::OutOfMemory { available, .. }) if available < bytes => {
                    // The driver has less than the budget, or others keep what will not come back.
                    log::warn!("{}: {available} bytes instead of {bytes}", device.info());
                    bytes = available.saturating_sub(ALIGNMENT);
                    continue;
                }
                Err(e) => return Err(e),
            };
            let tail = Instant::now();
            let sums = finish::<C>(&downloads, &output)?;
            options.span("tail", tail, Instant::now());
            return Ok((sums, output, planned.variant));
        }
    }
}

/// Records multi-scalar multiplications over queries, chunk by chunk.
struct QueryRecorder<'a, 'b> {
    layout: &'a KeyLayout,
    parts: &'a mut PartSource<'b>,
    /// Most scalars at a time.
    chunk: usize,
    max_buffer: u64,
    /// If they are on the device, `chunk` is not used.
    multiples: Option<&'a KeyTables>,
}

impl QueryRecorder<'_, '_> {
    /// Records the sums of `queries` over `n` scalars each, and appends them to `sums`, one a
    /// chunk. One digit sort serves all queries of a chunk.
    fn record<'s, C: GpuCurve>(
        &mut self,
        rec: &mut Recording,
        scalars: Scalars<'_>,
        n: usize,
        dense: &dyn Fn(Range<usize>) -> usize,
        queries: &[QueryName],
        sums: impl IntoIterator<Item = &'s mut Vec<WindowSums>>,
    ) {
        let mut sums: Vec<_> = sums.into_iter().collect();
        let bits = msm::scalar_bits::<C>();
        let points = queries.iter().map(|q| q.group().point_bytes(C::ID));
        let point = points.max().expect("a query");
        let piece = self.layout.piece;
        let mut at = 0;
        while at < n {
            // A chunk lies in one part of each query, and of the scalars.
            let part = match scalars {
                Scalars::Device(all) => all.per_part(),
                Scalars::Host(_) => n,
            };
            let len = match self.multiples {
                Some(_) => n,
                None => self
                    .chunk
                    .min(n - at)
                    .min(piece - at % piece)
                    .min(part - at % part),
            };
            let dense = dense(at..at + len);
            let tuning = &self.layout.msm;
            let geometry = match self.multiples {
                Some(multiples) => multiples.geometry(queries[0]),
                None => tuning
                    .geometry(len, dense, bits, point, self.max_buffer)
                    .expect("the chunk size was chosen to fit"),
            };
            rec.phase("digit sort");
            let slice = match scalars {
                Scalars::Device(all) => BufferSlice {
                    offset: 32 * (at % part) as u64,
                    size: 32 * len as u64,
                    ..all.slices()[at / part]
                },
                Scalars::Host(witness) => {
                    let id = rec.secret("witness chunk", 32 * len as u64);
                    let whole = rec.whole(id);
                    rec.upload(whole, witness.values.slice(32 * at..32 * (at + len)));
                    whole
                }
            };
            let mut sorted = msm::record_sort(rec, C::ID, slice, geometry);
            for (name, sums) in queries.iter().zip(&mut sums) {
                rec.phase(name.label());
                sorted.geometry = tuning.passes(name.group(), geometry, dense);
                let bases = match self.multiples {
                    Some(multiples) => Bases::Tables(multiples.lists(rec, *name)),
                    None => {
                        let bytes = name.group().affine_bytes(C::ID);
                        let first = (at % piece) as u64 * bytes;
                        let part = self.layout.query(*name).start + at / piece;
                        let range = first..first + len as u64 * bytes;
                        Bases::AtRest(self.parts.range(rec, part, range))
                    }
                };
                let parts = [(sorted, bases)];
                sums.push(msm::record_sums(rec, C::ID, name.group(), &parts));
            }
            at += len;
        }
    }
}

/// The sums from what the device returned.
fn finish<C: GpuCurve>(downloads: &ProofDownloads, output: &RunOutput) -> Result<ProofSums<C>> {
    let bytes = |id: DownloadId| output.downloads[id.0 as usize].as_slice();
    let g1 = |sums: &[WindowSums]| {
        sums.par_iter()
            .map(|s| msm::finish_g1::<C>(bytes(s.download), &s.geometry))
            .try_reduce(G1::<C>::zero, |a, b| Ok(a + b))
    };
    let g2 = |sums: &[WindowSums]| {
        sums.par_iter()
            .map(|s| msm::finish_g2::<C>(bytes(s.download), &s.geometry))
            .try_reduce(G2::<C>::zero, |a, b| Ok(a + b))
    };
    let [b_g2, a, b_g1, l] = &downloads.witness;
    let (b_g2, ((a, b_g1), (l, h))) = rayon::join(
        || g2(b_g2),
        || {
            rayon::join(
                || rayon::join(|| g1(a), || g1(b_g1)),
                || rayon::join(|| g1(l), || g1(&downloads.h)),
            )
        },
    );
    Ok(ProofSums {
        a: a?,
        b_g1: b_g1?,
        b_g2: b_g2?,
        l: l?,
        h: h?,
    })
}
