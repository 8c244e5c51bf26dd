#import digit
// The parameters of a digit sort.
struct Params {
  launch: Launch,
  n: u32,
  window_bits: u32,
  windows: u32,
  buckets: u32,
  // Windows w, w + sets, w + 2·sets, … share buckets: each has a table of bases of its own.
  sets: u32,
  // Tables whose entries are sorted together.
  together: u32,
  // From one table to the next, in points.
  stride: u32,
  // Workgroups of one window.
  groups: u32,
}

// The row of counts that window w goes to: its set of buckets within its list of tables.
fn window_row(w: u32) -> u32 {
  let list = w / params.sets / params.together;
  return list * params.sets + w % params.sets;
}

// The window and the scalar that invocation `local` of workgroup g has: windows come one after the
// other, so that what one scatters to stays in caches.
fn window_of(g: u32) -> u32 { return g / params.groups; }
fn scalar_of(g: u32, local: u32) -> u32 { return (g % params.groups) * 64u + local; }
