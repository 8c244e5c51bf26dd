#!/bin/sh
# Builds groth16-gpu, and proves and verifies the bundled example with it.
#
#     examples/first-proof.sh [FOLDER=target/first-proof] [OPTIONS OF prove, such as --device 0]
set -eu
cd "$(dirname "$0")/.."
folder=target/first-proof
case ${1---} in
  -*) ;;
  *) folder=$1 && shift ;;
esac

cargo build --release
tool=$(cargo metadata --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/groth16-gpu

set -x
"$tool" example "$folder"
"$tool" prove "$folder/circuit.zkey" "$folder/witness.wtns" "$folder/proof.json" "$folder/public.json" "$@"
"$tool" verify "$folder/verification_key.json" "$folder/public.json" "$folder/proof.json"
