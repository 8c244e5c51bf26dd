//! The wgpu executor on every adapter found.
//!
//! Kernels are tiny ones of this file, so that what is tested is the executor alone.

mod common;
#[path = "device/failures.rs"]
mod failures;

use failures::*;
use groth16_gpu::bytes::Bytes;
use groth16_gpu::curve::CurveId;
use groth16_gpu::device::recording::{
    BufferId, BufferSlice, Command, Dispatch, DownloadId, Recording,
};
use groth16_gpu::device::{
    CacheFolder, CancelToken, Device, DeviceInfo, DeviceOptions, DeviceSelector, Fault, GpuDevice,
    RunOptions,
};
use groth16_gpu::kernels::{Kernel, KernelSource, WordTier};
use groth16_gpu::{Error, Result};
use libtest_mimic::{Arguments, Trial};
use std::sync::{Arc, OnceLock, RwLock};
use std::time::{Duration, Instant};

const LANES: u32 = 64;
/// What a small budget sets aside for staging buffers and pages.
const STAGING: u64 = 12 * (64 << 10) + 12 * 139_264;

/// `dst[i] = 3 dst[i] + src[i] + add` for `i < n`: not idempotent, so that a group run twice or
/// not at all shows. Repeats an identity `spin` times to take time.
const STEP: &str = "
struct Params { first_group: u32, end_group: u32, zero: u32, reserved: u32, n: u32, add: u32, spin: u32, u: u32 }
@group(0) @binding(0) var<uniform> p: Params;
@group(0) @binding(1) var<storage, read_write> src: array<u32>;
@group(0) @binding(2) var<storage, read_write> dst: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let g = p.first_group + id.x + id.y * count.x;
    if (g >= p.end_group) { return; }
    let i = g * 64u + lane;
    if (i >= p.n) { return; }
    var x = dst[i];
    for (var k = 0u; k < p.spin; k++) { x = x * 1664525u + 1013904223u + p.zero; }
    for (var k = 0u; k < p.spin; k++) { x = (x - 1013904223u) * 4276115653u; }
    dst[i] = x * 3u + src[i] + p.add;
}";

/// The same calling convention, but no valid shader.
const BROKEN: &str = "@compute @workgroup_size(64) fn main() { let x: u32 = 1.5; }";

fn source(wgsl: &'static str, curve: CurveId, tier: WordTier) -> KernelSource {
    KernelSource {
        kernel: Kernel::FieldOpsFq,
        curve,
        tier,
        label: "step",
        wgsl,
        workgroup_size: LANES,
        bindings: 2,
        params_words: 8,
        workgroup_bytes: 0,
    }
}

/// BLS12-381 gets the working kernel and BN254 the broken one.
fn kernels(_: Kernel, curve: CurveId, tier: WordTier) -> &'static KernelSource {
    static STEPS: OnceLock<[KernelSource; 4]> = OnceLock::new();
    let all = STEPS.get_or_init(|| {
        [
            source(STEP, CurveId::Bls12_381, WordTier::U64),
            source(STEP, CurveId::Bls12_381, WordTier::U32),
            source(BROKEN, CurveId::Bn254, WordTier::U64),
            source(BROKEN, CurveId::Bn254, WordTier::U32),
        ]
    });
    let found = all.iter().find(|k| k.curve == curve && k.tier == tier);
    found.expect("all four are there")
}

fn options() -> DeviceOptions {
    DeviceOptions {
        kernels,
        vram_limit: Some(64 << 20),
        cache: CacheFolder::None,
        poison: true,
        ..Default::default()
    }
}

/// Tests that look at the whole process run alone.
static ALONE: RwLock<()> = RwLock::new(());

/// A case: its name, whether it runs alone, and what it does with an adapter.
type Case = (&'static str, bool, fn(&DeviceInfo));

macro_rules! cases {
    ($($f:ident),* ; alone $($g:ident),*) => {
        [$((stringify!($f), false, $f as fn(&DeviceInfo)),)* $((stringify!($g), true, $g as fn(&DeviceInfo)),)*]
    };
}

fn main() {
    let cases: Vec<Case> = cases!(
        a_recording_gives_what_the_host_computes, selection_finds_the_software_adapter, copies_and_clears_reach_every_word, p42_more_groups_than_one_dimension_has, p55_short_submissions_give_the_same, p56_five_thousand_dispatches, uploads_and_downloads_larger_than_staging, p65_eight_threads, p04_memory_is_not_reused_while_in_use, p11_budgets_give_a_result_or_a_typed_error, secrets_are_cleared_before_their_memory_is_reused, residents_stay_until_the_last_clone_goes, residents_of_another_device_are_refused, p16_a_lost_submission_is_noticed, p57_a_refused_pipeline_is_an_error, pipelines_are_remembered_and_a_damaged_memory_is_ignored, p66_waiting_does_not_keep_others_from_submitting, p64_after_a_panic_in_the_turn_the_next_run_works, a_lost_device_is_an_error_for_every_user, cancelling_ends_a_run_between_submissions, a_wait_past_its_limit_is_a_timeout_and_keeps_the_memory, reports_name_phases_and_times;
        alone p41_far_end, p43_three_hundred_runs_take_no_more_memory
    )
    .into();
    let adapters = Device::list();
    let mut trials = Vec::new();
    for info in &adapters {
        let label = format!("{}/{}", common::short_name(info), info.tiers[0].name());
        for (name, alone, case) in cases.clone() {
            let info = info.clone();
            trials.push(Trial::test(format!("{label}/{name}"), move || {
                let (_shared, _alone);
                if alone {
                    _alone = ALONE.write().unwrap_or_else(|e| e.into_inner());
                } else {
                    _shared = ALONE.read().unwrap_or_else(|e| e.into_inner());
                }
                case(&info);
                Ok(())
            }));
        }
    }
    for short in common::missing_adapters(&adapters) {
        for (name, ..) in &cases {
            trials.push(common::ignored(format!("{short}/missing/{name}")));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit()
}

fn open(info: &DeviceInfo, options: &DeviceOptions) -> Arc<GpuDevice> {
    GpuDevice::open(info, options).unwrap()
}

fn words(data: &[u32]) -> Bytes {
    bytemuck::cast_slice(data).to_vec().into()
}

fn from_bytes(bytes: &[u8]) -> Vec<u32> {
    bytemuck::pod_collect_to_vec(bytes)
}

fn step(src: BufferSlice, dst: BufferSlice, n: u32, add: u32) -> Dispatch {
    Dispatch {
        kernel: Kernel::FieldOpsFq,
        curve: CurveId::Bls12_381,
        bindings: vec![src, dst],
        params: vec![n, add, 0, 0],
        groups: n.div_ceil(LANES),
        work_per_group: 64,
    }
}

fn numbers(n: u32, seed: u32) -> Vec<u32> {
    (0..n)
        .map(|i| (i ^ seed).wrapping_mul(2_654_435_761))
        .collect()
}

/// A recording of `rounds` steps over `n` words, and what it should give.
fn chain(n: u32, seed: u32, rounds: u32, spin: u32) -> (Recording, Vec<u32>) {
    let (a, mut b) = (numbers(n, seed), numbers(n, !seed));
    let mut r = Recording::new();
    let size = u64::from(n) * 4;
    let (src, dst) = (r.secret("src", size), r.transient("dst", size));
    let (src, dst) = (r.whole(src), r.whole(dst));
    r.phase("upload");
    r.upload(src, words(&a));
    r.upload(dst, words(&b));
    r.phase("steps");
    for add in 0..rounds {
        let mut dispatch = step(src, dst, n, add);
        dispatch.params[2] = spin;
        dispatch.work_per_group = 64 * u64::from(1 + 2 * spin);
        r.dispatch(dispatch);
        for (b, a) in b.iter_mut().zip(&a) {
            *b = b.wrapping_mul(3).wrapping_add(*a).wrapping_add(add);
        }
    }
    r.phase("download");
    r.download(dst);
    (r, b)
}

fn run(gpu: &GpuDevice, r: &Recording) -> Result<Vec<u32>> {
    let output = gpu.run(r, &RunOptions::default())?;
    Ok(from_bytes(&output.downloads[0]))
}

fn check_chain(gpu: &GpuDevice, n: u32, seed: u32, rounds: u32) {
    let (r, expected) = chain(n, seed, rounds, 0);
    assert!(run(gpu, &r).unwrap() == expected, "{n} words, seed {seed}");
}

fn a_recording_gives_what_the_host_computes(info: &DeviceInfo) {
    for checked_shaders in [false, true] {
        let options = DeviceOptions {
            checked_shaders,
            ..options()
        };
        let gpu = open(info, &options);
        for n in [1, 3, 63, 64, 65, 1000, 100_000] {
            check_chain(&gpu, n, n, 5);
        }
        assert_eq!(gpu.memory().in_use, 0);
    }
}

fn selection_finds_the_software_adapter(info: &DeviceInfo) {
    let by_name = DeviceSelector::Name(info.name.clone());
    for selector in [DeviceSelector::Index(info.index), by_name] {
        let device = Device::open_with(&selector, &options()).unwrap();
        assert_eq!(device.gpu().unwrap().info(), info);
    }
    let wide = info.tiers.contains(&WordTier::U64);
    let forced = DeviceOptions {
        word_tier: Some(WordTier::U64),
        ..options()
    };
    match GpuDevice::open(info, &forced) {
        Ok(gpu) => assert!(wide && gpu.tier() == WordTier::U64),
        Err(error) => assert!(!wide && error.class() == "usage"),
    }
}

fn copies_and_clears_reach_every_word(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let data = numbers(5000, 1);
    let mut r = Recording::new();
    let a = r.transient("a", 20_000);
    let b = r.transient("b", 20_000);
    let part = |buffer: BufferId, first: u64, count: u64| BufferSlice {
        buffer,
        offset: first * 4,
        size: count * 4,
    };
    r.upload(r.whole(a), words(&data));
    r.clear(r.whole(b));
    // Odd offsets, across buffers and inside one.
    r.copy(part(a, 3, 2047), part(b, 1001, 2047));
    r.copy(part(b, 1001, 900), part(b, 1, 900));
    r.clear(part(b, 5, 1));
    let id = r.download(part(b, 0, 5000));
    assert_eq!(id, DownloadId(0));
    let mut expected = vec![0; 5000];
    expected[1001..3048].copy_from_slice(&data[3..2050]);
    expected[1..901].copy_from_slice(&data[3..903]);
    expected[5] = 0;
    assert!(run(&gpu, &r).unwrap() == expected);
}

fn p42_more_groups_than_one_dimension_has(info: &DeviceInfo) {
    let gpu = open(info, &options());
    for n in [65_535 * LANES, 65_535 * LANES + 1] {
        check_chain(&gpu, n, 7, 2);
    }
}

fn p55_short_submissions_give_the_same(info: &DeviceInfo) {
    let short = DeviceOptions {
        submission: Duration::from_millis(1),
        ..options()
    };
    let gpu = open(info, &short);
    let (r, expected) = chain(50_000, 3, 4, 20);
    let output = gpu.run(&r, &RunOptions::default()).unwrap();
    assert!(from_bytes(&output.downloads[0]) == expected);
    assert!(output.report.submissions > 8, "{:?}", output.report);
}

fn p56_five_thousand_dispatches(info: &DeviceInfo) {
    let gpu = open(info, &options());
    check_chain(&gpu, 200, 9, 5000);
}

fn uploads_and_downloads_larger_than_staging(info: &DeviceInfo) {
    let small = DeviceOptions {
        vram_limit: Some(16 << 20),
        ..options()
    };
    let gpu = open(info, &small);
    check_chain(&gpu, 1_300_000, 5, 1);
    let report = gpu.memory();
    assert!(report.staging < 10 << 20, "{report:?}");
}

fn p65_eight_threads(info: &DeviceInfo) {
    let gpu = open(info, &options());
    std::thread::scope(|scope| {
        for t in 0..8 {
            let gpu = &gpu;
            scope.spawn(move || {
                for i in 0..20 {
                    check_chain(gpu, 1000 + 777 * t + i, t * 100 + i, 3 + t % 3);
                }
            });
        }
    });
    let report = gpu.memory();
    assert_eq!((report.in_use, report.held, report.waiting), (0, 0, 0));
}

fn p04_memory_is_not_reused_while_in_use(info: &DeviceInfo) {
    // Room for two runs at a time; each fills its memory with a pattern first.
    let tight = DeviceOptions {
        vram_limit: Some(STAGING + (200 << 10)),
        ..options()
    };
    let gpu = open(info, &tight);
    std::thread::scope(|scope| {
        for t in 0..4 {
            let gpu = &gpu;
            scope.spawn(move || (0..25).for_each(|i| check_chain(gpu, 10_000, t * 31 + i, 2)));
        }
    });
    let mut unwritten = Recording::new();
    let b = unwritten.transient("b", 4096);
    unwritten.download(unwritten.whole(b));
    let seen = run(&gpu, &unwritten).unwrap();
    assert!(seen.iter().all(|&w| w == 0xdead_beef));
}

fn p11_budgets_give_a_result_or_a_typed_error(info: &DeviceInfo) {
    let (r, expected) = chain(30_000, 1, 2, 0);
    let mut outcomes = Vec::new();
    for budget in [
        1 << 20,
        300 << 10,
        241 << 10,
        200 << 10,
        64 << 10,
        4096,
        256,
    ] {
        let options = DeviceOptions {
            vram_limit: Some(STAGING + budget),
            ..options()
        };
        match run(&open(info, &options), &r) {
            Ok(result) => {
                assert!(result == expected);
                outcomes.push(true);
            }
            Err(Error::OutOfMemory {
                needed, available, ..
            }) => {
                assert!(needed > available && available <= budget);
                outcomes.push(false);
            }
            Err(other) => panic!("{budget}: {other}"),
        }
    }
    assert_eq!(outcomes, [true, true, true, false, false, false, false]);
}

fn secrets_are_cleared_before_their_memory_is_reused(info: &DeviceInfo) {
    let plain = DeviceOptions {
        poison: false,
        ..options()
    };
    let gpu = open(info, &plain);
    let data = numbers(3000, 4);
    let mut peek = Recording::new();
    let b = peek.transient("peek", 12_000);
    peek.download(peek.whole(b));
    for secret in [false, true] {
        let mut r = Recording::new();
        let id = match secret {
            true => r.secret("b", 12_000),
            false => r.transient("b", 12_000),
        };
        r.upload(r.whole(id), words(&data));
        gpu.run(&r, &RunOptions::default()).unwrap();
        let seen = run(&gpu, &peek).unwrap();
        match secret {
            // Shows that `peek` looks at the same memory.
            false => assert!(seen == data),
            true => assert!(seen.iter().all(|&w| w == 0)),
        }
    }
    // A run that fails half-way clears as well.
    let mut r = Recording::new();
    let id = r.secret("b", 12_000);
    r.upload(r.whole(id), words(&data));
    (0..600).for_each(|_| r.dispatch(step(r.whole(id), r.whole(id), 1, 0)));
    gpu.inject_fault(Fault::LoseSubmission(1));
    assert!(gpu.run(&r, &RunOptions::default()).is_err());
    assert!(run(&gpu, &peek).unwrap().iter().all(|&w| w == 0));
}

fn residents_stay_until_the_last_clone_goes(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let data = numbers(1_000_000, 8);
    let odd: Bytes = vec![1, 2, 3, 4, 5].into();
    let resident = gpu
        .upload_resident(
            &[("key", words(&data)), ("odd", odd)],
            &RunOptions::default(),
        )
        .unwrap();
    assert_eq!(resident[1].size(), 8);
    let mut r = Recording::new();
    let key = r.resident("key", &resident[0]);
    let copy = r.transient("copy", 4_000_000);
    r.clear(r.whole(copy));
    r.dispatch(step(r.whole(key), r.whole(copy), 1_000_000, 0));
    r.download(r.whole(copy));
    let tail = r.resident("odd", &resident[1]);
    r.download(r.whole(tail));
    for _ in 0..3 {
        let output = gpu.run(&r, &RunOptions::default()).unwrap();
        assert!(from_bytes(&output.downloads[0]) == data);
        assert_eq!(output.downloads[1], [1, 2, 3, 4, 5, 0, 0, 0]);
    }
    drop(resident);
    assert!(gpu.memory().resident > 4_000_000);
    drop(r);
    assert_eq!((gpu.memory().resident, gpu.memory().in_use), (0, 0));
    // More than there is room for, also in pieces.
    let piece: Bytes = vec![0u8; 30 << 20].into();
    let three = [
        ("k", piece.clone()),
        ("k", piece.clone()),
        ("k", piece.clone()),
    ];
    let error = gpu.upload_resident(&three, &RunOptions::default());
    assert_eq!(error.unwrap_err().class(), "out_of_memory");
    assert_eq!(gpu.memory().in_use, 0);
    assert!(
        gpu.upload_resident(&three[..1], &RunOptions::default())
            .is_ok()
    );
}

fn residents_of_another_device_are_refused(info: &DeviceInfo) {
    let (one, other) = (open(info, &options()), open(info, &options()));
    let key = one
        .upload_resident(&[("key", words(&[1, 2, 3]))], &RunOptions::default())
        .unwrap();
    let mut r = Recording::new();
    let id = r.resident("key", &key[0]);
    r.download(r.whole(id));
    assert_eq!(run(&one, &r).unwrap(), [1, 2, 3]);
    assert_eq!(run(&other, &r).unwrap_err().class(), "usage");
}

fn reports_name_phases_and_times(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let (r, _) = chain(50_000, 3, 20, 20);
    let seen = Arc::new(RwLock::new(Vec::new()));
    let sink = seen.clone();
    let options = RunOptions {
        progress: Some(Arc::new(move |share| sink.write().unwrap().push(share))),
        ..Default::default()
    };
    let report = gpu.run(&r, &options).unwrap().report;
    let names: Vec<_> = report.phases.iter().map(|p| p.name).collect();
    assert_eq!(names, ["start", "upload", "steps", "download"]);
    let steps = &report.phases[2];
    assert!(steps.wall_ms > 0.0 && steps.end_ms > steps.start_ms);
    if let Some(device) = steps.device_ms {
        assert!(device > 0.0 && device < report.total_ms * 1.1, "{report:?}");
    }
    assert!(report.slowest_submission_ms <= report.total_ms);
    assert_eq!(report.uploaded_bytes, 400_000);
    assert_eq!(report.downloaded_bytes, 200_000);
    let seen = seen.read().unwrap();
    assert!(
        seen.is_sorted() && seen.last().is_some_and(|&s| s > 0.9),
        "{seen:?}"
    );
    eprintln!("{}", serde_json::to_string(&report).unwrap());
}

/// Resident memory of this process, in bytes.
fn resident_set() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn p43_three_hundred_runs_take_no_more_memory(info: &DeviceInfo) {
    let gpu = open(info, &options());
    let go = |count: u32| (0..count).for_each(|i| check_chain(&gpu, 20_000, i, 3));
    go(50);
    let (arena, host) = (gpu.memory(), resident_set());
    go(300);
    assert_eq!(gpu.memory(), arena);
    if let (Some(before), Some(after)) = (host, resident_set()) {
        eprintln!("{} KiB more", after.saturating_sub(before) >> 10);
        assert!(
            after.saturating_sub(before) < 8 << 20,
            "{before} -> {after}"
        );
    }
}

/// The last words of the largest binding are where a driver with a limit below goes wrong.
fn p41_far_end(info: &DeviceInfo) {
    let plain = DeviceOptions {
        vram_limit: None,
        poison: false,
        ..options()
    };
    let gpu = open(info, &plain);
    let (max, n) = (gpu.limits().max_binding, 1 << 20);
    if max > gpu.limits().memory_budget / 2 {
        eprintln!("{info}: no room for a full-size binding");
        return;
    }
    let data = numbers(n, 11);
    let mut r = Recording::new();
    let big = r.transient("big", max);
    let end = BufferSlice {
        buffer: big,
        offset: max - u64::from(n) * 4,
        size: u64::from(n) * 4,
    };
    r.upload(end, words(&data));
    r.download(end);
    // Clearing binds the whole buffer, so that the kernel's own index reaches the end.
    r.clear(r.whole(big));
    r.download(end);
    let start = Instant::now();
    let output = match gpu.run(&r, &RunOptions::default()) {
        // SwiftShader allows larger bindings than it has memory for.
        Err(error @ Error::OutOfMemory { .. }) if info.software => {
            eprintln!("{info}: {error}");
            return;
        }
        result => result.unwrap(),
    };
    assert!(from_bytes(&output.downloads[0]) == data);
    assert!(output.downloads[1].iter().all(|&b| b == 0));
    eprintln!("{info}: {max} bytes in one binding, {:?}", start.elapsed());
}
