//! A proof's five sums on a device: one recording from the witness to the window sums.

use crate::bytes::Bytes;
use crate::curve::{CurveId, GpuCurve};
use crate::device::recording::{BufferId, BufferSlice, Dispatch, DownloadId, Recording};
use crate::device::{GpuDevice, ResidentBuffer, RunOptions, RunOutput};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::msm::{self, Geometry, Group, WindowSums};
use crate::ntt::{
    Finish, Order, PowerBuffers, PowerTable, TransformBuffers, TransformTables, push_scalar,
    record_transform,
};
use crate::proof::ProofSums;
use crate::proving_key::{ProvingKey, QapReduction};
use crate::row_product::RowPieces;
use crate::witness::Witness;
use ark_ff::{FftField, Field, One, Zero};
use rayon::prelude::*;

/// Fewest scalars that a multi-scalar multiplication is cut down to.
const MIN_CHUNK: usize = 1 << 10;

/// Tables of the quotient's transforms, as bytes or as device buffers.
#[derive(Debug)]
struct QuotientTables<B> {
    log_n: u32,
    /// log2 of the split of the power tables.
    low_log: u32,
    inverse_roots: B,
    inverse_low: B,
    inverse_high: B,
    forward_roots: B,
    forward_low: B,
    forward_high: B,
    /// shift^e / n
    coset_low: B,
    coset_high: B,
    /// shift^−e / n · 2^−256, for the libsnark reduction.
    uncoset: Option<(B, B)>,
    /// The factor of the quotient kernel.
    factor: B,
}

/// Shift of the coset on which the quotient is evaluated.
fn coset_shift<C: GpuCurve>(key: &ProvingKey, domain: &Domain<C::Fr>) -> Result<C::Fr> {
    match key.reduction {
        QapReduction::Circom => domain.odd_coset_shift().ok_or_else(|| {
            Error::Usage(format!(
                "{} has no root of unity of order 2·{} for the circom reduction",
                key.curve, key.domain_size
            ))
        }),
        QapReduction::Libsnark => Ok(C::Fr::GENERATOR),
    }
}

impl QuotientTables<Bytes> {
    fn new<C: GpuCurve>(key: &ProvingKey) -> Result<Self> {
        let log_n = key.domain_size.trailing_zeros();
        let too_large = || {
            Error::Usage(format!(
                "{} has no domain of {} elements",
                key.curve, key.domain_size
            ))
        };
        let domain = Domain::<C::Fr>::new(log_n, key.roots).ok_or_else(too_large)?;
        let inverse = TransformTables::new::<C>(log_n, key.roots, true).ok_or_else(too_large)?;
        let forward = TransformTables::new::<C>(log_n, key.roots, false).ok_or_else(too_large)?;
        let invert = |x: C::Fr| x.inverse().expect("not zero");
        let shift = coset_shift::<C>(key, &domain)?;
        let n_inv = invert(C::Fr::from(key.domain_size as u64));
        let r_inv = invert(C::Fr::from(2u64).pow([256u64]));
        let coset = PowerTable::new::<C>(shift, n_inv, log_n);
        let (factor, uncoset) = match key.reduction {
            // 2^−256: the kernel's result is canonical, ready for the digits.
            QapReduction::Circom => (r_inv, None),
            QapReduction::Libsnark => {
                let z = shift.pow([key.domain_size as u64]) - C::Fr::one();
                let table = PowerTable::new::<C>(invert(shift), n_inv * r_inv, log_n);
                (invert(z), Some((table.low, table.high)))
            }
        };
        let mut factor_bytes = Vec::new();
        push_scalar::<C>(&factor, &mut factor_bytes);
        Ok(Self {
            log_n,
            low_log: coset.low_log,
            inverse_roots: inverse.stage_roots,
            inverse_low: inverse.powers.low,
            inverse_high: inverse.powers.high,
            forward_roots: forward.stage_roots,
            forward_low: forward.powers.low,
            forward_high: forward.powers.high,
            coset_low: coset.low,
            coset_high: coset.high,
            uncoset,
            factor: factor_bytes.into(),
        })
    }

    fn tables(&self) -> Vec<(&'static str, Bytes)> {
        let mut out: Vec<(&'static str, Bytes)> = [
            &self.inverse_roots,
            &self.inverse_low,
            &self.inverse_high,
            &self.forward_roots,
            &self.forward_low,
            &self.forward_high,
            &self.coset_low,
            &self.coset_high,
            &self.factor,
        ]
        .map(|b| ("transform tables", b.clone()))
        .into();
        if let Some((low, high)) = &self.uncoset {
            out.push(("transform tables", low.clone()));
            out.push(("transform tables", high.clone()));
        }
        out
    }

    fn map<B>(&self, handles: &mut impl Iterator<Item = B>) -> QuotientTables<B> {
        let mut next = || handles.next().expect("one handle a table");
        QuotientTables {
            log_n: self.log_n,
            low_log: self.low_log,
            inverse_roots: next(),
            inverse_low: next(),
            inverse_high: next(),
            forward_roots: next(),
            forward_low: next(),
            forward_high: next(),
            coset_low: next(),
            coset_high: next(),
            factor: next(),
            uncoset: self.uncoset.as_ref().map(|_| (next(), next())),
        }
    }
}

/// Points of a query, cut for the device's bindings.
#[derive(Debug)]
struct Query<B> {
    group: Group,
    chunks: Vec<B>,
}

/// A proving key on a device.
#[derive(Debug)]
pub struct DeviceKey {
    curve: CurveId,
    reduction: QapReduction,
    n_vars: usize,
    domain_size: usize,
    /// Wires, and coefficients of h, a chunk.
    chunk: usize,
    a: RowPieces<Bytes>,
    b: RowPieces<Bytes>,
    quotient: QuotientTables<Bytes>,
    /// Row tables of A, of B, then the quotient's tables.
    tables: Vec<ResidentBuffer>,
    a_query: Query<ResidentBuffer>,
    b_g1_query: Query<ResidentBuffer>,
    b_g2_query: Query<ResidentBuffer>,
    l_query: Query<ResidentBuffer>,
    h_query: Query<ResidentBuffer>,
}

/// The largest chunk whose buffers all fit the device's bindings.
#[doc(hidden)]
pub fn chunk_size<C: GpuCurve>(n: usize, max_binding: u64) -> Result<usize> {
    let bits = msm::scalar_bits::<C>();
    let point = Group::G2.point_bytes(C::ID);
    let mut chunk = n.max(1);
    loop {
        let bases = chunk as u64 * Group::G2.affine_bytes(C::ID);
        if bases <= max_binding && Geometry::new(chunk, chunk, bits, point, max_binding).is_some() {
            return Ok(chunk);
        }
        if chunk <= MIN_CHUNK {
            return Err(Error::OutOfMemory {
                device: "device".into(),
                needed: bases,
                available: max_binding,
            });
        }
        // Chunks begin at multiples of a binding's alignment, 256 bytes or 8 scalars.
        chunk = chunk.div_ceil(2).next_multiple_of(8);
    }
}

impl DeviceKey {
    /// Uploads a key's queries, rows and transform tables.
    ///
    /// # Errors
    /// `OutOfMemory` if it does not fit the device's budget, `Usage` if the field has no domain of
    /// the key's size.
    pub fn upload<C: GpuCurve>(
        device: &GpuDevice,
        key: &ProvingKey,
        options: &RunOptions,
    ) -> Result<Self> {
        let max_binding = device.limits().plan().max_binding;
        let vectors = 32 * key.domain_size.max(key.n_vars) as u64;
        if vectors > max_binding {
            return Err(Error::OutOfMemory {
                device: device.info().name.clone(),
                needed: vectors,
                available: max_binding,
            });
        }
        let chunk = chunk_size::<C>(key.n_vars.max(key.domain_size), max_binding)?;
        let a = RowPieces::new(&key.a, max_binding);
        let b = RowPieces::new(&key.b, max_binding);
        let quotient = QuotientTables::new::<C>(key)?;
        let mut tables = a.tables();
        tables.extend(b.tables());
        tables.extend(quotient.tables());
        let tables = device.upload_resident(&tables, options)?;
        let query = |label, group: Group, points: &Bytes| -> Result<Query<ResidentBuffer>> {
            let step = chunk * group.affine_bytes(C::ID) as usize;
            let parts: Vec<(&'static str, Bytes)> = (0..points.len())
                .step_by(step)
                .map(|at| (label, points.slice(at..points.len().min(at + step))))
                .collect();
            Ok(Query {
                group,
                chunks: device.upload_resident(&parts, options)?,
            })
        };
        // The l query starts at the first private wire; infinity before it lets it share the
        // witness's digit sort.
        let mut l = vec![0; (key.n_public + 1) * C::ID.g1_bytes()];
        l.extend_from_slice(&key.l_query);
        Ok(Self {
            curve: C::ID,
            reduction: key.reduction,
            n_vars: key.n_vars,
            domain_size: key.domain_size,
            chunk,
            a_query: query("a query", Group::G1, &key.a_query)?,
            b_g1_query: query("b_g1 query", Group::G1, &key.b_g1_query)?,
            b_g2_query: query("b_g2 query", Group::G2, &key.b_g2_query)?,
            l_query: query("l query", Group::G1, &l.into())?,
            h_query: query("h query", Group::G1, &key.h_query)?,
            a,
            b,
            quotient,
            tables,
        })
    }

    /// Records h's scalars, canonical, in natural order; returns the buffer of `domain_size`
    /// scalars (of which the libsnark reduction uses all but the last).
    fn record_quotient<C: GpuCurve>(&self, rec: &mut Recording, witness: BufferSlice) -> BufferId {
        let ids: Vec<BufferSlice> = self
            .tables
            .iter()
            .map(|t| {
                let id = rec.resident("key tables", t);
                rec.whole(id)
            })
            .collect();
        let mut handles = ids.into_iter();
        let a_rows = self.a.map(&mut handles);
        let b_rows = self.b.map(&mut handles);
        let t = self.quotient.map(&mut handles);
        let n = self.domain_size as u32;
        let size = 32 * u64::from(n);
        let powers = |low: BufferSlice, high: BufferSlice| PowerBuffers {
            low_log: t.low_log,
            low: low.buffer,
            high: high.buffer,
        };
        let inverse = TransformBuffers {
            log_n: t.log_n,
            stage_roots: t.inverse_roots.buffer,
            powers: powers(t.inverse_low, t.inverse_high),
        };
        let forward = TransformBuffers {
            log_n: t.log_n,
            stage_roots: t.forward_roots.buffer,
            powers: powers(t.forward_low, t.forward_high),
        };
        let coset = powers(t.coset_low, t.coset_high);
        let [a, b, c] = ["a", "b", "c"].map(|label| {
            let id = rec.secret(label, size);
            rec.whole(id)
        });
        rec.phase("row products");
        a_rows.record(rec, C::ID, witness, a);
        b_rows.record(rec, C::ID, witness, b);
        let pointwise = |kernel, bindings: Vec<BufferSlice>| Dispatch {
            kernel,
            curve: C::ID,
            bindings,
            params: vec![n],
            groups: n.div_ceil(64),
            work_per_group: 128,
        };
        rec.dispatch(pointwise(Kernel::PointwiseMul, vec![a, b, c]));
        rec.phase("transforms");
        for v in [a, b, c] {
            let finish = Finish {
                powers: Some(coset),
                natural: false,
            };
            record_transform::<C>(rec, &inverse, Order::NaturalToReversed, v, v, finish);
            let none = Finish::default();
            record_transform::<C>(rec, &forward, Order::ReversedToNatural, v, v, none);
        }
        rec.phase("quotient");
        rec.dispatch(pointwise(Kernel::Quotient, vec![a, b, c, t.factor, a]));
        let Some((low, high)) = t.uncoset else {
            return a.buffer;
        };
        let h = rec.secret("h", size);
        let finish = Finish {
            powers: Some(powers(low, high)),
            natural: true,
        };
        let whole = rec.whole(h);
        record_transform::<C>(rec, &inverse, Order::NaturalToReversed, a, whole, finish);
        h
    }

    /// Records the sums of `queries` over one chunk of scalars each; appends to `out` in the order
    /// of the queries for each chunk.
    fn record_queries<C: GpuCurve>(
        &self,
        rec: &mut Recording,
        max_binding: u64,
        scalars: BufferSlice,
        dense: &dyn Fn(std::ops::Range<usize>) -> usize,
        queries: &[(&'static str, &Query<ResidentBuffer>)],
    ) -> Vec<Vec<WindowSums>> {
        let n = (scalars.size / 32) as usize;
        let mut out = vec![Vec::new(); queries.len()];
        for (k, at) in (0..n).step_by(self.chunk).enumerate() {
            let len = self.chunk.min(n - at);
            let point = queries
                .iter()
                .map(|(_, q)| q.group.point_bytes(C::ID))
                .max()
                .expect("a query");
            let geometry = Geometry::new(
                len,
                dense(at..at + len),
                msm::scalar_bits::<C>(),
                point,
                max_binding,
            )
            .expect("the chunk size was chosen to fit");
            rec.phase("digit sort");
            let part = BufferSlice {
                buffer: scalars.buffer,
                offset: scalars.offset + 32 * at as u64,
                size: 32 * len as u64,
            };
            let sorted = msm::record_sort(rec, C::ID, part, geometry);
            for ((label, query), sums) in queries.iter().zip(&mut out) {
                rec.phase(label);
                let id = rec.resident("query", &query.chunks[k]);
                let bases = rec.whole(id);
                sums.push(msm::record_sums(rec, C::ID, query.group, &sorted, bases));
            }
        }
        out
    }

    /// Computes the proof's sums for one witness.
    ///
    /// # Errors
    /// As [`GpuDevice::run`]; `DeviceFault` if the device returns what is no point.
    pub fn proof_sums<C: GpuCurve>(
        &self,
        device: &GpuDevice,
        witness: &Witness,
        options: &RunOptions,
    ) -> Result<(ProofSums<C>, RunOutput)> {
        assert_eq!(self.curve, C::ID);
        let max_binding = device.limits().plan().max_binding;
        let mut rec = Recording::new();
        let w = rec.secret("witness", 32 * self.n_vars as u64);
        let w = rec.whole(w);
        rec.phase("upload");
        rec.upload(w, witness.values.clone());
        let h = self.record_quotient::<C>(&mut rec, w);
        let h_len = match self.reduction {
            QapReduction::Circom => self.domain_size,
            QapReduction::Libsnark => self.domain_size - 1,
        };
        let h = BufferSlice {
            buffer: h,
            offset: 0,
            size: 32 * h_len as u64,
        };
        let all_dense = |r: std::ops::Range<usize>| r.len();
        let h_sums = if h_len > 0 {
            self.record_queries::<C>(
                &mut rec,
                max_binding,
                h,
                &all_dense,
                &[("h", &self.h_query)],
            )
        } else {
            vec![Vec::new()]
        };
        let dense = |r: std::ops::Range<usize>| {
            witness.values[32 * r.start..32 * r.end]
                .par_chunks_exact(32)
                .filter(|v| v[0] > 1 || v[1..].iter().any(|b| *b != 0))
                .count()
        };
        // G2 first: its host tail is the longest.
        let w_sums = self.record_queries::<C>(
            &mut rec,
            max_binding,
            w,
            &dense,
            &[
                ("b_g2", &self.b_g2_query),
                ("a", &self.a_query),
                ("b_g1", &self.b_g1_query),
                ("l", &self.l_query),
            ],
        );
        let output = device.run(&rec, options)?;
        let bytes = |id: DownloadId| output.downloads[id.0 as usize].as_slice();
        let g1 = |sums: &[WindowSums]| {
            sums.iter()
                .try_fold(crate::curve::G1::<C>::zero(), |acc, s| {
                    Ok::<_, Error>(acc + msm::finish_g1::<C>(bytes(s.download), &s.geometry)?)
                })
        };
        let g2 = |sums: &[WindowSums]| {
            sums.iter()
                .try_fold(crate::curve::G2::<C>::zero(), |acc, s| {
                    Ok::<_, Error>(acc + msm::finish_g2::<C>(bytes(s.download), &s.geometry)?)
                })
        };
        let (b_g2, ((a, b_g1), (l, h))) = rayon::join(
            || g2(&w_sums[0]),
            || {
                rayon::join(
                    || rayon::join(|| g1(&w_sums[1]), || g1(&w_sums[2])),
                    || rayon::join(|| g1(&w_sums[3]), || g1(&h_sums[0])),
                )
            },
        );
        let sums = ProofSums {
            a: a?,
            b_g1: b_g1?,
            b_g2: b_g2?,
            l: l?,
            h: h?,
        };
        Ok((sums, output))
    }
}
