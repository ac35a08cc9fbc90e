"""Errors of fovea's attention and of PyTorch's flash attention against f64, on the same 16-bit inputs.

usage: attention_error.py FOVEA OUT.json     (needs a GPU, PyTorch; no other packages)

A row is one tensor of one case: the relative root-mean-square error of fovea's result, of PyTorch's, and their ratio.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def write_tensors(path, tensors, metadata):
    header, at, blobs = {"__metadata__": metadata}, 0, []
    for name, tensor in tensors.items():
        blob = tensor.detach().float().cpu().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape), "data_offsets": [at, at + len(blob)]}
        at += len(blob)
        blobs.append(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def read_tensors(path):
    data = Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    out = {}
    for name, entry in json.loads(data[8 : 8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + size + x for x in entry["data_offsets"])
        flat = torch.frombuffer(bytearray(data[begin:end]), dtype=torch.float32)
        out[name] = flat.reshape(entry["shape"])
    return out


def gradients(q, k, v, do, causal, backend=None):
    leaves = [x.detach().clone().requires_grad_() for x in (q, k, v)]
    if backend is None:  # f64, written out
        scores = leaves[0] @ leaves[1].transpose(-1, -2) / q.shape[-1] ** 0.5
        if causal:
            n = q.shape[-2]
            scores = scores.masked_fill(torch.ones(n, n, device=q.device).triu(1).bool(), float("-inf"))
        out = scores.softmax(-1) @ leaves[2]
    else:
        with sdpa_kernel(backend):
            out = F.scaled_dot_product_attention(*leaves, is_causal=causal)
    out.backward(do)
    return {"o": out, "grad.q": leaves[0].grad, "grad.k": leaves[1].grad, "grad.v": leaves[2].grad}


def error(got, want):
    got, want = got.detach().double().to(want.device), want.detach()
    if not torch.isfinite(got).all():
        return float("inf")
    return ((got - want).pow(2).mean().sqrt() / want.pow(2).mean().sqrt().clamp_min(1e-300)).item()


def inputs(kind, n, d, dtype, heads=4):
    torch.manual_seed(n + d)
    draw = lambda: torch.randn(1, heads, n, d, device="cuda", dtype=torch.float64)
    q, k, v, do = draw(), draw(), draw(), draw()
    if kind == "norm 50":
        q, k = (x / x.norm(dim=-1, keepdim=True) * 50 for x in (q, k))
    if kind == "equal rows":
        q, k = (x[:, :, :1].expand_as(x).contiguous() for x in (q, k))
    return [x.to(dtype) for x in (q, k, v, do)]


def main():
    fovea, out_path = sys.argv[1:]
    rows, folder = [], Path(tempfile.mkdtemp())
    for dtype, precision in ((torch.bfloat16, "bf16-mixed"), (torch.float16, "fp16-mixed")):
        for d in (64, 128):
            for causal in (True, False):
                for kind, n in (("normal", 1), ("normal", 511), ("normal", 2048), ("norm 50", 1024), ("equal rows", 1024)):
                    q, k, v, do = inputs(kind, n, d, dtype)
                    want = gradients(*(x.double() for x in (q, k, v, do)), causal)
                    peer = gradients(q, k, v, do, causal, SDPBackend.FLASH_ATTENTION)
                    options = json.dumps({"causal": causal})
                    write_tensors(folder / "in", {"q": q, "k": k, "v": v, "do": do}, {"kind": "standard", "options": options})
                    command = [fovea, "check", "attention", "standard", "--input", folder / "in", "--output", folder / "out"]
                    subprocess.run(command + ["--device", "cuda", "--precision", precision], check=True, stdout=subprocess.DEVNULL)
                    ours = read_tensors(folder / "out")
                    for name, reference in want.items():
                        mine, theirs = error(ours[name], reference), error(peer[name], reference)
                        rows.append(dict(dtype=precision, d=d, causal=causal, inputs=kind, n=n, tensor=name, fovea=mine,
                                         torch=theirs, ratio=mine / max(theirs, 1e-30)))
    Path(out_path).write_text(json.dumps(rows, indent=0))
    for row in sorted(rows, key=lambda row: -row["ratio"])[:12]:
        print({key: (f"{x:.3g}" if isinstance(x, float) else x) for key, x in row.items()})
    print(len(rows), "tensors; largest ratio", max(row["ratio"] for row in rows))


if __name__ == "__main__":
    main()
