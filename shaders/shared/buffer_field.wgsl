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
