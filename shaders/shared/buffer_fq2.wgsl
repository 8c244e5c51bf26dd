// Access to Fq2 elements of the storage buffer ${BUF}.
#import buffer_fq
fn fq2_load_${BUF}(i: u32) -> Fq2 { return Fq2(fq_load_${BUF}(2u * i), fq_load_${BUF}(2u * i + 1u)); }
fn fq2_store_${BUF}(i: u32, value: Fq2) {
  fq_store_${BUF}(2u * i, value.c0);
  fq_store_${BUF}(2u * i + 1u, value.c1);
}
fn fq2_store_lazy_${BUF}(i: u32, value: Fq2) {
  fq_store_lazy_${BUF}(2u * i, value.c0);
  fq_store_lazy_${BUF}(2u * i + 1u, value.c1);
}
fn fq2_load_from_${BUF}(at: u32, step: u32) -> Fq2 {
  return Fq2(fq_load_from_${BUF}(at, step), fq_load_from_${BUF}(at + ${QWORDS / 4}u * step, step));
}
fn fq2_store_lazy_to_${BUF}(at: u32, step: u32, value: Fq2) {
  fq_store_lazy_to_${BUF}(at, step, value.c0);
  fq_store_lazy_to_${BUF}(at + ${QWORDS / 4}u * step, step, value.c1);
}
