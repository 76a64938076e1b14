# Made by `python -m optc.torch._rule_classes`: what optc.torch has, for editors and type checkers.
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._kfac import kfac_inputs as kfac_inputs
from ._samples import per_sample as per_sample

Number = Union[float, torch.Tensor]

def sorted_by(optimizer: Optimizer) -> Dict[str, str]: ...
def list_optimizers(filter: Union[str, Sequence[str]] = ..., exclude_filters: Union[str, Sequence[str]] = ...,
                    with_description: bool = ...) -> List[Any]: ...
def create(opt: str, model_or_params: Any, *, filter_bias_and_bn: bool = ..., **given: Any) -> Optimizer: ...
def race(model_fn: Callable[[], torch.nn.Module], data_fn: Callable[[int, int], Tuple[Any, ...]], rules: Sequence[str],
         *, loss_fn: Optional[Callable[[Any, Any], torch.Tensor]] = ..., steps: int = ..., every: Optional[int] = ...,
         target: Optional[float] = ..., seeds: int = ..., first_seed: int = ..., trials: int = ..., schedule: str = ...,
         device: Any = ..., name: str = ..., out: Optional[str] = ..., json: Optional[str] = ...,
         verbose: bool = ...) -> Dict[str, Any]: ...

class GradScaler(torch.amp.GradScaler): ...

class Optimizer(torch.optim.Optimizer):
    def __init__(self, params: Any, rule: Optional[str] = None, *, spec: Optional[str] = None,
                 with_: Union[str, Sequence[str]] = (), options: Union[None, str, Mapping[str, Any]] = None,
                 types: Union[None, str, Mapping[str, str]] = None, wrappers: Optional[Mapping[str, str]] = None,
                 products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True,
                 **given: Any) -> None: ...
    def step(self, closure: Optional[Callable[[], Any]] = None) -> Any: ...
    def run(self, entry: str) -> None: ...
    # entries of wrappers and of rules, if this optimizer has them: entries() lists them
    def perturb(self) -> None: ...
    def to_eval(self) -> None: ...
    def to_train(self) -> None: ...
    def eval(self) -> None: ...
    def train(self) -> None: ...
    def entries(self) -> List[str]: ...
    def set_input(self, p: torch.Tensor, name: str, tensor: torch.Tensor) -> None: ...
    def set_scalar(self, name: str, value: float, group: Optional[int] = None) -> None: ...
    def value(self, name: str, p: Optional[torch.Tensor] = None) -> float: ...
    def push(self) -> None: ...
    def params_changed(self, *params: torch.Tensor) -> None: ...
    def how(self) -> List[str]: ...
    def held(self) -> Dict[str, int]: ...
    def factors(self, p: Optional[torch.Tensor] = None) -> Dict[str, float]: ...
    @property
    def copies(self) -> int: ...

def matrix_power(A: torch.Tensor, exponent: float, *, ridge: float = 0.0, relative: float = 0.0, floor: float = 0.0,
                 check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def inverse_root(A: torch.Tensor, root: float, *, ridge: float = 0.0, relative: float = 0.0, floor: float = 0.0,
                 check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def eigh(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]: ...

def qr(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]: ...

def cholesky(A: torch.Tensor, *, check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def solve_triangular(T: torch.Tensor, B: torch.Tensor, *, upper: bool = False, left: bool = True, check: bool = False,
                     out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def solve_positive(A: torch.Tensor, B: torch.Tensor, *, check: bool = False, out: Optional[torch.Tensor] =
                   None) -> torch.Tensor: ...

def polar(A: torch.Tensor, *, steps: int = 12, coefficients: Union[str, Sequence[Sequence[float]]] = 'polar_express',
          check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def batched_matmul(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def bounded_matmul(A: torch.Tensor, B: torch.Tensor, C: Optional[torch.Tensor] = None, *, workspace: int = 67108864,
                   out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def gram(A: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def kron(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def memory_info(device: Optional[Any] = None) -> Dict[str, int]: ...

def empty_cache() -> None: ...

def best_device(why: bool = False) -> Union[torch.device, Tuple[torch.device, str]]: ...

class ADOPT(Optimizer):
    """Adam that normalises by the second moment before this gradient, then takes momentum; step 1 only starts v.
    Taniguchi et al. 2024, arXiv:2411.02853"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.9999), eps: Number =
                 1e-06, clip_power: Number = 0.25, weight_decay: Number = 0, *, clip: bool = True, decoupled: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AMUSE(Optimizer):
    """Muon without a schedule: gradients move towards the average of iterates; entries to_eval and to_train. Kim et
    al. 2026, arXiv:2605.22432"""
    def __init__(self, params: Any, lr: Number = 0.02, *, momentum: Number = 0.95, weight_decay: Number = 0,
                 weight_decay_at_y: Number = 0, lr_1d: Number = 0.0003, betas: Tuple[float, float] = (0.9, 0.999),
                 eps: Number = 1e-10, warmup_steps: Number = 1000, rho: Number = 1, r: Number = 0, weight_lr_power:
                 Number = 2, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class APOLLO(Optimizer):
    """Gradients scaled column by column as Adam would scale a random projection of them; AdamW for the rest. Zhu et
    al. 2024, arXiv:2412.05270"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-06, weight_decay: Number = 0, *, scale: Number = 1, growth: Number = 1.01, seed: Number = 0,
                 directions: Number = 256, update_proj_gap: Number = 200, scale_front: bool = False, disable_nl: bool
                 = False, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr:
                 Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool =
                 False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class APOLLOMini(Optimizer):
    """Gradients scaled matrix by matrix as Adam would scale one random direction of them; AdamW for the rest. Zhu et
    al. 2024, arXiv:2412.05270"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-06, weight_decay: Number = 0, *, scale: Number = 128, growth: Number = 1.01, seed: Number = 0,
                 update_proj_gap: Number = 200, scale_front: bool = False, disable_nl: bool = False, adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class ARO(Optimizer):
    """Momentum whose rows and columns are normalised in a rotated basis; AdamW for the rest. Gong et al. 2026,
    arXiv:2602.09006"""
    def __init__(self, params: Any, lr: Number = 0.01, *, mu: Number = 0.95, eps: Number = 1e-08, weight_decay: Number
                 = 0.01, base_opt: str = 'sinkhorn', sinkhorn_iters: Number = 5, limit: Number = 4096, adjust_lr: str
                 = 'rms_norm', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class ASGD(Optimizer):
    """SGD with a decaying rate that keeps the average of its weights in ax. Polyak and Juditsky 1992, SIAM J. Control
    Optim. 30(4)"""
    def __init__(self, params: Any, lr: Number = 0.01, lambd: Number = 0.0001, alpha: Number = 0.75, t0: Number =
                 1000000.0, weight_decay: Number = 0, foreach: Optional[bool] = None, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False, *, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class ASGO(Optimizer):
    """Momentum times the inverse root of one Gram matrix, that of the smaller side; AdamW for what is no matrix. An
    et al. 2025, arXiv:2503.20762, its authors' code; Xie et al. 2025, arXiv:2503.10537 (one-sided Shampoo)"""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9, weight_decay: Number = 0.1, beta2:
                 Number = 0.8, eps: Number = 1e-10, *, relative_eps: Number = 1e-06, interval: Number = 1, scale: str
                 = 'rms', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr:
                 Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool =
                 False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdEMAMix(Optimizer):
    """AdamW with a second, slow momentum mixed in; the warmup option ramps alpha and beta3 over alpha_warmup and
    beta3_warmup steps. Pagliardini, Ablin and Grangier 2024, arXiv:2409.03137"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float, float] = (0.9, 0.999, 0.9999),
                 alpha: Number = 2, beta3_warmup: Optional[Number] = None, alpha_warmup: Optional[Number] = None, eps:
                 Number = 1e-08, weight_decay: Number = 0, *, warmup: Optional[bool] = None, maximize: bool = False,
                 with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str]
                 = None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdaBelief(Optimizer):
    """Adam that divides by how far the gradient strays from its mean; decoupled weight decay. Zhuang et al. 2020,
    arXiv:2010.07468"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-16, weight_decay: Number = 0, *, rectify: bool = True, amsgrad: bool = False, maximize: bool =
                 False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdaBound(Optimizer):
    """Adam's rate for each coordinate, clipped to bounds that close in on final_lr, so that it ends as SGD. Luo et
    al. 2019, arXiv:1902.09843"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), final_lr: Number =
                 0.1, gamma: Number = 0.001, eps: Number = 1e-08, weight_decay: Number = 0, *, base_lr:
                 Optional[Number] = None, amsbound: bool = False, maximize: bool = False, with_: Sequence[str] = (),
                 types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool
                 = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class AdaGC(Optimizer):
    """AdamW whose gradients are clipped tensor by tensor to a running mean of their norms. Wang et al. 2025,
    arXiv:2502.11034"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), beta: Number =
                 0.98, lambda_abs: Number = 1, lambda_rel: Number = 1.05, warmup_steps: Number = 100, weight_decay:
                 Number = 0.1, *, eps: Number = 1e-08, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class AdaGO(Optimizer):
    """Muon with AdaGrad's step for each tensor, from the norms of its gradients; AdamW for what is no matrix. Zhang,
    Liu and Schaeffer 2025, arXiv:2509.02981"""
    def __init__(self, params: Any, lr: Number = 0.05, *, momentum: Number = 0.95, gamma: Number = 1, eps: Number =
                 0.0005, v0: Number = 1e-06, weight_decay: Number = 0, steps: Number = 0, form: str = 'plain',
                 coefficients: str = 'jordan', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps:
                 Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdaHessian(Optimizer):
    """AdamW with a diagonal of the Hessian in place of the gradient in v; entries set_hessian and step. Yao et al.
    2021, arXiv:2006.00719"""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Tuple[float, float] = (0.9, 0.999), eps: Number = 1e-08,
                 weight_decay: Number = 0, hessian_power: Number = 1, *, maximize: bool = False, with_: Sequence[str]
                 = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split:
                 Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None,
                 group: Any = None, follow_lr: bool = True) -> None: ...
    def set_hessian(self) -> None: ...

class AdaLomo(Optimizer):
    """Row and column means of squared gradients, and a rate relative to the size of the weights. Lv et al. 2023,
    arXiv:2310.10195"""
    def __init__(self, params: Any, lr: Number = 0.001, *, eps: Tuple[float, float] = (1e-30, 0.001), clip_threshold:
                 Number = 1, decay_rate: Number = -0.8, weight_decay: Number = 0, clip_grad_norm: Number = 0,
                 clip_grad_value: Number = 0, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class AdaMod(Optimizer):
    """AdamW whose rate of each element is bounded by the running mean of its rates. Ding et al. 2019,
    arXiv:1910.12249"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), beta3: Number =
                 0.999, eps: Number = 1e-08, weight_decay: Number = 0, *, maximize: bool = False, with_: Sequence[str]
                 = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split:
                 Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None,
                 group: Any = None, follow_lr: bool = True) -> None: ...

class AdaMuon(Optimizer):
    """Muon of the momentum's signs, divided by its own second moment; AdamW for what is no matrix. Si et al. 2025,
    arXiv:2507.11005"""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0.01, momentum: Number = 0.95, *, eps:
                 Number = 1e-08, nesterov: bool = True, steps: Number = 0, form: str = 'plain', coefficients: str =
                 'jordan', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdaPNM(Optimizer):
    """AMSGrad with the difference of two momenta, of even and of odd steps. Xie et al. 2021, arXiv:2103.17182"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float, float] = (0.9, 0.999, 1), eps:
                 Number = 1e-08, weight_decay: Number = 0, *, amsgrad: bool = True, decoupled: bool = True, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdaTAM(Optimizer):
    """Adam to whose momentum a gradient adds more, the better it agrees with it. Malviya et al. 2024,
    arXiv:2412.18790"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), decay_rate: Number
                 = 0.9, weight_decay: Number = 0, *, eps: Number = 1e-08, maximize: bool = False, with_: Sequence[str]
                 = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split:
                 Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None,
                 group: Any = None, follow_lr: bool = True) -> None: ...

class Adadelta(Optimizer):
    """Gradients rescaled by the ratio of running RMS of updates and of gradients. Zeiler 2012, arXiv:1212.5701"""
    def __init__(self, params: Any, lr: Number = 1.0, rho: Number = 0.9, eps: Number = 1e-06, weight_decay: Number =
                 0, foreach: Optional[bool] = None, *, capturable: bool = False, maximize: bool = False,
                 differentiable: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Adafactor(Optimizer):
    """Second moments of matrices kept as row and column means; lr caps a rate relative to the size of the weights.
    Shazeer and Stern 2018, arXiv:1804.04235"""
    def __init__(self, params: Any, lr: Number = 0.01, beta2_decay: Number = -0.8, eps: Tuple[Optional[float], float]
                 = (None, 0.001), d: Number = 1.0, weight_decay: Number = 0.0, *, foreach: Optional[bool] = None,
                 maximize: bool = False, beta1: Number = 0.9, relative_step: bool = True, scale_parameter: bool =
                 True, momentum: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Adagrad(Optimizer):
    """Each coordinate's rate falls with the root of its summed squared gradients. Duchi, Hazan and Singer 2011, JMLR
    12"""
    def __init__(self, params: Any, lr: Number = 0.01, lr_decay: Number = 0, weight_decay: Number = 0,
                 initial_accumulator_value: Number = 0, eps: Number = 1e-10, foreach: Optional[bool] = None, *,
                 maximize: bool = False, differentiable: bool = False, fused: Optional[bool] = None, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class Adai(Optimizer):
    """Momentum whose inertia, element by element, shrinks as the gradient's variance grows. Xie et al. 2022,
    arXiv:2006.15815"""
    def __init__(self, params: Any, lr: Number = 1, betas: Tuple[float, float] = (0.1, 0.99), eps: Number = 0.001,
                 weight_decay: Number = 0, *, decoupled: bool = False, maximize: bool = False, with_: Sequence[str] =
                 (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads:
                 bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class Adam(Optimizer):
    """Bias-corrected first moment over the root of the second; weight decay, if any, is L2. Kingma and Ba 2015,
    arXiv:1412.6980; amsgrad: Reddi et al. 2018, arXiv:1904.09237"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, amsgrad: bool = False, *, foreach: Optional[bool] = None, maximize:
                 bool = False, capturable: bool = False, differentiable: bool = False, fused: Optional[bool] = None,
                 decoupled_weight_decay: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class AdamAtan2(Optimizer):
    """AdamW with atan2(m, b sqrt(v)) in place of the division: no eps, invariant to the scale of gradients. Everett
    et al. 2024, arXiv:2407.05872"""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Tuple[float, float] = (0.9, 0.99), weight_decay:
                 Number = 0, *, a: Number = 1.27, b: Number = 1, maximize: bool = False, with_: Sequence[str] = (),
                 types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool
                 = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class AdamMini(Optimizer):
    """AdamW with one second moment for each row, head or tensor. Zhang et al. 2024, arXiv:2406.16793"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class AdamP(Optimizer):
    """AdamW without the radial part of updates to scale-invariant weights. Heo et al. 2021, arXiv:2006.08217"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, delta: Number = 0.1, wd_ratio: Number = 0.1, *, nesterov: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdamW(Optimizer):
    """Adam with weight decay kept apart from the gradient. Loshchilov and Hutter 2019, arXiv:1711.05101; amsgrad:
    Reddi et al. 2018, arXiv:1904.09237"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0.01, amsgrad: bool = False, *, maximize: bool = False, foreach:
                 Optional[bool] = None, capturable: bool = False, differentiable: bool = False, fused: Optional[bool]
                 = None, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class AdamWScheduleFree(Optimizer):
    """AdamW without a schedule: a weighted average of the iterates; entries to_eval and to_train. Defazio et al.
    2024, arXiv:2405.15682"""
    def __init__(self, params: Any, lr: Number = 0.0025, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, warmup_steps: Number = 0, r: Number = 0, weight_lr_power: Number =
                 2, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Adamax(Optimizer):
    """Adam with a decayed maximum of the gradient in place of the second moment. Kingma and Ba 2015, arXiv:1412.6980,
    section 7.1"""
    def __init__(self, params: Any, lr: Number = 0.002, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, foreach: Optional[bool] = None, *, maximize: bool = False,
                 differentiable: bool = False, capturable: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Adan(Optimizer):
    """Adam with Nesterov momentum estimated from differences of gradients; betas are decay rates (the paper's 1 -
    beta). Xie et al. 2022, arXiv:2208.06677"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float, float] = (0.98, 0.92, 0.99), eps:
                 Number = 1e-08, weight_decay: Number = 0, *, proximal: bool = True, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class Adashift(Optimizer):
    """Adam whose second moment takes the gradient of keep_num steps ago, reduced over the tensor, and whose first
    moment is the weighted mean of the gradients since. Zhou et al. 2019, arXiv:1810.00143"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), *, eps: Number =
                 1e-10, keep_num: Number = 10, reduce: str = 'max', maximize: bool = False, with_: Sequence[str] = (),
                 types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool
                 = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class AggMo(Optimizer):
    """The mean of three momenta with different rates of decay. Lucas et al. 2019, arXiv:1804.00325"""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Tuple[float, float, float] = (0, 0.9, 0.99),
                 weight_decay: Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Amos(Optimizer):
    """Adam-like with one second moment a tensor, and weight decay and rate that decay on their own. Tian and Parikh
    2022, arXiv:2210.11693"""
    def __init__(self, params: Any, lr: Number = 0.001, beta: Number = 0.999, momentum: Optional[Number] = None,
                 extra_l2: Number = 0, *, eps: Number = 1e-18, momentum_buffer: Optional[bool] = None, maximize: bool
                 = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Aurora(Optimizer):
    """Muon with rows (or columns) of the polar factor at equal norms; AdamW for what is no matrix. Aurora, 2026,
    github.com/tilde-research/aurora-release"""
    def __init__(self, params: Any, lr: Number = 0.05, *, momentum: Number = 0.95, pp_beta: Number = 0.5, eps: Number
                 = 1e-07, weight_decay: Number = 0.025, nesterov: bool = True, pp_iterations: Number = 2, adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class CAME(Optimizer):
    """Adafactor with momentum, whose update is divided by a factored measure of its own instability. Luo et al. 2023,
    arXiv:2307.02047"""
    def __init__(self, params: Any, lr: Number = 0.0002, eps: Tuple[float, float] = (1e-30, 1e-16), clip_threshold:
                 Number = 1, betas: Tuple[float, float, float] = (0.9, 0.999, 0.9999), weight_decay: Number = 0, *,
                 maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None,
                 products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class COCOB(Optimizer):
    """Bets on coins: SGD without a rate, element by element; lr stays 1. Orabona and Tommasi 2017,
    arXiv:1705.07795"""
    def __init__(self, params: Any, lr: Number = 1, alpha: Number = 100, eps: Number = 1e-08, weight_decay: Number =
                 0, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class COSMOS(Optimizer):
    """SOAP's step in the leading directions of the gradient and Muon's in the others; AdamW for the rest. Liu et al.
    2025, arXiv:2502.17410"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, lr_ratio: Number = 0.1, *, weight_decay: Number = 0, gamma: Number = 0.2, directions: Number =
                 64, limit: Number = 10000, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number
                 = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False,
                 maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None,
                 products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Conda(Optimizer):
    """Adam in the singular vectors of the momentum, on the shorter side; AdamW for what is no matrix. Wang et al.
    2025, arXiv:2509.24218"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, *, scale: Number = 1, update_proj_gap: Number = 2000, adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class DAdaptAdaGrad(Optimizer):
    """AdaGrad by dual averaging whose step size d bounds the distance to the solution; lr stays 1. Defazio and
    Mishchenko 2023, arXiv:2301.07733"""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0, *, weight_decay: Number = 0, eps: Number =
                 1e-06, d0: Number = 1e-06, growth_rate: Number = ..., maximize: bool = False, with_: Sequence[str] =
                 (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads:
                 bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class DAdaptAdam(Optimizer):
    """Adam whose step size d is a growing lower bound of the distance to the solution; lr stays 1. Defazio and
    Mishchenko 2023, arXiv:2301.07733"""
    def __init__(self, params: Any, lr: Number = 1, betas: Tuple[float, float] = (0.9, 0.999), eps: Number = 1e-08,
                 weight_decay: Number = 0, *, d0: Number = 1e-06, growth_rate: Number = ..., layer_scale: Number = 1,
                 decouple: bool = False, use_bias_correction: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class DAdaptAdan(Optimizer):
    """Adan whose step size d is a growing lower bound of the distance to the solution; lr stays 1. Defazio and
    Mishchenko 2023, arXiv:2301.07733; Adan: Xie et al. 2022, arXiv:2208.06677"""
    def __init__(self, params: Any, lr: Number = 1, betas: Tuple[float, float, float] = (0.98, 0.92, 0.99), eps:
                 Number = 1e-08, weight_decay: Number = 0.02, *, d0: Number = 1e-06, growth_rate: Number = ...,
                 no_prox: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class DAdaptLion(Optimizer):
    """Lion whose step size d is a growing lower bound of the distance to the solution; lr stays 1. Defazio and
    Mishchenko 2023, arXiv:2301.07733; Lion: Chen et al. 2023, arXiv:2302.06675"""
    def __init__(self, params: Any, lr: Number = 1, betas: Tuple[float, float] = (0.9, 0.99), weight_decay: Number =
                 0, *, d0: Number = 1e-06, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class DAdaptSGD(Optimizer):
    """SGD whose step size d is a growing lower bound of the distance to the solution; lr stays 1. Defazio and
    Mishchenko 2023, arXiv:2301.07733"""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0, weight_decay: Number = 0, *, d0: Number =
                 1e-06, growth_rate: Number = ..., maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class DiffGrad(Optimizer):
    """Adam that is slowed down where the gradient hardly changes: times the sigmoid of its change. Dubey et al. 2020,
    arXiv:1909.11015"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class Dion(Optimizer):
    """Muon of low rank: one power iteration of the momentum, whose rest stays for later steps; AdamW for what is no
    matrix. Ahn et al. 2025, arXiv:2504.05295"""
    def __init__(self, params: Any, *, lr: Number = 0.01, momentum: Number = 0.95, eps: Number = 1e-08, weight_decay:
                 Number = 0.01, seed: Number = 0, directions: Number = 768, adamw_beta1: Number = 0.9, adamw_beta2:
                 Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number =
                 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class Dion2(Optimizer):
    """Muon of the rows or columns with the largest momentum, a share of them at each step; AdamW for what is no
    matrix. Ahn et al. 2025, arXiv:2512.16928"""
    def __init__(self, params: Any, *, lr: Number = 0.01, ef_decay: Number = 0.95, weight_decay: Number = 0.01,
                 fraction: Number = 0.25, scale: str = 'spectral', coefficients: str = 'polar_express_5', adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class Dion3(Optimizer):
    """NorMuon of the rows with the largest momentum, a share of them at each step; AdamW for what is no matrix. Ahn
    et al. 2025, arXiv:2512.16928; Li et al. 2025, arXiv:2510.05491; github.com/microsoft/dion"""
    def __init__(self, params: Any, *, lr: Number = 0.01, mu: Number = 0.95, beta2: Number = 0.95, weight_decay:
                 Number = 0.01, eps: Number = 1e-08, fraction: Number = 0.25, scale: str = 'spectral', coefficients:
                 str = 'polar_express_5', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number =
                 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False,
                 maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None,
                 products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class DoG(Optimizer):
    """SGD whose rate is the distance from the first weights over the root of summed squared gradients; lr stays 1.
    Ivgi, Hinder and Carmon 2023, arXiv:2302.12022"""
    def __init__(self, params: Any, reps_rel: Number = 1e-06, lr: Number = 1, weight_decay: Number = 0, eps: Number =
                 1e-08, init_eta: Number = 0, *, layerwise: bool = False, maximize: bool = False, with_: Sequence[str]
                 = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split:
                 Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None,
                 group: Any = None, follow_lr: bool = True) -> None: ...

class DoWG(Optimizer):
    """SGD whose rate is the squared distance from the first weights over weighted gradients; lr stays 1. Khaled,
    Mishchenko and Jin 2023, arXiv:2305.16284"""
    def __init__(self, params: Any, lr: Number = 1, init_estim_sq_dist: Number = 0, eps: Number = 0.0001,
                 weight_decay: Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class FISMO(Optimizer):
    """Muon of gradients whitened by factors of the Fisher matrix; AdamW for the rest and for sides over the limit. Xu
    et al. 2026, arXiv:2601.21750"""
    def __init__(self, params: Any, lr: Number = 0.02, *, beta: Number = 0.95, gamma: Number = 0.95, mu: Number =
                 0.0001, eps: Number = 0.01, weight_decay: Number = 0, limit: Number = 4096, root: str = 'products',
                 adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number =
                 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class FTRL(Optimizer):
    """Follow the regularised leader: AdaGrad's rates with an L1 penalty that makes weights exactly 0. McMahan et al.
    2013, KDD"""
    def __init__(self, params: Any, lr: Number = 0.001, lr_power: Number = -0.5, beta: Number = 0, lambda_1: Number =
                 0, lambda_2: Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Fromage(Optimizer):
    """Gradients scaled to the norm of their weights, which are then divided by sqrt(1 + lr^2). Bernstein et al. 2020,
    arXiv:2002.03432"""
    def __init__(self, params: Any, lr: Number = 0.01, p_bound: Optional[Number] = None, *, bounded: Optional[bool] =
                 None, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class GPAAdamW(Optimizer):
    """AdamW with primal averaging: gradients and evaluation at two means; entries to_eval and to_train. Smoothing
    DiLoCo with primal averaging, 2025, arXiv:2512.17131"""
    def __init__(self, params: Any, lr: Number = 1, *, betas: Tuple[float, float] = (0.9, 0.999), eps: Number = 1e-08,
                 weight_decay: Number = 0, train_interp_coeff: Number = 0.7, eval_interp_coeff: Number = 0.9967,
                 use_wd_on_y: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Grams(Optimizer):
    """AdamW's magnitude with the sign of the current gradient. Cao, Li and Song 2024, arXiv:2412.17107"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-06, weight_decay: Number = 0, *, correct_bias: bool = True, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class KLSOAP(Optimizer):
    """Adam in the eigenvectors of KL-Shampoo's factors; AdamW for the rest and for sides over the limit. Lin et al.
    2025, arXiv:2509.03378"""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Tuple[float, float] = (0.9, 0.95), shampoo_beta: Number
                 = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *, nesterov: bool = False, correct_bias:
                 bool = True, limit: Number = 4096, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps:
                 Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class KLShampoo(Optimizer):
    """Shampoo whose two factors are fitted to each other, with eigenvalues from every step; AdamW for the rest and
    for sides over the limit. Lin et al. 2025, arXiv:2509.03378, as its authors' code has it"""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Tuple[float, float] = (0.9, 0.98), *, eps: Number =
                 1e-08, weight_decay: Number = 0.01, interval: Number = 10, limit: Number = 4096, first: Number = 0.1,
                 start: str = 'eigh', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number =
                 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False,
                 maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None,
                 products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class LAMB(Optimizer):
    """Adam's direction with weight decay, scaled for each tensor by the ratio of weight and update norms. You et al.
    2020, arXiv:1904.00962"""
    def __init__(self, params: Any, lr: Number = 0.001, *, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-06, weight_decay: Number = 0.01, trust_clip: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class LARS(Optimizer):
    """SGD with momentum whose rate for each tensor follows the ratio of its weight and gradient norms. You, Gitman
    and Ginsburg 2017, arXiv:1708.03888"""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.9, *, weight_decay: Number = 0, trust: Number
                 = 0.001, eps: Number = 1e-08, rate: str = 'inside', trust_clip: bool = False, maximize: bool = False,
                 with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str]
                 = None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class LaProp(Optimizer):
    """Momentum of normalised gradients: Adam that divides before it averages; decoupled weight decay. Ziyin, Wang and
    Ueda 2020, arXiv:2002.04839"""
    def __init__(self, params: Any, lr: Number = 0.0004, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-15, weight_decay: Number = 0, *, amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class Lion(Optimizer):
    """The sign of an interpolated momentum, with decoupled weight decay. Chen et al. 2023, arXiv:2302.06675"""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Tuple[float, float] = (0.9, 0.99), weight_decay:
                 Number = 0, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Lomo(Optimizer):
    """Plain SGD with clipping, for steps inside the backward pass. Lv et al. 2023, arXiv:2306.09782"""
    def __init__(self, params: Any, lr: Number = 0.001, *, weight_decay: Number = 0, clip_grad_norm: Number = 0,
                 clip_grad_value: Number = 0, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class MADGRAD(Optimizer):
    """Dual averaging from the first weights, over a cube root of summed squared gradients; L2 weight decay. Defazio
    and Jelassi 2021, arXiv:2101.11075"""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9, weight_decay: Number = 0, eps: Number =
                 1e-06, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class MARS(Optimizer):
    """AdamW, Lion or Shampoo on gradients with reduced variance; AdamW for what is no matrix. Yuan et al. 2024,
    arXiv:2411.10438"""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Tuple[float, float] = (0.95, 0.99), eps: Number =
                 1e-08, weight_decay: Number = 0, *, gamma: Number = 0.025, lr_1d: Number = 0.003, betas_1d:
                 Tuple[float, float] = (0.9, 0.95), weight_decay_1d: Number = 0.1, mars_type: str = 'adamw',
                 optimize_1d: bool = False, amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (),
                 types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool
                 = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class MOP(Optimizer):
    """The exact polar factor of the momentum, times its nuclear norm; AdamW for what is no matrix. NVIDIA 2025,
    Emerging-Optimizers; scale: Lau, Long and Su 2025, arXiv:2505.21799"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, weight_decay: Number = 0.01, *,
                 extra_scale_factor: Number = 1, nesterov: bool = False, scale: str = 'nuclear_norm', adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class MOSO(Optimizer):
    """RMSprop of the momentum in the eigenvectors of the momentum's Gram matrix, on the shorter side; AdamW for the
    rest. NVIDIA 2026, Emerging-Optimizers; after Vyas et al. 2024, arXiv:2409.11321"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, rms_beta: Number = 0.95,
                 shampoo_beta: Number = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *, max_update_rms:
                 Number = 0, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Mano(Optimizer):
    """Momentum without its part along the weights, with columns and rows of norm 1 in turn; AdamW for what is no
    matrix. Gu and Xie 2026, arXiv:2601.23000"""
    def __init__(self, params: Any, lr: Number = 0.001, *, weight_decay: Number = 0.1, eps: Number = 1e-08, momentum:
                 Number = 0.95, nesterov: bool = False, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999,
                 adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Mousse(Optimizer):
    """Muon between weak powers of Shampoo's factors; AdamW for the rest and for sides over the limit. Zhang et al.
    2026, arXiv:2603.09697"""
    def __init__(self, params: Any, *, lr: Number = 0.01, mu: Number = 0.95, weight_decay: Number = 0.01,
                 shampoo_epsilon: Number = 1e-10, shampoo_beta: Number = 0.95, shampoo_alpha: Number = 0.125,
                 nesterov: bool = False, shampoo_update_freq: Number = 10, apply_norm: bool = True, limit: Number =
                 4096, adjust_lr: str = 'spectral_norm', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999,
                 adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Muon(Optimizer):
    """Momentum whose matrices are replaced by their orthogonal factor; AdamW for what is no matrix. Jordan et al.
    2024, kellerjordan.github.io/posts/muon; scale rms: Liu et al. 2025, arXiv:2502.16982"""
    def __init__(self, params: Any, lr: Number = 0.001, weight_decay: Number = 0.1, momentum: Number = 0.95, nesterov:
                 bool = True, ns_coefficients: Tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: Number =
                 1e-07, ns_steps: Number = 5, adjust_lr_fn: Optional[str] = None, *, form: str = 'auto', scale:
                 Optional[str] = None, coefficients: Optional[str] = None, adamw_beta1: Number = 0.9, adamw_beta2:
                 Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number =
                 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class MuonEq(Optimizer):
    """Muon of a momentum whose rows or columns were brought to equal norms; AdamW for what is no matrix. MuonEq,
    2026, arXiv:2603.28254; renormalize: Muon+, 2026, arXiv:2602.21545"""
    def __init__(self, params: Any, lr: Number = 0.02, *, momentum: Number = 0.95, weight_decay: Number = 0, nesterov:
                 bool = True, equilibrate: str = 'rows', renormalize: bool = False, steps: Number = 0, coefficients:
                 str = 'nanochat', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class MuonH(Optimizer):
    """Muon whose matrices keep their norm and move by a share lr of it; AdamW for what is no matrix. Hyperball, 2026,
    arXiv:2606.16899"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, weight_decay: Number = 0, *, radius:
                 Number = 0, eps: Number = 1e-15, nesterov: bool = False, steps: Number = 0, coefficients: str =
                 'quintic', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class MuonSq(Optimizer):
    """Muon of the momentum over the root of an elementwise second moment; AdamW for what is no matrix. Muon^2, 2026,
    arXiv:2604.09967"""
    def __init__(self, params: Any, lr: Number = 0.02, *, weight_decay: Number = 0, momentum: Number = 0.95, beta2:
                 Number = 0.95, eps: Number = 1e-10, nesterov: bool = True, steps: Number = 0, coefficients: str =
                 'exact', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr:
                 Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool =
                 False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Muown(Optimizer):
    """Muon on the directions of rows and Adam on their norms; AdamW for what is no matrix. Lion et al. 2026,
    arXiv:2605.10797"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, weight_decay: Number = 0, *, betas:
                 Tuple[float, float] = (0.9, 0.95), eps: Number = 1e-08, extra_scale_factor: Number = 1, steps: Number
                 = 0, coefficients: str = 'quintic', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999,
                 adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class NAMO(Optimizer):
    """Muon scaled by the norm of the momentum over the root mean square of gradient norms; AdamW for the rest. NAMO,
    2026, arXiv:2602.17080"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, weight_decay: Number = 0.01, *,
                 extra_scale_factor: Number = 1, beta2: Number = 0.95, eps: Number = 1e-08, nesterov: bool = False,
                 steps: Number = 0, coefficients: str = 'quintic', adamw_beta1: Number = 0.9, adamw_beta2: Number =
                 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class NAdam(Optimizer):
    """Adam with Nesterov momentum under the paper's warm-up of beta1. Dozat 2016, ICLR workshop, Incorporating
    Nesterov Momentum into Adam"""
    def __init__(self, params: Any, lr: Number = 0.002, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, momentum_decay: Number = 0.004, decoupled_weight_decay: bool =
                 False, *, foreach: Optional[bool] = None, maximize: bool = False, capturable: bool = False,
                 differentiable: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] =
                 None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Nero(Optimizer):
    """Steps of lr for each neuron relative to its size, with weights of a neuron kept at mean 0 and norm 1. Liu et
    al. 2021, arXiv:2102.07227"""
    def __init__(self, params: Any, lr: Number = 0.01, beta: Number = 0.999, *, constraints: bool = True, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class NorMuon(Optimizer):
    """Muon whose rows are brought to equal size by a second moment each; AdamW for what is no matrix. Li et al. 2025,
    arXiv:2510.05491"""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0, momentum: Number = 0.95, beta2:
                 Number = 0.95, *, eps: Number = 1e-10, nesterov: bool = True, steps: Number = 0, form: str = 'plain',
                 coefficients: str = 'jordan', scale: str = 'keep', adamw_beta1: Number = 0.9, adamw_beta2: Number =
                 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Nora(Optimizer):
    """Momentum without its part along the rows of weights, with rows of norm 1; AdamW for what is no matrix. Yuan et
    al. 2026, arXiv:2605.03769"""
    def __init__(self, params: Any, lr: Number = 0.005, *, momentum: Number = 0.95, beta: Number = 0.95, weight_decay:
                 Number = 0.1, eps: Number = 1e-10, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps:
                 Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class NovoGrad(Optimizer):
    """Momentum of gradients normalised by one second moment a tensor, with weight decay inside the momentum. Ginsburg
    et al. 2019, arXiv:1905.11286"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.95, 0.98), eps: Number =
                 1e-08, weight_decay: Number = 0, *, grad_averaging: bool = False, amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class PMuon(Optimizer):
    """Muon after powers of the gradients' Gram matrices; AdamW for the rest and for sides over the limit. zzp1012
    2026, github.com/KellerJordan/modded-nanogpt/pull/285"""
    def __init__(self, params: Any, lr: Number = 0.035, *, mu: Number = 0.95, beta: Number = 0.95, gamma: Number =
                 0.3, eps: Number = 1e-06, weight_decay: Number = 0.025, limit: Number = 4096, adamw_beta1: Number =
                 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class PNM(Optimizer):
    """The difference of two momenta, of even and of odd steps: adds noise of a chosen size to SGD. Xie et al. 2021,
    arXiv:2103.17182"""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Tuple[float, float] = (0.9, 1), weight_decay: Number = 0,
                 *, decoupled: bool = True, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class PSGD(Optimizer):
    """Momentum between two matrices that were fitted to whiten gradients; AdamW for the rest and for sides over the
    limit. Li 2015, arXiv:1512.04202; Pooladzandi and Li 2024, arXiv:2402.04553; its form QUAD"""
    def __init__(self, params: Any, *, lr: Number = 0.001, momentum: Number = 0.9, precond_lr: Number = 0.1, beta:
                 Number = 0.9, clip_rms: Number = 2, clip: Number = 10, weight_decay: Number = 0, limit: Number =
                 4096, balance: Number = 100, apply: str = 'f32', adamw_beta1: Number = 0.9, adamw_beta2: Number =
                 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class PSGDKron(Optimizer):
    """Momentum between triangles that were fitted to whiten gradients, diagonals for sides over the limit; AdamW for
    what is no matrix. Li 2015, arXiv:1512.04202; Pooladzandi and Li 2024, arXiv:2402.04553; its form EQ"""
    def __init__(self, params: Any, *, lr: Number = 0.001, momentum: Number = 0.9, precond_lr: Number = 0.1, beta:
                 Number = 0.9, damping: Number = 1e-09, clip_rms: Number = 1.1, weight_decay: Number = 0, seed: Number
                 = 0, limit: Number = 2048, balance: Number = 100, apply: str = 'f32', adamw_beta1: Number = 0.9,
                 adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay:
                 Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class Padam(Optimizer):
    """AMSGrad whose second moment is raised to the power partial instead of 1/2. Chen et al. 2020,
    arXiv:1806.06763"""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Tuple[float, float] = (0.9, 0.999), eps: Number = 1e-08,
                 weight_decay: Number = 0, *, partial: Number = 0.25, amsgrad: bool = True, maximize: bool = False,
                 with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str]
                 = None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class PolarGrad(Optimizer):
    """The polar factor of the momentum times its nuclear norm: a step that shrinks with the gradient; AdamW for the
    rest. Lau, Long and Su 2025, arXiv:2505.21799"""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0, momentum: Number = 0.95, *,
                 polar_first: bool = False, steps: Number = 0, form: str = 'plain', coefficients: str =
                 'polar_express', adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Prodigy(Optimizer):
    """AdamW whose step size d is estimated from the distance to the first weights; lr stays 1. Mishchenko and Defazio
    2024, arXiv:2306.06101"""
    def __init__(self, params: Any, lr: Number = 1, betas: Tuple[float, float] = (0.9, 0.999), beta3: Number = 0, eps:
                 Number = 1e-08, weight_decay: Number = 0, *, d0: Number = 1e-06, d_coef: Number = 1, growth_rate:
                 Number = ..., decouple: bool = True, use_bias_correction: bool = False, safeguard_warmup: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class QHAdam(Optimizer):
    """Adam whose moments are mixed with the current gradient by nu1 and nu2. Ma and Yarats 2019, arXiv:1810.06801"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), nus: Tuple[float,
                 float] = (1, 1), weight_decay: Number = 0, *, eps: Number = 1e-08, decouple_weight_decay: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class QHM(Optimizer):
    """Mixes plain SGD and momentum by nu. Ma and Yarats 2019, arXiv:1810.06801"""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.999, nu: Number = 0.7, weight_decay: Number =
                 0, *, weight_decay_type: str = 'grad', maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class RAdam(Optimizer):
    """Adam whose step is rectified for the variance of its rate, and is plain momentum while that is intractable. Liu
    et al. 2020, arXiv:1908.03265"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, decoupled_weight_decay: bool = False, *, foreach: Optional[bool] =
                 None, maximize: bool = False, capturable: bool = False, differentiable: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class RAdamScheduleFree(Optimizer):
    """RAdam without a schedule or warm-up: a weighted average of the iterates; entries to_eval and to_train. Defazio
    et al. 2024, arXiv:2405.15682; Liu et al. 2020, arXiv:1908.03265"""
    def __init__(self, params: Any, lr: Number = 0.0025, betas: Tuple[float, float] = (0.9, 0.999), eps: Number =
                 1e-08, weight_decay: Number = 0, r: Number = 0, weight_lr_power: Number = 2, *, silent_sgd_phase:
                 bool = True, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class REKLS(Optimizer):
    """KL-SOAP whose basis is computed anew at every step; AdamW for the rest and for sides over the limit. NVIDIA
    2026, Emerging-Optimizers; Lin et al. 2025, arXiv:2509.03378"""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Tuple[float, float] = (0.9, 0.95), shampoo_beta: Number
                 = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *, limit: Number = 4096, adamw_beta1:
                 Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001,
                 adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class RMNP(Optimizer):
    """Momentum whose rows are brought to norm 1; AdamW for what is no matrix. Deng et al. 2026, arXiv:2603.20527"""
    def __init__(self, params: Any, lr: Number = 0.02, momentum: Number = 0.95, *, weight_decay: Number = 0,
                 adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number =
                 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class RMSprop(Optimizer):
    """Gradients divided by their running RMS; centred takes the running mean out, momentum_buffer adds momentum.
    Tieleman and Hinton 2012, Coursera lecture 6.5; centred: Graves 2013, arXiv:1308.0850"""
    def __init__(self, params: Any, lr: Number = 0.01, alpha: Number = 0.99, eps: Number = 1e-08, weight_decay: Number
                 = 0, momentum: Number = 0, centered: bool = False, capturable: bool = False, foreach: Optional[bool]
                 = None, maximize: bool = False, differentiable: bool = False, *, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class RMSpropTF(Optimizer):
    """TensorFlow's RMSprop: v starts at 1, eps inside of the root, lr inside of the momentum. Tieleman and Hinton
    2012, Coursera lecture 6.5; as in TensorFlow"""
    def __init__(self, params: Any, lr: Number = 0.01, alpha: Number = 0.9, eps: Number = 1e-10, weight_decay: Number
                 = 0, momentum: Optional[Number] = None, *, centered: bool = False, momentum_buffer: Optional[bool] =
                 None, decoupled_decay: bool = False, lr_in_momentum: bool = True, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class Rprop(Optimizer):
    """Steps by signs, with a step size for each element that grows while the sign stays and shrinks when it flips.
    Riedmiller and Braun 1993, ICNN"""
    def __init__(self, params: Any, lr: Number = 0.01, etas: Tuple[float, float] = (0.5, 1.2), step_sizes:
                 Tuple[float, float] = (1e-06, 50), *, capturable: bool = False, foreach: Optional[bool] = None,
                 maximize: bool = False, differentiable: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class SCALE(Optimizer):
    """Gradients over their RMS along the input axis, with momentum in the last layer only; AdamW for the rest.
    Glentis et al. 2025, arXiv:2506.16659"""
    def __init__(self, params: Any, lr: Number = 0.0001, *, momentum: Number = 0.9, weight_decay: Number = 0,
                 adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number =
                 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class SGD(Optimizer):
    """Gradient descent with heavy-ball or Nesterov momentum and L2 weight decay. Polyak 1964, USSR Comput. Math.
    Math. Phys. 4(5); Sutskever et al. 2013, ICML 28(3)"""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0, dampening: Number = 0, weight_decay:
                 Number = 0, nesterov: bool = False, *, maximize: bool = False, foreach: Optional[bool] = None,
                 differentiable: bool = False, fused: Optional[bool] = None, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class SGDP(Optimizer):
    """SGD with momentum without the radial part of updates to scale-invariant weights. Heo et al. 2021,
    arXiv:2006.08217"""
    def __init__(self, params: Any, lr: Number = 0.1, momentum: Number = 0.9, dampening: Number = 0, weight_decay:
                 Number = 0, *, eps: Number = 1e-08, delta: Number = 0.1, wd_ratio: Number = 0.1, nesterov: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class SGDSaI(Optimizer):
    """Momentum whose rate for each tensor is fixed at the start by the signal-to-noise ratio of its gradient. Xu et
    al. 2024, arXiv:2412.11768"""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9, eps: Number = 1e-08, weight_decay:
                 Number = 0.01, *, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class SGDScheduleFree(Optimizer):
    """SGD without a schedule: a weighted average of the iterates; entries to_eval and to_train. Defazio et al. 2024,
    arXiv:2405.15682"""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.9, weight_decay: Number = 0, warmup_steps:
                 Number = 0, r: Number = 0, weight_lr_power: Number = 2, *, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class SGDW(Optimizer):
    """SGD with momentum and weight decay kept apart from the gradient. Loshchilov and Hutter 2019,
    arXiv:1711.05101"""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9, dampening: Number = 0, weight_decay:
                 Number = 0.01, *, nesterov: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class SM3(Optimizer):
    """AdaGrad with one second moment for each row and each column of a matrix. Anil et al. 2019, arXiv:1901.11150"""
    def __init__(self, params: Any, lr: Number = 0.1, momentum: Optional[Number] = None, beta: Number = 0, eps: Number
                 = 1e-30, *, momentum_buffer: Optional[bool] = None, maximize: bool = False, with_: Sequence[str] =
                 (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads:
                 bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class SOAP(Optimizer):
    """Adam in the eigenvectors of gradients' Gram matrices; AdamW for what is no matrix. Vyas et al. 2024,
    arXiv:2409.11321"""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Tuple[float, float] = (0.95, 0.95), beta3: Number =
                 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *, interval: Number = 10, limit: Number =
                 4096, sides: str = 'both', start: str = 'eigh', stagger: bool = False, apply: str = 'tf32',
                 normalize_grads: bool = False, precondition_1d: bool = False, adamw_beta1: Number = 0.9, adamw_beta2:
                 Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number =
                 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class SOAPMuon(Optimizer):
    """Muon of the momentum that SOAP preconditions; AdamW for the rest and for sides over the limit. Vyas 2025,
    nikhilvyas.github.io/SOAP_Muon.pdf"""
    def __init__(self, params: Any, lr: Number = 0.02, *, mu: Number = 0.95, beta2: Number = 0.9, shampoo_beta: Number
                 = 0.9, eps: Number = 1e-08, weight_decay: Number = 0, precondition_frequency: Number = 1, limit:
                 Number = 4096, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class SPEL(Optimizer):
    """Muon for matrices that stay orthogonal; AdamW for what is no matrix. Manifold constrained steepest descent,
    2026, arXiv:2601.21487"""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95, weight_decay: Number = 0.1, *,
                 nesterov: bool = False, steps: Number = 0, coefficients: str = 'quintic', adamw_beta1: Number = 0.9,
                 adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay:
                 Number = 0.01, adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class SPlus(Optimizer):
    """Signs of momentum in the eigenvectors of gradients' Gram matrices; to_eval puts averaged weights in p, to_train
    takes them out. Frans et al. 2025, arXiv:2506.07254"""
    def __init__(self, params: Any, lr: Number = 0.1, *, betas: Tuple[float, float] = (0.9, 0.999), ema_rate: Number =
                 0.999, weight_decay: Number = 0.01, other_scale: Number = 0.001, interval: Number = 100, limit:
                 Number = 4096, stagger: bool = False, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class SRON(Optimizer):
    """SGD with rows of gradients divided by their root mean squares; no state. AdamW for what is no matrix. Wen et
    al. 2025, openreview.net/forum?id=BtQLBWr6zI"""
    def __init__(self, params: Any, lr: Number = 0.001, *, alpha: Number = 0.05, eps: Number = 1e-08, weight_decay:
                 Number = 0, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps: Number = 1e-08,
                 adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool = False, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class SWAN(Optimizer):
    """SGD with rows of gradients standardised and the matrix whitened; no state. AdamW for what is no matrix. Ma et
    al. 2024, arXiv:2412.13148"""
    def __init__(self, params: Any, lr: Number = 0.02, *, weight_decay: Number = 0, ns_steps: Number = 6, beta: Number
                 = 0.5, post_norm: bool = True, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999, adamw_eps:
                 Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01, adamw_amsgrad: bool =
                 False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]]
                 = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace:
                 int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class Scion(Optimizer):
    """Conditional gradients: spectral norm for matrices, signs for those tagged head, RMS for the rest. Pethick et
    al. 2025, arXiv:2502.07529"""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 1, *, scale: Number = 1, eps: Number =
                 1e-08, constrained: bool = True, steps: Number = 0, form: str = 'plain', coefficients: str =
                 'jordan', maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class Shampoo(Optimizer):
    """Gradients between inverse fourth roots of their Gram matrices, as long as another rule's steps; diagonals for
    vectors and long sides. Gupta et al. 2018, arXiv:1802.09568; grafting, blocks: Anil et al. 2020, arXiv:2002.09018;
    Shi et al. 2023, arXiv:2309.06497"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), *, eps: Number =
                 1e-12, relative_eps: Number = 1e-06, graft_eps: Number = 1e-08, momentum: Number = 0.9, weight_decay:
                 Number = 0, graft: str = 'adam', accumulate: str = 'ema', heavy_ball: bool = False, stagger: bool =
                 True, interval: Number = 50, start: Number = 1, apply: str = 'tf32', side: Number = 1024, limit:
                 Number = 8192, maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str,
                 Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads:
                 bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] =
                 None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Signum(Optimizer):
    """The sign of the momentum; with momentum 0 it is signSGD. Bernstein et al. 2018, arXiv:1802.04434"""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9, weight_decay: Number = 0, *, maximize:
                 bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products:
                 Optional[str] = None, static_grads: bool = False, release_grads: bool = False, sort:
                 Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None, workspace: int =
                 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None: ...

class SimplifiedAdEMAMix(Optimizer):
    """AdamW of a summed momentum plus alpha times the gradient: AdEMAMix with one momentum. Morwani et al. 2025,
    arXiv:2502.02431"""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Tuple[float, float] = (0.99, 0.95), alpha: Number = 0,
                 beta1_warmup: Number = 0, eps: Number = 1e-08, weight_decay: Number = 0, min_beta1: Number = 0.9, *,
                 bias_correction1: bool = False, bias_correction2: bool = True, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...

class SinkGD(Optimizer):
    """Gradients whose rows and columns are brought to equal norms; no state. AdamW for what is no matrix. Scetbon et
    al. 2025, arXiv:2502.06742"""
    def __init__(self, params: Any, lr: Number = 0.001, *, lr_scale: Number = 0.05, eps: Number = 1e-08, weight_decay:
                 Number = 0, sinkhorn_iters: Number = 5, adamw_beta1: Number = 0.9, adamw_beta2: Number = 0.999,
                 adamw_eps: Number = 1e-08, adamw_lr: Number = 0.001, adamw_weight_decay: Number = 0.01,
                 adamw_amsgrad: bool = False, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class Sophia(Optimizer):
    """Momentum over a diagonal of the Hessian, clipped element by element; entries update_hessian and step. Liu et
    al. 2023, arXiv:2305.14342"""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Tuple[float, float] = (0.965, 0.99), rho: Number =
                 0.04, weight_decay: Number = 0.1, *, bs: Number = 5120, maximize: bool = False, with_: Sequence[str]
                 = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None, split:
                 Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None,
                 group: Any = None, follow_lr: bool = True) -> None: ...
    def update_hessian(self) -> None: ...

class StableAdamW(Optimizer):
    """AdamW with Adafactor's update clipping. Wortsman et al. 2023, arXiv:2304.13013"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.99), *, weight_decay:
                 Number = 0.01, eps: Number = 1e-08, maximize: bool = False, with_: Sequence[str] = (), types:
                 Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool =
                 False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str,
                 int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr:
                 bool = True) -> None: ...

class StableSPAM(Optimizer):
    """Adam on gradients whose spikes and norms are clipped to running means, with moments that start again. Huang et
    al. 2025, arXiv:2502.17055"""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Tuple[float, float] = (0.9, 0.999), gamma1: Number =
                 0.7, gamma2: Number = 0.9, theta: Number = 0.999, *, weight_decay: Number = 0, eps: Number = 1e-08,
                 update_proj_gap: Number = 1000, maximize: bool = False, with_: Sequence[str] = (), types: Union[None,
                 str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool = False,
                 release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int],
                 Callable] = None, workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool =
                 True) -> None: ...

class TAM(Optimizer):
    """Momentum to which a gradient adds more, the better it agrees with the momentum. Malviya et al. 2024,
    arXiv:2412.18790"""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9, decay_rate: Number = 0.9,
                 weight_decay: Number = 0, *, eps: Number = 1e-08, maximize: bool = False, with_: Sequence[str] = (),
                 types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] = None, static_grads: bool
                 = False, release_grads: bool = False, sort: Optional[Callable] = None, split: Union[None,
                 Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any = None, group: Any =
                 None, follow_lr: bool = True) -> None: ...

class Tiger(Optimizer):
    """The sign of the momentum, with decoupled weight decay. Su 2023, kexue.fm/archives/9512,
    github.com/bojone/tiger"""
    def __init__(self, params: Any, lr: Number = 0.001, beta: Number = 0.965, weight_decay: Number = 0.01, *, scale:
                 str = 'none', maximize: bool = False, with_: Sequence[str] = (), types: Union[None, str, Mapping[str,
                 str]] = None, products: Optional[str] = None, static_grads: bool = False, release_grads: bool =
                 False, sort: Optional[Callable] = None, split: Union[None, Mapping[str, int], Callable] = None,
                 workspace: int = 0, process_group: Any = None, group: Any = None, follow_lr: bool = True) -> None:
                 ...

class Yogi(Optimizer):
    """Adam whose second moment moves by at most a share of g^2; bias-corrected, decoupled weight decay. Zaheer et al.
    2018, NeurIPS, Adaptive Methods for Nonconvex Optimization"""
    def __init__(self, params: Any, lr: Number = 0.01, betas: Tuple[float, float] = (0.9, 0.999), initial_accumulator:
                 Number = 1e-06, weight_decay: Number = 0, *, eps: Number = 0.001, maximize: bool = False, with_:
                 Sequence[str] = (), types: Union[None, str, Mapping[str, str]] = None, products: Optional[str] =
                 None, static_grads: bool = False, release_grads: bool = False, sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0, process_group: Any =
                 None, group: Any = None, follow_lr: bool = True) -> None: ...
