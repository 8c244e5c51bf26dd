//! What AMD's compiler may take for a kernel at most: recorded, and compared with what it takes.

use super::figures::Figures;
use super::record::Record;
use super::{What, record};
use groth16_gpu::kernels::KERNELS;
use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

/// A family of cards, as `RADV_FORCE_FAMILY` names it, and the part of the kernels that is compiled
/// for it. The u32 tier takes minutes, and AMD's cards have 64-bit integers: one family does.
pub const FAMILIES: [(&str, &str); 4] = [
    ("vega10", ".u64"),
    ("navi10", ".u64"),
    ("navi21", ".u64"),
    ("navi21", ".u32"),
];

/// Kernels of the u64 tier that may spill although they work on G1 or transforms.
pub const SPILLING: [&str; 1] = [
    // Two running sums of points and a third point.
    "msm_merge_g1.bls12_381.u64",
];

/// Most that a kernel may take.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    pub registers: u64,
    pub spills: u64,
    pub instructions: u64,
}

/// The recorded ceilings.
#[derive(Debug, PartialEq)]
pub struct Ceilings {
    /// Version of the driver that they were recorded with.
    driver: String,
    /// By family and label.
    pub values: BTreeMap<(String, String), Ceiling>,
}

const HEAD: &str = "\
# What AMD's compiler (RADV with ACO) takes for each kernel and family of cards:
# vector registers/spilled registers/instructions. tests/compilers/report/ceilings.rs says how
# they are compared. Written by
#     cargo run --release --example compilers -- ceilings
";

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/compilers/ceilings.txt")
}

/// What a record says of one kernel. Compute shaders of AMD are one program.
fn taken(record: &Record, label: &str) -> Result<Ceiling, String> {
    let kernel = record.kernel(label).ok_or("not compiled")?;
    if let Some(error) = &kernel.error {
        return Err(error.clone());
    }
    let figures = kernel.executables.first().map(Figures::of);
    let figures = figures.ok_or("no statistics")?;
    Ok(Ceiling {
        registers: figures.registers.ok_or("no count of registers")?,
        spills: figures.spills.ok_or("no count of spills")?,
        instructions: figures.instructions.ok_or("no count of instructions")?,
    })
}

impl Ceilings {
    /// # Errors
    /// If the file is missing or malformed.
    pub fn read() -> Result<Self, Box<dyn Error>> {
        Self::parse(&std::fs::read_to_string(path())?)
    }

    /// # Errors
    /// What is malformed.
    pub fn parse(text: &str) -> Result<Self, Box<dyn Error>> {
        let mut lines = text
            .lines()
            .filter(|l| !l.starts_with('#') && !l.is_empty());
        let driver = lines.next().and_then(|l| l.strip_prefix("driver "));
        let driver = driver.ok_or("no driver")?.to_owned();
        let mut columns = lines.next().ok_or("no families")?.split_whitespace();
        columns.next();
        let families: Vec<&str> = columns.collect();
        let mut values = BTreeMap::new();
        for line in lines {
            let mut words = line.split_whitespace();
            let label = words.next().ok_or("no label")?;
            for (family, cell) in families.iter().zip(words).filter(|(_, cell)| *cell != "-") {
                let numbers: Vec<u64> =
                    cell.split('/').map(str::parse).collect::<Result<_, _>>()?;
                let [registers, spills, instructions] = numbers[..] else {
                    return Err(format!("{label}: `{cell}` is not three numbers").into());
                };
                let ceiling = Ceiling {
                    registers,
                    spills,
                    instructions,
                };
                values.insert(((*family).to_owned(), label.to_owned()), ceiling);
            }
        }
        Ok(Self { driver, values })
    }

    /// The text of the file.
    pub fn to_text(&self) -> String {
        let mut families: Vec<&str> = FAMILIES.iter().map(|f| f.0).collect();
        families.dedup();
        let mut text = format!("{HEAD}driver {}\n{:34}", self.driver, "kernel");
        for family in &families {
            write!(text, " {family:16}").expect("a string");
        }
        for source in &KERNELS {
            text.truncate(text.trim_end().len());
            write!(text, "\n{:34}", source.label).expect("a string");
            for family in &families {
                let key = ((*family).to_owned(), source.label.to_owned());
                let cell = self.values.get(&key).map_or("-".to_owned(), |c| {
                    format!("{}/{}/{}", c.registers, c.spills, c.instructions)
                });
                write!(text, " {cell:16}").expect("a string");
            }
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
        text
    }

    /// What is wrong with a record of the kernels of one family with `part` in their labels, a line
    /// each: what grew past its ceiling, what must not spill and does, and, compiled by the
    /// version that the ceilings are from, what is so far below that they would no longer hold it.
    pub fn compare(&self, family: &str, part: &str, record: &Record) -> Vec<String> {
        let same_driver = record.compiler.driver_info == self.driver;
        let mut wrong = Vec::new();
        for label in KERNELS.iter().map(|k| k.label).filter(|l| l.contains(part)) {
            let now = match taken(record, label) {
                Ok(now) => now,
                Err(why) => {
                    wrong.push(format!("{label}: {why}"));
                    continue;
                }
            };
            if !may_spill(label) && now.spills > 0 {
                wrong.push(format!("{label}: spills {} registers", now.spills));
            }
            match self.values.get(&(family.to_owned(), label.to_owned())) {
                None => wrong.push(format!("{label}: has no ceiling yet; {REGENERATE}")),
                Some(ceiling) => wrong.extend(
                    against(ceiling, &now, same_driver)
                        .into_iter()
                        .map(|message| format!("{label}: {message}")),
                ),
            }
        }
        wrong
    }
}

const REGENERATE: &str = "`cargo run --release --example compilers -- ceilings` records what is";

/// Kernels of one point of G1 or of field elements alone keep everything in registers, where they
/// have 64-bit integers.
fn may_spill(label: &str) -> bool {
    let g1_or_field = !label.contains("_g2.");
    !(g1_or_field && label.ends_with(".u64")) || SPILLING.contains(&label)
}

/// Where `now` is past a ceiling, or so far below that it should be lowered.
pub fn against(ceiling: &Ceiling, now: &Ceiling, same_driver: bool) -> Vec<String> {
    // (what, recorded, measured, absolute slack: one unit of allocation, a few values, a few moves)
    let rows = [
        ("registers", ceiling.registers, now.registers, 8),
        ("spills", ceiling.spills, now.spills, 16),
        ("instructions", ceiling.instructions, now.instructions, 64),
    ];
    let mut wrong = Vec::new();
    for (what, recorded, measured, slack) in rows {
        let percent = if same_driver { 10 } else { 35 };
        if measured > recorded + recorded * percent / 100 + slack {
            wrong.push(format!("{measured} {what}; it was {recorded}"));
        } else if same_driver && measured + recorded * 15 / 100 + slack < recorded {
            wrong.push(format!(
                "better than its ceiling, {measured} {what} instead of {recorded}; {REGENERATE}"
            ));
        }
    }
    wrong
}

/// Compiles for every family and records the ceilings anew.
///
/// # Errors
/// If there is no driver for AMD's cards, it refuses a kernel, or the file cannot be written.
pub fn regenerate() -> Result<(), Box<dyn Error>> {
    let mut ceilings = Ceilings {
        driver: String::new(),
        values: BTreeMap::new(),
    };
    for (family, part) in FAMILIES {
        let record = record(&What::family(family, part))?.ok_or("no driver for AMD's cards")?;
        for label in KERNELS.iter().map(|k| k.label).filter(|l| l.contains(part)) {
            let ceiling = taken(&record, label).map_err(|why| format!("{label}: {why}"))?;
            let key = (family.to_owned(), label.to_owned());
            ceilings.values.insert(key, ceiling);
        }
        ceilings.driver = record.compiler.driver_info;
    }
    Ok(std::fs::write(path(), ceilings.to_text())?)
}
