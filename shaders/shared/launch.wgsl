// The launch header that every kernel's uniform block starts with, and the folding of workgroups
// into two dimensions. A dispatch may be one piece of a larger one.
struct Launch {
  first_group: u32,
  end_group: u32,
  // Always 0; added to loop bounds that a compiler must not unroll.
  zero: u32,
  reserved: u32,
}

// Index of this workgroup in the whole launch; not below end_group: nothing to do.
fn launch_group(group: vec3<u32>, groups: vec3<u32>) -> u32 {
  return params.launch.first_group + group.x + group.y * groups.x;
}
