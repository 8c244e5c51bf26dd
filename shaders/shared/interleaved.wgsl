// Where records of `size` vec4s begin in a list that neighbouring invocations read and write
// together: blocks of ${BLOCK} records hold all their first vec4s, then all second ones, ….
const BLOCK: u32 = ${BLOCK}u;
fn interleaved(i: u32, size: u32) -> u32 { return i / BLOCK * (BLOCK * size) + i % BLOCK; }
