//! The executor's own small kernels: fill, copy, and the token at the end of each submission.
//!
//! They are compute kernels and not the driver's fill and copy commands because wgpu refuses
//! copies inside one buffer, and because they need no break of the compute pass.

use crate::device::pipelines::Program;

/// Words that one workgroup fills or copies.
pub const GROUP_WORDS: u64 = 1024;
/// Rough cost of that, in the field multiplications that submissions are measured by.
pub const GROUP_WORK: u64 = 32;

macro_rules! prelude {
    ($fields:literal, $dst:literal) => {
        concat!(
            "struct Params { first_group: u32, end_group: u32, zero: u32, reserved: u32,",
            $fields,
            "}\n@group(0) @binding(0) var<uniform> params: Params;\n@group(0) @binding(",
            $dst,
            ") var<storage, read_write> dst: array<u32>;\n",
            "fn group(id: vec3<u32>, count: vec3<u32>) -> u32 {",
            " return params.first_group + id.x + id.y * count.x; }\n"
        )
    };
}

/// `dst[offset .. offset + words] = value`
pub const FILL: Program = Program {
    label: "fill",
    wgsl: concat!(
        prelude!("offset: u32, words: u32, value: u32, unused: u32", "1"),
        "
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let g = group(id, count);
    if (g >= params.end_group) { return; }
    for (var k = 0u; k < 4u; k++) {
        let i = g * 1024u + k * 256u + lane;
        if (i < params.words) { dst[params.offset + i] = params.value; }
    }
}"
    ),
    bindings: 1,
    params_words: 8,
};

/// `dst[to .. to + words] = src[from .. from + words]`, not overlapping.
pub const COPY: Program = Program {
    label: "copy",
    wgsl: concat!(
        prelude!("from_word: u32, to_word: u32, words: u32, unused: u32", "2"),
        "
@group(0) @binding(1) var<storage, read_write> src: array<u32>;
@compute @workgroup_size(256)
fn main(@builtin(workgroup_id) id: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let g = group(id, count);
    if (g >= params.end_group) { return; }
    for (var k = 0u; k < 4u; k++) {
        let i = g * 1024u + k * 256u + lane;
        if (i < params.words) { dst[params.to_word + i] = src[params.from_word + i]; }
    }
}"
    ),
    bindings: 2,
    params_words: 8,
};

/// `dst[0] = token`
pub const CANARY: Program = Program {
    label: "canary",
    wgsl: concat!(
        prelude!("token: u32, u0: u32, u1: u32, u2: u32", "1"),
        "
@compute @workgroup_size(1)
fn main() { dst[0] = params.token; }"
    ),
    bindings: 1,
    params_words: 8,
};
