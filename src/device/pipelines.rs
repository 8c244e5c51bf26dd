//! Compute pipelines: compiled when first needed, kept for the device's life, and remembered on
//! disk by the driver's pipeline cache where there is one.

use crate::curve::CurveId;
use crate::device::allocator::align;
use crate::device::wgpu::{new_pipeline_cache, scoped, shader_module};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, KernelSource, WordTier};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// A shader with the calling convention of [`crate::kernels`].
#[derive(Clone, Copy, Debug)]
pub struct Program {
    pub label: &'static str,
    pub wgsl: &'static str,
    /// Storage bindings, from binding 1 on.
    pub bindings: u32,
    /// Words of the uniform block, launch header included.
    pub params_words: u32,
}

impl From<&'static KernelSource> for Program {
    fn from(source: &'static KernelSource) -> Self {
        Self {
            label: source.label,
            wgsl: source.wgsl,
            bindings: source.bindings,
            params_words: source.params_words,
        }
    }
}

/// Largest uniform block, in bytes.
const MAX_PARAMS: u64 = 512;

/// Finds the source of a kernel. [`Kernel::source`] in production.
pub type KernelLookup = fn(Kernel, CurveId, WordTier) -> &'static KernelSource;

/// A compiled kernel.
#[derive(Debug)]
pub struct Pipeline {
    pub label: &'static str,
    pub pipeline: ::wgpu::ComputePipeline,
    pub layout: ::wgpu::BindGroupLayout,
    pub bindings: u32,
    pub params_words: u32,
    /// Bytes from one uniform block to the next.
    pub stride: u64,
}

/// A compiled kernel, or why the driver refused it.
type Compiled = OnceLock<Result<Arc<Pipeline>, String>>;

/// All pipelines of one device.
pub struct Pipelines {
    device: ::wgpu::Device,
    name: String,
    lookup: KernelLookup,
    tier: WordTier,
    checked: bool,
    /// By the address of what the lookup gave, too: in tests it changes its mind, and so breaks one
    /// kernel after another while the others stay compiled.
    compiled: Mutex<HashMap<(Kernel, CurveId, usize), Arc<Compiled>>>,
    cache: Option<(::wgpu::PipelineCache, PathBuf)>,
    unsaved: AtomicBool,
    /// Digest of what the cache's file holds.
    on_file: Mutex<Option<[u8; DIGEST]>>,
}

impl Pipelines {
    /// Loads what `cache_file` remembers. Any trouble with it costs time and nothing else.
    pub fn new(
        device: ::wgpu::Device,
        name: String,
        lookup: KernelLookup,
        tier: WordTier,
        checked: bool,
        cache_file: Option<PathBuf>,
    ) -> Self {
        let mut on_file = None;
        let cache = cache_file.and_then(|file| {
            let data = read_cache(&file);
            on_file = data.as_deref().map(digest);
            let cache = scoped(&device, || new_pipeline_cache(&device, data.as_deref()));
            match cache {
                Ok(cache) => Some((cache, file)),
                Err(error) => {
                    log::warn!("{name}: no pipeline cache: {error}");
                    None
                }
            }
        });
        Self {
            device,
            name,
            lookup,
            tier,
            checked,
            compiled: Mutex::default(),
            cache,
            unsaved: AtomicBool::new(false),
            on_file: Mutex::new(on_file),
        }
    }

    /// The pipeline of a kernel, compiled now if this is its first use.
    ///
    /// # Errors
    /// [`Error::DeviceFault`] if the driver refuses it, now or earlier.
    pub fn get(&self, kernel: Kernel, curve: CurveId) -> Result<Arc<Pipeline>> {
        let source = (self.lookup)(kernel, curve, self.tier);
        let entry = {
            let mut map = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
            let key = (kernel, curve, std::ptr::from_ref(source).addr());
            map.entry(key).or_default().clone()
        };
        let compiled = entry.get_or_init(|| self.compile(&Program::from(source)).map(Arc::new));
        compiled.clone().map_err(|message| Error::DeviceFault {
            device: self.name.clone(),
            message,
        })
    }

    /// Compiles outside the table of kernels.
    pub fn compile(&self, program: &Program) -> Result<Pipeline, String> {
        let start = Instant::now();
        let params = u64::from(program.params_words) * 4;
        if params > MAX_PARAMS {
            let label = program.label;
            return Err(format!(
                "`{label}`: {params} bytes of parameters; {MAX_PARAMS} are possible"
            ));
        }
        let entries: Vec<_> = (0..=program.bindings)
            .map(|binding| ::wgpu::BindGroupLayoutEntry {
                binding,
                visibility: ::wgpu::ShaderStages::COMPUTE,
                ty: ::wgpu::BindingType::Buffer {
                    ty: match binding {
                        0 => ::wgpu::BufferBindingType::Uniform,
                        // All read_write: two windows of one slab are accepted in one dispatch
                        // only if they are bound alike.
                        _ => ::wgpu::BufferBindingType::Storage { read_only: false },
                    },
                    has_dynamic_offset: binding == 0,
                    min_binding_size: None,
                },
                count: None,
            })
            .collect();
        let device = &self.device;
        let label = Some(program.label);
        let built = scoped(device, || {
            let layout = device.create_bind_group_layout(&::wgpu::BindGroupLayoutDescriptor {
                label,
                entries: &entries,
            });
            let module = shader_module(device, program.label, program.wgsl, self.checked);
            let pipeline_layout =
                device.create_pipeline_layout(&::wgpu::PipelineLayoutDescriptor {
                    label,
                    bind_group_layouts: &[Some(&layout)],
                    immediate_size: 0,
                });
            let pipeline = device.create_compute_pipeline(&::wgpu::ComputePipelineDescriptor {
                label,
                layout: Some(&pipeline_layout),
                module: &module,
                entry_point: Some("main"),
                compilation_options: ::wgpu::PipelineCompilationOptions {
                    constants: &[],
                    // Kernels write before they read; zeroing is slow, and racy on some drivers.
                    zero_initialize_workgroup_memory: false,
                },
                cache: self.cache.as_ref().map(|(cache, _)| cache),
            });
            (layout, pipeline)
        });
        let (layout, pipeline) =
            built.map_err(|e| format!("pipeline `{}` refused: {e}", program.label))?;
        log::debug!(
            "{}: `{}` compiled in {:?}",
            self.name,
            program.label,
            start.elapsed()
        );
        self.unsaved.store(true, Ordering::Relaxed);
        Ok(Pipeline {
            label: program.label,
            pipeline,
            layout,
            bindings: program.bindings,
            params_words: program.params_words,
            stride: align(params),
        })
    }

    /// Compiles many kernels on all cores. `progress` gets the number done so far; once it returns
    /// an error, no more are begun.
    ///
    /// # Errors
    /// The first error of [`Self::get`], of which the others are compiled all the same, or of
    /// `progress`.
    pub fn precompile(
        &self,
        kernels: &[(Kernel, CurveId)],
        progress: &(dyn Fn(usize) -> Result<()> + Sync),
    ) -> Result<()> {
        let done = AtomicUsize::new(0);
        let failed = Mutex::new(None);
        let fail = |error| {
            let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
            failed.get_or_insert(error);
        };
        self.compile_each(kernels, &|_, compiled, _| {
            if let Err(error) = compiled {
                fail(error);
            }
            let go_on = progress(done.fetch_add(1, Ordering::Relaxed) + 1);
            go_on.map_err(fail).is_ok()
        });
        let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
        failed.map_or(Ok(()), Err)
    }

    /// Compiles many kernels on all cores (through GL on one). `each` gets the position of one that is done, what came
    /// of it and its time; once it returns false, no more are begun.
    pub fn compile_each(
        &self,
        kernels: &[(Kernel, CurveId)],
        each: &(dyn Fn(usize, Result<()>, Duration) -> bool + Sync),
    ) {
        let threads = match self.device.adapter_info().backend {
            // One context, which a compilation keeps; wgpu panics if another thread waits 6 s for it.
            ::wgpu::Backend::Gl => 1,
            _ => std::thread::available_parallelism().map_or(1, |n| n.get()),
        };
        let next = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..threads.min(kernels.len()) {
                scope.spawn(|| {
                    loop {
                        let at = next.fetch_add(1, Ordering::Relaxed);
                        let Some(&(kernel, curve)) = kernels.get(at) else {
                            break;
                        };
                        let start = Instant::now();
                        let compiled = self.get(kernel, curve).map(drop);
                        if !each(at, compiled, start.elapsed()) {
                            next.store(kernels.len(), Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        self.save();
    }

    /// Writes the cache file if something was compiled since the last time that was not in it.
    pub fn save(&self) {
        let Some((cache, file)) = &self.cache else {
            return;
        };
        if !self.unsaved.swap(false, Ordering::Relaxed) {
            return;
        }
        let Some(data) = cache.get_data() else {
            return;
        };
        let new = Some(digest(&data));
        let mut on_file = self.on_file.lock().unwrap_or_else(PoisonError::into_inner);
        if *on_file == new {
            return;
        }
        match write_cache(file, &data) {
            Ok(()) => *on_file = new,
            Err(error) => log::warn!("{}: pipeline cache not written: {error}", file.display()),
        }
    }
}

impl Drop for Pipelines {
    fn drop(&mut self) {
        self.save();
    }
}

/// The user's folder for what can be computed again.
pub fn user_cache_folder() -> Option<PathBuf> {
    let set = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    let base = set("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| set("HOME").map(|home| Path::new(&home).join(".cache")))
        .or_else(|| set("LOCALAPPDATA").map(PathBuf::from));
    Some(base?.join("groth16-gpu"))
}

/// Where in `folder` this adapter's pipelines are remembered, if its driver can do that at all.
pub fn cache_file(folder: &Path, info: &::wgpu::AdapterInfo) -> Option<PathBuf> {
    let key = ::wgpu::util::pipeline_cache_key(info)?;
    // A driver refuses the whole file of another version; this keeps one for each.
    let driver = Sha256::digest(format!("{} {}", info.driver, info.driver_info));
    let version: String = driver[..4].iter().map(|b| format!("{b:02x}")).collect();
    Some(folder.join(format!("{key}_{version}")))
}

const DIGEST: usize = 32;

fn digest(data: &[u8]) -> [u8; DIGEST] {
    Sha256::digest(data).into()
}

/// The driver trusts this data, so a damaged file must not reach it: a digest stands in front.
fn read_cache(file: &Path) -> Option<Vec<u8>> {
    let bytes = std::fs::read(file).ok()?;
    let (digest, data) = bytes.split_at_checked(DIGEST)?;
    if Sha256::digest(data)[..] != *digest {
        log::warn!("{}: damaged pipeline cache ignored", file.display());
        return None;
    }
    Some(data.to_vec())
}

fn write_cache(file: &Path, data: &[u8]) -> std::io::Result<()> {
    replace_file(file, &[&Sha256::digest(data), data])
}

/// Writes a file of the cache, for its owner alone to read, in a folder that is made if need be.
/// What was there is replaced at once or not at all, whoever else writes it meanwhile.
pub(crate) fn replace_file(file: &Path, parts: &[&[u8]]) -> std::io::Result<()> {
    let folder = file.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    let mut temporary = tempfile::NamedTempFile::new_in(folder)?;
    parts.iter().try_for_each(|p| temporary.write_all(p))?;
    temporary.persist(file)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_cache_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("new").join("cache");
        assert_eq!(read_cache(&file), None);
        write_cache(&file, b"pipelines").unwrap();
        assert_eq!(read_cache(&file).unwrap(), b"pipelines");
        for damage in [&b""[..], &b"short"[..], &[0; 40][..]] {
            std::fs::write(&file, damage).unwrap();
            assert_eq!(read_cache(&file), None);
        }
    }
}
