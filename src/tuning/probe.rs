//! The probe: short multi-scalar multiplications over one curve in every way there is to choose
//! from, each compared with a computation in the field.

use super::{Measurement, MsmTuning, Tuning, TuningRecord, TuningSource, file};
use crate::bytes::Bytes;
use crate::curve::{CurveId, G1, G2, GpuCurve};
use crate::device::recording::Recording;
use crate::device::{DeviceInfo, DeviceOptions, GpuDevice, ResidentBuffer, RunOptions};
use crate::error::{Error, Result};
use crate::kernels::{Kernel, WordTier};
use crate::msm::{self, Geometry, Group, WindowSums};
use crate::proving_key::{g1_to_raw, g2_to_raw};
use crate::with_curve;
use ark_ec::{CurveGroup, PrimeGroup};
use ark_ff::{BigInteger, PrimeField, UniformRand, Zero};
use rand::{SeedableRng, rngs::StdRng};
use serde::Serialize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

/// Bases that differ; they repeat, each time in memory of its own.
const DISTINCT: usize = 1 << 10;
/// On hardware the number of scalars grows until a sum over G1 takes this long: below, launches
/// and an empty machine are what is measured.
const ENOUGH_MS: f64 = 30.0;
/// First and largest number of scalars over G1 on hardware, as powers of two.
const HARDWARE_LOG2: (u32, u32) = (14, 20);
/// Scalars over G1 on software adapters, as a power of two: some tenths of a second.
const SOFTWARE_LOG2: u32 = 12;
/// A quarter of the scalars over G2, whose additions cost three times as much.
const G2_FEWER_LOG2: u32 = 2;
/// Bits by which digits are tried longer, over G1.
const SHIFTS: [i32; 5] = [0, 1, -1, 2, -2];

/// What a probe measured, and what follows.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    pub device: String,
    pub driver: String,
    /// The curve that was measured.
    #[serde(serialize_with = "name")]
    pub curve: CurveId,
    pub measured: Vec<Measurement>,
    /// What follows from these and from what was on file about the other curve and tiers.
    pub chosen: Tuning,
    /// The measurements of both, for [`TuningSource::Records`].
    #[serde(skip)]
    pub record: TuningRecord,
    /// Compiling kernels, as far as the driver does not put it off until they first run, and
    /// everything, in milliseconds.
    pub compile_ms: f64,
    pub total_ms: f64,
    /// Where it was written; `None` without a cache folder, or if it can not be written.
    pub file: Option<PathBuf>,
}

fn name<S: serde::Serializer>(curve: &CurveId, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(curve.name())
}

/// Measures an adapter over one curve, in every tier that it has or in the one that `options`
/// force, and writes the result to the cache folder of `options`, where devices that are opened
/// later find it. Takes a few seconds, besides compiling the kernels of both accumulation methods. `progress` gets each measurement.
///
/// A way that gives a wrong result, or fails, is in the result with the reason, and is not chosen.
///
/// # Errors
/// [`Error::NoDevice`] and [`Error::Usage`] as [`GpuDevice::open`]; [`Error::DeviceFault`] if there
/// is no way that works, and nothing is written then.
pub fn probe(
    info: &DeviceInfo,
    options: &DeviceOptions,
    curve: CurveId,
    progress: &mut dyn FnMut(&Measurement),
) -> Result<Probe> {
    let start = Instant::now();
    let (measured, compile_ms) =
        with_curve!(curve, C => Prober::<C>::new(info, options)?.run(progress))?;
    let failed: Vec<&String> = measured
        .iter()
        .filter_map(|m| m.outcome.as_ref().err())
        .collect();
    if failed.len() == measured.len() {
        return Err(Error::DeviceFault {
            device: info.to_string(),
            message: match failed.first() {
                Some(why) => format!("no way of computing a sum works: {why}"),
                None => "no sum that could be measured fits its memory".to_owned(),
            },
        });
    }
    let folder = options.cache.path();
    let on_file = folder.as_deref().and_then(|f| file::load(f, info));
    let mut record = on_file.unwrap_or_else(|| TuningRecord::new(info));
    record.replace(&measured);
    let saved = folder.map(|folder| record.save(&folder, info));
    let file = match saved {
        Some(Ok(path)) => Some(path),
        Some(Err(error)) => {
            log::warn!("{info}: measurements not written: {error}");
            None
        }
        None => None,
    };
    Ok(Probe {
        device: info.to_string(),
        driver: info.driver.clone(),
        curve,
        measured,
        chosen: record.tuning(info),
        record,
        compile_ms,
        total_ms: milliseconds(start),
        file,
    })
}

/// A sum to compute. The bases' logarithms are known.
struct Problem<C: GpuCurve> {
    log2: u32,
    bases: Bytes,
    /// Canonical, 32 bytes each.
    scalars: Bytes,
    /// The sum's logarithm.
    log: C::Fr,
}

/// a·G, (a + b)·G, (a + 2b)·G, ….
fn progression<P: CurveGroup>(a: P::ScalarField, b: P::ScalarField) -> Vec<P::Affine> {
    let step = P::generator() * b;
    let first = P::generator() * a;
    let points = std::iter::successors(Some(first), |p| Some(*p + step));
    P::normalize_batch(&points.take(DISTINCT).collect::<Vec<P>>())
}

impl<C: GpuCurve> Problem<C> {
    fn new(group: Group, log2: u32) -> Self {
        let rng = &mut StdRng::seed_from_u64(u64::from(log2));
        let (a, b) = (C::Fr::rand(rng), C::Fr::rand(rng));
        let n = 1usize << log2;
        let mut bases = Vec::new();
        match group {
            Group::G1 => progression::<G1<C>>(a, b)
                .iter()
                .for_each(|p| g1_to_raw::<C>(p, &mut bases)),
            Group::G2 => progression::<G2<C>>(a, b)
                .iter()
                .for_each(|p| g2_to_raw::<C>(p, &mut bases)),
        }
        let bases = match n.checked_div(DISTINCT) {
            Some(0) | None => bases[..n * bases.len() / DISTINCT].to_vec(),
            Some(times) => bases.repeat(times),
        };
        let logs: Vec<C::Fr> = (0..DISTINCT as u64)
            .map(|i| a + b * C::Fr::from(i))
            .collect();
        let mut scalars = Vec::with_capacity(32 * n);
        let mut log = C::Fr::zero();
        for i in 0..n {
            let s = C::Fr::rand(rng);
            log += logs[i % DISTINCT] * s;
            scalars.extend(s.into_bigint().to_bytes_le());
        }
        Self {
            log2,
            bases: bases.into(),
            scalars: scalars.into(),
            log,
        }
    }

    /// Scalars and bases.
    fn upload(&self, gpu: &GpuDevice) -> Result<Vec<ResidentBuffer>> {
        let data = [
            ("scalars", self.scalars.clone()),
            ("bases", self.bases.clone()),
        ];
        gpu.upload_resident(&data, &RunOptions::default())
    }

    fn is_sum(&self, group: Group, bytes: &[u8], geometry: &Geometry) -> Result<bool> {
        Ok(match group {
            Group::G1 => msm::finish_g1::<C>(bytes, geometry)? == G1::<C>::generator() * self.log,
            Group::G2 => msm::finish_g2::<C>(bytes, geometry)? == G2::<C>::generator() * self.log,
        })
    }
}

/// One way to compute a sum in a tier.
#[derive(Clone, Copy, PartialEq)]
struct Way {
    group: Group,
    pairs: bool,
    window_shift: i32,
}

struct Prober<'a, C: GpuCurve> {
    info: &'a DeviceInfo,
    /// Without measurements on file, so that each way is what it says.
    options: DeviceOptions,
    tiers: Vec<WordTier>,
    defaults: MsmTuning,
    /// Opened anew after a failure.
    gpu: Option<Arc<GpuDevice>>,
    problems: Vec<(Group, Problem<C>)>,
    compile_ms: f64,
}

impl<'a, C: GpuCurve> Prober<'a, C> {
    fn new(info: &'a DeviceInfo, options: &DeviceOptions) -> Result<Self> {
        let tiers = match options.word_tier {
            Some(tier) => vec![tier],
            None => info.tiers.clone(),
        };
        let mut prober = Self {
            info,
            options: DeviceOptions {
                tuning: TuningSource::Defaults,
                ..options.clone()
            },
            tiers,
            defaults: MsmTuning::default_for(info),
            gpu: None,
            problems: Vec::new(),
            compile_ms: 0.0,
        };
        prober.open(prober.tiers[0])?;
        let log2 = prober.log2();
        prober.problems = vec![
            (Group::G1, Problem::new(Group::G1, log2)),
            (Group::G2, Problem::new(Group::G2, log2 - G2_FEWER_LOG2)),
        ];
        Ok(prober)
    }

    /// The device in a tier, its kernels compiled.
    fn open(&mut self, tier: WordTier) -> Result<Arc<GpuDevice>> {
        if let Some(gpu) = self.gpu.take_if(|gpu| gpu.tier() == tier) {
            self.gpu = Some(gpu.clone());
            return Ok(gpu);
        }
        let options = DeviceOptions {
            word_tier: Some(tier),
            ..self.options.clone()
        };
        // The old one's memory goes first.
        self.gpu = None;
        let gpu = GpuDevice::open(self.info, &options)?;
        let start = Instant::now();
        let of_sums = |k: &Kernel| {
            let starts = |part: &str| k.name().starts_with(part);
            // No way uses tables.
            ["msm_", "scan_", "points_"].into_iter().any(starts) && !starts("msm_table_")
        };
        let kernels = Kernel::ALL.into_iter().filter(of_sums);
        let kernels: Vec<_> = kernels.map(|k| (k, C::ID)).collect();
        // A refused kernel is the failure of the ways that need it.
        let _ = gpu.precompile(&kernels, &|_| Ok(()));
        self.compile_ms += milliseconds(start);
        self.gpu = Some(gpu.clone());
        Ok(gpu)
    }

    /// How many scalars to measure over G1, as a power of two.
    fn log2(&self) -> u32 {
        let Some(gpu) = self.gpu.as_ref().filter(|_| !self.info.software) else {
            return SOFTWARE_LOG2;
        };
        let way = Way {
            group: Group::G1,
            pairs: self.defaults.pairs_g1,
            window_shift: 0,
        };
        let time = |log2| {
            let problem = Problem::<C>::new(Group::G1, log2);
            let resident = problem.upload(gpu)?;
            let Some(sum) = Sum::prepare::<C>(gpu, &problem, way, &resident) else {
                return Ok(None);
            };
            sum.run(gpu, &problem)?;
            sum.run(gpu, &problem).map(Some)
        };
        let (first, last) = HARDWARE_LOG2;
        let mut log2 = first;
        while log2 < last {
            match time(log2) {
                Ok(Some(ms)) if ms < ENOUGH_MS => log2 += 2,
                Ok(None) | Err(Error::OutOfMemory { .. }) => return (log2 - 2).max(first),
                // What is wrong shows when it is measured.
                _ => break,
            }
        }
        log2
    }

    fn run(mut self, progress: &mut dyn FnMut(&Measurement)) -> Result<(Vec<Measurement>, f64)> {
        let mut all = Vec::new();
        for tier in self.tiers.clone() {
            for (group, shifts) in [(Group::G1, &SHIFTS[..]), (Group::G2, &[0])] {
                let default = self.defaults.pairs(group);
                let ways = [default, !default].into_iter().flat_map(|pairs| {
                    shifts.iter().map(move |&window_shift| Way {
                        group,
                        pairs,
                        window_shift,
                    })
                });
                let new = self.measure(tier, group, ways.collect())?;
                new.iter().for_each(&mut *progress);
                all.extend(new);
            }
        }
        Ok((all, self.compile_ms))
    }

    /// Measures ways of summing over one group. What does not fit, or is no way of its own, is left
    /// out.
    fn measure(
        &mut self,
        tier: WordTier,
        group: Group,
        mut ways: Vec<Way>,
    ) -> Result<Vec<Measurement>> {
        let mut failed = Vec::new();
        loop {
            let gpu = self.open(tier)?;
            let (_, problem) = self
                .problems
                .iter()
                .find(|(g, _)| *g == group)
                .expect("both");
            let runs = if self.info.software { 3 } else { 5 };
            let measured = rounds(&gpu, problem, &ways, runs);
            let measurement = |way: Way, window_bits, outcome| Measurement {
                curve: C::ID,
                tier,
                group,
                log2: problem.log2,
                pairs: way.pairs,
                window_shift: way.window_shift,
                window_bits,
                outcome,
            };
            let (times, broken) = match measured {
                Ok(measured) => measured,
                // Nothing of it fits.
                Err(Error::OutOfMemory { .. }) => return Ok(failed),
                Err(error) => return Err(error),
            };
            for (way, window_bits, error) in broken {
                log::warn!("{}, tier {}: {error}", self.info, tier.name());
                failed.push(measurement(way, window_bits, Err(error.to_string())));
                ways.retain(|w| *w != way);
            }
            if gpu.check_health().is_ok() {
                let times = times.into_iter();
                let times = times.map(|(way, bits, ms)| measurement(way, bits, Ok(ms)));
                return Ok(times.chain(failed).collect());
            }
            // The others again, on the device opened anew. With each loss there are fewer.
            self.gpu = None;
        }
    }
}

/// The ways that work with their digits and least times in milliseconds, and those that do not,
/// with why.
type Rounds = (Vec<(Way, u32, f64)>, Vec<(Way, u32, Error)>);

/// Times each way once a round, so that what else the machine does meanwhile meets all of them
/// alike; the first round compiles, and does not count. Ends early if the device is lost.
///
/// # Errors
/// Those of [`GpuDevice::upload_resident`].
fn rounds<C: GpuCurve>(
    gpu: &GpuDevice,
    problem: &Problem<C>,
    ways: &[Way],
    runs: usize,
) -> Result<Rounds> {
    let resident = problem.upload(gpu)?;
    let prepared = ways
        .iter()
        .filter_map(|way| Sum::prepare(gpu, problem, *way, &resident));
    let mut sums: Vec<(Sum, f64)> = prepared.map(|sum| (sum, f64::INFINITY)).collect();
    let mut broken = Vec::new();
    for round in 0..=runs {
        let mut at = 0;
        while let Some((sum, least)) = sums.get_mut(at) {
            match sum.run(gpu, problem) {
                Ok(ms) => {
                    if round > 0 {
                        *least = least.min(ms);
                    }
                    at += 1;
                }
                Err(error) => {
                    let (sum, _) = sums.remove(at);
                    if !matches!(error, Error::OutOfMemory { .. }) {
                        broken.push((sum.way, sum.geometry.window_bits, error));
                    }
                    if gpu.check_health().is_err() {
                        return Ok((Vec::new(), broken));
                    }
                }
            }
        }
    }
    let times = sums.into_iter();
    let times = times.map(|(sum, ms)| (sum.way, sum.geometry.window_bits, ms));
    Ok((times.collect(), broken))
}

/// A sum in one way, ready to be run.
struct Sum {
    way: Way,
    geometry: Geometry,
    recording: Recording,
    sums: WindowSums,
}

impl Sum {
    /// `None` if this way is none of its own, because the digits can not be so long or there is
    /// nothing for pairs to do, or if the sum does not fit one binding.
    fn prepare<C: GpuCurve>(
        gpu: &GpuDevice,
        problem: &Problem<C>,
        way: Way,
        resident: &[ResidentBuffer],
    ) -> Option<Self> {
        let Way { group, pairs, .. } = way;
        let n = 1usize << problem.log2;
        let max_binding = gpu.limits().plan().largest();
        let geometry = |window_shift| {
            let tuning = MsmTuning {
                pairs_g1: pairs,
                pairs_g2: pairs,
                window_shift,
                pairs_from: 0,
            };
            let (bits, point) = (msm::scalar_bits::<C>(), group.point_bytes(C::ID));
            let geometry = tuning.geometry(n, n, bits, point, max_binding)?;
            Some(tuning.passes(group, geometry, n))
        };
        let (plain, geometry) = (geometry(0)?, geometry(way.window_shift)?);
        let shifted = plain.window_bits as i32 + way.window_shift == geometry.window_bits as i32;
        if !shifted || (pairs && geometry.pair_levels == 0) {
            return None;
        }
        let mut recording = Recording::new();
        let [scalars, bases] = [0, 1].map(|i| {
            let id = recording.resident("probe", &resident[i]);
            recording.whole(id)
        });
        if bases.size > max_binding {
            return None;
        }
        let sorted = msm::record_sort(&mut recording, C::ID, scalars, geometry);
        let parts = [(sorted, msm::Bases::AtRest(bases))];
        let sums = msm::record_sums(&mut recording, C::ID, group, &parts);
        Some(Self {
            way,
            geometry,
            recording,
            sums,
        })
    }

    /// Milliseconds from the call to the window sums on the host.
    ///
    /// # Errors
    /// `DeviceFault` if the sum is wrong; those of [`GpuDevice::run`].
    fn run<C: GpuCurve>(&self, gpu: &GpuDevice, problem: &Problem<C>) -> Result<f64> {
        let start = Instant::now();
        let output = gpu.run(&self.recording, &RunOptions::default())?;
        let ms = milliseconds(start);
        let bytes = &output.downloads[self.sums.download.0 as usize];
        if problem.is_sum(self.way.group, bytes, &self.sums.geometry)? {
            return Ok(ms);
        }
        let (log2, pairs, bits) = (problem.log2, self.way.pairs, self.geometry.window_bits);
        Err(Error::DeviceFault {
            device: gpu.info().to_string(),
            message: format!(
                "wrong sum of 2^{log2} points, pairs first: {pairs}, {bits} bits a digit"
            ),
        })
    }
}

fn milliseconds(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1e3
}
