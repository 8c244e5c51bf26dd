//! `bench msm` on a device: inputs and tables brought there before the clock starts.

use groth16_gpu::bytes::Bytes;
use groth16_gpu::curve::GpuCurve;
use groth16_gpu::device::recording::{BufferSlice, Recording};
use groth16_gpu::device::{GpuDevice, ResidentBuffer, RunOptions};
use groth16_gpu::error::{Error, Result};
use groth16_gpu::msm::{self, Bases, Geometry, Group};
use serde_json::{Value, json};
use std::time::Instant;

/// What the command line asks for.
#[derive(Debug)]
pub struct Form {
    /// Scalars, if not a power of two.
    pub points: Option<u32>,
    /// Bits of a digit.
    pub window: Option<u32>,
    /// Passes that sum pairs.
    pub pairs: Option<u32>,
    /// Tables of multiples at most, the bases themselves among them.
    pub tables: u32,
}

/// A sum to compute.
pub struct Input<'a> {
    pub group: Group,
    pub n: usize,
    /// Scalars that are neither 0 nor 1.
    pub dense: usize,
    /// Affine points at rest.
    pub bases: &'a Bytes,
    /// Canonical scalars of 32 bytes.
    pub scalars: &'a Bytes,
}

/// The sum as one recording with one download.
pub struct OnDevice {
    pub geometry: Geometry,
    pub recording: Recording,
    chunks: usize,
    table_ms: f64,
    table_bytes: u64,
}

impl OnDevice {
    /// Brings the input to the device, in as few chunks as its bindings allow.
    ///
    /// # Errors
    /// `Usage` if no chunk fits; else those of runs.
    pub fn new<C: GpuCurve>(
        gpu: &GpuDevice,
        input: &Input<'_>,
        form: &Form,
        options: &RunOptions,
    ) -> Result<Self> {
        let (group, n) = (input.group, input.n);
        let affine = group.affine_bytes(C::ID);
        let max_binding = gpu.limits().plan().largest();
        let bits = msm::scalar_bits::<C>();
        let point = group.point_bytes(C::ID);
        let tuning = gpu.limits().msm.of(C::ID);
        let entries = |g: &Geometry| 4 * u64::from(g.n) * u64::from(g.windows);
        let fits = |len: usize| {
            let dense = (input.dense * len).div_ceil(n);
            let geometry = match (form.window, form.tables) {
                (Some(c), tables) => {
                    Geometry::with_window(len, bits, c, max_binding)?.tabled(tables, affine)
                }
                (None, 0 | 1) => tuning.geometry(len, dense, bits, point, max_binding),
                (None, tables) => Geometry::with_tables(len, bits, point, max_binding, tables),
            };
            geometry.filter(|g| len as u64 * affine <= max_binding && entries(g) <= max_binding)
        };
        // As few chunks as fit, of about the same size; chunks begin at multiples of 8.
        let chunk = (1..=n.div_ceil(1024))
            .map(|chunks| n.div_ceil(chunks).next_multiple_of(8).min(n))
            .find_map(|len| fits(len).map(|g| (len, g)));
        let none = || Error::Usage("no geometry for this size on this device".to_owned());
        let (chunk, geometry) = chunk.ok_or_else(none)?;
        // The last chunk may be shorter; all have the same windows.
        let geometries: Vec<Geometry> = (0..n)
            .step_by(chunk)
            .map(|start| {
                let len = chunk.min(n - start);
                let dense = (input.dense * len).div_ceil(n);
                let g = Geometry {
                    n: len as u32,
                    ..geometry
                };
                match form.pairs {
                    Some(levels) => Geometry {
                        pair_levels: levels.min(20),
                        ..g
                    },
                    None => tuning.passes(group, g, dense),
                }
            })
            .collect();
        let geometry = geometries[0];
        let slices = |bytes: &Bytes, each: usize| -> Vec<(&'static str, Bytes)> {
            (0..n)
                .step_by(chunk)
                .map(|at| ("bench", bytes.slice(at * each..n.min(at + chunk) * each)))
                .collect()
        };
        let scalars = gpu.upload_resident(&slices(input.scalars, 32), options)?;
        let bases = slices(input.bases, affine as usize);
        let start = Instant::now();
        let mut lists: Vec<Vec<ResidentBuffer>> = Vec::new();
        for (bases, geometry) in bases.into_iter().zip(&geometries) {
            let at_rest = gpu.upload_resident(&[bases], options)?;
            if form.tables <= 1 {
                lists.push(at_rest);
                continue;
            }
            let chunk_lists = (0..geometry.lists())
                .map(|l| gpu.reserve_resident(geometry.list_bytes(l, group, C::ID), options))
                .collect::<Result<Vec<_>>>()?;
            let mut rec = Recording::new();
            let slices: Vec<_> = chunk_lists.iter().map(|l| whole(&mut rec, l)).collect();
            let bases = whole(&mut rec, &at_rest[0]);
            msm::record_tables(&mut rec, C::ID, group, geometry, bases, &slices);
            gpu.run(&rec, options)?;
            lists.push(chunk_lists);
        }
        let table_ms = start.elapsed().as_secs_f64() * 1e3;
        let table_bytes = lists.iter().flatten().map(ResidentBuffer::size).sum();
        let mut rec = Recording::new();
        rec.detail = true;
        let parts: Vec<_> = lists
            .iter()
            .zip(&scalars)
            .zip(&geometries)
            .map(|((lists, scalars), geometry)| {
                let scalars = whole(&mut rec, scalars);
                let bases = lists.iter().map(|l| whole(&mut rec, l)).collect::<Vec<_>>();
                let bases = match form.tables {
                    0 | 1 => Bases::AtRest(bases[0]),
                    _ => Bases::Tables(bases),
                };
                (msm::record_sort(&mut rec, C::ID, scalars, *geometry), bases)
            })
            .collect();
        msm::record_sums(&mut rec, C::ID, group, &parts);
        Ok(Self {
            geometry,
            recording: rec,
            chunks: geometries.len(),
            table_ms,
            table_bytes,
        })
    }

    pub fn describe(&self, line: &mut Value) {
        let g = &self.geometry;
        line["window"] = json!(g.window_bits);
        line["windows"] = json!(g.windows);
        line["sets"] = json!(g.sets);
        line["precompute"] = json!(g.tables());
        line["pair_levels"] = json!(g.pair_levels);
        line["chunks"] = json!(self.chunks);
        line["bases_bytes"] = json!(self.table_bytes);
        line["prepare_ms"] = json!(self.table_ms);
    }
}

fn whole(rec: &mut Recording, buffer: &ResidentBuffer) -> BufferSlice {
    let id = rec.resident("bench", buffer);
    rec.whole(id)
}
