//! A transform's tables that stay on a device, for transforms outside a proof.

use super::{
    PowerBuffers, TransformBuffers, block_log, record_roots_into, root_powers, roots_bytes,
    tile_log,
};
use crate::bytes::Bytes;
use crate::curve::GpuCurve;
use crate::device::recording::Recording;
use crate::device::{GpuDevice, ResidentBuffer, RunOptions};
use crate::domain::RootConvention;
use crate::error::{Error, Result};

/// The powers and roots of a transform in one direction, computed on a device and resident there.
#[derive(Debug)]
pub struct ResidentRoots {
    log_n: u32,
    split_log: u32,
    low_log: u32,
    blocks: Option<u32>,
    /// Powers, low and high; roots of a tile; roots of blocks.
    buffers: Vec<ResidentBuffer>,
}

impl ResidentRoots {
    /// The tables of a transform of 2^`split_log` parts of 2^`log_n` scalars.
    ///
    /// # Errors
    /// `Usage` if the field has no such domain, and those of [`GpuDevice::run`].
    pub fn new<C: GpuCurve>(
        gpu: &GpuDevice,
        (log_n, split_log): (u32, u32),
        roots: RootConvention,
        inverse: bool,
        options: &RunOptions,
    ) -> Result<Self> {
        let all = log_n + split_log;
        let powers = root_powers::<C>(all, roots, inverse)
            .ok_or_else(|| Error::Usage(format!("{} has no domain of 2^{all}", C::ID)))?;
        let blocks = block_log(log_n, gpu.limits().max_binding);
        let logs = std::iter::once(tile_log(log_n)).chain(blocks);
        let empty = logs.map(|log| ("roots", Bytes::from(vec![0; roots_bytes(log) as usize])));
        let data = [
            ("powers", powers.low.clone()),
            ("powers", powers.high.clone()),
        ];
        let data: Vec<_> = data.into_iter().chain(empty).collect();
        let tables = Self {
            log_n,
            split_log,
            low_log: powers.low_log,
            blocks,
            buffers: gpu.upload_resident(&data, options)?,
        };
        let mut rec = Recording::new();
        let t = tables.declare(&mut rec);
        let tile = (tile_log(log_n), t.stage_roots);
        for (log, id) in std::iter::once(tile).chain(t.blocks) {
            let whole = rec.whole(id);
            record_roots_into::<C>(&mut rec, all, t.powers, log, whole);
        }
        gpu.run(&rec, options)?;
        Ok(tables)
    }

    /// Makes the tables known to a recording.
    pub fn declare(&self, rec: &mut Recording) -> TransformBuffers {
        let ids: Vec<_> = self
            .buffers
            .iter()
            .map(|b| rec.resident("roots", b))
            .collect();
        TransformBuffers {
            log_n: self.log_n,
            split_log: self.split_log,
            stage_roots: ids[2],
            powers: PowerBuffers {
                low_log: self.low_log,
                low: ids[0],
                high: ids[1],
            },
            blocks: self.blocks.zip(ids.get(3).copied()),
        }
    }
}
