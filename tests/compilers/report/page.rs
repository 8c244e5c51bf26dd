//! `docs/compilers.md`, written from the records in `docs/compilers/`.

use super::figures::Figures;
use super::record::{KernelRecord, Record};
use groth16_gpu::curve::CurveId;
use groth16_gpu::kernels::{Kernel, WordTier};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::PathBuf;

const HEAD: &str = "\
# Compilers

What vendors' shader compilers make of every kernel. Written by `cargo run --release --example compilers -- page` from the records in `compilers/`; a test holds the two together. The records come from

```
cargo run --release --example compilers -- record --out docs/compilers/NAME.json
cargo run --release --example compilers -- record --family navi21 --out docs/compilers/amd-rdna2-navi21.json
groth16-gpu selftest --json > docs/compilers/selftest-NAME.json
```

The first asks the driver of a card that is there. The second needs no card: Mesa's driver for AMD (Debian's `mesa-vulkan-drivers`) compiles for any family of cards that it knows. A newer Mesa may be unpacked beside the system's: `dpkg -x mesa-vulkan-drivers_*.deb DIR`, likewise its `libdrm2` and `libdrm-amdgpu1`, then `--icd DIR/usr/share/vulkan/icd.d/radeon_icd.json` with `LD_LIBRARY_PATH=DIR/usr/lib/x86_64-linux-gnu`. `record --help` has the rest.

Each driver gets the SPIR-V that wgpu gives it. Nothing runs: this is about registers and code, and correctness is the self-test's. `tests/compilers` compiles for AMD at every change and fails where a kernel takes more than `tests/compilers/ceilings.txt` says, or much less, which is then recorded with `cargo run --release --example compilers -- ceilings`.
";

/// Part of a self-test's report.
#[derive(Deserialize)]
struct Selftest {
    adapters: Vec<SelftestAdapter>,
}

#[derive(Deserialize)]
struct SelftestAdapter {
    device: SelftestDevice,
    tiers: Vec<SelftestTier>,
}

#[derive(Deserialize)]
struct SelftestDevice {
    name: String,
    driver: String,
    backend: String,
}

#[derive(Deserialize)]
struct SelftestTier {
    tier: String,
    compiled: Vec<Compiled>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Compiled {
    /// `kernel/curve`
    name: String,
    ms: f64,
}

#[derive(Deserialize)]
struct Case {
    passed: bool,
}

const CURVES: [CurveId; 2] = [CurveId::Bls12_381, CurveId::Bn254];
const TIERS: [WordTier; 2] = [WordTier::U64, WordTier::U32];

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("docs/compilers")
}

/// Where the page is.
pub fn path() -> PathBuf {
    folder().with_extension("md")
}

/// Writes the page.
///
/// # Errors
/// As [`text`], or if it cannot be written.
pub fn write() -> Result<(), Box<dyn Error>> {
    Ok(std::fs::write(path(), text()?)?)
}

/// The page, as the records have it.
///
/// # Errors
/// If a record is missing or malformed.
pub fn text() -> Result<String, Box<dyn Error>> {
    let mut records = BTreeMap::new();
    let mut selftests = Vec::new();
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())?
        .map(|entry| entry.map(|e| e.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    for file in files
        .iter()
        .filter(|f| f.extension().is_some_and(|e| e == "json"))
    {
        let name = file.file_stem().and_then(|s| s.to_str()).ok_or("a name")?;
        if name.starts_with("selftest-") {
            let report = serde_json::from_str::<Selftest>(&std::fs::read_to_string(file)?);
            let report = report.map_err(|e| format!("{}: {e}", file.display()))?;
            selftests.extend(report.adapters);
        } else {
            records.insert(name.to_owned(), Record::read(file)?);
        }
    }
    let mut out = String::from(HEAD);
    compilers(&mut out, &records);
    figures(&mut out, &records);
    code(&mut out, &records);
    tiers(&mut out, &records);
    adapters(&mut out, &selftests);
    Ok(out)
}

type Records = BTreeMap<String, Record>;

fn line(out: &mut String, cells: impl IntoIterator<Item = String>) {
    out.push('|');
    for cell in cells {
        out.push_str(&format!(" {cell} |"));
    }
    out.push('\n');
}

/// The first column is of names, the others of numbers.
fn head(out: &mut String, first: &str, columns: impl IntoIterator<Item = String>) {
    out.push('\n');
    let columns: Vec<String> = columns.into_iter().collect();
    let rule = columns.iter().map(|_| "---:".to_owned());
    let rule: Vec<String> = [String::from("---")].into_iter().chain(rule).collect();
    line(out, [first.to_owned()].into_iter().chain(columns));
    line(out, rule);
}

/// Names break at hyphens, so that columns stay narrow.
fn titles(records: &Records) -> Vec<String> {
    records.keys().map(|name| name.replace('-', " ")).collect()
}

fn compilers(out: &mut String, records: &Records) {
    out.push_str("\n## Compilers asked\n\n");
    line(
        out,
        [
            "record",
            "adapter",
            "driver",
            "Vulkan",
            "day",
            "kernels",
            "refused",
            "compile time, all",
        ]
        .map(str::to_owned),
    );
    line(
        out,
        ["---", "---", "---", "---", "---", "---:", "---:", "---:"].map(str::to_owned),
    );
    for (name, record) in records {
        let c = &record.compiler;
        let refused = record.kernels.iter().filter(|k| k.error.is_some()).count();
        let ms: f64 = record.kernels.iter().map(|k| k.compile_ms).sum();
        let threads = match record.threads {
            1 => String::new(),
            n => format!(", {n} at a time"),
        };
        line(
            out,
            [
                name.clone(),
                c.adapter.clone(),
                format!("{} {}", c.driver, c.driver_info),
                c.vulkan.clone(),
                record.date.clone(),
                record.kernels.len().to_string(),
                refused.to_string(),
                format!("{:.0} s{threads}", ms / 1e3),
            ],
        );
    }
}

/// A table for each curve and tier: a row a kernel, a column a record.
fn tables(out: &mut String, records: &Records, cell: impl Fn(&KernelRecord) -> Option<String>) {
    for (curve, tier) in CURVES.iter().flat_map(|c| TIERS.map(|t| (c, t))) {
        out.push_str(&format!("\n### {curve}, {}\n", tier.name()));
        head(out, "kernel", titles(records));
        for kernel in Kernel::ALL {
            let label = kernel.source(*curve, tier).label;
            let cells = records.values().map(|record| {
                let kernel = record.kernel(label);
                match kernel.and_then(|k| k.error.as_ref()) {
                    Some(_) => "refused".to_owned(),
                    None => kernel.and_then(&cell).unwrap_or("–".to_owned()),
                }
            });
            let cells: Vec<String> = cells.collect();
            line(out, [kernel.name().to_owned()].into_iter().chain(cells));
        }
    }
}

fn number(value: Option<u64>) -> String {
    value.map_or("?".to_owned(), |v| v.to_string())
}

/// Of the last program, the one for the widest subgroups.
fn of(kernel: &KernelRecord) -> Option<Figures> {
    kernel
        .executables
        .iter()
        .max_by_key(|e| e.subgroup_size)
        .map(Figures::of)
}

fn figures(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Registers, spills, occupancy\n\n\
         Registers of an invocation / spills (bold: values that did not fit the registers; with \
         NVIDIA's driver bytes of local memory) / subgroups that a SIMD of AMD's can hold at a \
         time. `?`: the compiler does not say.\n",
    );
    tables(out, records, |kernel| {
        let f = of(kernel)?;
        let spills = match f.spills {
            Some(n) if n > 0 => format!("**{n}**"),
            other => number(other),
        };
        let occupancy = f.occupancy.map_or(String::new(), |n| format!(" / {n}"));
        Some(format!("{} / {spills}{occupancy}", number(f.registers)))
    });
}

fn code(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Code and compile time\n\n\
         Instructions (or bytes of code, where the compiler counts no instructions) / milliseconds \
         in the driver. 0 ms: the program was another kernel's too.\n",
    );
    tables(out, records, |kernel| {
        let f = of(kernel)?;
        let size = f.instructions.map(|n| n.to_string());
        let size = size.or(f.code.map(|n| format!("{n} B")));
        let size = size.unwrap_or("?".to_owned());
        Some(format!("{size} / {:.0}", kernel.compile_ms))
    });
}

fn tiers(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Which tier\n\n\
         Estimated cycles in tier u32 for each in tier u64, where the compiler estimates them \
         (AMD's: the time that a subgroup keeps a full processor busy; it assumes that memory \
         answers in time, which spills make less likely). Above 1, u64 is the better one.\n",
    );
    let both: Records = records
        .iter()
        .filter(|(_, r)| {
            r.kernels
                .iter()
                .any(|k| k.label.ends_with(".u64") && of(k).is_some_and(|f| f.cycles.is_some()))
        })
        .map(|(name, record)| (name.clone(), record.clone()))
        .collect();
    for curve in CURVES {
        out.push_str(&format!("\n### {curve}\n"));
        head(out, "kernel", titles(&both));
        for kernel in Kernel::ALL {
            let cells: Vec<String> = both
                .values()
                .map(|record| {
                    let [wide, narrow] = TIERS.map(|tier| {
                        let kernel = record.kernel(kernel.source(curve, tier).label)?;
                        of(kernel)?.cycles
                    });
                    match (wide, narrow) {
                        (Some(wide), Some(narrow)) if wide > 0 => {
                            format!("{:.2}", narrow as f64 / wide as f64)
                        }
                        _ => "–".to_owned(),
                    }
                })
                .collect();
            line(out, [kernel.name().to_owned()].into_iter().chain(cells));
        }
    }
}

fn adapters(out: &mut String, adapters: &[SelftestAdapter]) {
    out.push_str(
        "\n## Adapters\n\n\
         The self-test's outcome, and milliseconds from a kernel's source to the end of a first, \
         empty dispatch: what wgpu and the driver take together, the driver's cache as it was.\n",
    );
    let columns: Vec<(&SelftestAdapter, &SelftestTier)> = adapters
        .iter()
        .flat_map(|a| a.tiers.iter().map(move |t| (a, t)))
        .collect();
    out.push('\n');
    line(
        out,
        ["adapter", "driver", "interface", "tier", "cases", "failed"].map(str::to_owned),
    );
    line(
        out,
        ["---", "---", "---", "---", "---:", "---:"].map(str::to_owned),
    );
    for (adapter, tier) in &columns {
        let d = &adapter.device;
        line(
            out,
            [
                d.name.clone(),
                d.driver.clone(),
                d.backend.clone(),
                tier.tier.clone(),
                tier.cases.len().to_string(),
                tier.cases.iter().filter(|c| !c.passed).count().to_string(),
            ],
        );
    }
    for curve in CURVES {
        out.push_str(&format!("\n### {curve}\n"));
        let title = |(a, t): &(&SelftestAdapter, &SelftestTier)| {
            let name = a.device.name.split(" (").next().unwrap_or_default();
            format!("{name}, {}", t.tier)
        };
        head(out, "kernel", columns.iter().map(title));
        for kernel in Kernel::ALL {
            let name = format!("{}/{curve}", kernel.name());
            let cells = columns.iter().map(|(_, tier)| {
                let compiled = tier.compiled.iter().find(|c| c.name == name);
                compiled.map_or("–".to_owned(), |c| format!("{:.0}", c.ms))
            });
            line(out, [kernel.name().to_owned()].into_iter().chain(cells));
        }
    }
}
