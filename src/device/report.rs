//! What a run gave, and how long each part of it took.

use crate::device::submission::InFlight;
use serde::Serialize;
use std::time::{Duration, Instant};

/// What a recording gave.
#[derive(Clone, Debug, Default)]
pub struct RunOutput {
    /// By [`super::recording::DownloadId`].
    pub downloads: Vec<Vec<u8>>,
    pub report: RunReport,
}

/// Times of one phase of a recording.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PhaseTime {
    pub name: &'static str,
    /// First and last moment of its work on the device, from the start of the run, as seen from
    /// the host.
    pub start_ms: f64,
    pub end_ms: f64,
    /// Its share of the time between, by estimated work where phases share a submission.
    pub wall_ms: f64,
    /// Time on the device's own clock, where it has one.
    pub device_ms: Option<f64>,
    /// Estimated field multiplications.
    pub work: u64,
}

/// Figures of one run. Times are in milliseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunReport {
    pub phases: Vec<PhaseTime>,
    /// Compiling, waiting for memory, bringing the kept set, filling staging buffers, waiting for the turn, having it.
    pub compile_ms: f64,
    pub reserve_ms: f64,
    pub fill_ms: f64,
    pub staging_ms: f64,
    pub turn_wait_ms: f64,
    pub turn_ms: f64,
    pub total_ms: f64,
    pub submissions: u32,
    pub slowest_submission_ms: f64,
    /// Device memory reserved, and bytes copied there and back.
    pub reserved_bytes: u64,
    pub uploaded_bytes: u64,
    pub downloaded_bytes: u64,
}

/// Milliseconds.
pub(super) fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

impl RunReport {
    /// Without times yet, for the phases with these names.
    pub(super) fn new<'a>(names: impl Iterator<Item = &'a &'static str>) -> Self {
        // What comes before the first named phase.
        let phases = std::iter::once(&"start")
            .chain(names)
            .map(|name| PhaseTime {
                name,
                start_ms: f64::INFINITY,
                end_ms: 0.0,
                wall_ms: 0.0,
                device_ms: None,
                work: 0,
            });
        Self {
            phases: phases.collect(),
            ..Default::default()
        }
    }

    /// Books a submission that ran from `start` to `end` in a run that began at `run_start`;
    /// `passes` are the device's own times with the phase of each.
    pub(super) fn book(
        &mut self,
        submission: &InFlight,
        run_start: Instant,
        start: Instant,
        end: Instant,
        passes: impl Iterator<Item = (usize, Duration)>,
    ) {
        let wall = ms(end - start);
        self.slowest_submission_ms = self.slowest_submission_ms.max(wall);
        for (phase, time) in passes {
            *self.phases[phase].device_ms.get_or_insert(0.0) += ms(time);
        }
        let mut at = ms(start.saturating_duration_since(run_start));
        let all: u64 = submission.phase_work.iter().map(|p| p.1).sum();
        for &(phase, work) in &submission.phase_work {
            let share = wall * work as f64 / all.max(1) as f64;
            let phase = &mut self.phases[phase];
            phase.start_ms = phase.start_ms.min(at);
            at += share;
            phase.end_ms = phase.end_ms.max(at);
            phase.wall_ms += share;
            phase.work += work;
        }
    }

    /// Drops the phases in which nothing happened.
    pub(super) fn finish(&mut self, total: Duration) {
        self.total_ms = ms(total);
        self.phases.retain(|p| p.work > 0 || p.wall_ms > 0.0);
    }
}
