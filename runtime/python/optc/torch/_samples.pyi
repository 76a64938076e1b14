from typing import Any, Callable, Dict, Literal, Mapping, Optional, Union, overload

import torch

from ._hooks import Axis, Capture, Names

class PerSample(Capture):
    @property
    def count(self) -> int: ...
    def grad(self, p: Union[str, torch.Tensor]) -> torch.Tensor: ...
    def grads(self) -> Dict[str, torch.Tensor]: ...
    @overload
    def norms(self, each: Literal[False] = False) -> torch.Tensor: ...
    @overload
    def norms(self, each: Literal[True]) -> Dict[str, torch.Tensor]: ...

    def clip(self, max_norm: float, *, noise: float = 0.0,
             generator: Optional[torch.Generator] = None, divide_by: float = 1,
             more: bool = False) -> torch.Tensor:        ...
    def check(self, losses: torch.Tensor, some: int = 2, rtol: Optional[float] = None) -> None: ...


def per_sample(
    model: torch.nn.Module, *, loss: Literal["mean", "sum"], axis: Axis = 0, leave_out: Names = (),
    rules: Optional[Mapping[type, Callable[[Any, torch.Tensor, torch.Tensor],
                                           Mapping[str, torch.Tensor]]]] = None
) -> PerSample:    ...
