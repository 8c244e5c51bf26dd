//! A key's queries as tables of multiples (`msm::Geometry`), computed on the device when the key
//! is brought there, and kept.
//!
//! They are not cached on disk: at eight times the key's size, reading them takes as long as a large
//! card takes to compute them (`benches/RESULTS.md`).

use crate::curve::GpuCurve;
use crate::device::kept::{KeptPart, KeptParts};
use crate::device::recording::{BufferSlice, Recording};
use crate::device::{MemoryPlan, PlanLimits};
use crate::error::Result;
use crate::key_layout::{KeyLayout, QueryName};
use crate::msm::{self, Geometry, Group};
use std::sync::Arc;

/// Numbers of tables that plans consider, the largest first.
const COUNTS: [u32; 4] = [16, 8, 4, 2];

/// The queries' tables in one number.
#[derive(Debug)]
pub(crate) struct KeyTables {
    /// Tables at most; the bases themselves are the first.
    pub count: u32,
    /// Of h, and of the queries over the witness, which share one sort.
    h: Geometry,
    witness: Geometry,
    /// Tables of the rows and transforms, then the lists of each query.
    kept: KeptParts,
    /// Where the lists of each query of [`QueryName::ALL`] begin.
    starts: [usize; 5],
}

impl KeyTables {
    /// The tables of `layout` in every number up to `limits.tables` that makes a difference. None
    /// for a key whose queries do not fit one binding each: cutting them costs what tables save.
    pub fn all<C: GpuCurve>(layout: &KeyLayout, limits: &PlanLimits) -> Result<Vec<Self>> {
        let mut all: Vec<Self> = Vec::new();
        for count in COUNTS.into_iter().filter(|c| *c <= limits.tables) {
            if let Some(tables) = Self::new::<C>(layout, limits, count)? {
                // Nothing gained by allowing more than these need.
                if all
                    .last()
                    .is_none_or(|last| last.kept.bytes() > tables.kept.bytes())
                {
                    all.push(tables);
                } else if let Some(last) = all.last_mut() {
                    *last = tables;
                }
            }
        }
        Ok(all)
    }

    fn new<C: GpuCurve>(
        layout: &KeyLayout,
        limits: &PlanLimits,
        count: u32,
    ) -> Result<Option<Self>> {
        let geometry = |n: usize, group: Group| {
            let (bits, point) = (msm::scalar_bits::<C>(), group.point_bytes(C::ID));
            let fits = n > 0 && n <= layout.piece;
            let g = fits.then(|| Geometry::with_tables(n, bits, point, limits.max_binding, count));
            g.flatten().filter(|g| g.tables() > 1)
        };
        let (Some(h), Some(witness)) = (
            geometry(layout.h_len(), Group::G1),
            geometry(layout.n_vars, Group::G2),
        ) else {
            return Ok(None);
        };
        let mut parts = layout.tables_of_rows().to_vec();
        let mut starts = [0; 5];
        let mut computed = Vec::new();
        for (name, start) in QueryName::ALL.into_iter().zip(&mut starts) {
            let g = match name {
                QueryName::H => h,
                _ => witness,
            };
            let group = name.group();
            *start = parts.len();
            let mut rec = Recording::new();
            rec.phase("tables");
            let base = &layout.parts[layout.query(name).start];
            let bases = rec.transient(base.label, base.size);
            let bases = rec.whole(bases);
            base.record_upload(&mut rec, bases, 0, base.size);
            let lists: Vec<BufferSlice> = (0..g.lists())
                .map(|l| {
                    let size = g.list_bytes(l, group, C::ID);
                    let id = rec.kept(base.label, parts.len() as u32, size);
                    parts.push(KeptPart {
                        label: base.label,
                        size,
                        content: Vec::new(),
                    });
                    rec.whole(id)
                })
                .collect();
            msm::record_tables(&mut rec, C::ID, group, &g, bases, &lists);
            let plan = MemoryPlan::new(&rec, limits, "device")?;
            computed.push((rec, plan));
        }
        let kept = KeptParts {
            id: layout.id(),
            parts,
            computed: Arc::from(computed),
        };
        Ok(Some(Self {
            count,
            h,
            witness,
            kept,
            starts,
        }))
    }

    pub fn kept(&self) -> KeptParts {
        self.kept.clone()
    }

    pub fn geometry(&self, name: QueryName) -> Geometry {
        match name {
            QueryName::H => self.h,
            _ => self.witness,
        }
    }

    /// A query's lists, for a recording that runs with [`Self::kept`].
    pub fn lists(&self, rec: &mut Recording, name: QueryName) -> Vec<BufferSlice> {
        let at = QueryName::ALL.iter().position(|n| *n == name);
        let start = self.starts[at.expect("one of them")];
        (0..self.geometry(name).lists() as usize)
            .map(|l| {
                let part = &self.kept.parts[start + l];
                let id = rec.kept(part.label, (start + l) as u32, part.size);
                rec.whole(id)
            })
            .collect()
    }
}
