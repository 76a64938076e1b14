from typing import Any, Callable, Dict, List, Literal, Mapping, Optional, Tuple, Union

import torch

from ._hooks import Axis, Capture, Names

Layer = Union[str, torch.nn.Module]

class KFAC(Capture):
    rest: List[str]
    decay: float
    rows: str
    updates: Dict[str, int]
    def inputs(self, layer: Layer) -> Tuple[torch.Tensor, torch.Tensor]: ...
    def update(self) -> None: ...
    def factors(self, layer: Layer) -> Tuple[torch.Tensor, torch.Tensor]: ...
    def damped(self, layer: Layer, damping: float) -> Tuple[torch.Tensor, torch.Tensor]: ...
    def precondition(self, damping: float,
                     inverse: Optional[Callable[[torch.Tensor], torch.Tensor]] = None) -> None:
        ...
    def state_dict(self) -> Dict[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def kfac_inputs(model: torch.nn.Module, *, loss: Literal["mean", "sum"], axis: Axis = 0,
                leave_out: Names = (), decay: float = 0.95,
                rows: Literal["expand", "reduce"] = "expand") -> KFAC:    ...
