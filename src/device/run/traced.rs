//! What a submission did when, for traces.

use super::Run;
use crate::device::queue::DeviceClock;
use crate::device::submission::{DeviceTimes, InFlight};
use crate::trace::Trace;
use std::time::Instant;

impl Run<'_> {
    /// Records a submission on the device's track: its phases by the device's clock, or by work.
    pub(super) fn trace_device(
        &self,
        trace: &Trace,
        done: &InFlight,
        (start, end): (Instant, Instant),
        times: &DeviceTimes,
        clock: Option<DeviceClock>,
    ) {
        let device = &self.gpu.info().name;
        let name = |phase: usize| self.output.report.phases[phase].name;
        let (Some(clock), Some((begin, finish))) = (clock, times.whole) else {
            let name = done
                .phase_work
                .iter()
                .max_by_key(|p| p.1)
                .map(|p| name(p.0));
            trace.device(device, name.unwrap_or("submission"), start, end);
            return;
        };
        // Neighbouring passes of one phase as one span; what is between them are copies.
        let mut at = begin;
        let mut passes = times.passes.iter().copied().peekable();
        while let Some((phase, (from, mut until))) = passes.next() {
            while let Some(next) = passes.next_if(|next| next.0 == phase) {
                until = next.1.1;
            }
            if at < from {
                trace.device(device, "copy", clock.at(at), clock.at(from));
            }
            trace.device(device, name(phase), clock.at(from.max(at)), clock.at(until));
            at = until.max(at);
        }
        if at < finish {
            trace.device(device, "copy", clock.at(at), clock.at(finish));
        }
    }
}
