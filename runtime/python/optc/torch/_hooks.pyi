from typing import Any, ContextManager, Dict, Mapping, Sequence, TypeVar, Union

import torch

Axis = Union[int, Mapping[str, int]]
Names = Union[str, Sequence[str]]
Self = TypeVar("Self", bound="Capture")

class Capture:
    model: torch.nn.Module
    loss: str
    scale: Union[float, torch.Tensor]
    layers: Dict[str, Any]
    @property
    def held_bytes(self) -> int: ...
    def clear(self) -> None: ...
    def remove(self) -> None: ...
    def pause(self: Self) -> ContextManager[Self]: ...
    def __enter__(self: Self) -> Self: ...
    def __exit__(self, *_: Any) -> None: ...
