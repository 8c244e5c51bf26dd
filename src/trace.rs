//! A timeline of proofs: what each thread and each device did when.
//!
//! A [`Trace`] is handed to proofs in [`crate::ProveOptions`] and may be shared between threads. It
//! is written as [Chrome trace events](https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU),
//! which `chrome://tracing` and [Perfetto](https://ui.perfetto.dev) show, and as a picture.

mod svg;

use crate::error::Result;
use crate::formats::output::write_file;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

/// Collects spans from all threads. Clones are the same trace.
#[derive(Clone, Debug)]
pub struct Trace(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    made: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    tracks: Vec<Track>,
    /// Index of each thread's track.
    threads: HashMap<ThreadId, usize>,
    spans: Vec<Recorded>,
}

#[derive(Debug, PartialEq)]
struct Track {
    name: String,
    is_device: bool,
}

#[derive(Clone, Copy, Debug)]
struct Recorded {
    track: usize,
    name: &'static str,
    start: Instant,
    end: Instant,
}

/// Something that a thread or a device did, and when.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    /// `device NAME`, or a thread's name: `worker N` unless it was given another.
    pub track: String,
    pub is_device: bool,
    pub name: &'static str,
    /// Microseconds since the trace was made; negative for what began before.
    pub start_us: f64,
    /// On the same scale, and no less than `start_us`.
    pub end_us: f64,
}

impl State {
    /// Index of the track with this name, made if there is none.
    fn track(&mut self, name: &str, is_device: bool) -> usize {
        let found = |t: &Track| t.name == name && t.is_device == is_device;
        self.tracks.iter().position(found).unwrap_or_else(|| {
            self.tracks.push(Track {
                name: name.to_owned(),
                is_device,
            });
            self.tracks.len() - 1
        })
    }

    /// Index of the calling thread's track.
    fn own_track(&mut self) -> usize {
        let thread = thread::current().id();
        if let Some(track) = self.threads.get(&thread) {
            return *track;
        }
        let taken = |name: &String| self.tracks.iter().any(|t| t.name == *name && !t.is_device);
        let mut names = (1..).map(|n| format!("worker {n}"));
        let name = names.find(|name| !taken(name)).unwrap_or_default();
        let track = self.track(&name, false);
        self.threads.insert(thread, track);
        track
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self::new()
    }
}

impl Trace {
    /// An empty trace; its time starts now.
    pub fn new() -> Self {
        Self(Arc::new(Inner {
            made: Instant::now(),
            state: Mutex::default(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves a trace that lacks a span at most.
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Microseconds since the trace was made.
    fn us(&self, at: Instant) -> f64 {
        let (made, us) = (self.0.made, 1e6);
        match at.checked_duration_since(made) {
            Some(after) => after.as_secs_f64() * us,
            None => -made.duration_since(at).as_secs_f64() * us,
        }
    }

    /// Names the calling thread's track; threads of one name share a track. What the thread has
    /// recorded before stays where it is.
    pub fn name_thread(&self, name: &str) {
        let mut state = self.state();
        let track = state.track(name, false);
        state.threads.insert(thread::current().id(), track);
    }

    /// Adds a span to the calling thread's track.
    pub fn host(&self, name: &'static str, start: Instant, end: Instant) {
        let mut state = self.state();
        let track = state.own_track();
        state.spans.push(Recorded {
            track,
            name,
            start,
            end: end.max(start),
        });
    }

    /// Adds a span to the track of the device with this name, with its times as the host's clock
    /// has them.
    pub fn device(&self, device: &str, name: &'static str, start: Instant, end: Instant) {
        let mut state = self.state();
        let track = state.track(&device_track(device), true);
        state.spans.push(Recorded {
            track,
            name,
            start,
            end: end.max(start),
        });
    }

    /// All spans so far, by start.
    pub fn spans(&self) -> Vec<Span> {
        let state = self.state();
        let mut spans: Vec<Span> = state
            .spans
            .iter()
            .map(|s| Span {
                track: state.tracks[s.track].name.clone(),
                is_device: state.tracks[s.track].is_device,
                name: s.name,
                start_us: self.us(s.start),
                end_us: self.us(s.end),
            })
            .collect();
        drop(state);
        // Of those that start together the longer one first: it holds the others.
        spans.sort_by(|a, b| {
            let by_end = b.end_us.total_cmp(&a.end_us);
            a.start_us.total_cmp(&b.start_us).then(by_end)
        });
        spans
    }

    /// Share, 0 to 1, of the time between `from` and `to` in which the device had a span.
    pub fn device_busy(&self, device: &str, from: Instant, to: Instant) -> f64 {
        let (from, to) = (self.us(from), self.us(to));
        if from >= to {
            return 0.0;
        }
        let track = device_track(device);
        let mut busy = 0.0;
        let mut seen = from;
        for s in self.spans() {
            if s.is_device && s.track == track {
                let end = s.end_us.min(to);
                busy += (end - s.start_us.max(seen)).max(0.0);
                seen = seen.max(end);
            }
        }
        busy / (to - from)
    }

    /// The trace in Chrome's trace event format: complete events (`"X"`) with `ts` and `dur` in
    /// microseconds since the first span, devices as process 1 and threads as process 2, and the
    /// tracks' names.
    pub fn chrome_json(&self) -> Value {
        let spans = self.spans();
        let tracks = tracks(&spans);
        let origin = spans.first().map_or(0.0, |s| s.start_us);
        let pid = |is_device: bool| if is_device { 1 } else { 2 };
        let meta = |what: &str, pid: u32, tid: usize, args: Value| json!({ "name": what, "ph": "M", "pid": pid, "tid": tid, "args": args });
        let mut events = vec![
            meta("process_name", 1, 0, json!({ "name": "devices" })),
            meta("process_name", 2, 0, json!({ "name": "threads" })),
        ];
        let mut tids = HashMap::new();
        for (i, (is_device, name)) in tracks.into_iter().enumerate() {
            let (pid, tid) = (pid(is_device), i + 1);
            events.push(meta("thread_name", pid, tid, json!({ "name": name })));
            let order = json!({ "sort_index": tid });
            events.push(meta("thread_sort_index", pid, tid, order));
            tids.insert((is_device, name), tid);
        }
        events.extend(spans.iter().map(|s| {
            json!({
                "name": s.name, "ph": "X", "cat": if s.is_device { "device" } else { "host" },
                "pid": pid(s.is_device), "tid": tids[&(s.is_device, s.track.as_str())],
                "ts": s.start_us - origin, "dur": s.end_us - s.start_us,
            })
        }));
        json!({ "displayTimeUnit": "ms", "traceEvents": events })
    }

    /// The same timeline as an SVG picture, 1400 pixels wide: a row for each track, devices first.
    pub fn svg(&self) -> String {
        svg::draw(&self.spans())
    }

    /// Writes [`Self::chrome_json`] to `path` and [`Self::svg`] to its [`svg_path`].
    ///
    /// # Errors
    /// [`crate::Error::Io`].
    pub fn write(&self, path: &Path) -> Result<()> {
        write_file(path, format!("{}\n", self.chrome_json()).as_bytes())?;
        match svg_path(path) {
            Some(picture) => write_file(&picture, self.svg().as_bytes()),
            None => Ok(()),
        }
    }
}

/// Where [`Trace::write`] puts the picture: `path` with `.svg` appended. `None` where `path` is a
/// pipe or a terminal, which have nothing beside them.
pub fn svg_path(path: &Path) -> Option<PathBuf> {
    let special = std::fs::metadata(path).is_ok_and(|m| !m.is_file() && !m.is_dir());
    let mut picture = OsString::from(path);
    picture.push(".svg");
    (!special).then(|| picture.into())
}

fn device_track(device: &str) -> String {
    format!("device {device}")
}

/// The tracks that have spans, devices first, each kind in natural order (`worker 2` before
/// `worker 10`).
fn tracks(spans: &[Span]) -> Vec<(bool, &str)> {
    let mut tracks: Vec<(bool, &str)> = spans
        .iter()
        .map(|s| (s.is_device, s.track.as_str()))
        .collect();
    tracks.sort_by_key(|&(is_device, name)| {
        let digits = name.bytes().rev().take_while(u8::is_ascii_digit).count();
        let (text, number) = name.split_at(name.len() - digits);
        (!is_device, text, number.parse::<u64>().unwrap_or(0), name)
    });
    tracks.dedup();
    tracks
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    /// A trace and the moment that its spans are counted from.
    fn trace() -> (Trace, Instant) {
        let trace = Trace::new();
        let start = trace.0.made;
        (trace, start)
    }

    #[test]
    fn threads_have_tracks_of_their_own() {
        let (trace, t) = trace();
        trace.host("a", t, t + MS);
        for name in ["second", "second"] {
            let trace = trace.clone();
            let other = thread::spawn(move || {
                trace.name_thread(name);
                trace.host("b", t + MS, t + 3 * MS);
            });
            other.join().unwrap();
        }
        let other = {
            let trace = trace.clone();
            thread::spawn(move || trace.host("c", t + 2 * MS, t))
        };
        other.join().unwrap();
        let spans = trace.spans();
        let got: Vec<_> = spans.iter().map(|s| (s.track.as_str(), s.name)).collect();
        let expected = [
            ("worker 1", "a"),
            ("second", "b"),
            ("second", "b"),
            ("worker 2", "c"),
        ];
        assert_eq!(got, expected);
        assert_eq!((spans[1].start_us, spans[1].end_us), (1e3, 3e3));
        assert_eq!(spans[3].start_us, spans[3].end_us, "ends before it starts");
    }

    #[test]
    fn busy_is_the_union_of_spans() {
        let (trace, t) = trace();
        let busy = |from: u32, to: u32| trace.device_busy("x", t + from * MS, t + to * MS);
        assert_eq!(busy(0, 10), 0.0);
        // 1..4 and 6..8, with overlaps, a span inside another and spans that meet.
        for (from, to) in [(2, 4), (1, 3), (2, 3), (6, 7), (7, 8)] {
            trace.device("x", "k", t + from * MS, t + to * MS);
        }
        trace.device("y", "k", t, t + 10 * MS);
        trace.host("k", t, t + 10 * MS);
        for (from, to, ms) in [(0, 10, 5.0), (2, 7, 3.0), (4, 6, 0.0), (3, 4, 1.0)] {
            let expected = ms / f64::from(to - from);
            assert!((busy(from, to) - expected).abs() < 1e-9, "{from}..{to}");
        }
        assert_eq!(busy(5, 5), 0.0);
        assert_eq!(busy(7, 2), 0.0);
    }

    #[test]
    fn json_has_every_span() {
        let (trace, t) = trace();
        trace.host("check", t + 5 * MS, t + 7 * MS);
        trace.device("\"quoted\"", "sort", t + 6 * MS, t + 9 * MS);
        let json: Value = serde_json::from_str(&trace.chrome_json().to_string()).unwrap();
        let events = json["traceEvents"].as_array().unwrap();
        let track = |event: &Value| {
            let same = |e: &&Value| {
                e["name"] == "thread_name" && e["pid"] == event["pid"] && e["tid"] == event["tid"]
            };
            events.iter().find(same).unwrap()["args"]["name"].clone()
        };
        let spans: Vec<_> = events.iter().filter(|e| e["ph"] == "X").collect();
        assert_eq!(spans.len(), 2);
        for (span, (name, on, ts, dur)) in spans.into_iter().zip([
            ("check", "worker 1", 0.0, 2e3),
            ("sort", "device \"quoted\"", 1e3, 3e3),
        ]) {
            assert_eq!(span["name"], name);
            assert_eq!(track(span), on);
            assert!((span["ts"].as_f64().unwrap() - ts).abs() < 1e-6);
            assert!((span["dur"].as_f64().unwrap() - dur).abs() < 1e-6);
        }
    }

    #[test]
    fn tracks_are_in_natural_order() {
        let (trace, t) = trace();
        for n in [10, 2, 1] {
            trace.name_thread(&format!("worker {n}"));
            trace.host("a", t, t + MS);
        }
        trace.device("z", "a", t, t + MS);
        let spans = trace.spans();
        let names: Vec<_> = tracks(&spans).into_iter().map(|t| t.1).collect();
        assert_eq!(names, ["device z", "worker 1", "worker 2", "worker 10"]);
    }

    #[test]
    fn written_side_by_side() {
        let (trace, t) = trace();
        trace.host("check", t, t + MS);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        trace.write(&path).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&text).unwrap(),
            trace.chrome_json()
        );
        let picture = std::fs::read_to_string(folder.path().join("trace.json.svg")).unwrap();
        assert_eq!(picture, trace.svg());
        assert!(trace.write(&folder.path().join("none/trace.json")).is_err());
    }
}
