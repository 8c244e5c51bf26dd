//! Which device to prove on: a selector as users write it, the list of devices found, and the
//! choice as a pure function over both.

use crate::device::deny::is_denied;
use crate::error::{Error, Result};
use crate::kernels::WordTier;
use serde::{Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A device as a user names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum DeviceSelector {
    /// The best GPU; the native CPU path when there is none. Never a software rasteriser, nor a
    /// device that is denied ([`super::deny`]).
    #[default]
    Auto,
    /// The native CPU path.
    Cpu,
    /// A software adapter, which runs the shaders on the CPU: for tests.
    Software,
    /// Row of [`super::Device::list`].
    Index(usize),
    /// The first device whose name contains this text, in any case.
    Name(String),
    /// The device on this PCI bus, as `0000:01:00.0` or a part of it.
    PciBus(String),
    /// As [`Self::Index`], restricted to wgpu.
    Wgpu(usize),
    /// CUDA device ordinal.
    Cuda(usize),
}

impl FromStr for DeviceSelector {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        let ordinal = |text: &str| {
            text.parse::<usize>()
                .map_err(|_| Error::Usage(format!("`{s}`: `{text}` is not a device number")))
        };
        Ok(match s.split_once(':') {
            None => match s {
                "auto" => Self::Auto,
                "cpu" => Self::Cpu,
                "software" => Self::Software,
                _ => Self::Index(s.parse().map_err(|_| {
                    Error::Usage(format!(
                        "unknown device `{s}`; known: auto, cpu, software, N, name:TEXT, pci:BUS, wgpu:N, cuda:N"
                    ))
                })?),
            },
            Some(("name" | "pci", "")) => {
                return Err(Error::Usage(format!("`{s}`: text missing after the colon")));
            }
            Some(("name", text)) => Self::Name(text.to_owned()),
            Some(("pci", bus)) => Self::PciBus(bus.to_owned()),
            Some(("wgpu", n)) => Self::Wgpu(ordinal(n)?),
            Some(("cuda", n)) => Self::Cuda(ordinal(n)?),
            Some((kind, _)) => {
                return Err(Error::Usage(format!(
                    "`{s}`: unknown kind of device `{kind}`; known: name, pci, wgpu, cuda"
                )));
            }
        })
    }
}

impl fmt::Display for DeviceSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Software => f.write_str("software"),
            Self::Index(n) => write!(f, "{n}"),
            Self::Name(text) => write!(f, "name:{text}"),
            Self::PciBus(bus) => write!(f, "pci:{bus}"),
            Self::Wgpu(n) => write!(f, "wgpu:{n}"),
            Self::Cuda(n) => write!(f, "cuda:{n}"),
        }
    }
}

/// The interface through which a device is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Backend {
    Vulkan,
    Metal,
    Dx12,
    Gl,
}

impl Backend {
    pub const ALL: [Self; 4] = [Self::Vulkan, Self::Metal, Self::Dx12, Self::Gl];

    /// Lower-case name, as in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Vulkan => "vulkan",
            Self::Metal => "metal",
            Self::Dx12 => "dx12",
            Self::Gl => "gl",
        }
    }
    /// When one card is listed through several interfaces, the lowest rank stays.
    fn rank(self) -> u8 {
        match self {
            Self::Vulkan | Self::Metal => 0,
            Self::Dx12 => 1,
            Self::Gl => 2,
        }
    }
}

/// What kind of hardware a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DeviceType {
    Discrete,
    Integrated,
    Virtual,
    Software,
    Other,
}

/// One device of this machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeviceInfo {
    /// Position in the list, which is what `--device N` takes.
    pub index: usize,
    pub name: String,
    pub backend: Backend,
    pub driver: String,
    /// `0000:01:00.0`, or empty where the driver does not say.
    pub pci_bus: String,
    pub device_type: DeviceType,
    /// Runs on the CPU.
    pub software: bool,
    pub vendor_id: u32,
    pub device_id: u32,
    /// Shader tiers that it can run, best first.
    #[serde(serialize_with = "tier_names")]
    pub tiers: Vec<WordTier>,
    /// Largest storage binding, in bytes.
    pub max_binding: u64,
    /// Largest buffer, in bytes.
    pub max_buffer: u64,
    /// Storage buffers that one kernel can have.
    pub max_storage_buffers: u32,
    /// Workgroup memory, in bytes.
    pub workgroup_bytes: u32,
    /// Device memory in bytes, where it can be found out.
    pub memory: Option<u64>,
}

fn tier_names<S: Serializer>(tiers: &[WordTier], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(tiers.iter().map(|t| t.name()))
}

impl fmt::Display for DeviceInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name, self.backend.name())
    }
}

/// Outcome of a selection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected {
    /// The native CPU path. `note` says why, if the user did not ask for it.
    Cpu { note: Option<String> },
    /// The device in this row.
    Gpu(usize),
}

/// Chooses among `devices`, the rows of [`super::Device::list`].
///
/// # Errors
/// [`Error::NoDevice`], naming what there is, when nothing matches.
pub fn select(selector: &DeviceSelector, devices: &[DeviceInfo]) -> Result<Selected> {
    let first = |wanted: &dyn Fn(&DeviceInfo) -> bool| {
        let row = devices.iter().position(wanted);
        row.map(Selected::Gpu)
            .ok_or_else(|| none(selector, devices))
    };
    match selector {
        DeviceSelector::Cpu => Ok(Selected::Cpu { note: None }),
        DeviceSelector::Auto => {
            let best = devices
                .iter()
                .enumerate()
                .filter(|(_, d)| !d.software && !is_denied(d))
                .min_by_key(|(row, d)| (auto_rank(d), *row));
            Ok(match best {
                Some((row, _)) => Selected::Gpu(row),
                None => Selected::Cpu {
                    note: Some(no_gpu_note(devices)),
                },
            })
        }
        DeviceSelector::Software => devices
            .iter()
            .enumerate()
            .filter(|(_, d)| d.software)
            // The one that has the faster tier, so lavapipe before SwiftShader.
            .min_by_key(|(row, d)| (d.backend.rank(), !d.tiers.contains(&WordTier::U64), *row))
            .map(|(row, _)| Selected::Gpu(row))
            .ok_or_else(|| none(selector, devices)),
        DeviceSelector::Index(n) | DeviceSelector::Wgpu(n) => first(&|d| d.index == *n),
        DeviceSelector::Name(text) => {
            let text = text.to_lowercase();
            first(&|d| d.name.to_lowercase().contains(&text))
        }
        DeviceSelector::PciBus(bus) => {
            let bus = bus.to_lowercase();
            first(&|d| d.pci_bus.to_lowercase().contains(&bus))
        }
        DeviceSelector::Cuda(_) => Err(Error::NoDevice(format!("{selector}: built without cuda"))),
    }
}

fn auto_rank(device: &DeviceInfo) -> (u8, u8) {
    let kind = match device.device_type {
        DeviceType::Discrete => 0,
        DeviceType::Integrated => 1,
        DeviceType::Virtual => 2,
        DeviceType::Other | DeviceType::Software => 3,
    };
    (kind, device.backend.rank())
}

fn no_gpu_note(devices: &[DeviceInfo]) -> String {
    let mut note = "no GPU found; proving on the CPU".to_owned();
    for d in devices.iter().filter(|d| !d.software && is_denied(d)) {
        note += &format!(" ({d} not used: `groth16-gpu devices` says why)");
    }
    if let Some(d) = devices.iter().find(|d| d.software) {
        note += &format!(" (software adapter {d} not used; --device software selects it)");
    }
    note
}

fn none(selector: &DeviceSelector, devices: &[DeviceInfo]) -> Error {
    let list: Vec<String> = devices
        .iter()
        .map(|d| format!("{}: {d}", d.index))
        .collect();
    Error::NoDevice(if list.is_empty() {
        format!("{selector}: no adapter found")
    } else {
        format!("{selector}: the devices are {}", list.join(", "))
    })
}

/// Positions in `rows` to keep so that each physical card has one row.
///
/// A card can be listed through several interfaces (Vulkan, DX12, GL), and twice through one that
/// has two drivers for it. Equal cards are different rows, told apart by PCI bus or, where the bus
/// is not known, by being listed side by side through the same interface.
pub fn one_row_per_card(rows: &[DeviceInfo]) -> Vec<usize> {
    let mut keep: Vec<usize> = Vec::new();
    for (i, row) in rows.iter().enumerate() {
        let better = |j: usize| {
            let other = &rows[j];
            same_card(row, other) && (other.backend.rank(), j) < (row.backend.rank(), i)
        };
        if !(0..rows.len()).any(better) {
            keep.push(i);
        }
    }
    keep
}

/// Whether two rows that differ are one physical card, as far as can be told.
pub fn same_card(a: &DeviceInfo, b: &DeviceInfo) -> bool {
    if !a.pci_bus.is_empty() && !b.pci_bus.is_empty() {
        return a.pci_bus.eq_ignore_ascii_case(&b.pci_bus);
    }
    a.backend != b.backend && same_model(a, b)
}

/// The same model of card, as far as two interfaces agree in what they report. GL gives no device
/// ids and decorates names, so the first word that both know must do.
fn same_model(a: &DeviceInfo, b: &DeviceInfo) -> bool {
    let ids = |d: &DeviceInfo| (d.vendor_id, d.device_id);
    if a.backend != Backend::Gl && b.backend != Backend::Gl {
        return a.device_id != 0 && ids(a) == ids(b);
    }
    let plain = |d: &DeviceInfo| {
        let name = d.name.to_lowercase();
        let end = name.find(['/', '(']).unwrap_or(name.len());
        name[..end].trim().to_owned()
    };
    let (a_name, b_name) = (plain(a), plain(b));
    a_name.contains(&b_name)
        || b_name.contains(&a_name)
        || (a.vendor_id == b.vendor_id && a.vendor_id != 0 && a.software == b.software)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, backend: Backend, device_type: DeviceType, pci: &str) -> DeviceInfo {
        DeviceInfo {
            index: 0,
            name: name.into(),
            backend,
            driver: String::new(),
            pci_bus: pci.into(),
            device_type,
            software: device_type == DeviceType::Software,
            vendor_id: 0x10de,
            device_id: 0x2330,
            tiers: vec![WordTier::U64, WordTier::U32],
            max_binding: 1 << 30,
            max_buffer: 1 << 30,
            max_storage_buffers: 8,
            workgroup_bytes: 16384,
            memory: None,
        }
    }

    fn list(rows: Vec<DeviceInfo>) -> Vec<DeviceInfo> {
        let keep = one_row_per_card(&rows);
        let mut out: Vec<_> = keep.into_iter().map(|i| rows[i].clone()).collect();
        out.iter_mut().enumerate().for_each(|(i, d)| d.index = i);
        out
    }

    fn software(name: &str) -> DeviceInfo {
        let mut d = row(name, Backend::Vulkan, DeviceType::Software, "");
        d.vendor_id = 0x10005;
        d.device_id = 0;
        d
    }

    #[test]
    fn selectors_round_trip() {
        for s in [
            "auto",
            "cpu",
            "software",
            "3",
            "name:H200",
            "pci:0000:01:00.0",
            "wgpu:1",
            "cuda:0",
        ] {
            assert_eq!(s.parse::<DeviceSelector>().unwrap().to_string(), s);
        }
        for s in ["", "gpu", "-1", "name:", "wgpu:x", "metal:0"] {
            assert_eq!(s.parse::<DeviceSelector>().unwrap_err().class(), "usage");
        }
    }

    #[test]
    fn p60_auto_never_takes_software() {
        let devices = list(vec![software("llvmpipe"), software("SwiftShader")]);
        let Selected::Cpu { note } = select(&DeviceSelector::Auto, &devices).unwrap() else {
            panic!("a software adapter was chosen");
        };
        assert!(note.unwrap().contains("llvmpipe"));
        assert_eq!(
            select(&DeviceSelector::Auto, &[]).unwrap(),
            Selected::Cpu {
                note: Some("no GPU found; proving on the CPU".into())
            }
        );
        assert_eq!(
            select(&DeviceSelector::Software, &devices).unwrap(),
            Selected::Gpu(0)
        );
    }

    #[test]
    fn auto_prefers_discrete() {
        use DeviceType::{Discrete, Integrated};
        let devices = list(vec![
            software("llvmpipe"),
            row("iGPU", Backend::Vulkan, Integrated, "0000:00:02.0"),
            row("card", Backend::Vulkan, Discrete, "0000:01:00.0"),
        ]);
        assert_eq!(
            select(&DeviceSelector::Auto, &devices).unwrap(),
            Selected::Gpu(2)
        );
    }

    #[test]
    fn software_prefers_the_wide_tier() {
        let mut narrow = software("SwiftShader Device (Subzero)");
        narrow.tiers = vec![WordTier::U32];
        let devices = list(vec![narrow, software("llvmpipe (LLVM 19, 256 bits)")]);
        assert_eq!(
            select(&DeviceSelector::Software, &devices).unwrap(),
            Selected::Gpu(1)
        );
    }

    #[test]
    fn p62_equal_cards_and_twice_listed_cards() {
        use DeviceType::Discrete;
        let mut gl = row("NVIDIA H200/PCIe/SSE2", Backend::Gl, DeviceType::Other, "");
        gl.device_id = 0;
        let devices = list(vec![
            gl,
            row("NVIDIA H200", Backend::Vulkan, Discrete, "0000:01:00.0"),
            row("NVIDIA H200", Backend::Vulkan, Discrete, "0000:41:00.0"),
            row("NVIDIA H200", Backend::Dx12, Discrete, ""),
            // A second Vulkan driver for the first card.
            row(
                "NVIDIA H200 (NVK)",
                Backend::Vulkan,
                Discrete,
                "0000:01:00.0",
            ),
        ]);
        let buses: Vec<_> = devices.iter().map(|d| d.pci_bus.as_str()).collect();
        assert_eq!(buses, ["0000:01:00.0", "0000:41:00.0"]);
        let at = |s: &str| select(&s.parse().unwrap(), &devices);
        assert_eq!(at("pci:41:00").unwrap(), Selected::Gpu(1));
        assert_eq!(at("1").unwrap(), Selected::Gpu(1));
        assert_eq!(at("wgpu:0").unwrap(), Selected::Gpu(0));
        assert_eq!(at("name:h200").unwrap(), Selected::Gpu(0));
        for s in ["2", "name:Radeon", "pci:99", "software", "cuda:0"] {
            let error = at(s).unwrap_err();
            assert_eq!((error.class(), error.exit_code()), ("no_device", 3), "{s}");
        }
    }

    #[test]
    fn two_equal_cards_without_bus_stay_two() {
        let card = row("card", Backend::Metal, DeviceType::Discrete, "");
        assert_eq!(list(vec![card.clone(), card]).len(), 2);
    }

    #[test]
    fn software_rows_of_two_interfaces_are_one() {
        let mut gl = row(
            "llvmpipe (LLVM 19.1.7, 256 bits)",
            Backend::Gl,
            DeviceType::Software,
            "",
        );
        (gl.vendor_id, gl.device_id) = (0x10005, 0);
        let devices = list(vec![
            software("llvmpipe (LLVM 19.1.7, 256 bits)"),
            gl,
            software("SwiftShader Device (LLVM 10.0.0)"),
        ]);
        assert_eq!(devices.len(), 2);
        assert!(devices.iter().all(|d| d.backend == Backend::Vulkan));
    }
}
