// Access to XYZZ points, in working form, of the storage buffer ${BUF}.
fn point_load_${BUF}(i: u32) -> Point {
  let k = 4u * i;
  return Point(${E}_load_${BUF}(k), ${E}_load_${BUF}(k + 1u), ${E}_load_${BUF}(k + 2u), ${E}_load_${BUF}(k + 3u));
}
// Coordinates below 2p stay as they are.
fn point_store_${BUF}(i: u32, p: Point) {
  let k = 4u * i;
  ${E}_store_lazy_${BUF}(k, p.x);
  ${E}_store_lazy_${BUF}(k + 1u, p.y);
  ${E}_store_lazy_${BUF}(k + 2u, p.zz);
  ${E}_store_lazy_${BUF}(k + 3u, p.zzz);
}
