//! The quotient h of a proof as a plan: row products, transforms to a coset and back, and
//! (a·b − c)/z between ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2 and appendix).

use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::recording::{BufferId, BufferSlice, Dispatch, Recording};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::key_layout::{KeyLayout, PartSource};
use crate::ntt::{
    Finish, Order, PowerBuffers, PowerTable, TransformBuffers, TransformTables, push_scalar,
    record_transform,
};
use crate::proving_key::{ProvingKey, QapReduction};
use ark_ff::{FftField, Field, One};

/// Tables of the quotient's transforms, as bytes or as device buffers.
#[derive(Debug)]
pub(crate) struct QuotientTables<B> {
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
    /// Roots by position, inverse and forward, and log2 of their order.
    blocks: Option<(B, B)>,
    block_log: u32,
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
    pub fn new<C: GpuCurve>(key: &ProvingKey) -> Result<Self> {
        let log_n = key.domain_size.trailing_zeros();
        let too_large = || {
            Error::Usage(format!(
                "{} has no domain of {} elements",
                key.curve, key.domain_size
            ))
        };
        let domain = Domain::<C::Fr>::new(log_n, key.roots).ok_or_else(too_large)?;
        let tables = |inverse| TransformTables::new::<C>(log_n, key.roots, inverse);
        let (inverse, forward) = rayon::join(|| tables(true), || tables(false));
        let inverse = inverse.ok_or_else(too_large)?;
        let forward = forward.ok_or_else(too_large)?;
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
            block_log: forward.block_log,
            blocks: (forward.block_log > 0).then_some((inverse.block_roots, forward.block_roots)),
            factor: factor_bytes.into(),
        })
    }

    /// The tables, in the order in which [`Self::map`] takes them.
    pub fn tables(&self) -> Vec<(&'static str, Bytes)> {
        let mut out = Vec::new();
        self.each(&mut |table| out.push(("transform tables", table.clone())));
        out
    }
}

impl<T> QuotientTables<T> {
    /// The same over other handles, taken one by one.
    pub fn map<B>(&self, handles: &mut impl Iterator<Item = B>) -> QuotientTables<B> {
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
            blocks: self.blocks.as_ref().map(|_| (next(), next())),
            block_log: self.block_log,
        }
    }
    /// Calls `f` with each table, in the order of [`Self::map`].
    pub fn each(&self, f: &mut dyn FnMut(&T)) {
        [
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
        .into_iter()
        .for_each(&mut *f);
        for (first, second) in [&self.uncoset, &self.blocks].into_iter().flatten() {
            f(first);
            f(second);
        }
    }
}

impl KeyLayout {
    /// Records h's scalars, canonical, in natural order; returns the buffer of `domain_size`
    /// scalars (of which the libsnark reduction uses all but the last).
    ///
    /// Three vectors of the domain live at a time, and the witness until the row products are done.
    pub(crate) fn record_quotient<C: GpuCurve>(
        &self,
        rec: &mut Recording,
        parts: &mut PartSource<'_>,
        witness: BufferSlice,
    ) -> BufferId {
        let n = self.domain_size as u32;
        let size = 32 * u64::from(n);
        let [a, b] = ["a", "b"].map(|label| {
            let id = rec.secret(label, size);
            rec.whole(id)
        });
        rec.phase("row products");
        for (rows, target) in [(&self.a, a), (&self.b, b)] {
            let mut table = |rec: &mut Recording, part: &usize| parts.table(rec, *part);
            rows.record(rec, C::ID, witness, target, &mut table);
        }
        let c = rec.secret("c", size);
        let c = rec.whole(c);
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
        let mut ids = Vec::new();
        self.quotient
            .each(&mut |part| ids.push(parts.table(rec, *part)));
        let t = self.quotient.map(&mut ids.into_iter());
        let powers = |low: BufferSlice, high: BufferSlice| PowerBuffers {
            low_log: t.low_log,
            low: low.buffer,
            high: high.buffer,
        };
        let inverse = TransformBuffers {
            log_n: t.log_n,
            stage_roots: t.inverse_roots.buffer,
            powers: powers(t.inverse_low, t.inverse_high),
            blocks: t.blocks.map(|(inverse, _)| (t.block_log, inverse.buffer)),
        };
        let forward = TransformBuffers {
            log_n: t.log_n,
            stage_roots: t.forward_roots.buffer,
            powers: powers(t.forward_low, t.forward_high),
            blocks: t.blocks.map(|(_, forward)| (t.block_log, forward.buffer)),
        };
        let coset = powers(t.coset_low, t.coset_high);
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
}
