# SPDX-License-Identifier: Apache-2.0
"""Monte Carlo arithmetic: a float64 run of PyTorch in which every operation makes a random error of float32's size.

The spread of the results over several runs is how far a right float32 program is expected to be from the exact result,
element by element.

One rounding is an error of standard deviation u / sqrt(3) of the result, u = 2^-24: it is uniform within u of it. A sum
of n terms that are added one by one rounds every partial sum. In a random order the square of the k-th partial sum is,
in the mean, k p + k (k - 1) (s^2 - n p) / (n (n - 1)), with s the sum and p the mean square of the terms, so that all
roundings together have the variance (n + 1) (s^2 / 3 + n p / 6) u^2 / 3. The products that are the terms of a matrix
product are rounded, too. Sums by blocks or with fused multiply-add, as libraries make them, have smaller errors.
"""
import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

aten = torch.ops.aten
DEVIATION = 2.0 ** -24 / 3 ** 0.5

# Operations that move or compare numbers, and those that make constants.
EXACT = {aten.detach, aten._to_copy, aten._reshape_alias, aten.t, aten.lift_fresh, aten.transpose, aten.view, aten.slice,
         aten._unsafe_view, aten.expand, aten.clone, aten.new_zeros, aten.empty, aten.fill_, aten.repeat_interleave,
         aten.index_select, aten.index, aten.split_with_sizes, aten.split, aten.cat, aten.arange, aten.full, aten.triu,
         aten.ones_like, aten.zeros_like, aten.amax, aten.neg, aten.unsqueeze, aten.squeeze, aten.select, aten.select_backward, aten.gather, aten.ge,
         aten.where, aten.slice_backward, aten.scalar_tensor, aten.permute, aten.alias, aten.eq, aten.copy_,
         aten._local_scalar_dense, aten.zero_, aten.scatter_add, aten.zeros, aten.clamp, aten.masked_fill}
ONE_ROUNDING = {aten.add, aten.sub, aten.rsub, aten.mul, aten.div, aten.sqrt, aten.reciprocal}
# Library functions are good to about one unit in the last place, which is two roundings.
FUNCTIONS = {aten.exp, aten.log, aten.rsqrt, aten.tanh, aten.sigmoid, aten.pow, aten.cos, aten.sin, aten.tanh_backward,
             aten.sigmoid_backward}


def sum_variance(terms, total, squares):
    """In units of u^2 / 3; `squares` is the sum of the squared terms."""
    return (terms + 1) * (total ** 2 / 3 + squares / 6)


class RandomRounding(TorchDispatchMode):
    def __init__(self, seed):
        super().__init__()
        self.random = np.random.RandomState(seed)

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        result = function(*args, **kwargs)
        if not isinstance(result, torch.Tensor) or result.dtype != torch.float64:
            return result
        kind = function.overloadpacket
        if kind in EXACT:
            return result
        if kind in ONE_ROUNDING:
            return self.rounded(result, result)
        if kind in FUNCTIONS:
            return self.rounded(result, 2 * result)
        if kind in (aten.mm, aten.bmm):
            squares = function(args[0] ** 2, args[1] ** 2)
            return self.rounded(result, (sum_variance(args[0].shape[-1], result, squares) + squares).sqrt())
        if kind in (aten.sum, aten.mean):
            terms = args[0].numel() / result.numel()
            count = terms if kind == aten.mean else 1
            squares = function(args[0] ** 2, *args[1:], **kwargs)
            return self.rounded(result, sum_variance(terms, count * result, count * squares).sqrt() / count)
        if kind == aten.index_put:  # (self, indices, values, accumulate); self is zero
            squares = function(args[0], args[1], args[2] ** 2, *args[3:])
            terms = function(args[0], args[1], torch.ones_like(args[2]), *args[3:])
            return self.rounded(result, sum_variance(terms, result, squares).sqrt())
        if kind == aten.index_add:  # (self, dim, index, source); self is zero
            squares = function(*args[:3], args[3] ** 2)
            terms = function(*args[:3], torch.ones_like(args[3]))
            return self.rounded(result, sum_variance(terms, result, squares).sqrt())
        raise NotImplementedError(f"{function}: say in rounding.py how it rounds")

    def rounded(self, result, scale):
        noise = torch.from_numpy(np.asarray(self.random.standard_normal(tuple(result.shape))))
        return torch.where(result.isfinite(), result + DEVIATION * scale * noise, result)
