//! Choices that no rule makes well for every adapter, made by measuring: the shaders' word tier,
//! whether bucket sums go by pairs first, and how long digits are.
//!
//! [`probe()`] times short multi-scalar multiplications, each checked; [`mod@file`] remembers what it
//! measured for this adapter, driver and version; [`choose`] decides, as a pure function over the
//! measurements, whenever a device is opened. Every choice gives the same results, so that a record
//! which is missing, or from somewhere else, costs time and nothing else.

pub mod file;
pub mod probe;

pub use file::TuningRecord;
pub use probe::{Probe, probe};

use crate::curve::CurveId;
use crate::device::{DeviceInfo, DeviceOptions};
use crate::kernels::WordTier;
use crate::msm::{Geometry, Group};
use serde::{Serialize, Serializer};
use serde_json::json;

/// Something else than the default must take less than this share of the default's time. Run to
/// run, times differ by a few percent.
const GAIN: f64 = 0.95;

/// How multi-scalar multiplications over one curve go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MsmTuning {
    /// Whether bucket sums over G1 go by pairs first ([`Geometry::with_pairs`]).
    pub pairs_g1: bool,
    /// The same over G2.
    pub pairs_g2: bool,
    /// Bits that digits have more than [`Geometry::new`]'s estimate gives them.
    ///
    /// That estimate weighs the additions of reductions against those of accumulation. Where the
    /// former are 2^s times cheaper than it assumes, the best digit is about s bits longer, whatever
    /// the number of scalars, since windows·n additions stand against windows·2^bits. So one number
    /// measured at one size does for all.
    pub window_shift: i32,
    /// Digits from which on pairs are worth their passes, where they are on.
    pub pairs_from: u64,
}

impl MsmTuning {
    /// What holds where nothing was measured. Pairs win; on cards where there are enough of them to
    /// fill the device (`benches/RESULTS.md`).
    pub fn default_for(info: &DeviceInfo) -> Self {
        Self {
            pairs_g1: true,
            pairs_g2: true,
            window_shift: 0,
            pairs_from: if info.software { 1 << 14 } else { 1 << 22 },
        }
    }

    /// Whether sums over a group go by pairs.
    pub fn pairs(&self, group: Group) -> bool {
        match group {
            Group::G1 => self.pairs_g1,
            Group::G2 => self.pairs_g2,
        }
    }

    /// [`Geometry::new`] with the measured digits. As there, all buffers together take no more than
    /// if all `n` scalars were dense, and no buffer for points of `point_bytes` exceeds
    /// `max_binding` bytes; `None` if `n` scalars do not fit.
    pub fn geometry(
        &self,
        n: usize,
        dense: usize,
        scalar_bits: u32,
        point_bytes: u64,
        max_binding: u64,
    ) -> Option<Geometry> {
        let entries = |g: &Geometry| u64::from(g.n) * u64::from(g.windows);
        let buckets = |g: &Geometry| u64::from(g.windows) * u64::from(g.buckets);
        let shifted = |dense| {
            let estimated = Geometry::new(n, dense, scalar_bits, point_bytes, max_binding)?;
            // Within what `Geometry::new` considers.
            let bits = estimated.window_bits as i32 + self.window_shift;
            let bits = bits.clamp(2, 20) as u32;
            let measured = Geometry::with_window(n, scalar_bits, bits, max_binding);
            let fits = |g: &Geometry| {
                buckets(g) * point_bytes <= max_binding && 4 * entries(g) <= max_binding
            };
            Some(measured.filter(fits).unwrap_or(estimated))
        };
        // Ranks and entries; buckets and their nodes.
        let bytes = |g: &Geometry| 8 * entries(g) + 2 * buckets(g) * point_bytes;
        let planned_for = shifted(n)?;
        let best = shifted(dense)?;
        Some(match bytes(&best) <= bytes(&planned_for) {
            true => best,
            false => planned_for,
        })
    }

    /// The same geometry for sums over a group, with the passes of pairs that they take for `dense`
    /// scalars that are neither 0 nor 1.
    pub fn passes(&self, group: Group, geometry: Geometry, dense: usize) -> Geometry {
        let digits = dense as u64 * u64::from(geometry.windows);
        match self.pairs(group) && digits >= self.pairs_from {
            true => geometry.with_pairs(dense),
            false => Geometry {
                pair_levels: 0,
                ..geometry
            },
        }
    }
}

/// `g1` or `g2`.
fn group_name(group: Group) -> &'static str {
    match group {
        Group::G1 => "g1",
        Group::G2 => "g2",
    }
}

/// [`MsmTuning`] for each curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct MsmTunings {
    pub bls12_381: MsmTuning,
    pub bn254: MsmTuning,
}

impl MsmTunings {
    pub fn of(&self, curve: CurveId) -> MsmTuning {
        match curve {
            CurveId::Bls12_381 => self.bls12_381,
            CurveId::Bn254 => self.bn254,
        }
    }
}

/// Where a device's choices come from. Options that name one, as
/// [`DeviceOptions::word_tier`], go before all of these.
#[derive(Clone, Debug, Default)]
pub enum TuningSource {
    /// What is on file in [`DeviceOptions::cache`] for this adapter, its driver and this version;
    /// else the defaults.
    #[default]
    Cached,
    /// The defaults.
    Defaults,
    /// The first of these that is for the adapter; else what is on file.
    Records(Vec<TuningRecord>),
}

/// One way to compute a sum, and how long it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Measurement {
    pub curve: CurveId,
    pub tier: WordTier,
    pub group: Group,
    /// Scalars, as a power of two; uniform.
    pub log2: u32,
    /// Whether pairs were summed first.
    pub pairs: bool,
    pub window_shift: i32,
    /// Bits of a digit, with the shift.
    pub window_bits: u32,
    /// Least time of several runs in milliseconds, from the call to the window sums on the host; or
    /// why this way is not to be taken: the result was wrong, or the device failed.
    pub outcome: Result<f64, String>,
}

impl Serialize for Measurement {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        file::Line::from(self).serialize(s)
    }
}

/// What follows from measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    pub word_tier: WordTier,
    /// For each curve and tier that was measured.
    pub msm: Vec<(CurveId, WordTier, MsmTuning)>,
    defaults: MsmTuning,
}

impl Serialize for Tuning {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let msm = self.msm.iter().map(|(curve, tier, msm)| {
            json!({
                "curve": curve.name(), "tier": tier.name(), "pairs_g1": msm.pairs_g1,
                "pairs_g2": msm.pairs_g2, "window_shift": msm.window_shift,
            })
        });
        let msm: Vec<_> = msm.collect();
        json!({ "word_tier": self.word_tier.name(), "msm": msm }).serialize(s)
    }
}

impl Tuning {
    /// The choice for a tier over each curve; the default where it was not measured.
    pub fn msm(&self, tier: WordTier) -> MsmTunings {
        let of = |curve| {
            let of_it = |(c, t, _): &&(CurveId, WordTier, MsmTuning)| (*c, *t) == (curve, tier);
            let found = self.msm.iter().find(of_it);
            found.map_or(self.defaults, |(.., msm)| *msm)
        };
        MsmTunings {
            bls12_381: of(CurveId::Bls12_381),
            bn254: of(CurveId::Bn254),
        }
    }
}

/// The measurements of one curve in one tier.
struct Measured<'a> {
    all: &'a [Measurement],
    curve: CurveId,
    tier: WordTier,
}

impl Measured<'_> {
    /// Time of a way; infinite if it failed. `None` if it was not measured.
    fn time(&self, group: Group, pairs: bool, shift: i32) -> Option<f64> {
        let way = |m: &&Measurement| {
            (m.curve, m.tier, m.group) == (self.curve, self.tier, group)
                && (m.pairs, m.window_shift) == (pairs, shift)
        };
        let found = self.all.iter().find(way);
        found.map(|m| m.outcome.as_ref().map_or(f64::INFINITY, |ms| *ms))
    }

    /// Whether a group's sums go by pairs, and their time.
    fn pairs(&self, group: Group, default: bool) -> (bool, Option<f64>) {
        let times = [default, !default].map(|pairs| self.time(group, pairs, 0));
        match times {
            [Some(stands), Some(other)] if other < GAIN * stands => (!default, Some(other)),
            [stands, _] => (default, stands),
        }
    }

    fn msm(&self, defaults: &MsmTuning) -> MsmTuning {
        let (pairs_g1, time) = self.pairs(Group::G1, defaults.pairs_g1);
        let (pairs_g2, _) = self.pairs(Group::G2, defaults.pairs_g2);
        let shifts = self.all.iter().map(|m| m.window_shift);
        let times = shifts.filter_map(|s| Some((s, self.time(Group::G1, pairs_g1, s)?)));
        // Among equals the smaller shift.
        let best = times.min_by(|(a, ta), (b, tb)| {
            let shifts = (a.abs(), a).cmp(&(b.abs(), b));
            ta.total_cmp(tb).then(shifts)
        });
        let window_shift = match (best, time) {
            (Some((shift, best)), Some(stands)) if best < GAIN * stands => shift,
            _ => 0,
        };
        MsmTuning {
            pairs_g1,
            pairs_g2,
            window_shift,
            pairs_from: defaults.pairs_from,
        }
    }

    /// Time of a sum over each group; infinite if there is no way that works. `None` if a group was
    /// not measured.
    fn total(&self, defaults: &MsmTuning) -> Option<f64> {
        let groups = [Group::G1, Group::G2].map(|g| self.pairs(g, defaults.pairs(g)).1);
        groups.into_iter().sum()
    }
}

/// The choices that measurements lead to, on an adapter with these `tiers`, the preferred one
/// first, and these `defaults`. What is not faster than a default by more than noise does not
/// replace it, what failed is not chosen, and neither is what was not measured. The tier is the one
/// that is faster over all curves that were measured in both.
pub fn choose(measurements: &[Measurement], tiers: &[WordTier], defaults: MsmTuning) -> Tuning {
    let measured = |curve, tier| Measured {
        all: measurements,
        curve,
        tier,
    };
    let total = |curve, tier| measured(curve, tier).total(&defaults);
    let standing = tiers[0];
    let share = |tier: WordTier| {
        let both = CurveId::ALL.map(|c| total(c, standing).zip(total(c, tier)));
        let both = both.into_iter().flatten();
        both.reduce(|(a, b), (c, d)| (a + c, b + d))
    };
    let faster = tiers[1..].iter().copied().find(|tier| {
        let times = share(*tier);
        times.is_some_and(|(stands, other)| other < GAIN * stands)
    });
    let mut msm = Vec::new();
    for curve in CurveId::ALL {
        for &tier in tiers {
            let of_it = |m: &Measurement| (m.curve, m.tier) == (curve, tier);
            if measurements.iter().any(of_it) {
                msm.push((curve, tier, measured(curve, tier).msm(&defaults)));
            }
        }
    }
    Tuning {
        word_tier: faster.unwrap_or(standing),
        msm,
        defaults,
    }
}

/// The tier and the choices that a device is opened with.
pub(crate) fn resolve(info: &DeviceInfo, options: &DeviceOptions) -> (WordTier, MsmTunings) {
    let on_file = || file::load(&options.cache.path()?, info);
    let record = match &options.tuning {
        TuningSource::Defaults => None,
        TuningSource::Cached => on_file(),
        TuningSource::Records(records) => {
            let given = records.iter().find(|r| r.is_for(info));
            given.cloned().or_else(on_file)
        }
    };
    let measurements = record.as_ref().map_or(&[][..], |r| &r.measurements);
    let tuning = choose(measurements, &info.tiers, MsmTuning::default_for(info));
    let tier = options.word_tier.unwrap_or(tuning.word_tier);
    (tier, tuning.msm(tier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TIERS: [WordTier; 2] = [WordTier::U64, WordTier::U32];
    const NO_PAIRS: MsmTuning = MsmTuning {
        pairs_g1: false,
        pairs_g2: false,
        window_shift: 0,
        pairs_from: 0,
    };

    fn measured(
        tier: WordTier,
        group: Group,
        pairs: bool,
        window_shift: i32,
        ms: f64,
    ) -> Measurement {
        Measurement {
            curve: CurveId::Bn254,
            tier,
            group,
            log2: 16,
            pairs,
            window_shift,
            window_bits: 12,
            // For tests: no time is a failure.
            outcome: match ms > 0.0 {
                true => Ok(ms),
                false => Err("wrong sum".into()),
            },
        }
    }

    /// A tier in which sums over G1 take `ms` and over G2 three times that, pairs or not.
    fn even(tier: WordTier, ms: f64) -> Vec<Measurement> {
        let ways = [
            (Group::G1, false),
            (Group::G1, true),
            (Group::G2, false),
            (Group::G2, true),
        ];
        ways.map(|(group, pairs)| {
            let cost = if group == Group::G2 { 3.0 } else { 1.0 };
            measured(tier, group, pairs, 0, cost * ms)
        })
        .to_vec()
    }

    fn set(all: &mut [Measurement], tier: WordTier, group: Group, pairs: bool, ms: f64) {
        let new = measured(tier, group, pairs, 0, ms);
        let way = |m: &&mut Measurement| (m.tier, m.group, m.pairs) == (tier, group, pairs);
        *all.iter_mut().find(way).unwrap() = new;
    }

    fn chosen(all: &[Measurement], defaults: MsmTuning) -> (WordTier, MsmTuning) {
        let tuning = choose(all, &TIERS, defaults);
        let tier = tuning.word_tier;
        (tier, tuning.msm(tier).bn254)
    }

    #[test]
    fn nothing_measured_leaves_the_defaults() {
        let defaults = MsmTuning {
            pairs_g1: true,
            ..NO_PAIRS
        };
        assert_eq!(chosen(&[], defaults), (WordTier::U64, defaults));
        // One tier alone says nothing about the other, however slow or broken it is.
        let slow = even(WordTier::U64, 1e9);
        assert_eq!(chosen(&slow, NO_PAIRS).0, WordTier::U64);
        let broken = even(WordTier::U64, 0.0);
        assert_eq!(chosen(&broken, NO_PAIRS), (WordTier::U64, NO_PAIRS));
    }

    #[test]
    fn the_faster_tier_is_chosen_unless_it_is_noise() {
        for (u32_ms, tier) in [
            (5.0, WordTier::U32),
            (9.6, WordTier::U64),
            (20.0, WordTier::U64),
            (0.0, WordTier::U64),
        ] {
            let all = [even(WordTier::U64, 10.0), even(WordTier::U32, u32_ms)].concat();
            assert_eq!(chosen(&all, NO_PAIRS).0, tier, "{u32_ms}");
        }
        // Over all curves together.
        let mut all = [even(WordTier::U64, 10.0), even(WordTier::U32, 5.0)].concat();
        let other = |mut m: Measurement| {
            m.curve = CurveId::Bls12_381;
            m
        };
        all.extend(even(WordTier::U64, 10.0).into_iter().map(other));
        all.extend(even(WordTier::U32, 30.0).into_iter().map(other));
        assert_eq!(chosen(&all, NO_PAIRS).0, WordTier::U64);
    }

    #[test]
    fn pairs_are_chosen_for_each_group() {
        let mut all = even(WordTier::U64, 10.0);
        set(&mut all, WordTier::U64, Group::G2, true, 20.0);
        let (_, msm) = chosen(&all, NO_PAIRS);
        assert_eq!((msm.pairs_g1, msm.pairs_g2), (false, true));
        let pairs = MsmTuning {
            pairs_g1: true,
            pairs_g2: true,
            window_shift: 0,
            pairs_from: 0,
        };
        // Where they are the default, too.
        set(&mut all, WordTier::U64, Group::G1, false, 9.0);
        let (_, msm) = chosen(&all, pairs);
        assert_eq!((msm.pairs_g1, msm.pairs_g2), (false, true));
    }

    #[test]
    fn a_wrong_result_disqualifies() {
        let pairs = MsmTuning {
            pairs_g1: true,
            pairs_g2: true,
            window_shift: 0,
            pairs_from: 0,
        };
        let mut all = [even(WordTier::U64, 10.0), even(WordTier::U32, 50.0)].concat();
        set(&mut all, WordTier::U64, Group::G1, true, 0.0);
        let (tier, msm) = chosen(&all, pairs);
        assert_eq!(tier, WordTier::U64);
        assert_eq!((msm.pairs_g1, msm.pairs_g2), (false, true));
        // With no way left in a group, the tier is out, though it were the faster one.
        set(&mut all, WordTier::U64, Group::G1, false, 0.0);
        assert_eq!(chosen(&all, pairs).0, WordTier::U32);
        all.push(measured(WordTier::U32, Group::G1, true, 1, 0.0));
        assert_eq!(chosen(&all, pairs).1.window_shift, 0);
    }

    #[test]
    fn digits_are_as_long_as_was_fastest() {
        let mut all = even(WordTier::U64, 10.0);
        all.push(measured(WordTier::U64, Group::G1, false, 1, 9.0));
        all.push(measured(WordTier::U64, Group::G1, false, -1, 9.7));
        assert_eq!(chosen(&all, NO_PAIRS).1.window_shift, 1);
        // Of another way, and of noise, nothing follows.
        all[4].pairs = true;
        assert_eq!(chosen(&all, NO_PAIRS).1.window_shift, 0);
    }

    proptest! {
        #[test]
        fn the_order_of_measurements_does_not_matter(
            times in proptest::collection::vec(0.0f64..100.0, 12),
            turn in 0usize..12,
        ) {
            let mut all = [even(WordTier::U64, 1.0), even(WordTier::U32, 1.0)].concat();
            for shift in [-1, 1] {
                all.push(measured(WordTier::U64, Group::G1, false, shift, 1.0));
                all.push(measured(WordTier::U32, Group::G1, true, shift, 1.0));
            }
            for (m, ms) in all.iter_mut().zip(&times) {
                m.outcome = Ok(*ms);
            }
            let first = choose(&all, &TIERS, NO_PAIRS);
            all.rotate_left(turn);
            prop_assert_eq!(first, choose(&all, &TIERS, NO_PAIRS));
        }

        /// Whatever was measured, a geometry fits as one without it would.
        #[test]
        fn geometries_keep_to_what_was_planned(
            n in 1usize..1 << 20,
            dense in 0.0f64..=1.0,
            window_shift in -3i32..=3,
            max_binding in 20u32..32,
        ) {
            let max_binding = 1u64 << max_binding;
            let tuning = MsmTuning { window_shift, ..NO_PAIRS };
            let dense = (n as f64 * dense) as usize;
            let make = |dense| tuning.geometry(n, dense, 255, 192, max_binding);
            let plain = Geometry::new(n, n, 255, 192, max_binding);
            let (Some(full), Some(g)) = (make(n), make(dense)) else {
                prop_assert!(plain.is_none());
                return Ok(());
            };
            let bytes = |g: &Geometry| {
                let windows = u64::from(g.windows);
                8 * n as u64 * windows + 2 * windows * u64::from(g.buckets) * 192
            };
            prop_assert!(bytes(&g) <= bytes(&full));
            prop_assert!(u64::from(g.windows) * u64::from(g.buckets) * 192 <= max_binding);
            prop_assert!(4 * n as u64 * u64::from(g.windows) <= max_binding);
            if window_shift == 0 {
                prop_assert_eq!(Some(g), Geometry::new(n, dense, 255, 192, max_binding));
            }
        }
    }
}
