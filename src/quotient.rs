//! The quotient h of a proof as a plan: row products, transforms to a coset and back, and
//! (a·b − c)/z between ([Groth 2016](https://eprint.iacr.org/2016/260), §3.2 and appendix).

use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::recording::{BufferSlice, Dispatch, Recording};
use crate::domain::Domain;
use crate::error::{Error, Result};
use crate::kernels::Kernel;
use crate::key_layout::{KeyLayout, PartSource};
use crate::ntt::{
    Finish, Order, PowerBuffers, PowerTable, block_log, push_scalar, record_roots,
    record_transform, root_powers,
};
use crate::parts::Parts;
use crate::proving_key::{ProvingKey, QapReduction};
use ark_ff::{FftField, Field, One};

/// Tables of the quotient's transforms, as bytes or as device buffers.
#[derive(Debug)]
pub(crate) struct QuotientTables<B> {
    log_n: u32,
    /// log2 of the split of the power tables.
    low_log: u32,
    inverse_low: B,
    inverse_high: B,
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
    pub fn new<C: GpuCurve>(key: &ProvingKey) -> Result<Self> {
        let log_n = key.domain_size.trailing_zeros();
        let too_large = || {
            Error::Usage(format!(
                "{} has no domain of {} elements",
                key.curve, key.domain_size
            ))
        };
        let domain = Domain::<C::Fr>::new(log_n, key.roots).ok_or_else(too_large)?;
        let inverse = root_powers::<C>(log_n, key.roots, true).ok_or_else(too_large)?;
        let forward = root_powers::<C>(log_n, key.roots, false).ok_or_else(too_large)?;
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
            inverse_low: inverse.low,
            inverse_high: inverse.high,
            forward_low: forward.low,
            forward_high: forward.high,
            coset_low: coset.low,
            coset_high: coset.high,
            uncoset,
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
            inverse_low: next(),
            inverse_high: next(),
            forward_low: next(),
            forward_high: next(),
            coset_low: next(),
            coset_high: next(),
            factor: next(),
            uncoset: self.uncoset.as_ref().map(|_| (next(), next())),
        }
    }
    /// Calls `f` with each table, in the order of [`Self::map`].
    pub fn each(&self, f: &mut dyn FnMut(&T)) {
        [
            &self.inverse_low,
            &self.inverse_high,
            &self.forward_low,
            &self.forward_high,
            &self.coset_low,
            &self.coset_high,
            &self.factor,
        ]
        .into_iter()
        .for_each(&mut *f);
        if let Some((low, high)) = &self.uncoset {
            f(low);
            f(high);
        }
    }
}

impl KeyLayout {
    /// Records h's scalars, canonical, in natural order; returns `domain_size` scalars
    /// (of which the libsnark reduction uses all but the last).
    ///
    /// Three vectors of the domain live at a time, and the witness until the row products are done;
    /// with the transforms, a table of roots of at most `max_roots` bytes.
    pub(crate) fn record_quotient<C: GpuCurve>(
        &self,
        rec: &mut Recording,
        parts: &mut PartSource<'_>,
        witness: &Parts,
        max_roots: u64,
    ) -> Parts {
        let vector = |rec: &mut Recording, label| {
            Parts::secret(rec, label, self.domain_size, self.domain_part)
        };
        let [a, b] = ["a", "b"].map(|label| vector(rec, label));
        rec.phase("row products");
        for (rows, target) in [(&self.a, &a), (&self.b, &b)] {
            let mut table = |rec: &mut Recording, part: &usize| parts.table(rec, *part);
            rows.record(rec, C::ID, witness, target, &mut table);
        }
        let c = vector(rec, "c");
        let n = self.domain_part as u32;
        let pointwise = |rec: &mut Recording, kernel, bindings: Vec<BufferSlice>| {
            rec.dispatch(Dispatch {
                kernel,
                curve: C::ID,
                bindings,
                params: vec![n],
                groups: n.div_ceil(64),
                work_per_group: 128,
            });
        };
        let triples = || {
            let (a, b, c) = (a.slices(), b.slices(), c.slices());
            a.iter().zip(b).zip(c).map(|((a, b), c)| (*a, *b, *c))
        };
        for (a, b, c) in triples() {
            pointwise(rec, Kernel::PointwiseMul, vec![a, b, c]);
        }
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
        let [inverse, forward] = [
            powers(t.inverse_low, t.inverse_high),
            powers(t.forward_low, t.forward_high),
        ];
        let coset = powers(t.coset_low, t.coset_high);
        // One direction after the other, so that the roots of one are there at a time.
        let part_log = self.domain_part.trailing_zeros();
        let sizes = (part_log, t.log_n - part_log);
        let blocks = block_log(part_log, max_roots);
        let roots = |rec: &mut Recording, powers| record_roots::<C>(rec, sizes, powers, blocks);
        let backward = roots(rec, inverse);
        for v in [&a, &b, &c] {
            let finish = Finish {
                powers: Some(coset),
                natural: false,
            };
            record_transform::<C>(rec, &backward, Order::NaturalToReversed, v, v, finish);
        }
        let forward = roots(rec, forward);
        for v in [&a, &b, &c] {
            let none = Finish::default();
            record_transform::<C>(rec, &forward, Order::ReversedToNatural, v, v, none);
        }
        rec.phase("quotient");
        for (a, b, c) in triples() {
            pointwise(rec, Kernel::Quotient, vec![a, b, c, t.factor, a]);
        }
        let Some((low, high)) = t.uncoset else {
            return a;
        };
        let h = vector(rec, "h");
        let finish = Finish {
            powers: Some(powers(low, high)),
            natural: true,
        };
        let backward = roots(rec, inverse);
        record_transform::<C>(rec, &backward, Order::NaturalToReversed, &a, &h, finish);
        h
    }
}
