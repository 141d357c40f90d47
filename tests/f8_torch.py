#!/usr/bin/env python3
"""Conversions of 8-bit floats against the casts of PyTorch: all 256 values to f32, and floats of all bits to 8 bits, one of
STRIDE (1: all 2^32, minutes). Releases of PyTorch before 2.12 give NaN where f8e4m3 overflows. Status 77 without PyTorch.

usage: f8_torch.py [STRIDE]
"""
import os
import subprocess
import sys
import tempfile

try:
    import torch
except ImportError:
    print("no torch here")
    sys.exit(77)

SOURCE = r"""
#include <stdio.h>
#include "reduce/element.h"

int main(void)
{
	static float in[1 << 16];
	static unsigned char out[2][1 << 16];
	size_t n;

	for (int b = 0; b < 256; b++) {
		const float pair[] = {f8e4m3_to_f32((uint8_t)b), f8e5m2_to_f32((uint8_t)b)};

		fwrite(pair, 4, 2, stdout);
	}
	while ((n = fread(in, 4, sizeof(in) / 4, stdin)) > 0) {
		for (size_t i = 0; i < n; i++) {
			out[0][i] = f8e4m3_from_f32(in[i]);
			out[1][i] = f8e5m2_from_f32(in[i]);
		}
		fwrite(out[0], 1, n, stdout);
		fwrite(out[1], 1, n, stdout);
	}
	return 0;
}
"""
TYPES = (torch.float8_e4m3fn, torch.float8_e5m2)
PART, BLOCK = 1 << 22, 1 << 16


def convert(program, bits):
    """The widened tables, and both narrow forms of the floats with these bits."""
    done = subprocess.run([program], input=bits.numpy().tobytes(), stdout=subprocess.PIPE, check=True).stdout
    wide = torch.frombuffer(bytearray(done[:2048]), dtype=torch.float32).view(256, 2)
    rest = torch.frombuffer(bytearray(done[2048:]), dtype=torch.uint8).view(-1, 2, BLOCK)
    return wide, (rest[:, 0].reshape(-1), rest[:, 1].reshape(-1))


def main():
    stride = int(sys.argv[1]) if len(sys.argv) > 1 else 257
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    wrong = seen = 0
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/convert"
        subprocess.run(["cc", "-O2", "-ffp-contract=off", f"-I{root}/src", "-x", "c", "-", "-o", program], input=SOURCE, text=True,
                       check=True)
        for at in range(0, 1 << 32, PART * stride):
            bits = (torch.arange(PART, dtype=torch.int64) * stride + at).remainder(1 << 32)
            bits = torch.where(bits >= 1 << 31, bits - (1 << 32), bits).to(torch.int32)
            wide, narrow = convert(program, bits)
            for k, dtype in enumerate(TYPES):
                want = bits.view(torch.float32).to(dtype).view(torch.uint8)
                wrong += int((want != narrow[k]).sum())
                want = torch.arange(256, dtype=torch.uint8).view(dtype).float()
                wrong += int(((want != wide[:, k]) & ~(want.isnan() & wide[:, k].isnan())).sum())
            seen += PART
    print(f"torch {torch.__version__}: {seen} floats, {wrong} wrong")
    sys.exit(1 if wrong else 0)


main()
