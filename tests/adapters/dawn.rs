//! The kernels through a second WGSL compiler: Tint, of Chrome, in Dawn, its implementation of WebGPU,
//! as the npm package `webgpu` has it built. `tests/dawn/run.mjs` runs what the cases of the self-test
//! record, and their references judge what comes back. Dawn is asked for no limit and no feature, so
//! this also shows that the kernels keep to what every browser has.
//!
//! | variable | |
//! |---|---|
//! | `GROTH16_GPU_DAWN` | the folder with `node_modules/webgpu`; without it the tests show as ignored |
//! | `GROTH16_GPU_DAWN_DRIVER` | the Vulkan driver's description for Dawn alone: it refuses Mesa's before 23 |
//! | `GROTH16_GPU_TEST_WIDE` | every case runs over both curves; else those over BLS12-381 are only compiled |

use crate::cases::{module, prepared};
use crate::common::{self, TestDevice, ensure, ignored, trial};
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::recording::{BufferSlice, Command, Recording};
use groth16_gpu::device::{DeviceOptions, GpuDevice};
use groth16_gpu::kernels::{KERNELS, Kernel, KernelSource, LAUNCH_WORDS, WordTier};
use groth16_gpu::selftest::{self, Case, Scope, Size};
use libtest_mimic::{Failed, Trial};
use serde_json::{Map, Value, json};
use std::cell::RefCell;
use std::collections::HashSet;
use std::io::{Read, Write};
use std::process::{self, Child, ChildStdin, Stdio};
use std::rc::Rc;
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// No answer takes longer, unless there will be none.
const PATIENCE: Duration = Duration::from_secs(400);
/// Largest storage binding that WebGPU promises.
const MAX_BINDING: u64 = 128 << 20;

/// One process of node with one WebGPU device.
struct Dawn {
    child: Child,
    input: ChildStdin,
    answers: Receiver<(Value, Vec<u8>)>,
    /// Labels of the kernels that it knows.
    known: HashSet<&'static str>,
}

/// A message: JSON, and bytes.
fn read_message(from: &mut impl Read) -> std::io::Result<(Value, Vec<u8>)> {
    let mut lengths = [[0; 4]; 2];
    from.read_exact(lengths.as_flattened_mut())?;
    let [mut json, mut data] = lengths.map(|l| vec![0; u32::from_le_bytes(l) as usize]);
    from.read_exact(&mut json)?;
    from.read_exact(&mut data)?;
    Ok((serde_json::from_slice(&json)?, data))
}

impl Dawn {
    /// A process, and what its adapter is called.
    fn start(folder: &str) -> Result<(Self, String), String> {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/dawn/run.mjs");
        let mut command = process::Command::new("node");
        command.args([script, folder, "backend=vulkan"]);
        if let Some(driver) = std::env::var_os("GROTH16_GPU_DAWN_DRIVER") {
            command.env("VK_DRIVER_FILES", &driver);
            command.env("VK_ICD_FILENAMES", driver);
        }
        let pipes = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        // What is wrong comes as an answer; the rest are remarks on the driver.
        let spawned = pipes.stderr(Stdio::null()).spawn();
        let mut child = spawned.map_err(|e| format!("node does not start: {e}"))?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let (input, mut output) = input.zip(output).ok_or("no pipes")?;
        let (sender, answers) = mpsc::channel();
        std::thread::spawn(move || {
            while let Ok(message) = read_message(&mut output) {
                if sender.send(message).is_err() {
                    break;
                }
            }
        });
        let mut dawn = Self {
            child,
            input,
            answers,
            known: HashSet::new(),
        };
        let (hello, _) = dawn.answer()?;
        let adapter = hello["adapter"].as_str().unwrap_or_default().to_owned();
        Ok((dawn, adapter))
    }

    fn answer(&mut self) -> Result<(Value, Vec<u8>), String> {
        let answer = self.answers.recv_timeout(PATIENCE);
        let (value, data) = answer.map_err(|e| format!("Dawn is gone: {e}"))?;
        match value["error"].as_str() {
            Some(error) => Err(format!("Dawn: {error}")),
            None => Ok((value, data)),
        }
    }

    fn request(&mut self, json: &Value, data: &[u8]) -> Result<Vec<u8>, String> {
        let json = json.to_string().into_bytes();
        let lengths = [json.len(), data.len()].map(|n| (n as u32).to_le_bytes());
        for part in [lengths.as_flattened(), &json, data] {
            let sent = self.input.write_all(part);
            sent.map_err(|e| format!("Dawn is gone: {e}"))?;
        }
        Ok(self.answer()?.1)
    }

    /// The sources of those kernels that it does not know yet.
    fn introduce(&mut self, sources: impl IntoIterator<Item = &'static KernelSource>) -> Value {
        let new = |s: &&KernelSource| self.known.insert(s.label);
        let kernels = sources.into_iter().filter(new).map(|s| {
            let kernel = json!({ "wgsl": s.wgsl, "bindings": s.bindings });
            (s.label.to_owned(), kernel)
        });
        Value::Object(kernels.collect::<Map<_, _>>())
    }

    fn compile(
        &mut self,
        sources: impl IntoIterator<Item = &'static KernelSource>,
    ) -> Result<(), String> {
        let kernels = self.introduce(sources);
        let request = json!({ "kernels": kernels, "buffers": [], "commands": [] });
        self.request(&request, &[]).map(drop)
    }

    /// Runs a recording over memory that is all poison at first.
    fn run(&mut self, recording: &Recording) -> Result<Vec<Vec<u8>>, String> {
        let range =
            |s: &BufferSlice| json!({ "buffer": s.buffer.0, "offset": s.offset, "size": s.size });
        let with_op = |op: &str, s: &BufferSlice| {
            let mut range = range(s);
            range["op"] = op.into();
            range
        };
        let (mut uploads, mut sources, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        let commands = recording.commands.iter().map(|command| match command {
            Command::Upload { dst, data } => {
                uploads.extend_from_slice(data);
                with_op("upload", dst)
            }
            Command::Clear { dst } => with_op("clear", dst),
            Command::Copy { src, dst } => {
                json!({ "op": "copy", "from": range(src), "to": range(dst), "size": src.size })
            }
            Command::Dispatch(d) => {
                let source = d.kernel.source(d.curve, WordTier::U32);
                sources.push(source);
                let mut params = d.params.clone();
                params.resize(source.params_words as usize - LAUNCH_WORDS, 0);
                let bindings: Vec<Value> = d.bindings.iter().map(range).collect();
                json!({ "op": "dispatch", "kernel": source.label, "bindings": bindings,
                    "params": params, "groups": d.groups })
            }
            Command::Download { src, id } => {
                sizes.push((id.0 as usize, src.size as usize));
                with_op("download", src)
            }
        });
        let commands: Vec<Value> = commands.collect();
        let buffers: Vec<u64> = recording.buffers.iter().map(|b| b.size).collect();
        let kernels = self.introduce(sources);
        let request = json!({ "kernels": kernels, "buffers": buffers, "commands": commands });
        let bytes = self.request(&request, &uploads)?;
        let mut downloads = vec![Vec::new(); recording.downloads()];
        let mut rest = &bytes[..];
        for (id, size) in sizes {
            let (bytes, after) = rest
                .split_at_checked(size)
                .ok_or("too few bytes came back")?;
            downloads[id] = bytes.to_vec();
            rest = after;
        }
        Ok(downloads)
    }
}

impl Drop for Dawn {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process that several tests use, one after the other.
type Shared = Arc<Mutex<Dawn>>;

fn lock(dawn: &Shared) -> std::sync::MutexGuard<'_, Dawn> {
    dawn.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a case through Dawn; `gpu` only says how large bindings may be.
fn run_case(dawn: &Shared, gpu: &Arc<GpuDevice>, index: usize, case: &Case) -> Result<(), Failed> {
    let dispatched: Rc<RefCell<HashSet<Kernel>>> = Rc::default();
    let executor = {
        let (dawn, dispatched) = (dawn.clone(), dispatched.clone());
        move |recording: &Recording| {
            dispatched.borrow_mut().extend(kernels_of(recording));
            lock(&dawn).run(recording)
        }
    };
    let run = || prepared(Size::Small).run(index, gpu);
    selftest::run_elsewhere(Rc::new(executor), run)?;
    let dispatched = dispatched.borrow();
    // A scan of one block needs no second kernel; the case of scans has more.
    let needed = |k: &&Kernel| case.scope == Scope::Kernel || **k != Kernel::ScanAdd;
    let absent = case
        .kernels
        .iter()
        .filter(needed)
        .find(|k| !dispatched.contains(k));
    ensure!(absent.is_none(), "{absent:?} did not run through Dawn");
    Ok(())
}

fn kernels_of(recording: &Recording) -> impl Iterator<Item = Kernel> {
    recording.commands.iter().filter_map(|c| match c {
        Command::Dispatch(d) => Some(d.kernel),
        _ => None,
    })
}

/// Cases run beside each other where they have few kernels in common: over each curve in either group.
fn lane(case: &Case) -> (CurveId, bool) {
    (case.curve, case.name.ends_with("_g2"))
}

/// Provers run recordings by themselves; other cases have all kernels of theirs.
fn suits(case: &Case) -> bool {
    !case.name.starts_with("proof")
}

fn id(case: &Case) -> String {
    format!("dawn/u32/{}/{}", module(case), case.id())
}

pub fn trials(devices: &[TestDevice]) -> Vec<Trial> {
    let wide = common::wide();
    let runs = |case: &Case| suits(case) && (wide || case.curve == CurveId::Bn254);
    let cases: Vec<(usize, Case)> = selftest::cases().into_iter().enumerate().collect();
    let compiled = CurveId::ALL.map(|curve| (curve, format!("dawn/u32/compiled/{curve}")));
    let Some((folder, gpu)) = available(devices, wide) else {
        let run = cases.iter().filter(|(_, c)| runs(c)).map(|(_, c)| id(c));
        let all = compiled.into_iter().map(|(_, id)| id).chain(run);
        return all.map(ignored).collect();
    };
    let start = || {
        let (dawn, _) = Dawn::start(&folder).expect("Dawn started before");
        Arc::new(Mutex::new(dawn))
    };
    let mut trials = Vec::new();
    for (curve, id) in compiled {
        let dawn = start();
        trials.push(trial(id, move || {
            let of_curve = |k: &&KernelSource| k.curve == curve && k.tier == WordTier::U32;
            Ok(lock(&dawn).compile(KERNELS.iter().filter(of_curve))?)
        }));
    }
    let mut queues: Vec<Vec<Trial>> = Vec::new();
    for this in CurveId::ALL
        .into_iter()
        .flat_map(|c| [(c, false), (c, true)])
    {
        let of_lane = cases.iter().filter(|(_, c)| runs(c) && lane(c) == this);
        if of_lane.clone().next().is_none() {
            continue;
        }
        let dawn = start();
        let queue = of_lane.map(|&(index, case)| {
            let (dawn, gpu) = (dawn.clone(), gpu.clone());
            trial(id(&case), move || run_case(&dawn, &gpu, index, &case))
        });
        queues.push(queue.rev().collect());
    }
    // In turn, so that neighbours do not wait for one process.
    while queues.iter().any(|q| !q.is_empty()) {
        trials.extend(queues.iter_mut().filter_map(Vec::pop));
    }
    trials
}

/// The folder of Dawn, if it starts, and a device whose plans keep to what WebGPU promises.
fn available(devices: &[TestDevice], wide: bool) -> Option<(String, Arc<GpuDevice>)> {
    let folder = std::env::var("GROTH16_GPU_DAWN").ok()?;
    let tier = WordTier::U32;
    let device = devices
        .iter()
        .find(|d| d.is("lavapipe") && d.gpu.tier() == tier)?;
    let adapter = match Dawn::start(&folder) {
        Ok((_, adapter)) => adapter,
        Err(e) => {
            eprintln!("no tests of Dawn: {e}");
            return None;
        }
    };
    if adapter.to_lowercase().contains("swiftshader") && !wide {
        eprintln!("no tests of Dawn: SwiftShader, the only driver for it, compiles for an hour");
        return None;
    }
    eprintln!("Dawn is on {adapter}");
    let options = DeviceOptions {
        max_binding: Some(MAX_BINDING),
        ..common::options(tier)
    };
    Some((folder, GpuDevice::open(device.gpu.info(), &options).ok()?))
}
