//! The timeline as a picture.

use super::{Span, tracks};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Pixels.
const WIDTH: f64 = 1400.0;
const LABELS: f64 = 190.0;
const MARGIN: f64 = 30.0;
const PLOT: f64 = WIDTH - LABELS - MARGIN;
const TOP: f64 = 34.0;
const LANE: f64 = 16.0;
const ROW_GAP: f64 = 8.0;
const LEGEND_LINE: f64 = 18.0;
/// What is thinner, or further apart than this, is not told apart.
const THIN: f64 = 0.3;
/// Merged bars end here, so that they show where what lies below them changes.
const MERGED: f64 = 1.0;
/// Rows of bars of one track; what overlaps still more is drawn over the last.
const LANES: usize = 4;
/// Characters of a track's name that fit beside its row.
const LABEL: usize = 26;

/// One bar: a span, or several thin ones.
struct Bar {
    lane: usize,
    start: f64,
    end: f64,
    /// Microseconds and number of spans by name.
    names: BTreeMap<&'static str, (f64, usize)>,
}

impl Bar {
    fn spans(&self) -> usize {
        self.names.values().map(|n| n.1).sum()
    }
    /// The name with most time.
    fn name(&self) -> &'static str {
        let most = self.names.iter().max_by(|a, b| a.1.0.total_cmp(&b.1.0));
        most.map_or("", |(name, _)| name)
    }
    fn title(&self) -> String {
        let us: f64 = self.names.values().map(|n| n.0).sum();
        let (name, ms, at) = (self.name(), us / 1e3, self.start / 1e3);
        match self.spans() {
            1 => format!("{name}: {ms:.3} ms from {at:.3} ms"),
            n => format!("{n} spans, mostly {name}: {ms:.3} ms from {at:.3} ms"),
        }
    }
}

/// The bars of a track whose spans come by start, from `origin` on. What overlaps goes to lanes of
/// its own; `us` are the microseconds of a pixel.
fn bars<'a>(spans: impl Iterator<Item = &'a Span>, origin: f64, us: f64) -> Vec<Bar> {
    let mut ends: Vec<f64> = Vec::new();
    // Index of each lane's last bar.
    let mut last: Vec<Option<usize>> = Vec::new();
    let mut bars: Vec<Bar> = Vec::new();
    for span in spans {
        let (start, end) = (span.start_us - origin, span.end_us - origin);
        // An overlap that can not be seen is none.
        let free = ends.iter().position(|e| *e <= start + THIN * us);
        let lane = free.unwrap_or(ends.len()).min(LANES - 1);
        if lane == ends.len() {
            ends.push(0.0);
            last.push(None);
        }
        ends[lane] = ends[lane].max(end);
        let thin = |from: f64, to: f64| to - from < THIN * us;
        if let Some(bar) = last[lane].map(|i| &mut bars[i])
            && thin(start, end)
            && thin(bar.end, start)
            && (bar.spans() > 1 || thin(bar.start, bar.end))
            && end - bar.start < MERGED * us
        {
            bar.end = bar.end.max(end);
            let name = bar.names.entry(span.name).or_default();
            *name = (name.0 + end - start, name.1 + 1);
            continue;
        }
        last[lane] = Some(bars.len());
        bars.push(Bar {
            lane,
            start,
            end,
            names: BTreeMap::from([(span.name, (end - start, 1))]),
        });
    }
    bars
}

/// Distance of ticks: 1, 2 or 5 times a power of ten, for 16 ticks at most.
fn tick(total_ms: f64) -> f64 {
    let least = (total_ms / 16.0).max(1e-4);
    let power = 10f64.powf(least.log10().floor());
    let steps = [1.0, 2.0, 5.0].map(|s| s * power);
    steps
        .into_iter()
        .find(|s| *s >= least)
        .unwrap_or(10.0 * power)
}

/// A colour for each name: hues a golden angle apart in two shades; greys for waits, so that work
/// stands out.
fn colours(spans: &[Span]) -> BTreeMap<&'static str, String> {
    let mut colours: BTreeMap<_, _> = spans.iter().map(|s| (s.name, String::new())).collect();
    let (mut works, mut waits) = (0u32, 0u32);
    for (name, colour) in &mut colours {
        *colour = if name.contains("wait") {
            waits += 1;
            let grey = 205 - 22 * (waits.min(6) - 1);
            format!("#{grey:02x}{grey:02x}{grey:02x}")
        } else {
            let hue = f64::from(works) * 137.508 + 210.0;
            let light = [0.48, 0.66][works as usize % 2];
            works += 1;
            hsl(hue, 0.55, light)
        };
    }
    colours
}

fn hsl(hue: f64, saturation: f64, light: f64) -> String {
    let channel = |n: f64| {
        let k = (n + hue / 30.0) % 12.0;
        let a = saturation * light.min(1.0 - light);
        let value = light - a * (k - 3.0).min(9.0 - k).clamp(-1.0, 1.0);
        (value * 255.0).round() as u8
    };
    let (r, g, b) = (channel(0.0), channel(8.0), channel(4.0));
    format!("#{r:02x}{g:02x}{b:02x}")
}

fn escape(text: &str) -> String {
    text.chars().fold(String::new(), |mut out, c| {
        match c {
            '&' => out += "&amp;",
            '<' => out += "&lt;",
            '>' => out += "&gt;",
            '"' => out += "&quot;",
            // XML has no other control characters, escaped or not.
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
        out
    })
}

/// A name as it fits beside a row.
fn label(track: &str) -> String {
    match track.char_indices().nth(LABEL - 1) {
        Some((at, c)) if at + c.len_utf8() < track.len() => escape(&track[..at]) + "…",
        _ => escape(track),
    }
}

/// Draws spans that are sorted by start.
pub(super) fn draw(spans: &[Span]) -> String {
    let origin = spans.first().map_or(0.0, |s| s.start_us);
    let last = spans.iter().map(|s| s.end_us).fold(origin, f64::max);
    let total = (last - origin).max(1.0);
    let us = total / PLOT;
    let x = |at: f64| LABELS + at / us;
    let colours = colours(spans);
    let mut rows = String::new();
    let mut y = TOP;
    // Writing to a String does not fail.
    for (is_device, track) in tracks(spans) {
        let own = |s: &&Span| s.is_device == is_device && s.track == track;
        let bars = bars(spans.iter().filter(own), origin, us);
        let lanes = bars.iter().map(|b| b.lane + 1).max().unwrap_or(1);
        let height = lanes as f64 * LANE;
        let middle = y + height / 2.0 + 4.0;
        let (title, label) = (escape(track), label(track));
        let _ = writeln!(
            rows,
            "<text x=\"8\" y=\"{middle:.1}\">{label}<title>{title}</title></text>\n\
             <rect x=\"{LABELS}\" y=\"{y:.1}\" width=\"{PLOT}\" height=\"{height:.1}\" fill=\"#f4f4f4\"/>"
        );
        for bar in &bars {
            let (left, top) = (x(bar.start), y + bar.lane as f64 * LANE + 1.0);
            let width = (x(bar.end) - left).max(THIN);
            let (fill, title) = (&colours[bar.name()], escape(&bar.title()));
            let height = LANE - 2.0;
            let _ = writeln!(
                rows,
                "<rect x=\"{left:.2}\" y=\"{top:.1}\" width=\"{width:.2}\" height=\"{height}\" \
                 fill=\"{fill}\"><title>{title}</title></rect>"
            );
            let name = escape(bar.name());
            if bar.spans() == 1 && width > 6.0 * name.len() as f64 + 8.0 {
                let (left, base) = (left + 4.0, top + 10.5);
                let _ = writeln!(
                    rows,
                    "<text x=\"{left:.1}\" y=\"{base:.1}\" font-size=\"10\" \
                     pointer-events=\"none\">{name}</text>"
                );
            }
        }
        y += height + ROW_GAP;
    }

    let mut axis = String::new();
    let step = tick(total / 1e3);
    let decimals = (-step.log10().floor()).max(0.0) as usize;
    for i in 0..=(total / 1e3 / step) as usize {
        let ms = i as f64 * step;
        let (at, bottom, above) = (x(ms * 1e3), y - ROW_GAP / 2.0, TOP - 8.0);
        let _ = writeln!(
            axis,
            "<path d=\"M{at:.1} {above}V{bottom:.1}\" stroke=\"#999\" stroke-width=\"0.5\"/>\
             <text x=\"{at:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{ms:.decimals$} ms</text>",
            above - 6.0
        );
    }

    let mut legend = String::new();
    let mut left = LABELS;
    y += LEGEND_LINE;
    for (name, colour) in &colours {
        let width = 34.0 + 6.5 * name.len() as f64;
        if left + width > WIDTH - MARGIN && left > LABELS {
            left = LABELS;
            y += LEGEND_LINE;
        }
        let (top, text, name) = (y - 10.0, left + 17.0, escape(name));
        let _ = writeln!(
            legend,
            "<rect x=\"{left:.1}\" y=\"{top:.1}\" width=\"12\" height=\"12\" fill=\"{colour}\"/>\
             <text x=\"{text:.1}\" y=\"{y:.1}\">{name}</text>"
        );
        left += width;
    }
    let height = y + MARGIN;
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {WIDTH} {height:.0}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n{rows}{axis}{legend}</svg>\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(track: &str, name: &'static str, start_us: f64, end_us: f64) -> Span {
        Span {
            track: track.to_owned(),
            is_device: track.starts_with("device"),
            name,
            start_us,
            end_us,
        }
    }

    #[test]
    fn every_track_and_name_is_drawn() {
        let spans = [
            span("worker 1", "check", 5e3, 9e3),
            span("device <A & B>", "sort", 6e3, 8e3),
            span("worker 2", "turn wait", 7e3, 25e3),
        ];
        let svg = draw(&spans);
        let at = |text: &str| svg.find(text).unwrap_or_else(|| panic!("no {text}: {svg}"));
        assert!(at("device &lt;A &amp; B&gt;") < at("worker 1"));
        assert!(at("worker 1") < at("worker 2"));
        for text in [
            "check: 4.000 ms from 0.000 ms",
            "sort: 2.000 ms from 1.000 ms",
        ] {
            at(&format!("<title>{text}</title>"));
        }
        // 20 ms over the plot: the last span is 18 ms wide, and ticks are 2 ms apart.
        at(&format!("width=\"{:.2}\"", 0.9 * PLOT));
        at(">18 ms<");
        assert_eq!(svg.matches("width=\"12\"").count(), 3, "the legend");
        let fills: Vec<_> = colours(&spans).into_values().collect();
        assert!(fills.iter().all(|f| f.len() == 7));
        assert!(fills[0] != fills[1] && fills[1] != fills[2] && fills[0] != fills[2]);
    }

    #[test]
    fn an_empty_trace_is_a_picture_too() {
        let svg = draw(&[]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn overlaps_go_to_lanes_and_thin_spans_are_merged() {
        let track = "worker 1";
        let outer = span(track, "outer", 0.0, 100.0);
        let inner = span(track, "inner", 10.0, 20.0);
        let next = span(track, "next", 100.0, 150.0);
        let nested = bars([&outer, &inner, &next].into_iter(), 0.0, 1.0);
        let lanes: Vec<_> = nested.iter().map(|b| b.lane).collect();
        assert_eq!(lanes, [0, 1, 0]);

        // A hundred thousand spans of a hundredth of a pixel.
        let many: Vec<_> = (0..100_000)
            .map(|i| span(track, ["a", "b"][i % 2], i as f64, i as f64 + 1.0))
            .collect();
        let merged = bars(many.iter(), 0.0, 100.0);
        assert!((900..1200).contains(&merged.len()), "{}", merged.len());
        assert_eq!(merged.iter().map(Bar::spans).sum::<usize>(), 100_000);
        assert!(draw(&many).len() < 300_000);
        // Bars that can be seen stay apart.
        let wide = [span(track, "a", 0.0, 1.0), span(track, "a", 1.0, 2.0)];
        assert_eq!(bars(wide.iter(), 0.0, 1.0).len(), 2);
    }

    #[test]
    fn ticks_are_round() {
        for (total, step) in [
            (10.0, 1.0),
            (17.0, 2.0),
            (50.0, 5.0),
            (0.9, 0.1),
            (7e4, 5e3),
        ] {
            assert!((tick(total) / step - 1.0).abs() < 1e-9, "{total}");
        }
    }

    #[test]
    fn long_names_are_cut_at_characters() {
        assert_eq!(label("worker 1"), "worker 1");
        let exact: String = "é".repeat(LABEL);
        assert_eq!(label(&exact), exact);
        assert_eq!(label(&(exact + "x")), "é".repeat(LABEL - 1) + "…");
        assert_eq!(escape("a\u{0}<"), "a &lt;");
    }
}
