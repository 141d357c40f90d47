#!/bin/bash
# Compiles abi_check.c against a cuda.h, and with three planted differences, each of which must fail.
# Exit 77: there is no cuda.h here. usage: abi_check.sh SOURCE_ROOT CC...
set -u
root=$1
shift
include=
for dir in ${CUDA_HOME:+"$CUDA_HOME/include"} /usr/local/cuda/include /usr/local/cuda-*/include /usr/include; do
	if [ -f "$dir/cuda.h" ] && [ -f "$dir/cudaTypedefs.h" ]; then
		include=$dir
		break
	fi
done
if [ -z "$include" ]; then
	echo "skipped: no cuda.h with cudaTypedefs.h found (CUDA_HOME, /usr/local/cuda, /usr/include)"
	exit 77
fi
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
mkdir "$tmp/device"
compile=("$@" -std=gnu11 -fsyntax-only -I "$include")
if ! "${compile[@]}" -I "$root/src" "$root/tests/softcuda/abi_check.c"; then
	echo "src/device/cuda_abi.h differs from $include/cuda.h"
	exit 1
fi
planted=0
while IFS= read -r edit; do
	sed "$edit" "$root/src/device/cuda_abi.h" >"$tmp/device/cuda_abi.h"
	if cmp -s "$root/src/device/cuda_abi.h" "$tmp/device/cuda_abi.h"; then
		echo "the planted edit $edit changes nothing"
		exit 1
	fi
	if "${compile[@]}" -I "$tmp" "$root/tests/softcuda/abi_check.c" 2>/dev/null; then
		echo "the planted edit $edit was not noticed"
		exit 1
	fi
	planted=$((planted + 1))
done <<'EDITS'
s/V(CUDA_ERROR_NOT_READY, 600)/V(CUDA_ERROR_NOT_READY, 601)/
s/(CUstream hStream, unsigned long long \*streamId)/(CUstream hStream, unsigned long *streamId)/
s/cuMemHostRegister_v2, 6050/cuMemHostRegister_v2, 6000/
EDITS
echo "cuda_abi.h agrees with $include/cuda.h; $planted planted differences noticed"
