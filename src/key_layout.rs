//! A proving key cut into parts for a device: tables and queries in buffers that fit its bindings.
//!
//! Parts have an order. A device keeps a prefix of them, as long as it has room for; what comes
//! after is brought by each proof, chunk by chunk.

use crate::bytes::Bytes;
use crate::curve::{CurveId, GpuCurve};
use crate::device::PlanLimits;
use crate::device::kept::{KeptPart, KeptParts};
use crate::device::recording::{BufferId, BufferSlice, Recording};
use crate::error::{Error, Result};
use crate::key_tables::KeyTables;
use crate::msm::Group;
use crate::proof_plan::Variant;
use crate::proving_key::{ProvingKey, QapReduction};
use crate::quotient::QuotientTables;
use crate::row_product::RowPieces;
use crate::tuning::MsmTuning;
use crate::with_curve;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A query of the key, over the witness or over h.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueryName {
    H,
    A,
    BG1,
    L,
    BG2,
}

impl QueryName {
    /// In the order in which they are kept on a device.
    pub const ALL: [Self; 5] = [Self::H, Self::A, Self::BG1, Self::L, Self::BG2];

    /// The name of its phase in reports.
    pub fn label(self) -> &'static str {
        match self {
            Self::H => "h",
            Self::A => "a",
            Self::BG1 => "b_g1",
            Self::L => "l",
            Self::BG2 => "b_g2",
        }
    }
    pub fn group(self) -> Group {
        match self {
            Self::BG2 => Group::G2,
            _ => Group::G1,
        }
    }
}

/// A key in parts.
#[derive(Debug)]
pub struct KeyLayout {
    id: u64,
    pub curve: CurveId,
    pub reduction: QapReduction,
    pub n_vars: usize,
    pub domain_size: usize,
    /// Elements of a part of a vector of the domain, a power of two, and of the witness: vectors
    /// that exceed a binding are in parts.
    pub(crate) domain_part: usize,
    pub(crate) witness_part: usize,
    /// Tables are named by the number of their part.
    pub(crate) a: RowPieces<usize>,
    pub(crate) b: RowPieces<usize>,
    pub(crate) quotient: QuotientTables<usize>,
    /// Tables first, then the queries in the order of [`QueryName::ALL`].
    pub(crate) parts: Vec<KeptPart>,
    /// Points of a part of a query.
    pub(crate) piece: usize,
    pub(crate) msm: MsmTuning,
    /// Tables of multiples in the numbers that are worth planning for, the largest first.
    pub(crate) multiples: Vec<KeyTables>,
    /// Number of parts up to the end of the tables, and of each query.
    ends: [usize; 6],
}

/// Lengths of a prefix of the parts: none of them, the tables, or the tables and so many queries.
pub const LEVELS: usize = 6;

impl KeyLayout {
    /// Cuts a key for a device with such limits.
    ///
    /// # Errors
    /// `OutOfMemory` if bindings are too small for anything, `Usage` if the field has no
    /// domain of the key's size, `bad_coefficient` if the matrices are not of its size.
    pub fn new<C: GpuCurve>(key: &ProvingKey, limits: &PlanLimits, device: &str) -> Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let max_binding = limits.max_binding;
        // Parts begin at multiples of a binding's alignment, 256 bytes or 8 scalars, too.
        let scalars = (max_binding / 32) as usize;
        let domain_part = key.domain_size.min(1 << scalars.max(1).ilog2());
        let witness_part = key.n_vars.min(scalars & !7);
        // A part has as many elements as there are parts, or more (`ntt::split`).
        let least = 8usize.max(1 << key.domain_size.max(1).ilog2().div_ceil(2));
        if scalars < least {
            return Err(Error::OutOfMemory {
                device: device.to_owned(),
                needed: 32 * least as u64,
                available: max_binding,
            });
        }
        let mut parts = Vec::new();
        let mut add = |tables: Vec<(&'static str, Bytes)>| {
            let first = parts.len();
            parts.extend(tables.into_iter().map(|(label, bytes)| KeptPart {
                label,
                size: bytes.len() as u64,
                content: vec![(0, bytes)],
            }));
            first..
        };
        for matrix in [&key.a, &key.b] {
            matrix.check(C::ID, key.n_vars, key.domain_size)?;
        }
        let rows = |matrix| RowPieces::new(matrix, max_binding);
        let (quotient, (a, b)) = rayon::join(
            || QuotientTables::new::<C>(key),
            || rayon::join(|| rows(&key.a), || rows(&key.b)),
        );
        let quotient = quotient?;
        let a = a.map(&mut add(a.tables()));
        let b = b.map(&mut add(b.tables()));
        let quotient = quotient.map(&mut add(quotient.tables()));
        // Chunks begin at multiples of a binding's alignment, 256 bytes or 8 scalars.
        let piece = (max_binding / Group::G2.affine_bytes(C::ID)) as usize & !7;
        let mut ends = [parts.len(); LEVELS];
        for (i, name) in QueryName::ALL.into_iter().enumerate() {
            let bytes = match name {
                QueryName::H => &key.h_query,
                QueryName::A => &key.a_query,
                QueryName::BG1 => &key.b_g1_query,
                QueryName::L => &key.l_query,
                QueryName::BG2 => &key.b_g2_query,
            };
            let point = name.group().affine_bytes(C::ID) as usize;
            // The l query starts at the first private wire; infinity before it lets it share the
            // witness's digit sort.
            let before = match name {
                QueryName::L => (key.n_public + 1) * point,
                _ => 0,
            };
            let all = before + bytes.len();
            for start in (0..all).step_by(piece * point) {
                let end = all.min(start + piece * point);
                let (from, until) = (start.max(before), end.max(before));
                parts.push(KeptPart {
                    label: name.label(),
                    size: (end - start) as u64,
                    content: match from < until {
                        true => vec![(
                            (from - start) as u64,
                            bytes.slice(from - before..until - before),
                        )],
                        false => Vec::new(),
                    },
                });
            }
            ends[i + 1] = parts.len();
        }
        let mut layout = Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            curve: C::ID,
            reduction: key.reduction,
            n_vars: key.n_vars,
            domain_size: key.domain_size,
            domain_part,
            witness_part,
            a,
            b,
            quotient,
            parts,
            piece,
            msm: limits.msm.of(C::ID),
            multiples: Vec::new(),
            ends,
        };
        layout.multiples = KeyTables::all::<C>(&layout, limits)?;
        Ok(layout)
    }

    /// As [`Self::new`], over the key's curve.
    ///
    /// # Errors
    /// As there.
    pub fn cut(key: &ProvingKey, limits: &PlanLimits, device: &str) -> Result<Arc<Self>> {
        with_curve!(key.curve, C => Self::new::<C>(key, limits, device)).map(Arc::new)
    }

    /// Scalars of h.
    pub(crate) fn h_len(&self) -> usize {
        match self.reduction {
            QapReduction::Circom => self.domain_size,
            QapReduction::Libsnark => self.domain_size - 1,
        }
    }

    /// The parts before the queries.
    pub(crate) fn tables_of_rows(&self) -> &[KeptPart] {
        &self.parts[..self.ends[0]]
    }

    /// The tables of multiples that a variant uses.
    pub(crate) fn multiples_of(&self, variant: &Variant) -> Option<&KeyTables> {
        self.multiples.iter().find(|m| m.count == variant.tables)
    }

    /// What arenas know this key by.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// What a device keeps in a variant.
    pub fn kept(&self, variant: &Variant) -> KeptParts {
        if let Some(multiples) = self.multiples_of(variant) {
            return multiples.kept();
        }
        KeptParts {
            id: self.id,
            parts: self.parts[..self.kept_count(variant.level)].to_vec(),
            computed: Arc::default(),
        }
    }

    fn kept_count(&self, level: usize) -> usize {
        level.checked_sub(1).map_or(0, |last| self.ends[last])
    }

    /// Bytes of all parts.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.size).sum()
    }

    /// Where a recording finds the parts at this level.
    pub(crate) fn source(&self, level: usize) -> PartSource<'_> {
        PartSource {
            parts: &self.parts,
            kept: self.kept_count(level),
            ids: vec![None; self.parts.len()],
        }
    }

    /// Parts of a query.
    pub(crate) fn query(&self, name: QueryName) -> Range<usize> {
        let at = QueryName::ALL.iter().position(|n| *n == name);
        let at = at.expect("one of them");
        self.ends[at]..self.ends[at + 1]
    }
}

/// The parts of a key for one recording: kept on the device, or uploaded by the recording.
pub(crate) struct PartSource<'a> {
    parts: &'a [KeptPart],
    kept: usize,
    ids: Vec<Option<BufferId>>,
}

impl PartSource<'_> {
    /// A whole part; uploaded once, when first asked for.
    pub fn table(&mut self, rec: &mut Recording, part: usize) -> BufferSlice {
        let id = match self.ids[part] {
            Some(id) => id,
            None => {
                let id = self.declare(rec, part);
                self.ids[part] = Some(id);
                id
            }
        };
        rec.whole(id)
    }

    fn declare(&self, rec: &mut Recording, part: usize) -> BufferId {
        let p = &self.parts[part];
        if part < self.kept {
            return rec.kept(p.label, part as u32, p.size);
        }
        let id = rec.transient(p.label, p.size);
        let whole = rec.whole(id);
        p.record_upload(rec, whole, 0, p.size);
        id
    }

    /// Bytes `range` of a part, into a buffer of their own if the part is not kept.
    pub fn range(&mut self, rec: &mut Recording, part: usize, range: Range<u64>) -> BufferSlice {
        let p = &self.parts[part];
        if part < self.kept {
            let whole = self.table(rec, part);
            return BufferSlice {
                offset: range.start,
                size: range.end - range.start,
                ..whole
            };
        }
        let id = rec.transient(p.label, range.end - range.start);
        let whole = rec.whole(id);
        p.record_upload(rec, whole, range.start, range.end);
        whole
    }
}
