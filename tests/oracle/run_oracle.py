"""Runs NVIDIA's PyTorch implementation of deepseek_v41 (PyPI: nemo-automodel) in float32 and records the goldens.

usage: run_oracle.py --checkpoints tests/golden/oracle [--native tests/golden/native] [--prompt-seeds N] [name ...]

For each checkpoint made by make_oracle_checkpoints.py this
  1. runs our NumPy reference in f32 mode;
  2. runs the other implementation as it is, except that equal scores are broken towards the smaller index (model.md 2.7);
  3. compares what every quantizer and every top-k of the two runs chose. Where they differ, the inputs must agree to
     EDGE_TOLERANCE: then the value sits on a rounding edge (or two scores tie), it is listed, and the run is repeated
     with our choice at exactly those places. A difference with a larger cause ends the script;
  4. writes golden.safetensors from the other implementation's run, and prints the errors with and without 3.
--prompt-seeds N tries N prompts and reports their edge counts without writing anything.
--native also compares how the two decode the FP8/FP4 tensors of the native checkpoints.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any, NamedTuple

os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")

import numpy as np
import torch
from nemo_automodel.components.models.common import BackendConfig
from nemo_automodel.components.models.deepseek_v41 import attention as other_attention
from nemo_automodel.components.models.deepseek_v41.config import DeepseekV41Config
from nemo_automodel.components.models.deepseek_v41.model import DeepseekV41ForCausalLM
from nemo_automodel.components.models.deepseek_v41.state_dict_adapter import dequantize_checkpoint_weight
from transformers import PreTrainedTokenizerFast

import tiny_checkpoint
from checkpoint_io import Checkpoint, RawTensor, read_safetensors, write_safetensors
from make_oracle_checkpoints import SPECS
from reference_model import Capture, ReferenceModel, Result

EDGE_TOLERANCE = 3e-5  # of the group's (row's) largest magnitude
KINDS = ("window", "latent", "index_key", "index_query", "index_topk", "candidate_blocks", "experts")

_original_quantize = other_attention.quantize_cache
_original_blocks = other_attention._select_candidate_blocks
_original_topk = torch.Tensor.topk


class TopK(NamedTuple):
    values: torch.Tensor
    indices: torch.Tensor


class Observer:
    """Stands between the other implementation and its quantizers and top-k calls for one forward."""

    def __init__(self, reference: Result, capture: Capture, align: bool) -> None:
        self.reference, self.cap, self.align = reference, capture.values, align
        self.layer = -1
        self.context = "index_topk"
        self.edges: list[tuple[int, int, int, int, int]] = []  # kind, layer, row, head or -1, channel or chosen index
        self.selected: dict[int, np.ndarray] = {}
        self.experts: dict[int, np.ndarray] = {}
        self.blocks: dict[int, np.ndarray] = {}

    # -- quantizers
    def quantize(self, values: torch.Tensor, *, format: str, block_size: int) -> torch.Tensor:
        out = _original_quantize(values, format=format, block_size=block_size)
        kind = {"fp8": "window", "nvfp4": "latent", "mxfp4": "index_key" if values.ndim == 3 else "index_query"}[format]
        before, after = {
            "window": (f"L{self.layer}.attn.kv_rope", f"L{self.layer}.attn.kv"),
            "latent": (f"L{self.layer}.comp.rope", f"L{self.layer}.comp.row"),
            "index_key": (f"L{self.layer}.index.k_rope", f"L{self.layer}.index.k"),
            "index_query": (f"L{self.layer}.index.q_rope", f"L{self.layer}.index.q"),
        }[kind]
        ours_in, ours = self.cap[before], self.cap[after]
        theirs_in, theirs = values[0].numpy(), out[0].numpy()
        if not self.align:
            return out
        limit = EDGE_TOLERANCE * np.abs(ours_in).max(axis=-1, keepdims=True)
        if (np.abs(theirs_in - ours_in) > limit).any():
            worst = np.abs(theirs_in - ours_in).max()
            raise SystemExit(f"layer {self.layer} {kind}: inputs differ by {worst:.2e}, more than an edge explains")
        for at in np.argwhere(theirs != ours):
            head = int(at[1]) if len(at) == 3 else -1
            self.edges.append((KINDS.index(kind), self.layer, int(at[0]), head, int(at[-1])))
        return torch.from_numpy(ours.copy())[None].to(out.dtype)

    # -- top-k
    def candidate_blocks(self, scores: torch.Tensor, visible: torch.Tensor, **kwargs: int) -> torch.Tensor:
        self.context = "candidate_blocks"
        out = _original_blocks(scores, visible, **kwargs)
        self.context = "index_topk"
        return out

    def topk(self, scores: torch.Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> TopK:
        """Largest k, the smaller index first among equals; where aligned and different, the reference's picks."""
        order = torch.sort(scores, dim=-1, descending=True, stable=True).indices[..., :k]
        indices = order.reshape(-1, k).clone()
        flat = scores.reshape(-1, scores.shape[-1]).numpy()
        wanted = {
            "index_topk": self.reference.selected.get(self.layer),
            "candidate_blocks": self.reference.blocks.get(self.layer),
            "experts": self.cap.get(f"L{self.layer}.ffn.experts"),
        }[self.context]
        assert wanted is not None and len(wanted) == len(flat), (self.context, self.layer)
        record = np.full((len(flat), k), -1, np.int32)
        for row in range(len(flat)):
            own = {int(i) for i in indices[row].tolist() if flat[row, i] > -np.inf}
            ours = {int(i) for i in wanted[row] if i >= 0}
            if self.align and own != ours:
                finite = flat[row][np.isfinite(flat[row])]
                gap = max(flat[row, i] for i in own - ours) - min(flat[row, i] for i in ours - own)
                if len(own) != len(ours) or not abs(gap) <= EDGE_TOLERANCE * np.abs(finite).max():
                    raise SystemExit(f"layer {self.layer} row {row} {self.context}: a gap of {gap:.2e} is no tie")
                self.edges += [(KINDS.index(self.context), self.layer, row, -1, i) for i in ours - own]
                rest = [i for i in indices[row].tolist() if i not in own]
                indices[row] = torch.tensor(list(ours) + rest)
                own = ours
            chosen = np.array(list(own), np.int32)
            chosen.sort()
            record[row, : len(chosen)] = chosen
        {"index_topk": self.selected, "candidate_blocks": self.blocks, "experts": self.experts}[self.context][self.layer] = record
        indices = indices.reshape(order.shape)
        return TopK(scores.gather(-1, indices), indices)


def load(folder: str, checkpoint: Checkpoint) -> DeepseekV41ForCausalLM:
    """The other implementation with the checkpoint's weights, in float32, by its own reading of the official names."""
    cfg = json.loads(json.dumps(checkpoint.config))
    cfg["vision_config"] = {"num_hidden_layers": 0}
    cfg["dtype"] = cfg["text_config"]["dtype"] = "float32"
    for key in ("model_type", "transformers_version", "quantization_config"):
        cfg.pop(key, None)
    model = DeepseekV41ForCausalLM(
        DeepseekV41Config(**cfg),
        backend=BackendConfig(
            attn="eager", linear="torch", rms_norm="torch_fp32", experts="torch", dispatcher="torch",
            enable_hf_state_dict_adapter=True,
        ),
        tokenizer=PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json")),
    )
    state = {name: torch.from_numpy(np.array(checkpoint.tensor(name))) for name in checkpoint.names()}
    model.load_state_dict(model.state_dict_adapter.from_hf(state), strict=True)
    return model.float().eval()


def run_other(model: DeepseekV41ForCausalLM, ids: np.ndarray, observer: Observer) -> tuple[np.ndarray, list[np.ndarray]]:
    """Logits [T, V] and the residual [T, C, D] after each layer."""
    residuals: list[np.ndarray] = []
    handles = []
    for name, block in model.model.layers.items():

        def enter(_m: Any, _a: Any, _k: Any, layer: int = int(name)) -> None:
            observer.layer, observer.context = layer, "index_topk"

        def gate(_m: Any, _a: Any) -> None:
            observer.context = "experts"

        handles.append(block.register_forward_pre_hook(enter, with_kwargs=True))
        handles.append(block.ffn.gate.register_forward_pre_hook(gate))
        handles.append(block.register_forward_hook(lambda _m, _a, out: residuals.append(out[0][0].numpy().copy())))
    other_attention.quantize_cache = observer.quantize
    other_attention._select_candidate_blocks = observer.candidate_blocks
    torch.Tensor.topk = lambda self, k, dim=-1, largest=True, sorted=True: observer.topk(self, k, dim, largest, sorted)
    try:
        with torch.no_grad():
            logits = model(torch.from_numpy(ids)[None]).logits[0].numpy().copy()
    finally:
        other_attention.quantize_cache = _original_quantize
        other_attention._select_candidate_blocks = _original_blocks
        torch.Tensor.topk = _original_topk
        for handle in handles:
            handle.remove()
    return logits, residuals


def error_per_position(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Largest logit difference of each position as a fraction of that position's logit range."""
    return np.abs(a - b).max(axis=-1) / np.ptp(b, axis=-1)


def compare_decoding(folder: str) -> tuple[int, int]:
    """(tensors compared, tensors that differ) of the two readings of FP8, FP4 and E8M0."""
    checkpoint = Checkpoint(folder)
    raw = read_safetensors(os.path.join(folder, "model.safetensors"))
    types = {"F8_E4M3": torch.float8_e4m3fn, "F8_E8M0": torch.float8_e8m0fnu, "I8": torch.int8}

    def tensor(t: RawTensor) -> torch.Tensor:
        return torch.from_numpy(np.array(t.data)).view(types[t.dtype])

    compared = differ = 0
    for name, t in raw.items():
        if t.dtype not in ("F8_E4M3", "I8"):
            continue
        scale = tensor(raw[name[: -len("weight")] + "scale"])
        theirs = dequantize_checkpoint_weight(tensor(t), scale, dtype=torch.float32, rowwise=".engram.embed." in name)
        compared += 1
        differ += not np.array_equal(theirs.numpy(), checkpoint.tensor(name))
    return compared, differ


def one(folder: str, name: str, prompt_seed: int, write: bool) -> None:
    _, _, _, _, length = SPECS[name]
    checkpoint = Checkpoint(folder)
    ids = tiny_checkpoint.prompt(prompt_seed, length)
    capture = Capture()
    reference = ReferenceModel(checkpoint, "f32").forward(ids, capture)
    model = load(folder, checkpoint)
    as_is = Observer(reference, capture, align=False)
    raw_logits, _ = run_other(model, ids, as_is)
    aligned = Observer(reference, capture, align=True)
    logits, residuals = run_other(model, ids, aligned)
    raw_error, error = error_per_position(raw_logits, reference.logits), error_per_position(logits, reference.logits)
    kinds = {k: sum(e[0] == i for e in aligned.edges) for i, k in enumerate(KINDS)}
    far = np.flatnonzero(raw_error > 2e-5)
    residual_error = [float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(residuals, reference.residuals)]
    text = checkpoint.config["text_config"]
    closed = {layer: (np.arange(length) + 1) // text["compress_ratios"][layer] for layer in reference.selected}
    dropped = {layer: int(((s >= 0).sum(axis=1) < closed[layer]).sum()) for layer, s in reference.selected.items()}
    size = text["candidate_block_size"]
    blocks = {layer: int(((b >= 0).sum(axis=1) < -(-closed[layer] // size)).sum()) for layer, b in reference.blocks.items()}
    print(
        f"{name} prompt {prompt_seed}: edges {len(aligned.edges)} { {k: v for k, v in kinds.items() if v} }; "
        f"logit error max {error.max():.2e} median {np.median(error):.2e}; as it is: max {raw_error.max():.2e}, "
        f"{len(far)} of {length} positions above 2e-5, first {far[0] if len(far) else '-'}; "
        f"residual error max {max(residual_error):.2e}; rows where a selection drops {dropped}, blocks drop {blocks}",
        flush=True,
    )
    if not write:
        return
    positions = np.arange(0, length, 1 if length < 64 else 8, dtype=np.int32)
    positions = np.unique(np.append(positions, length - 1)).astype(np.int32)
    edges = np.array(sorted(set(aligned.edges)), np.int32).reshape(-1, 5)
    tensors = {
        "ids": RawTensor("I32", ids.astype(np.int32)),
        "logits": RawTensor("F32", logits),
        "logits_as_is": RawTensor("F32", raw_logits),
        "logits_reference": RawTensor("F32", reference.logits),
        "positions": RawTensor("I32", positions),
        "edges": RawTensor("I32", edges),
    }
    for layer, h in enumerate(residuals):
        tensors[f"L{layer}.h"] = RawTensor("F32", np.ascontiguousarray(h[positions]))
    for layer, rows in aligned.selected.items():
        tensors[f"L{layer}.index.selected"] = RawTensor("I32", rows)
    for layer, rows in aligned.blocks.items():
        tensors[f"L{layer}.index.blocks"] = RawTensor("I32", rows)
    for layer, rows in aligned.experts.items():
        tensors[f"L{layer}.ffn.experts"] = RawTensor("I32", rows)
    if not len(edges):
        del tensors["logits_as_is"]
    metadata = {"compute": "f32", "made_by": "nemo-automodel 0.7.0", "edge_kinds": ",".join(KINDS)}
    size = write_safetensors(os.path.join(folder, "golden.safetensors"), tensors, metadata)
    print(f"{name}: golden {size} B")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--native")
    parser.add_argument("--prompt-seeds", type=int, default=0)
    parser.add_argument("names", nargs="*", default=[])
    args = parser.parse_args()
    torch.set_num_threads(1)
    for name in args.names or SPECS:
        folder = os.path.join(args.checkpoints, name)
        if args.prompt_seeds:
            for seed in range(SPECS[name][3], SPECS[name][3] + args.prompt_seeds):
                one(folder, name, seed, write=False)
        else:
            one(folder, name, SPECS[name][3], write=True)
    if args.native:
        for name in sorted(os.listdir(args.native)):
            compared, differ = compare_decoding(os.path.join(args.native, name))
            print(f"{name}: {compared} quantized tensors decoded by both, {differ} differ")


if __name__ == "__main__":
    main()
