//! `docs/compilers.md`, written from the records in `docs/compilers/`.

use super::figures::Figures;
use super::record::{KernelRecord, Record};
use super::vulkan::Executable;
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

The first asks the driver of a card that is there. The second needs no card: Mesa's driver for AMD (Debian's `mesa-vulkan-drivers`) compiles for any family of cards that it knows. `record --help` has the rest.

Each driver gets the SPIR-V that wgpu gives it. Nothing runs: this is about registers and code, and correctness is the self-test's. `tests/compilers` compiles for AMD at every change and fails where a kernel takes more than `tests/compilers/ceilings.txt` says, or much less, which is then recorded with `cargo run --release --example compilers -- ceilings`.

## Compilers without their cards

* **A newer Mesa**, for AMD's RDNA3 and RDNA4 and for Intel: unpack Debian's packages beside the system's (here bookworm-backports) with `dpkg -x`: `mesa-vulkan-drivers`, `libdrm2`, `libdrm-amdgpu1`; then `export LD_LIBRARY_PATH=DIR/usr/lib/x86_64-linux-gnu` and add `--icd DIR/usr/share/vulkan/icd.d/radeon_icd.json`.
* **Intel** (ANV), **Qualcomm** (turnip), **NVIDIA by Mesa** (NVK): Mesa's drm-shim stands for the kernel's driver. It is in no package; Mesa's sources (`mesa_*.orig.tar.xz`) have it:
  ```
  M=\"-Dgallium-drivers= -Dplatforms= -Dglx=disabled -Degl=disabled -Dgbm=disabled -Dopengl=false -Dllvm=disabled -Dvideo-codecs=\"
  meson setup intel $M -Dvulkan-drivers= -Dtools=drm-shim,intel && ninja -C intel src/intel/tools/libintel_noop_drm_shim.so
  meson setup qualcomm $M -Dvulkan-drivers=freedreno -Dfreedreno-kmds=msm -Dtools=drm-shim && ninja -C qualcomm
  ```
  The first shim goes with Debian's ANV: `LD_PRELOAD=.../libintel_noop_drm_shim.so INTEL_STUB_GPU_PLATFORM=dg2 compilers record --icd .../intel_icd.json`. The second build has turnip, which Debian has for ARM alone: `LD_PRELOAD=.../libfreedreno_noop_drm_shim.so FD_GPU_ID=740 compilers record --icd qualcomm/src/freedreno/vulkan/freedreno_devenv_icd.x86_64.json`. NVK is in Debian trixie's package; its shim is `src/nouveau/drm-shim/nouveau_noop.c` linked with `src/drm-shim` and Mesa's `util`, and `NOUVEAU_CHIPSET=172` names the chip (GA102), in hexadecimal. Kernels of G2 take Intel's compiler and NVK's minutes; `--skip g2` leaves them out, and the tables have dashes.
* **Not asked**: ARM (PanVK) and Apple (Honeykrisp) need Mesa built with LLVM and OpenCL C, and have shims too. AMD's and ARM's offline compilers are in no package registry, and Intel's `ocloc` takes OpenCL's SPIR-V, not Vulkan's.
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
    #[serde(default)]
    processor_ms: Option<f64>,
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
        let ms: f64 = record.kernels.iter().map(time).sum();
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

/// The program for the widest subgroups, where a driver made several.
fn widest(kernel: &KernelRecord) -> Option<&Executable> {
    kernel.executables.iter().max_by_key(|e| e.subgroup_size)
}

fn of(kernel: &KernelRecord) -> Option<Figures> {
    widest(kernel).map(Figures::of)
}

fn figures(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Registers, spills, occupancy\n\n\
         Registers of an invocation (Intel: registers of a subgroup that hold something at the worst \
         place) / what did not fit them (AMD: values; Intel, Qualcomm: instructions that store such; \
         NVIDIA: bytes) / subgroups that a SIMD (AMD), core (Qualcomm) or multiprocessor (NVIDIA) \
         can hold at a time. `?`: the compiler does not say.\n",
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

/// Milliseconds in the driver, of processors if known.
fn time(kernel: &KernelRecord) -> f64 {
    kernel.processor_ms.unwrap_or(kernel.compile_ms)
}

fn code(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Code and compile time\n\n\
         Instructions (or bytes of code, where the compiler counts no instructions) / milliseconds \
         of processor time in the driver. 0 ms: the program was another kernel's too.\n",
    );
    tables(out, records, |kernel| {
        let f = of(kernel)?;
        let size = f.instructions.map(|n| n.to_string());
        let size = size.or(f.code.map(|n| format!("{n} B")));
        let size = size.unwrap_or("?".to_owned());
        Some(format!("{size} / {:.0}", time(kernel)))
    });
}

/// Kernels that are little else than products, of scalars and of coordinates.
const PRODUCTS: [Kernel; 2] = [Kernel::PointwiseMul, Kernel::PointsExport];

fn tiers(out: &mut String, records: &Records) {
    out.push_str(
        "\n## Cycles of a product\n\n\
         Estimated cycles of an invocation of kernels that are little else than products, in tier \
         u64 / in tier u32, where the compiler estimates them. In tier u32 a product is a loop of 5 \
         turns, of which AMD's compiler assumes 8 and Intel's 10: up to 1.6 and 2 times too much. \
         Nested loops are guessed too, so that such figures do not compare the tiers of larger \
         kernels.\n",
    );
    let estimates = |record: &Record, kernel: Kernel, curve: CurveId| {
        TIERS.map(|tier| {
            let program = widest(record.kernel(kernel.source(curve, tier).label)?)?;
            let cycles = Figures::of(program).cycles?;
            Some(cycles as f64 / f64::from(program.subgroup_size))
        })
    };
    let known: Records = records
        .iter()
        .filter(|(_, r)| estimates(r, PRODUCTS[0], CURVES[0]) != [None, None])
        .map(|(name, record)| (name.clone(), record.clone()))
        .collect();
    head(out, "kernel", titles(&known));
    for (kernel, curve) in PRODUCTS.iter().flat_map(|k| CURVES.map(|c| (*k, c))) {
        let cells = known.values().map(|record| {
            let cycles = estimates(record, kernel, curve)
                .map(|cycles| cycles.map_or("–".to_owned(), |c| format!("{c:.0}")));
            cycles.join(" / ")
        });
        let name = format!("{}, {curve}", kernel.name());
        let cells: Vec<String> = cells.collect();
        line(out, [name].into_iter().chain(cells));
    }
}

fn adapters(out: &mut String, adapters: &[SelftestAdapter]) {
    out.push_str(
        "\n## Adapters\n\n\
         The self-test's outcome, and milliseconds from a kernel's source to the end of a first, \
         empty dispatch: what wgpu and the driver take together, the driver's cache as it was. On \
         software adapters processor time.\n",
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
                compiled.map_or("–".to_owned(), |c| {
                    format!("{:.0}", c.processor_ms.unwrap_or(c.ms))
                })
            });
            line(out, [kernel.name().to_owned()].into_iter().chain(cells));
        }
    }
}
