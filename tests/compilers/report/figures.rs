//! Drivers name their statistics as they like; here they become figures of one kind.

use super::vulkan::Executable;

/// What matters of a compiled kernel, as far as its compiler says it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// 32-bit registers of an invocation; with Intel's compiler, those of a whole subgroup that hold
    /// something at the worst place.
    pub registers: Option<u64>,
    /// What did not fit them: values (AMD), instructions that store such (Intel, Qualcomm), or bytes
    /// (NVIDIA).
    pub spills: Option<u64>,
    /// Subgroups that a SIMD (AMD), core (Qualcomm) or multiprocessor (NVIDIA) can hold at a time.
    pub occupancy: Option<u64>,
    pub instructions: Option<u64>,
    /// Bytes of machine code.
    pub code: Option<u64>,
    /// The compiler's estimate of the cycles that a subgroup takes of a busy processor.
    pub cycles: Option<u64>,
}

/// A statistic's name, and how many units one of it is.
type Name = (&'static str, u64);

const REGISTERS: [Name; 6] = [
    ("VGPRs", 1),
    ("Register Count", 1),
    ("Number of GPRs", 1),
    ("GPR count", 1),
    ("Max live registers", 1),
    // Of four words each.
    ("Registers used", 4),
];
const SPILLS: [Name; 8] = [
    ("Spilled VGPRs", 1),
    ("Spilled SGPRs", 1),
    ("Spill Count", 1),
    ("Spills to memory", 1),
    ("STP Count", 1),
    ("SLM Size", 1),
    ("Local Memory Size", 1),
    ("Stack Size", 1),
];
const OCCUPANCY: [Name; 3] = [
    ("Subgroups per SIMD", 1),
    ("Max Waves Per Core", 1),
    ("Max warps/SM", 1),
];
const INSTRUCTIONS: [Name; 3] = [
    ("Instructions", 1),
    ("Instruction Count", 1),
    ("Instruction count", 1),
];
const CODE: [Name; 3] = [("Code size", 1), ("Code Size", 1), ("Binary Size", 1)];
const CYCLES: [Name; 3] = [
    ("Inverse Throughput", 1),
    ("Cycle Count", 1),
    ("Static cycle count", 1),
];

impl Figures {
    pub fn of(executable: &Executable) -> Self {
        let get = |(name, unit): &Name| {
            let value = executable.statistics.get(*name)?.as_f64()? as u64;
            // NVIDIA's driver adds 2^36 to the local memory of a kernel.
            Some(u64::from(value as u32) * unit)
        };
        let first = |names: &[Name]| names.iter().find_map(get);
        Self {
            registers: first(&REGISTERS),
            spills: SPILLS.iter().filter_map(get).reduce(|a, b| a + b),
            occupancy: first(&OCCUPANCY),
            instructions: first(&INSTRUCTIONS),
            code: first(&CODE),
            cycles: first(&CYCLES),
        }
    }
}
