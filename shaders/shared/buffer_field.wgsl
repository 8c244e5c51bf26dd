// Access to ${F} elements of the storage buffer ${BUF} (an array of vec4<u32>).
fn ${F}_load_${BUF}(i: u32) -> ${T} {
  let k = i * ${WORDS / 4}u;
  return ${F}_unpack(#{k in 0..WORDS / 4;, ;${BUF}[k + ${k}u]});
}
fn ${F}_load_up_${BUF}(i: u32) -> ${T} {
  let k = i * ${WORDS / 4}u;
  return ${F}_unpack_up(#{k in 0..WORDS / 4;, ;${BUF}[k + ${k}u]});
}
// Stores the canonical representative of a value below 2p.
fn ${F}_store_${BUF}(i: u32, value: ${T}) {
  let k = i * ${WORDS / 4}u;
  let canonical = ${F}_canon(value);
#for k in 0..WORDS / 4
  ${BUF}[k + ${k}u] = ${F}_pack${k}(canonical);
#end
}
// Stores a value below 2p as it is.
fn ${F}_store_lazy_${BUF}(i: u32, value: ${T}) {
  let k = i * ${WORDS / 4}u;
#for k in 0..WORDS / 4
  ${BUF}[k + ${k}u] = ${F}_pack${k}(value);
#end
}
// A value whose vec4s are `step` apart, from vec4 `at` on.
fn ${F}_load_from_${BUF}(at: u32, step: u32) -> ${T} {
  return ${F}_unpack(#{k in 0..WORDS / 4;, ;${BUF}[at + ${k}u * step]});
}
fn ${F}_store_lazy_to_${BUF}(at: u32, step: u32, value: ${T}) {
#for k in 0..WORDS / 4
  ${BUF}[at + ${k}u * step] = ${F}_pack${k}(value);
#end
}
