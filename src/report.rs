//! What a proof took: times, memory, and who computed it.

use crate::cpu;
use crate::trace::Trace;
use serde::Serialize;
use std::time::Instant;

/// One phase of a proof. Phases follow each other without gaps.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Phase {
    pub name: String,
    /// Who computed: `cpu`, `wgpu`, `cuda`.
    pub backend: String,
    /// Wall time in milliseconds.
    pub wall_ms: f64,
    /// Time that the device worked, in milliseconds, where it measures that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<f64>,
    /// Bytes of key and witness that the phase read.
    pub bytes: u64,
}

/// The memory plan that a proof went by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct MemoryUse {
    /// What of the key stays on the device, in words.
    pub plan: String,
    /// Largest buffer for multi-scalar multiplications.
    pub max_buffer_bytes: u64,
    /// Key on the device, shared by its proofs.
    pub resident_bytes: u64,
    /// Reserved for this proof alone.
    pub reserved_bytes: u64,
    /// Brought to the device by this proof.
    pub uploaded_bytes: u64,
}

/// What a process did for its first proof beside reading the key. The phases have what of it the
/// proof waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Startup {
    /// Finding the devices and opening those asked for.
    pub open_device_ms: f64,
    /// Compiling kernels, or finding them in the driver's cache.
    pub compile_ms: f64,
    /// Kernels that were compiled ahead, on all devices.
    pub kernels: usize,
}

/// Report of one proof; the phases' wall times add up to `wall_ms`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ProofReport {
    pub curve: String,
    pub n_vars: u64,
    pub n_public: u64,
    pub domain_size: u64,
    /// Who computed the sums of the proof: `cpu`, `wgpu`, `cuda`.
    pub backend: String,
    pub device: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Word tier of the shaders, `u64` or `u32`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<String>,
    /// Why the CPU took over from a device, if it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    pub wall_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device_ms: Option<f64>,
    pub phases: Vec<Phase>,
    /// Of a command's first proof.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub startup: Option<Startup>,
    /// What of the device's memory the proof took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryUse>,
    /// Most bytes of the device's arena in use at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_arena_bytes: Option<u64>,
    /// Most resident memory of the process so far, where the system tells.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_host_bytes: Option<u64>,
    /// Most bytes of host memory that the prover's calls had reserved at a time.
    pub peak_host_budget_bytes: u64,
    /// Whether the proof was verified before it was handed out.
    pub self_verified: bool,
    /// Version of this crate.
    pub version: String,
}

/// Cuts a proof's wall time into phases.
#[derive(Clone, Debug)]
pub struct PhaseClock {
    start: Instant,
    last: Instant,
    phases: Vec<Phase>,
    trace: Option<Trace>,
}

impl PhaseClock {
    pub fn start() -> Self {
        let now = Instant::now();
        Self {
            start: now,
            last: now,
            phases: Vec::new(),
            trace: None,
        }
    }
    /// As [`Self::start`]; the CPU's phases become spans of the trace, too. A device's phases
    /// overlap, and the device records them itself.
    pub fn traced(trace: Option<Trace>) -> Self {
        Self {
            trace,
            ..Self::start()
        }
    }
    /// The trace that phases go to.
    pub fn trace(&self) -> Option<&Trace> {
        self.trace.as_ref()
    }
    /// Ends a phase that began where the last one ended.
    pub fn end_phase(&mut self, name: &'static str, backend: &str, bytes: u64) -> &mut Phase {
        self.end_phase_at(Instant::now(), name, backend, bytes)
    }
    /// As [`Self::end_phase`], at a moment that has passed; no earlier than the last phase's end.
    pub fn end_phase_at(
        &mut self,
        end: Instant,
        name: &'static str,
        backend: &str,
        bytes: u64,
    ) -> &mut Phase {
        let now = end.max(self.last);
        if let Some(trace) = self.trace.as_ref().filter(|_| backend == cpu::BACKEND) {
            trace.host(name, self.last, now);
        }
        self.phases.push(Phase {
            name: name.into(),
            backend: backend.into(),
            wall_ms: milliseconds(self.last, now),
            device_ms: None,
            bytes,
        });
        self.last = now;
        self.phases.last_mut().expect("just pushed")
    }
    /// Ends several phases at once: those of `parts` with the wall times that were measured
    /// elsewhere, then `rest` with what is left of the time since the last phase.
    pub fn end_phases(&mut self, parts: Vec<Phase>, rest: &'static str, backend: &str) {
        let known: f64 = parts.iter().map(|p| p.wall_ms).sum();
        self.phases.extend(parts);
        self.end_phase(rest, backend, 0).wall_ms -= known;
    }
    /// The wall time up to the end of the last phase, and the phases.
    pub fn finish(self) -> (f64, Vec<Phase>) {
        (milliseconds(self.start, self.last), self.phases)
    }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}

/// Most resident memory of this process so far in bytes; `None` where the system does not tell.
pub fn peak_host_bytes() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Time of all processors that this process has used so far, in milliseconds; `None` where the
/// system does not tell.
pub fn processor_ms() -> Option<f64> {
    // User and system time, fields 14 and 15 of proc(5); the name in field 2 may hold anything.
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<f64>().ok();
    // In ticks, which Linux shows as hundredths of a second on all processors that it runs on
    // here.
    Some((next()? + next()?) * 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processor_time_passes() {
        let Some(before) = processor_ms() else {
            return;
        };
        let start = Instant::now();
        while start.elapsed().as_millis() < 50 {
            std::hint::spin_loop();
        }
        let passed = processor_ms().unwrap() - before;
        assert!(passed > 0.0 && passed < 1e6, "{passed} ms");
    }

    #[test]
    fn phases_add_up_to_the_wall_time() {
        let trace = Trace::new();
        let mut clock = PhaseClock::traced(Some(trace.clone()));
        for (name, backend) in [("a", "cpu"), ("b", "wgpu"), ("c", "cpu")] {
            std::thread::sleep(std::time::Duration::from_millis(2));
            clock.end_phase(name, backend, 0);
        }
        let (wall, phases) = clock.finish();
        let spans: Vec<_> = trace.spans().into_iter().map(|s| s.name).collect();
        assert_eq!(spans, ["a", "c"], "the CPU's phases");
        let sum: f64 = phases.iter().map(|p| p.wall_ms).sum();
        assert!((wall - sum).abs() < 1e-6 && wall >= 6.0);
    }
}
