# Made by `python -m optc.torch._rule_classes`: what optc.torch has, for editors and type checkers.
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch
from typing_extensions import TypedDict, Unpack

from ._kfac import kfac_inputs as kfac_inputs
from ._samples import per_sample as per_sample

Number = Union[float, torch.Tensor]
Pair = Tuple[float, float]

def sorted_by(optimizer: Optimizer) -> Dict[str, str]: ...
def list_optimizers(filter: Union[str, Sequence[str]] = ...,
                    exclude_filters: Union[str, Sequence[str]] = ...,
                    with_description: bool = ...) -> List[Any]: ...
def create(opt: str, model_or_params: Any, *, filter_bias_and_bn: bool = ...,
           **given: Any) -> Optimizer: ...
def race(model_fn: Callable[[], torch.nn.Module], data_fn: Callable[[int, int], Tuple[Any, ...]],
         rules: Sequence[str], *, loss_fn: Optional[Callable[[Any, Any], torch.Tensor]] = ...,
         steps: int = ..., every: Optional[int] = ..., target: Optional[float] = ...,
         seeds: int = ..., first_seed: int = ..., trials: int = ..., schedule: str = ...,
         device: Any = ..., name: str = ..., out: Optional[str] = ..., json: Optional[str] = ...,
         verbose: bool = ...) -> Dict[str, Any]: ...

class GradScaler(torch.amp.GradScaler): ...

class Optimizer(torch.optim.Optimizer):
    def __init__(self, params: Any, rule: Optional[str] = None, *, spec: Optional[str] = None,
                 with_: Union[str, Sequence[str]] = (),
                 options: Union[None, str, Mapping[str, Any]] = None,
                 types: Union[None, str, Mapping[str, str]] = None,
                 wrappers: Optional[Mapping[str, str]] = None, products: Optional[str] = None,
                 static_grads: bool = False, release_grads: bool = False,
                 sort: Optional[Callable] = None,
                 split: Union[None, Mapping[str, int], Callable] = None, workspace: int = 0,
                 process_group: Any = None, group: Any = None, follow_lr: bool = True,
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

def matrix_power(A: torch.Tensor, exponent: float, *, ridge: float = 0.0, relative: float = 0.0,
                 floor: float = 0.0, check: bool = False, out: Optional[torch.Tensor] =
                 None) -> torch.Tensor: ...

def inverse_root(A: torch.Tensor, root: float, *, ridge: float = 0.0, relative: float = 0.0, floor:
                 float = 0.0, check: bool = False, out: Optional[torch.Tensor] =
                 None) -> torch.Tensor: ...

def eigh(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]: ...

def qr(A: torch.Tensor, *, check: bool = False) -> Tuple[torch.Tensor, torch.Tensor]: ...

def cholesky(A: torch.Tensor, *, check: bool = False, out: Optional[torch.Tensor] =
             None) -> torch.Tensor: ...

def solve_triangular(T: torch.Tensor, B: torch.Tensor, *, upper: bool = False, left: bool = True,
                     check: bool = False, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def solve_positive(A: torch.Tensor, B: torch.Tensor, *, check: bool = False, out:
                   Optional[torch.Tensor] = None) -> torch.Tensor: ...

def polar(A: torch.Tensor, *, steps: int = 12, coefficients: Union[str, Sequence[Sequence[float]]] =
          'polar_express', check: bool = False, out: Optional[torch.Tensor] =
          None) -> torch.Tensor: ...

def batched_matmul(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] =
                   None) -> torch.Tensor: ...

def bounded_matmul(A: torch.Tensor, B: torch.Tensor, C: Optional[torch.Tensor] = None, *, workspace:
                   int = 67108864, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def gram(A: torch.Tensor, *, out: Optional[torch.Tensor] = None) -> torch.Tensor: ...

def kron(A: torch.Tensor, B: torch.Tensor, *, out: Optional[torch.Tensor] =
         None) -> torch.Tensor: ...

def memory_info(device: Optional[Any] = None) -> Dict[str, int]: ...

def empty_cache() -> None: ...

def best_device(why: bool = False) -> Union[torch.device, Tuple[torch.device, str]]: ...

class Common(TypedDict, total=False):
    maximize: bool
    with_: Sequence[str]
    types: Union[None, str, Mapping[str, str]]
    products: Optional[str]
    static_grads: bool
    release_grads: bool
    sort: Optional[Callable]
    split: Union[None, Mapping[str, int], Callable]
    workspace: int
    process_group: Any
    group: Any
    follow_lr: bool

class WithAdamW(Common, total=False):
    adamw_beta1: Number
    adamw_beta2: Number
    adamw_eps: Number
    adamw_lr: Number
    adamw_weight_decay: Number
    adamw_amsgrad: bool

class ADOPT(Optimizer):
    """Adam that normalises by the second moment before this gradient, then takes momentum; step 1
    only starts v."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.9999),
        eps: Number = 1e-06, clip_power: Number = 0.25, weight_decay: Number = 0, *,
        clip: bool = True, decoupled: bool = False, **more: Unpack[Common]) -> None: ...
class AMUSE(Optimizer):
    """Muon without a schedule: gradients move towards the average of iterates; entries to_eval and
    to_train."""
    def __init__(self, params: Any, lr: Number = 0.02, *, momentum: Number = 0.95,
        weight_decay: Number = 0, weight_decay_at_y: Number = 0, lr_1d: Number = 0.0003,
        betas: Pair = (0.9, 0.999), eps: Number = 1e-10, warmup_steps: Number = 1000,
        rho: Number = 1, r: Number = 0, weight_lr_power: Number = 2,
        **more: Unpack[Common]) -> None: ...
class APOLLO(Optimizer):
    """Gradients scaled column by column as Adam would scale a random projection of them; AdamW for
    the rest."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-06, weight_decay: Number = 0, *, scale: Number = 1, growth: Number = 1.01,
        seed: Number = 0, directions: Number = 256, update_proj_gap: Number = 200,
        scale_front: bool = False, disable_nl: bool = False, **more: Unpack[WithAdamW]) -> None: ...
class APOLLOMini(Optimizer):
    """Gradients scaled matrix by matrix as Adam would scale one random direction of them; AdamW for
    the rest."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-06, weight_decay: Number = 0, *, scale: Number = 128,
        growth: Number = 1.01, seed: Number = 0, update_proj_gap: Number = 200,
        scale_front: bool = False, disable_nl: bool = False, **more: Unpack[WithAdamW]) -> None: ...
class ARO(Optimizer):
    """Momentum whose rows and columns are normalised in a rotated basis; AdamW for the rest."""
    def __init__(self, params: Any, lr: Number = 0.01, *, mu: Number = 0.95, eps: Number = 1e-08,
        weight_decay: Number = 0.01, base_opt: str = 'sinkhorn', sinkhorn_iters: Number = 5,
        limit: Number = 4096, adjust_lr: str = 'rms_norm', **more: Unpack[WithAdamW]) -> None: ...
class ASGD(Optimizer):
    """SGD with a decaying rate that keeps the average of its weights in ax."""
    def __init__(self, params: Any, lr: Number = 0.01, lambd: Number = 0.0001, alpha: Number = 0.75,
        t0: Number = 1000000.0, weight_decay: Number = 0, foreach: Optional[bool] = None,
        maximize: bool = False, differentiable: bool = False, capturable: bool = False,
        **more: Unpack[Common]) -> None: ...
class ASGO(Optimizer):
    """Momentum times the inverse root of one Gram matrix, that of the smaller side; AdamW for what
    is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9,
        weight_decay: Number = 0.1, beta2: Number = 0.8, eps: Number = 1e-10, *,
        relative_eps: Number = 1e-06, interval: Number = 1, scale: str = 'rms',
        **more: Unpack[WithAdamW]) -> None: ...
class AdEMAMix(Optimizer):
    """AdamW with a second, slow momentum mixed in; the warmup option ramps alpha and beta3 over
    alpha_warmup and beta3_warmup steps."""
    def __init__(self, params: Any, lr: Number = 0.001,
        betas: Tuple[float, float, float] = (0.9, 0.999, 0.9999), alpha: Number = 2,
        beta3_warmup: Optional[Number] = None, alpha_warmup: Optional[Number] = None,
        eps: Number = 1e-08, weight_decay: Number = 0, *, warmup: Optional[bool] = None,
        **more: Unpack[Common]) -> None: ...
class AdaBelief(Optimizer):
    """Adam that divides by how far the gradient strays from its mean; decoupled weight decay."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-16, weight_decay: Number = 0, *, rectify: bool = True,
        amsgrad: bool = False, **more: Unpack[Common]) -> None: ...
class AdaBound(Optimizer):
    """Adam's rate for each coordinate, clipped to bounds that close in on final_lr, so that it ends
    as SGD."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        final_lr: Number = 0.1, gamma: Number = 0.001, eps: Number = 1e-08,
        weight_decay: Number = 0, *, base_lr: Optional[Number] = None, amsbound: bool = False,
        **more: Unpack[Common]) -> None: ...
class AdaGC(Optimizer):
    """AdamW whose gradients are clipped tensor by tensor to a running mean of their norms."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        beta: Number = 0.98, lambda_abs: Number = 1, lambda_rel: Number = 1.05,
        warmup_steps: Number = 100, weight_decay: Number = 0.1, *, eps: Number = 1e-08,
        **more: Unpack[Common]) -> None: ...
class AdaGO(Optimizer):
    """Muon with AdaGrad's step for each tensor, from the norms of its gradients; AdamW for what is
    no matrix."""
    def __init__(self, params: Any, lr: Number = 0.05, *, momentum: Number = 0.95,
        gamma: Number = 1, eps: Number = 0.0005, v0: Number = 1e-06, weight_decay: Number = 0,
        steps: Number = 0, form: str = 'plain', coefficients: str = 'jordan',
        **more: Unpack[WithAdamW]) -> None: ...
class AdaHessian(Optimizer):
    """AdamW with a diagonal of the Hessian in place of the gradient in v; entries set_hessian and
    step."""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, hessian_power: Number = 1,
        **more: Unpack[Common]) -> None: ...
    def set_hessian(self) -> None: ...
class AdaLomo(Optimizer):
    """Row and column means of squared gradients, and a rate relative to the size of the weights."""
    def __init__(self, params: Any, lr: Number = 0.001, *, eps: Pair = (1e-30, 0.001),
        clip_threshold: Number = 1, decay_rate: Number = -0.8, weight_decay: Number = 0,
        clip_grad_norm: Number = 0, clip_grad_value: Number = 0, **more: Unpack[Common]) -> None:
        ...
class AdaMod(Optimizer):
    """AdamW whose rate of each element is bounded by the running mean of its rates."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        beta3: Number = 0.999, eps: Number = 1e-08, weight_decay: Number = 0,
        **more: Unpack[Common]) -> None: ...
class AdaMuon(Optimizer):
    """Muon of the momentum's signs, divided by its own second moment; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0.01,
        momentum: Number = 0.95, *, eps: Number = 1e-08, nesterov: bool = True, steps: Number = 0,
        form: str = 'plain', coefficients: str = 'jordan', **more: Unpack[WithAdamW]) -> None: ...
class AdaPNM(Optimizer):
    """AMSGrad with the difference of two momenta, of even and of odd steps."""
    def __init__(self, params: Any, lr: Number = 0.001,
        betas: Tuple[float, float, float] = (0.9, 0.999, 1), eps: Number = 1e-08,
        weight_decay: Number = 0, *, amsgrad: bool = True, decoupled: bool = True,
        **more: Unpack[Common]) -> None: ...
class AdaTAM(Optimizer):
    """Adam to whose momentum a gradient adds more, the better it agrees with it."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        decay_rate: Number = 0.9, weight_decay: Number = 0, *, eps: Number = 1e-08,
        **more: Unpack[Common]) -> None: ...
class Adadelta(Optimizer):
    """Gradients rescaled by the ratio of running RMS of updates and of gradients."""
    def __init__(self, params: Any, lr: Number = 1.0, rho: Number = 0.9, eps: Number = 1e-06,
        weight_decay: Number = 0, foreach: Optional[bool] = None, *, capturable: bool = False,
        differentiable: bool = False, **more: Unpack[Common]) -> None: ...
class Adafactor(Optimizer):
    """Second moments of matrices kept as row and column means; lr caps a rate relative to the size
    of the weights."""
    def __init__(self, params: Any, lr: Number = 0.01, beta2_decay: Number = -0.8,
        eps: Tuple[Optional[float], float] = (None, 0.001), d: Number = 1.0,
        weight_decay: Number = 0.0, *, foreach: Optional[bool] = None, beta1: Number = 0.9,
        relative_step: bool = True, scale_parameter: bool = True, momentum: bool = False,
        **more: Unpack[Common]) -> None: ...
class Adagrad(Optimizer):
    """Each coordinate's rate falls with the root of its summed squared gradients."""
    def __init__(self, params: Any, lr: Number = 0.01, lr_decay: Number = 0,
        weight_decay: Number = 0, initial_accumulator_value: Number = 0, eps: Number = 1e-10,
        foreach: Optional[bool] = None, *, differentiable: bool = False,
        fused: Optional[bool] = None, **more: Unpack[Common]) -> None: ...
class Adai(Optimizer):
    """Momentum whose inertia, element by element, shrinks as the gradient's variance grows."""
    def __init__(self, params: Any, lr: Number = 1, betas: Pair = (0.1, 0.99), eps: Number = 0.001,
        weight_decay: Number = 0, *, decoupled: bool = False, **more: Unpack[Common]) -> None: ...
class Adam(Optimizer):
    """Bias-corrected first moment over the root of the second; weight decay, if any, is L2."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, amsgrad: bool = False, *,
        foreach: Optional[bool] = None, capturable: bool = False, differentiable: bool = False,
        fused: Optional[bool] = None, decoupled_weight_decay: bool = False,
        **more: Unpack[Common]) -> None: ...
class AdamAtan2(Optimizer):
    """AdamW with atan2(m, b sqrt(v)) in place of the division: no eps, invariant to the scale of
    gradients."""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Pair = (0.9, 0.99),
        weight_decay: Number = 0, *, a: Number = 1.27, b: Number = 1,
        **more: Unpack[Common]) -> None: ...
class AdamMini(Optimizer):
    """AdamW with one second moment for each row, head or tensor."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class AdamP(Optimizer):
    """AdamW without the radial part of updates to scale-invariant weights."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, delta: Number = 0.1, wd_ratio: Number = 0.1,
        *, nesterov: bool = False, **more: Unpack[Common]) -> None: ...
class AdamW(Optimizer):
    """Adam with weight decay kept apart from the gradient."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0.01, amsgrad: bool = False, *,
        foreach: Optional[bool] = None, capturable: bool = False, differentiable: bool = False,
        fused: Optional[bool] = None, **more: Unpack[Common]) -> None: ...
class AdamWScheduleFree(Optimizer):
    """AdamW without a schedule: a weighted average of the iterates; entries to_eval and
    to_train."""
    def __init__(self, params: Any, lr: Number = 0.0025, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, warmup_steps: Number = 0, r: Number = 0,
        weight_lr_power: Number = 2, **more: Unpack[Common]) -> None: ...
class Adamax(Optimizer):
    """Adam with a decayed maximum of the gradient in place of the second moment."""
    def __init__(self, params: Any, lr: Number = 0.002, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, foreach: Optional[bool] = None, *,
        differentiable: bool = False, capturable: bool = False, **more: Unpack[Common]) -> None: ...
class Adan(Optimizer):
    """Adam with Nesterov momentum estimated from differences of gradients; betas are decay rates
    (the paper's 1 - beta)."""
    def __init__(self, params: Any, lr: Number = 0.001,
        betas: Tuple[float, float, float] = (0.98, 0.92, 0.99), eps: Number = 1e-08,
        weight_decay: Number = 0, *, proximal: bool = True, **more: Unpack[Common]) -> None: ...
class Adashift(Optimizer):
    """Adam whose second moment takes the gradient of keep_num steps ago, reduced over the tensor,
    and whose first moment is the weighted mean of the gradients since."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999), *,
        eps: Number = 1e-10, keep_num: Number = 10, reduce: str = 'max',
        **more: Unpack[Common]) -> None: ...
class AggMo(Optimizer):
    """The mean of three momenta with different rates of decay."""
    def __init__(self, params: Any, lr: Number = 0.1,
        betas: Tuple[float, float, float] = (0, 0.9, 0.99), weight_decay: Number = 0,
        **more: Unpack[Common]) -> None: ...
class Amos(Optimizer):
    """Adam-like with one second moment a tensor, and weight decay and rate that decay on their
    own."""
    def __init__(self, params: Any, lr: Number = 0.001, beta: Number = 0.999,
        momentum: Optional[Number] = None, extra_l2: Number = 0, *, eps: Number = 1e-18,
        momentum_buffer: Optional[bool] = None, **more: Unpack[Common]) -> None: ...
class Aurora(Optimizer):
    """Muon with rows (or columns) of the polar factor at equal norms; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.05, *, momentum: Number = 0.95,
        pp_beta: Number = 0.5, eps: Number = 1e-07, weight_decay: Number = 0.025,
        nesterov: bool = True, pp_iterations: Number = 2, **more: Unpack[WithAdamW]) -> None: ...
class CAME(Optimizer):
    """Adafactor with momentum, whose update is divided by a factored measure of its own
    instability."""
    def __init__(self, params: Any, lr: Number = 0.0002, eps: Pair = (1e-30, 1e-16),
        clip_threshold: Number = 1, betas: Tuple[float, float, float] = (0.9, 0.999, 0.9999),
        weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class COCOB(Optimizer):
    """Bets on coins: SGD without a rate, element by element; lr stays 1."""
    def __init__(self, params: Any, lr: Number = 1, alpha: Number = 100, eps: Number = 1e-08,
        weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class COSMOS(Optimizer):
    """SOAP's step in the leading directions of the gradient and Muon's in the others; AdamW for the
    rest."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, lr_ratio: Number = 0.1, *, weight_decay: Number = 0,
        gamma: Number = 0.2, directions: Number = 64, limit: Number = 10000,
        **more: Unpack[WithAdamW]) -> None: ...
class Conda(Optimizer):
    """Adam in the singular vectors of the momentum, on the shorter side; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, *, scale: Number = 1,
        update_proj_gap: Number = 2000, **more: Unpack[WithAdamW]) -> None: ...
class DAdaptAdaGrad(Optimizer):
    """AdaGrad by dual averaging whose step size d bounds the distance to the solution; lr stays
    1."""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0, *,
        weight_decay: Number = 0, eps: Number = 1e-06, d0: Number = 1e-06,
        growth_rate: Number = ..., **more: Unpack[Common]) -> None: ...
class DAdaptAdam(Optimizer):
    """Adam whose step size d is a growing lower bound of the distance to the solution; lr stays
    1."""
    def __init__(self, params: Any, lr: Number = 1, betas: Pair = (0.9, 0.999), eps: Number = 1e-08,
        weight_decay: Number = 0, *, d0: Number = 1e-06, growth_rate: Number = ...,
        layer_scale: Number = 1, decouple: bool = False, use_bias_correction: bool = False,
        **more: Unpack[Common]) -> None: ...
class DAdaptAdan(Optimizer):
    """Adan whose step size d is a growing lower bound of the distance to the solution; lr stays
    1."""
    def __init__(self, params: Any, lr: Number = 1,
        betas: Tuple[float, float, float] = (0.98, 0.92, 0.99), eps: Number = 1e-08,
        weight_decay: Number = 0.02, *, d0: Number = 1e-06, growth_rate: Number = ...,
        no_prox: bool = False, **more: Unpack[Common]) -> None: ...
class DAdaptLion(Optimizer):
    """Lion whose step size d is a growing lower bound of the distance to the solution; lr stays
    1."""
    def __init__(self, params: Any, lr: Number = 1, betas: Pair = (0.9, 0.99),
        weight_decay: Number = 0, *, d0: Number = 1e-06, **more: Unpack[Common]) -> None: ...
class DAdaptSGD(Optimizer):
    """SGD whose step size d is a growing lower bound of the distance to the solution; lr stays
    1."""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0, weight_decay: Number = 0,
        *, d0: Number = 1e-06, growth_rate: Number = ..., **more: Unpack[Common]) -> None: ...
class DiffGrad(Optimizer):
    """Adam that is slowed down where the gradient hardly changes: times the sigmoid of its
    change."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class Dion(Optimizer):
    """Muon of low rank: one power iteration of the momentum, whose rest stays for later steps;
    AdamW for what is no matrix."""
    def __init__(self, params: Any, *, lr: Number = 0.01, momentum: Number = 0.95,
        eps: Number = 1e-08, weight_decay: Number = 0.01, seed: Number = 0,
        directions: Number = 768, **more: Unpack[WithAdamW]) -> None: ...
class Dion2(Optimizer):
    """Muon of the rows or columns with the largest momentum, a share of them at each step; AdamW
    for what is no matrix."""
    def __init__(self, params: Any, *, lr: Number = 0.01, ef_decay: Number = 0.95,
        weight_decay: Number = 0.01, fraction: Number = 0.25, scale: str = 'spectral',
        coefficients: str = 'polar_express_5', **more: Unpack[WithAdamW]) -> None: ...
class Dion3(Optimizer):
    """NorMuon of the rows with the largest momentum, a share of them at each step; AdamW for what
    is no matrix."""
    def __init__(self, params: Any, *, lr: Number = 0.01, mu: Number = 0.95, beta2: Number = 0.95,
        weight_decay: Number = 0.01, eps: Number = 1e-08, fraction: Number = 0.25,
        scale: str = 'spectral', coefficients: str = 'polar_express_5',
        **more: Unpack[WithAdamW]) -> None: ...
class DoG(Optimizer):
    """SGD whose rate is the distance from the first weights over the root of summed squared
    gradients; lr stays 1."""
    def __init__(self, params: Any, reps_rel: Number = 1e-06, lr: Number = 1,
        weight_decay: Number = 0, eps: Number = 1e-08, init_eta: Number = 0, *,
        layerwise: bool = False, **more: Unpack[Common]) -> None: ...
class DoWG(Optimizer):
    """SGD whose rate is the squared distance from the first weights over weighted gradients; lr
    stays 1."""
    def __init__(self, params: Any, lr: Number = 1, init_estim_sq_dist: Number = 0,
        eps: Number = 0.0001, weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class FISMO(Optimizer):
    """Muon of gradients whitened by factors of the Fisher matrix; AdamW for the rest and for sides
    over the limit."""
    def __init__(self, params: Any, lr: Number = 0.02, *, beta: Number = 0.95, gamma: Number = 0.95,
        mu: Number = 0.0001, eps: Number = 0.01, weight_decay: Number = 0, limit: Number = 4096,
        root: str = 'products', **more: Unpack[WithAdamW]) -> None: ...
class FTRL(Optimizer):
    """Follow the regularised leader: AdaGrad's rates with an L1 penalty that makes weights exactly
    0."""
    def __init__(self, params: Any, lr: Number = 0.001, lr_power: Number = -0.5, beta: Number = 0,
        lambda_1: Number = 0, lambda_2: Number = 0, **more: Unpack[Common]) -> None: ...
class Fromage(Optimizer):
    """Gradients scaled to the norm of their weights, which are then divided by sqrt(1 + lr^2)."""
    def __init__(self, params: Any, lr: Number = 0.01, p_bound: Optional[Number] = None, *,
        bounded: Optional[bool] = None, **more: Unpack[Common]) -> None: ...
class GPAAdamW(Optimizer):
    """AdamW with primal averaging: gradients and evaluation at two means; entries to_eval and
    to_train."""
    def __init__(self, params: Any, lr: Number = 1, *, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, train_interp_coeff: Number = 0.7,
        eval_interp_coeff: Number = 0.9967, use_wd_on_y: bool = False,
        **more: Unpack[Common]) -> None: ...
class Grams(Optimizer):
    """AdamW's magnitude with the sign of the current gradient."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-06, weight_decay: Number = 0, *, correct_bias: bool = True,
        **more: Unpack[Common]) -> None: ...
class KLSOAP(Optimizer):
    """Adam in the eigenvectors of KL-Shampoo's factors; AdamW for the rest and for sides over the
    limit."""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Pair = (0.9, 0.95),
        shampoo_beta: Number = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *,
        nesterov: bool = False, correct_bias: bool = True, limit: Number = 4096,
        **more: Unpack[WithAdamW]) -> None: ...
class KLShampoo(Optimizer):
    """Shampoo whose two factors are fitted to each other, with eigenvalues from every step; AdamW
    for the rest and for sides over the limit."""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Pair = (0.9, 0.98), *,
        eps: Number = 1e-08, weight_decay: Number = 0.01, interval: Number = 10,
        limit: Number = 4096, first: Number = 0.1, start: str = 'eigh',
        **more: Unpack[WithAdamW]) -> None: ...
class LAMB(Optimizer):
    """Adam's direction with weight decay, scaled for each tensor by the ratio of weight and update
    norms."""
    def __init__(self, params: Any, lr: Number = 0.001, *, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-06, weight_decay: Number = 0.01, trust_clip: bool = False,
        **more: Unpack[Common]) -> None: ...
class LARS(Optimizer):
    """SGD with momentum whose rate for each tensor follows the ratio of its weight and gradient
    norms."""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.9, *,
        weight_decay: Number = 0, trust: Number = 0.001, eps: Number = 1e-08, rate: str = 'inside',
        trust_clip: bool = False, **more: Unpack[Common]) -> None: ...
class LaProp(Optimizer):
    """Momentum of normalised gradients: Adam that divides before it averages; decoupled weight
    decay."""
    def __init__(self, params: Any, lr: Number = 0.0004, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-15, weight_decay: Number = 0, *, amsgrad: bool = False,
        **more: Unpack[Common]) -> None: ...
class Lion(Optimizer):
    """The sign of an interpolated momentum, with decoupled weight decay."""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Pair = (0.9, 0.99),
        weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class Lomo(Optimizer):
    """Plain SGD with clipping, for steps inside the backward pass."""
    def __init__(self, params: Any, lr: Number = 0.001, *, weight_decay: Number = 0,
        clip_grad_norm: Number = 0, clip_grad_value: Number = 0, **more: Unpack[Common]) -> None:
        ...
class MADGRAD(Optimizer):
    """Dual averaging from the first weights, over a cube root of summed squared gradients; L2
    weight decay."""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9,
        weight_decay: Number = 0, eps: Number = 1e-06, **more: Unpack[Common]) -> None: ...
class MARS(Optimizer):
    """AdamW, Lion or Shampoo on gradients with reduced variance; AdamW for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Pair = (0.95, 0.99),
        eps: Number = 1e-08, weight_decay: Number = 0, *, gamma: Number = 0.025,
        lr_1d: Number = 0.003, betas_1d: Pair = (0.9, 0.95), weight_decay_1d: Number = 0.1,
        mars_type: str = 'adamw', optimize_1d: bool = False, amsgrad: bool = False,
        **more: Unpack[Common]) -> None: ...
class MOP(Optimizer):
    """The exact polar factor of the momentum, times its nuclear norm; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        weight_decay: Number = 0.01, *, extra_scale_factor: Number = 1, nesterov: bool = False,
        scale: str = 'nuclear_norm', **more: Unpack[WithAdamW]) -> None: ...
class MOSO(Optimizer):
    """RMSprop of the momentum in the eigenvectors of the momentum's Gram matrix, on the shorter
    side; AdamW for the rest."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        rms_beta: Number = 0.95, shampoo_beta: Number = 0.95, eps: Number = 1e-08,
        weight_decay: Number = 0.01, *, max_update_rms: Number = 0,
        **more: Unpack[WithAdamW]) -> None: ...
class Mano(Optimizer):
    """Momentum without its part along the weights, with columns and rows of norm 1 in turn; AdamW
    for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.001, *, weight_decay: Number = 0.1,
        eps: Number = 1e-08, momentum: Number = 0.95, nesterov: bool = False,
        **more: Unpack[WithAdamW]) -> None: ...
class Mousse(Optimizer):
    """Muon between weak powers of Shampoo's factors; AdamW for the rest and for sides over the
    limit."""
    def __init__(self, params: Any, *, lr: Number = 0.01, mu: Number = 0.95,
        weight_decay: Number = 0.01, shampoo_epsilon: Number = 1e-10, shampoo_beta: Number = 0.95,
        shampoo_alpha: Number = 0.125, nesterov: bool = False, shampoo_update_freq: Number = 10,
        apply_norm: bool = True, limit: Number = 4096, adjust_lr: str = 'spectral_norm',
        **more: Unpack[WithAdamW]) -> None: ...
class Muon(Optimizer):
    """Momentum whose matrices are replaced by their orthogonal factor; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.001, weight_decay: Number = 0.1,
        momentum: Number = 0.95, nesterov: bool = True,
        ns_coefficients: Tuple[float, float, float] = (3.4445, -4.775, 2.0315), eps: Number = 1e-07,
        ns_steps: Number = 5, adjust_lr_fn: Optional[str] = None, *, form: str = 'auto',
        scale: Optional[str] = None, coefficients: Optional[str] = None,
        **more: Unpack[WithAdamW]) -> None: ...
class MuonEq(Optimizer):
    """Muon of a momentum whose rows or columns were brought to equal norms; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, *, momentum: Number = 0.95,
        weight_decay: Number = 0, nesterov: bool = True, equilibrate: str = 'rows',
        renormalize: bool = False, steps: Number = 0, coefficients: str = 'nanochat',
        **more: Unpack[WithAdamW]) -> None: ...
class MuonH(Optimizer):
    """Muon whose matrices keep their norm and move by a share lr of it; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        weight_decay: Number = 0, *, radius: Number = 0, eps: Number = 1e-15,
        nesterov: bool = False, steps: Number = 0, coefficients: str = 'quintic',
        **more: Unpack[WithAdamW]) -> None: ...
class MuonSq(Optimizer):
    """Muon of the momentum over the root of an elementwise second moment; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, *, weight_decay: Number = 0,
        momentum: Number = 0.95, beta2: Number = 0.95, eps: Number = 1e-10, nesterov: bool = True,
        steps: Number = 0, coefficients: str = 'exact', **more: Unpack[WithAdamW]) -> None: ...
class Muown(Optimizer):
    """Muon on the directions of rows and Adam on their norms; AdamW for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        weight_decay: Number = 0, *, betas: Pair = (0.9, 0.95), eps: Number = 1e-08,
        extra_scale_factor: Number = 1, steps: Number = 0, coefficients: str = 'quintic',
        **more: Unpack[WithAdamW]) -> None: ...
class NAMO(Optimizer):
    """Muon scaled by the norm of the momentum over the root mean square of gradient norms; AdamW
    for the rest."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        weight_decay: Number = 0.01, *, extra_scale_factor: Number = 1, beta2: Number = 0.95,
        eps: Number = 1e-08, nesterov: bool = False, steps: Number = 0,
        coefficients: str = 'quintic', **more: Unpack[WithAdamW]) -> None: ...
class NAdam(Optimizer):
    """Adam with Nesterov momentum under the paper's warm-up of beta1."""
    def __init__(self, params: Any, lr: Number = 0.002, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, momentum_decay: Number = 0.004,
        decoupled_weight_decay: bool = False, *, foreach: Optional[bool] = None,
        capturable: bool = False, differentiable: bool = False, **more: Unpack[Common]) -> None: ...
class Nero(Optimizer):
    """Steps of lr for each neuron relative to its size, with weights of a neuron kept at mean 0 and
    norm 1."""
    def __init__(self, params: Any, lr: Number = 0.01, beta: Number = 0.999, *,
        constraints: bool = True, **more: Unpack[Common]) -> None: ...
class NorMuon(Optimizer):
    """Muon whose rows are brought to equal size by a second moment each; AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0,
        momentum: Number = 0.95, beta2: Number = 0.95, *, eps: Number = 1e-10,
        nesterov: bool = True, steps: Number = 0, form: str = 'plain', coefficients: str = 'jordan',
        scale: str = 'keep', **more: Unpack[WithAdamW]) -> None: ...
class Nora(Optimizer):
    """Momentum without its part along the rows of weights, with rows of norm 1; AdamW for what is
    no matrix."""
    def __init__(self, params: Any, lr: Number = 0.005, *, momentum: Number = 0.95,
        beta: Number = 0.95, weight_decay: Number = 0.1, eps: Number = 1e-10,
        **more: Unpack[WithAdamW]) -> None: ...
class NovoGrad(Optimizer):
    """Momentum of gradients normalised by one second moment a tensor, with weight decay inside the
    momentum."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.95, 0.98),
        eps: Number = 1e-08, weight_decay: Number = 0, *, grad_averaging: bool = False,
        amsgrad: bool = False, **more: Unpack[Common]) -> None: ...
class PMuon(Optimizer):
    """Muon after powers of the gradients' Gram matrices; AdamW for the rest and for sides over the
    limit."""
    def __init__(self, params: Any, lr: Number = 0.035, *, mu: Number = 0.95, beta: Number = 0.95,
        gamma: Number = 0.3, eps: Number = 1e-06, weight_decay: Number = 0.025,
        limit: Number = 4096, **more: Unpack[WithAdamW]) -> None: ...
class PNM(Optimizer):
    """The difference of two momenta, of even and of odd steps: adds noise of a chosen size to
    SGD."""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Pair = (0.9, 1),
        weight_decay: Number = 0, *, decoupled: bool = True, **more: Unpack[Common]) -> None: ...
class PSGD(Optimizer):
    """Momentum between two matrices that were fitted to whiten gradients; AdamW for the rest and
    for sides over the limit."""
    def __init__(self, params: Any, *, lr: Number = 0.001, momentum: Number = 0.9,
        precond_lr: Number = 0.1, beta: Number = 0.9, clip_rms: Number = 2, clip: Number = 10,
        weight_decay: Number = 0, limit: Number = 4096, balance: Number = 100, apply: str = 'f32',
        **more: Unpack[WithAdamW]) -> None: ...
class PSGDKron(Optimizer):
    """Momentum between triangles that were fitted to whiten gradients, diagonals for sides over the
    limit; AdamW for what is no matrix."""
    def __init__(self, params: Any, *, lr: Number = 0.001, momentum: Number = 0.9,
        precond_lr: Number = 0.1, beta: Number = 0.9, damping: Number = 1e-09,
        clip_rms: Number = 1.1, weight_decay: Number = 0, seed: Number = 0, limit: Number = 2048,
        balance: Number = 100, apply: str = 'f32', **more: Unpack[WithAdamW]) -> None: ...
class Padam(Optimizer):
    """AMSGrad whose second moment is raised to the power partial instead of 1/2."""
    def __init__(self, params: Any, lr: Number = 0.1, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, *, partial: Number = 0.25,
        amsgrad: bool = True, **more: Unpack[Common]) -> None: ...
class PolarGrad(Optimizer):
    """The polar factor of the momentum times its nuclear norm: a step that shrinks with the
    gradient; AdamW for the rest."""
    def __init__(self, params: Any, lr: Number = 0.02, weight_decay: Number = 0,
        momentum: Number = 0.95, *, polar_first: bool = False, steps: Number = 0,
        form: str = 'plain', coefficients: str = 'polar_express',
        **more: Unpack[WithAdamW]) -> None: ...
class Prodigy(Optimizer):
    """AdamW whose step size d is estimated from the distance to the first weights; lr stays 1."""
    def __init__(self, params: Any, lr: Number = 1, betas: Pair = (0.9, 0.999), beta3: Number = 0,
        eps: Number = 1e-08, weight_decay: Number = 0, *, d0: Number = 1e-06, d_coef: Number = 1,
        growth_rate: Number = ..., decouple: bool = True, use_bias_correction: bool = False,
        safeguard_warmup: bool = False, **more: Unpack[Common]) -> None: ...
class QHAdam(Optimizer):
    """Adam whose moments are mixed with the current gradient by nu1 and nu2."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        nus: Pair = (1, 1), weight_decay: Number = 0, *, eps: Number = 1e-08,
        decouple_weight_decay: bool = False, **more: Unpack[Common]) -> None: ...
class QHM(Optimizer):
    """Mixes plain SGD and momentum by nu."""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.999, nu: Number = 0.7,
        weight_decay: Number = 0, *, weight_decay_type: str = 'grad',
        **more: Unpack[Common]) -> None: ...
class RAdam(Optimizer):
    """Adam whose step is rectified for the variance of its rate, and is plain momentum while that
    is intractable."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, decoupled_weight_decay: bool = False, *,
        foreach: Optional[bool] = None, capturable: bool = False, differentiable: bool = False,
        **more: Unpack[Common]) -> None: ...
class RAdamScheduleFree(Optimizer):
    """RAdam without a schedule or warm-up: a weighted average of the iterates; entries to_eval and
    to_train."""
    def __init__(self, params: Any, lr: Number = 0.0025, betas: Pair = (0.9, 0.999),
        eps: Number = 1e-08, weight_decay: Number = 0, r: Number = 0, weight_lr_power: Number = 2,
        *, silent_sgd_phase: bool = True, **more: Unpack[Common]) -> None: ...
class REKLS(Optimizer):
    """KL-SOAP whose basis is computed anew at every step; AdamW for the rest and for sides over the
    limit."""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Pair = (0.9, 0.95),
        shampoo_beta: Number = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *,
        limit: Number = 4096, **more: Unpack[WithAdamW]) -> None: ...
class RMNP(Optimizer):
    """Momentum whose rows are brought to norm 1; AdamW for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, momentum: Number = 0.95, *,
        weight_decay: Number = 0, **more: Unpack[WithAdamW]) -> None: ...
class RMSprop(Optimizer):
    """Gradients divided by their running RMS; centred takes the running mean out, momentum_buffer
    adds momentum."""
    def __init__(self, params: Any, lr: Number = 0.01, alpha: Number = 0.99, eps: Number = 1e-08,
        weight_decay: Number = 0, momentum: Number = 0, centered: bool = False,
        capturable: bool = False, foreach: Optional[bool] = None, maximize: bool = False,
        differentiable: bool = False, **more: Unpack[Common]) -> None: ...
class RMSpropTF(Optimizer):
    """TensorFlow's RMSprop: v starts at 1, eps inside of the root, lr inside of the momentum."""
    def __init__(self, params: Any, lr: Number = 0.01, alpha: Number = 0.9, eps: Number = 1e-10,
        weight_decay: Number = 0, momentum: Optional[Number] = None, *, centered: bool = False,
        momentum_buffer: Optional[bool] = None, decoupled_decay: bool = False,
        lr_in_momentum: bool = True, **more: Unpack[Common]) -> None: ...
class Rprop(Optimizer):
    """Steps by signs, with a step size for each element that grows while the sign stays and shrinks
    when it flips."""
    def __init__(self, params: Any, lr: Number = 0.01, etas: Pair = (0.5, 1.2),
        step_sizes: Pair = (1e-06, 50), *, capturable: bool = False, foreach: Optional[bool] = None,
        differentiable: bool = False, **more: Unpack[Common]) -> None: ...
class SCALE(Optimizer):
    """Gradients over their RMS along the input axis, with momentum in the last layer only; AdamW
    for the rest."""
    def __init__(self, params: Any, lr: Number = 0.0001, *, momentum: Number = 0.9,
        weight_decay: Number = 0, **more: Unpack[WithAdamW]) -> None: ...
class SGD(Optimizer):
    """Gradient descent with heavy-ball or Nesterov momentum and L2 weight decay."""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0, dampening: Number = 0,
        weight_decay: Number = 0, nesterov: bool = False, *, foreach: Optional[bool] = None,
        differentiable: bool = False, fused: Optional[bool] = None, **more: Unpack[Common]) -> None:
        ...
class SGDP(Optimizer):
    """SGD with momentum without the radial part of updates to scale-invariant weights."""
    def __init__(self, params: Any, lr: Number = 0.1, momentum: Number = 0.9, dampening: Number = 0,
        weight_decay: Number = 0, *, eps: Number = 1e-08, delta: Number = 0.1,
        wd_ratio: Number = 0.1, nesterov: bool = False, **more: Unpack[Common]) -> None: ...
class SGDSaI(Optimizer):
    """Momentum whose rate for each tensor is fixed at the start by the signal-to-noise ratio of its
    gradient."""
    def __init__(self, params: Any, lr: Number = 0.01, momentum: Number = 0.9, eps: Number = 1e-08,
        weight_decay: Number = 0.01, **more: Unpack[Common]) -> None: ...
class SGDScheduleFree(Optimizer):
    """SGD without a schedule: a weighted average of the iterates; entries to_eval and to_train."""
    def __init__(self, params: Any, lr: Number = 1, momentum: Number = 0.9,
        weight_decay: Number = 0, warmup_steps: Number = 0, r: Number = 0,
        weight_lr_power: Number = 2, **more: Unpack[Common]) -> None: ...
class SGDW(Optimizer):
    """SGD with momentum and weight decay kept apart from the gradient."""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9,
        dampening: Number = 0, weight_decay: Number = 0.01, *, nesterov: bool = False,
        **more: Unpack[Common]) -> None: ...
class SM3(Optimizer):
    """AdaGrad with one second moment for each row and each column of a matrix."""
    def __init__(self, params: Any, lr: Number = 0.1, momentum: Optional[Number] = None,
        beta: Number = 0, eps: Number = 1e-30, *, momentum_buffer: Optional[bool] = None,
        **more: Unpack[Common]) -> None: ...
class SOAP(Optimizer):
    """Adam in the eigenvectors of gradients' Gram matrices; AdamW for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.003, betas: Pair = (0.95, 0.95),
        beta3: Number = 0.95, eps: Number = 1e-08, weight_decay: Number = 0.01, *,
        interval: Number = 10, limit: Number = 4096, sides: str = 'both', start: str = 'eigh',
        stagger: bool = False, apply: str = 'tf32', normalize_grads: bool = False,
        precondition_1d: bool = False, **more: Unpack[WithAdamW]) -> None: ...
class SOAPMuon(Optimizer):
    """Muon of the momentum that SOAP preconditions; AdamW for the rest and for sides over the
    limit."""
    def __init__(self, params: Any, lr: Number = 0.02, *, mu: Number = 0.95, beta2: Number = 0.9,
        shampoo_beta: Number = 0.9, eps: Number = 1e-08, weight_decay: Number = 0,
        precondition_frequency: Number = 1, limit: Number = 4096,
        **more: Unpack[WithAdamW]) -> None: ...
class SPEL(Optimizer):
    """Muon for matrices that stay orthogonal; AdamW for what is no matrix."""
    def __init__(self, params: Any, lr: Number = 0.0003, momentum: Number = 0.95,
        weight_decay: Number = 0.1, *, nesterov: bool = False, steps: Number = 0,
        coefficients: str = 'quintic', **more: Unpack[WithAdamW]) -> None: ...
class SPlus(Optimizer):
    """Signs of momentum in the eigenvectors of gradients' Gram matrices; to_eval puts averaged
    weights in p, to_train takes them out."""
    def __init__(self, params: Any, lr: Number = 0.1, *, betas: Pair = (0.9, 0.999),
        ema_rate: Number = 0.999, weight_decay: Number = 0.01, other_scale: Number = 0.001,
        interval: Number = 100, limit: Number = 4096, stagger: bool = False,
        **more: Unpack[Common]) -> None: ...
class SRON(Optimizer):
    """SGD with rows of gradients divided by their root mean squares; no state. AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.001, *, alpha: Number = 0.05,
        eps: Number = 1e-08, weight_decay: Number = 0, **more: Unpack[WithAdamW]) -> None: ...
class SWAN(Optimizer):
    """SGD with rows of gradients standardised and the matrix whitened; no state. AdamW for what is
    no matrix."""
    def __init__(self, params: Any, lr: Number = 0.02, *, weight_decay: Number = 0,
        ns_steps: Number = 6, beta: Number = 0.5, post_norm: bool = True,
        **more: Unpack[WithAdamW]) -> None: ...
class Scion(Optimizer):
    """Conditional gradients: spectral norm for matrices, signs for those tagged head, RMS for the
    rest."""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 1, *, scale: Number = 1,
        eps: Number = 1e-08, constrained: bool = True, steps: Number = 0, form: str = 'plain',
        coefficients: str = 'jordan', **more: Unpack[Common]) -> None: ...
class Shampoo(Optimizer):
    """Gradients between inverse fourth roots of their Gram matrices, as long as another rule's
    steps; diagonals for vectors and long sides."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999), *,
        eps: Number = 1e-12, relative_eps: Number = 1e-06, graft_eps: Number = 1e-08,
        momentum: Number = 0.9, weight_decay: Number = 0, graft: str = 'adam',
        accumulate: str = 'ema', heavy_ball: bool = False, stagger: bool = True,
        interval: Number = 50, start: Number = 1, apply: str = 'tf32', side: Number = 1024,
        limit: Number = 8192, **more: Unpack[Common]) -> None: ...
class Signum(Optimizer):
    """The sign of the momentum; with momentum 0 it is signSGD."""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9,
        weight_decay: Number = 0, **more: Unpack[Common]) -> None: ...
class SimplifiedAdEMAMix(Optimizer):
    """AdamW of a summed momentum plus alpha times the gradient: AdEMAMix with one momentum."""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Pair = (0.99, 0.95),
        alpha: Number = 0, beta1_warmup: Number = 0, eps: Number = 1e-08, weight_decay: Number = 0,
        min_beta1: Number = 0.9, *, bias_correction1: bool = False, bias_correction2: bool = True,
        **more: Unpack[Common]) -> None: ...
class SinkGD(Optimizer):
    """Gradients whose rows and columns are brought to equal norms; no state. AdamW for what is no
    matrix."""
    def __init__(self, params: Any, lr: Number = 0.001, *, lr_scale: Number = 0.05,
        eps: Number = 1e-08, weight_decay: Number = 0, sinkhorn_iters: Number = 5,
        **more: Unpack[WithAdamW]) -> None: ...
class Sophia(Optimizer):
    """Momentum over a diagonal of the Hessian, clipped element by element; entries update_hessian
    and step."""
    def __init__(self, params: Any, lr: Number = 0.0001, betas: Pair = (0.965, 0.99),
        rho: Number = 0.04, weight_decay: Number = 0.1, *, bs: Number = 5120,
        **more: Unpack[Common]) -> None: ...
    def update_hessian(self) -> None: ...
class StableAdamW(Optimizer):
    """AdamW with Adafactor's update clipping."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.99), *,
        weight_decay: Number = 0.01, eps: Number = 1e-08, **more: Unpack[Common]) -> None: ...
class StableSPAM(Optimizer):
    """Adam on gradients whose spikes and norms are clipped to running means, with moments that
    start again."""
    def __init__(self, params: Any, lr: Number = 0.001, betas: Pair = (0.9, 0.999),
        gamma1: Number = 0.7, gamma2: Number = 0.9, theta: Number = 0.999, *,
        weight_decay: Number = 0, eps: Number = 1e-08, update_proj_gap: Number = 1000,
        **more: Unpack[Common]) -> None: ...
class TAM(Optimizer):
    """Momentum to which a gradient adds more, the better it agrees with the momentum."""
    def __init__(self, params: Any, lr: Number = 0.001, momentum: Number = 0.9,
        decay_rate: Number = 0.9, weight_decay: Number = 0, *, eps: Number = 1e-08,
        **more: Unpack[Common]) -> None: ...
class Tiger(Optimizer):
    """The sign of the momentum, with decoupled weight decay."""
    def __init__(self, params: Any, lr: Number = 0.001, beta: Number = 0.965,
        weight_decay: Number = 0.01, *, scale: str = 'none', **more: Unpack[Common]) -> None: ...
class Yogi(Optimizer):
    """Adam whose second moment moves by at most a share of g^2; bias-corrected, decoupled weight
    decay."""
    def __init__(self, params: Any, lr: Number = 0.01, betas: Pair = (0.9, 0.999),
        initial_accumulator: Number = 1e-06, weight_decay: Number = 0, *, eps: Number = 0.001,
        **more: Unpack[Common]) -> None: ...
