//! Drivers name their statistics as they like; here they become figures of one kind.

use super::vulkan::Executable;

/// What matters of a compiled kernel, as far as its compiler says it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Vector registers of an invocation.
    pub registers: Option<u64>,
    /// Values (AMD, Intel) that did not fit them, or bytes of memory (NVIDIA) in their place.
    pub spills: Option<u64>,
    /// Subgroups that a processor can hold at a time.
    pub occupancy: Option<u64>,
    pub instructions: Option<u64>,
    /// Bytes of machine code.
    pub code: Option<u64>,
    /// The compiler's estimate of the cycles from one subgroup's result to the next, on a full
    /// processor.
    pub cycles: Option<u64>,
}

const REGISTERS: [&str; 4] = ["VGPRs", "Register Count", "GPR count", "Max live registers"];
const SPILLS: [&str; 6] = [
    "Spilled VGPRs",
    "Spilled SGPRs",
    "Spill Count",
    "Spills to memory",
    "Local Memory Size",
    "Stack Size",
];
const OCCUPANCY: [&str; 3] = ["Subgroups per SIMD", "Max Waves Per Core", "Max warps/SM"];
const INSTRUCTIONS: [&str; 3] = ["Instructions", "Instruction Count", "Instruction count"];
const CODE: [&str; 4] = ["Code size", "Code Size", "Binary Size", "Code bytes"];
const CYCLES: [&str; 3] = ["Inverse Throughput", "Cycle Count", "Static cycle count"];

impl Figures {
    pub fn of(executable: &Executable) -> Self {
        let get = |name: &&str| executable.statistics.get(*name)?.as_f64();
        let whole = |value: f64| value as u64;
        let first = |names: &[&str]| names.iter().find_map(get).map(whole);
        Self {
            registers: first(&REGISTERS),
            spills: SPILLS
                .iter()
                .filter_map(get)
                .map(whole)
                .reduce(|a, b| a + b),
            occupancy: first(&OCCUPANCY),
            instructions: first(&INSTRUCTIONS),
            code: first(&CODE),
            cycles: first(&CYCLES),
        }
    }
}
