//! What to run, apart from who runs it: plans append [`Command`]s to a [`Recording`]; an executor
//! (wgpu, later CUDA) replays it. No device type appears here.

use crate::bytes::Bytes;
use crate::curve::CurveId;
use crate::device::arena::ResidentBuffer;
use crate::kernels::{Kernel, KernelSource};
use std::collections::HashSet;

/// A buffer of one recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BufferId(pub u32);

/// A result that the recording copies back to the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DownloadId(pub u32);

/// A byte range of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSlice {
    pub buffer: BufferId,
    pub offset: u64,
    pub size: u64,
}

/// Where a recording's buffer lives.
#[derive(Clone, Debug)]
pub enum BufferKind {
    /// Lives from its first to its last command; buffers whose lives do not meet may share memory.
    /// Contents are undefined at first use.
    Transient,
    /// Already on the device, and stays there.
    Resident(ResidentBuffer),
    /// A part, by its index, of the kept set that the run is given.
    Kept(u32),
}

/// Size and purpose of a buffer.
#[derive(Clone, Debug)]
pub struct BufferDesc {
    pub label: &'static str,
    /// Bytes, a multiple of 4.
    pub size: u64,
    pub kind: BufferKind,
    /// Holds witness values or what can be computed from them: cleared before the memory is reused.
    pub secret: bool,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Command {
    /// Host bytes to the device. `data.len()` is a multiple of 4.
    Upload {
        dst: BufferSlice,
        data: Bytes,
    },
    /// Fill with zeros.
    Clear {
        dst: BufferSlice,
    },
    Copy {
        src: BufferSlice,
        dst: BufferSlice,
    },
    Dispatch(Dispatch),
    /// Device bytes to the host, available as `id` when the recording has run.
    Download {
        src: BufferSlice,
        id: DownloadId,
    },
}

/// One kernel over `groups` workgroups.
///
/// An executor may run it in several pieces: kernels take the index of their first group and the
/// end of the whole from the launch header and do not otherwise depend on the number of groups.
#[derive(Clone, Debug)]
pub struct Dispatch {
    pub kernel: Kernel,
    pub curve: CurveId,
    /// One storage binding each, from binding 1 on. All are read_write. Kernels that work in place
    /// have the same range twice, which wgpu accepts and WebGPU does not.
    pub bindings: Vec<BufferSlice>,
    /// The kernel's parameters after the launch header.
    pub params: Vec<u32>,
    /// 0 dispatches one workgroup that has nothing to do.
    pub groups: u32,
    /// Estimated field multiplications a group, for cutting submissions.
    pub work_per_group: u64,
}

/// A sequence of commands over buffers that it declares.
#[derive(Clone, Debug, Default)]
pub struct Recording {
    pub buffers: Vec<BufferDesc>,
    pub commands: Vec<Command>,
    /// Phase names with the index of their first command, for reports and traces.
    pub phases: Vec<(&'static str, usize)>,
    /// Whether [`Self::step`] names phases: for benches that look at single kernels.
    pub detail: bool,
    downloads: u32,
}

impl Recording {
    pub fn new() -> Self {
        Self::default()
    }
    fn declare(
        &mut self,
        label: &'static str,
        size: u64,
        kind: BufferKind,
        secret: bool,
    ) -> BufferId {
        assert!(
            size > 0 && size.is_multiple_of(4),
            "buffer `{label}` of {size} bytes"
        );
        self.buffers.push(BufferDesc {
            label,
            size,
            kind,
            secret,
        });
        BufferId(self.buffers.len() as u32 - 1)
    }
    /// A buffer of `size` bytes (not zero, a multiple of 4) for this recording alone.
    pub fn transient(&mut self, label: &'static str, size: u64) -> BufferId {
        self.declare(label, size, BufferKind::Transient, false)
    }
    /// As [`Self::transient`], for what depends on the witness.
    pub fn secret(&mut self, label: &'static str, size: u64) -> BufferId {
        self.declare(label, size, BufferKind::Transient, true)
    }
    /// Makes memory that is resident on the device known to this recording.
    pub fn resident(&mut self, label: &'static str, buffer: &ResidentBuffer) -> BufferId {
        self.declare(
            label,
            buffer.size(),
            BufferKind::Resident(buffer.clone()),
            false,
        )
    }
    /// Makes a part of the run's kept set known to this recording.
    pub fn kept(&mut self, label: &'static str, index: u32, size: u64) -> BufferId {
        self.declare(label, size, BufferKind::Kept(index), false)
    }
    /// The whole of a buffer.
    pub fn whole(&self, buffer: BufferId) -> BufferSlice {
        BufferSlice {
            buffer,
            offset: 0,
            size: self.buffers[buffer.0 as usize].size,
        }
    }
    /// The kernels that it dispatches.
    pub fn kernels(&self) -> Vec<(Kernel, CurveId)> {
        let mut kernels = HashSet::new();
        kernels.extend(self.commands.iter().filter_map(|command| match command {
            Command::Dispatch(d) => Some((d.kernel, d.curve)),
            _ => None,
        }));
        kernels.into_iter().collect()
    }
    /// Names the commands that follow.
    pub fn phase(&mut self, name: &'static str) {
        self.phases.push((name, self.commands.len()));
    }
    /// Names the commands that follow within a phase, if `detail` is on.
    pub fn step(&mut self, name: &'static str) {
        if self.detail {
            self.phase(name);
        }
    }
    pub fn upload(&mut self, dst: BufferSlice, data: Bytes) {
        assert_eq!(dst.size, data.len() as u64);
        self.commands.push(Command::Upload { dst, data });
    }
    pub fn clear(&mut self, dst: BufferSlice) {
        self.commands.push(Command::Clear { dst });
    }
    pub fn copy(&mut self, src: BufferSlice, dst: BufferSlice) {
        assert_eq!(src.size, dst.size);
        self.commands.push(Command::Copy { src, dst });
    }
    pub fn dispatch(&mut self, dispatch: Dispatch) {
        debug_assert!(dispatch.groups > 0, "{:?}", dispatch.kernel);
        self.commands.push(Command::Dispatch(dispatch));
    }
    /// Dispatches a kernel with nothing to do: some drivers compile when a pipeline is made, some
    /// when it is first dispatched; after this, all have.
    pub fn warm_up(&mut self, source: &KernelSource) {
        const SIZE: u64 = 256;
        let count = u64::from(source.bindings);
        let buffer = self.transient("warm-up", count * SIZE);
        let part = |i| BufferSlice {
            buffer,
            offset: i * SIZE,
            size: SIZE,
        };
        let bindings = (0..count).map(part).collect();
        self.commands.push(Command::Dispatch(Dispatch {
            kernel: source.kernel,
            curve: source.curve,
            bindings,
            params: Vec::new(),
            groups: 0,
            work_per_group: 1,
        }));
    }
    pub fn download(&mut self, src: BufferSlice) -> DownloadId {
        let id = DownloadId(self.downloads);
        self.downloads += 1;
        self.commands.push(Command::Download { src, id });
        id
    }
    /// Number of downloads; ids are below it.
    pub fn downloads(&self) -> usize {
        self.downloads as usize
    }
}
