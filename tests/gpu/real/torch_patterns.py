# SPDX-License-Identifier: Apache-2.0
"""Patterns that need PyTorch: a model in training with its optimizer, and cuBLAS at work."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch

STEPS = 5


def digest(tensors: Iterator[torch.Tensor]) -> str:
    found = hashlib.sha256()
    for tensor in tensors:
        found.update(tensor.detach().cpu().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


class Training:
    """A model, Adam's two moments for each weight, and the random generator's state."""

    def __init__(self, seed: int, mib: int) -> None:
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        # Weights, gradients and two moments: four times the weights, 4 bytes each.
        width = max(256, int((mib * (1 << 20) / 16 / 4) ** 0.5) // 64 * 64)
        layers = [
            layer for _ in range(4) for layer in (torch.nn.Linear(width, width), torch.nn.GELU())
        ]
        self._model = torch.nn.Sequential(*layers, torch.nn.Dropout(0.1)).cuda()
        self._optimizer = torch.optim.Adam(self._model.parameters())
        self._width = width
        self.work()
        self._digest = self._state()

    @property
    def bytes(self) -> int:
        return torch.cuda.memory_reserved()

    def work(self) -> str:
        for _ in range(STEPS):
            batch = torch.randn(64, self._width, device="cuda")
            loss = (self._model(batch) - batch).square().mean()
            self._optimizer.zero_grad()
            loss.backward()
            self._optimizer.step()
        return self._state()

    def _state(self) -> str:
        torch.cuda.synchronize()
        moments = (
            value
            for state in self._optimizer.state.values()
            for value in state.values()
            if isinstance(value, torch.Tensor)
        )
        return digest(iter([*self._model.state_dict().values(), *moments]))

    def verify(self) -> str:
        return "" if self._state() == self._digest else "weights or moments differ"


class Matmul:
    """cuBLAS with its handle and workspace: the same product before and after, bit by bit."""

    def __init__(self, seed: int, mib: int) -> None:
        torch.manual_seed(seed)
        torch.use_deterministic_algorithms(True)
        side = max(256, int((mib * (1 << 20) / 12) ** 0.5) // 64 * 64)
        self._left = torch.randn(side, side, device="cuda")
        self._right = torch.randn(side, side, device="cuda")
        self._digest = self.work()

    @property
    def bytes(self) -> int:
        return torch.cuda.memory_reserved()

    def work(self) -> str:
        product = self._left @ self._right
        torch.cuda.synchronize()
        return digest(iter([product]))

    def verify(self) -> str:
        return "" if self.work() == self._digest else "the product differs"
